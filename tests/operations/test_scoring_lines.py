"""What `score` writes for each prediction."""

from __future__ import annotations

import json

import numpy as np

from stream_learner.operations.score import _answers
from stream_learner.roles.scorer.replica import Predictions


def test_every_line_is_json_whatever_was_predicted() -> None:
    """Infinity and NaN have no word in JSON: such a prediction is null, as over HTTP."""
    p = np.array([0.25, -3.5, np.inf, -np.inf, np.nan, 1e-300])
    lines = _answers(Predictions(p, np.zeros(len(p), np.uint8), 7, "m", None), with_model=True)
    found = [json.loads(line, parse_constant=lambda word: word) for line in lines]
    assert [line["p"] for line in found] == [0.25, -3.5, None, None, None, 1e-300]
    assert all(line["version"] == 7 and line["model"] == "m" for line in found)
