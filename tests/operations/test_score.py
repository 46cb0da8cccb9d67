"""`score` without a model: how a stream becomes batches of lines, and predictions lines."""

from __future__ import annotations

import io
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_learner.core.events.reasons import BEYOND_FLOAT64, Reason
from stream_learner.operations.score import _answers, _batches, _why_bad
from stream_learner.roles.scorer.scorer import Predictions


class Pieces(io.RawIOBase):
    """A pipe that gives its bytes in these pieces."""

    def __init__(self, pieces: list[bytes]) -> None:
        self._pieces = [piece for piece in pieces if piece]

    def readable(self) -> bool:
        return True

    def read1(self, size: int = -1) -> bytes:
        return self._pieces.pop(0) if self._pieces else b""


@given(st.lists(st.binary(max_size=12).map(lambda text: text.replace(b"x", b"\n"))), st.integers(1, 4))
def test_lines_are_whole_however_they_come(pieces: list[bytes], batch: int) -> None:
    """The lines of the whole, in order, none waited for, at most so many at once; the last may lack its newline."""
    batches = list(_batches(Pieces(pieces), batch))  # type: ignore[arg-type]
    whole = b"".join(pieces)
    expected = whole.split(b"\n")
    if not expected[-1]:
        expected.pop()
    assert [line for lines in batches for line in lines] == expected
    assert all(1 <= len(lines) <= batch for lines in batches)


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (b"", []),
        (b"\n", [[b""]]),
        (b"a\nb", [[b"a"], [b"b"]]),
        (b"a\r\nb\r\n", [[b"a\r", b"b\r"]]),
        (b"a\n\nb\n", [[b"a", b"", b"b"]]),
    ],
)
def test_the_edges_of_lines(text: bytes, lines: list[list[bytes]]) -> None:
    """Empty lines count; a carriage return is JSON's white space."""
    assert list(_batches(io.BytesIO(text), 10)) == lines


def test_a_line_is_given_before_the_next_has_come() -> None:
    """What a pipe has given so far is not held back."""
    batches = _batches(Pieces([b"a\nb", b"c\n"]), 10)  # type: ignore[arg-type]
    assert next(batches) == [b"a"]
    assert next(batches) == [b"bc"]


def test_predictions_as_lines() -> None:
    """A line of JSON for each: probability in full precision and version, or what is wrong with the event."""
    p_click = np.array([0.1 + 0.2, np.nan, 1e-17])
    predictions = Predictions(p_click, np.array([0, Reason.NOT_JSON, 0], np.uint8), 42, "ctr-v2", np.array([2, 0, 2]))
    lines = list(_answers(predictions, lambda index: f"event {index}"))
    assert [json.loads(line) for line in lines] == [
        {"p": 0.1 + 0.2, "version": 42},
        {"error": "event 1"},
        {"p": 1e-17, "version": 42},
    ]
    assert all(line.endswith(b"\n") and line.count(b"\n") == 1 for line in lines)
    first, *_ = _answers(predictions, str, with_model=True)
    assert json.loads(first) == {"p": 0.1 + 0.2, "version": 42, "model": "ctr-v2"}


def test_only_of_a_time_the_scorer_is_asked_why() -> None:
    """What it says of one event takes it as long as hundreds of predictions."""
    asked: list[list[bytes]] = []

    class Scorer:
        def predict_many(self, lines: list[bytes]) -> Predictions:
            asked.append(lines)
            return Predictions(
                np.array([np.nan]), found.status[:1], 1, "m", found.known_features, why_bad="`ts` is text"
            )

    reasons = [Reason.NOT_JSON, Reason.NOT_JSON, Reason.NOT_OBJECT, Reason.NOT_A_TIME]
    lines = [b"{", b'{"a":1e400}', b"[]", b'{"ts":"then"}']
    found = Predictions(np.full(4, np.nan), np.array(reasons, np.uint8), 1, "m", np.zeros(4, np.int64))
    said = [_why_bad(Scorer(), lines, found, index) for index in range(4)]  # type: ignore[arg-type]
    assert said == ["not JSON", BEYOND_FLOAT64, Reason.NOT_OBJECT.text, "`ts` is text"]
    assert asked == [lines[3:]]


@pytest.mark.parametrize("reason", list(Reason)[1:])
def test_every_reason_is_a_json_text(reason: Reason) -> None:
    """No reason's words break the line."""
    found = Predictions(np.array([np.nan]), np.array([reason], np.uint8), 1, "m", np.zeros(1, np.int64))
    (line,) = _answers(found, lambda index: reason.text)
    assert json.loads(line) == {"error": reason.text}


def test_every_line_is_json_whatever_was_predicted() -> None:
    """Infinity and NaN have no word in JSON: such a prediction is null, as over HTTP."""
    p = np.array([0.25, -3.5, np.inf, -np.inf, np.nan, 1e-300])
    lines = _answers(Predictions(p, np.zeros(len(p), np.uint8), 7, "m", None), str, with_model=True)
    found = [json.loads(line, parse_constant=lambda word: word) for line in lines]
    assert [line["p"] for line in found] == [0.25, -3.5, None, None, None, 1e-300]
    assert all(line["version"] == 7 and line["model"] == "m" for line in found)
