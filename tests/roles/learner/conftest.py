"""Models that are kept in a state directory, on a real Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stream_learner.roles.learner import checkpoints
from stream_learner.roles.learner.copies import writer
from tests.kafka_broker.broker import delete_topics
from tests.roles.learner.kept_model import COMPACTED, Kept, MakeKept, SmallStore


@pytest.fixture
def make_kept(kafka: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MakeKept]:
    """`make_kept(learner={...})` makes a model in a folder of its own, of many pieces in many transactions."""
    monkeypatch.setattr(checkpoints, "CheckpointStore", SmallStore)
    monkeypatch.setattr(writer, "TRANSACTION_BYTES", 2_000)
    made: list[Kept] = []

    def make(topic_configs: dict[str, str] | None = None, **changes: Any) -> Kept:
        folder = tmp_path / f"kept-{len(made)}"
        folder.mkdir()
        made.append(Kept(kafka, folder, topic_configs or COMPACTED, changes))
        return made[-1]

    yield make
    delete_topics(kafka, [topic for kept in made for topic in kept.topics])
