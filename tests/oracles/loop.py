"""The oracle of the whole loop: computes the same results in plain Python, slowly, and from the documents alone.

It takes the records of both input topics, partition by partition, and one dict of settings. It returns examples,
counts of outcomes, the learner's `z` and `n`, its digest and log-loss, and a scorer's predictions. The four
files behind this one import nothing of `stream_learner` and share no short cuts with it:

- `events.py`: bytes to ids, times, weights and hashed features
- `join.py`: events to examples and outcomes, by log time or by given marks
- `arithmetic.py`: `exp`, `log1p`, the dot product, operation by operation
- `fold.py`: examples to a model, and a scorer's predictions
"""

from __future__ import annotations

from collections.abc import Sequence

from tests.oracles.events import (
    Click,
    Impression,
    Record,
    Settings,
    features,
    read_click,
    read_impression,
    settings,
)
from tests.oracles.fold import Fold, fold, predict, published, weight_of
from tests.oracles.join import Example, Joined, Mark, join_by_log_time, replay

__all__ = [
    "Click",
    "Example",
    "Fold",
    "Impression",
    "Joined",
    "Mark",
    "Record",
    "Settings",
    "features",
    "fold",
    "join_by_log_time",
    "join_topics",
    "predict",
    "published",
    "read_click",
    "read_impression",
    "replay",
    "replay_topics",
    "settings",
    "weight_of",
]


def join_topics(
    impressions: Sequence[Sequence[Record]], clicks: Sequence[Sequence[Record]], s: Settings
) -> list[Joined]:
    """`join_by_log_time` of every partition pair of two topics."""
    return [
        join_by_log_time([read_impression(r, s) for r in imps], [read_click(r, s) for r in clks], s, partition)
        for partition, (imps, clks) in enumerate(zip(impressions, clicks, strict=True))
    ]


def replay_topics(
    impressions: Sequence[Sequence[Record]],
    clicks: Sequence[Sequence[Record]],
    marks: Sequence[Sequence[Mark]],
    s: Settings,
) -> list[list[Joined]]:
    """`replay` of every partition pair of two topics, by the marks of each partition."""
    return [
        replay(
            [read_impression(r, s) for r in imps],
            [read_click(r, s) for r in clks],
            of_partition,
            s,
            partition,
        )
        for partition, (imps, clks, of_partition) in enumerate(zip(impressions, clicks, marks, strict=True))
    ]
