"""A copy writer that was killed right after its last transaction: the next one knows that the copy is its own."""

from __future__ import annotations

from typing import Any

import pytest

from stream_learner.core.snapshots.checkpoint_copy import HEAD_KEY
from tests.adapters.kafka.kafka_help import VisiblePublisher
from tests.roles.learner.kept_model import MakeKept


class KilledError(Exception):
    """The process ends here."""


class EndsWithTheHead(VisiblePublisher):
    """The process is killed as soon as the head is committed."""

    def publish(self, records: Any) -> Any:
        """Publish, and end if this was the head."""
        found = super().publish(records)
        if any(key == HEAD_KEY for _, _, key, _ in records):
            raise KilledError
        return found


def test_a_head_that_was_sent_right_before_a_kill_is_known_as_ones_own(make_kept: MakeKept) -> None:
    """Nothing is sent again; without the note in the state directory everything would be."""
    kept = make_kept()
    with kept.started() as learner:
        copies = learner.copy_writer(EndsWithTheHead)
        learner.fold_to(5).checkpoint()
        with pytest.raises(KilledError):
            copies.copy()
    with kept.started() as learner:
        again = learner.copy_writer()
        assert again.tick == 5
        copied = again.copy()
        assert copied is not None and (copied.tick, copied.sent) == (5, 0) and copied.pieces > 0
