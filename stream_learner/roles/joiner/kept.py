"""What a joiner keeps for the next owner of a partition, as the metadata of its committed offset.

All of it may be missing or old: then a little more is read, and a little more waited for.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from stream_learner.roles.joiner.log_tail import Hint
from stream_learner.roles.joiner.stream_clock import Remembered


class Kept(NamedTuple):
    """hint: where to read the log from. usual_of_all, usual: what was learned of clicks, in all partitions of the
    process and in this one (`click_silence.Usual`). remembered: what the partition's clock has learned.
    """

    hint: Hint | None
    usual_of_all: str = ""
    usual: str = ""
    remembered: Remembered | None = None

    def to_text(self) -> str:
        """The parts of the hint and the others, parted by colons; last the id of the hint's log."""
        hint = "" if self.hint is None else self.hint.to_text()
        clock = "" if self.remembered is None else self.remembered.to_text()
        log_id = "" if self.hint is None else self.hint.log_id
        return ":".join((hint, self.usual_of_all, self.usual, clock, log_id))

    @classmethod
    def from_text(cls, text: str) -> Kept:
        """What a text tells that `to_text` wrote, in this version or before."""
        _, _, _, of_all, own, clock, log_id, *_ = [*text.split(":"), "", "", "", "", "", "", ""]
        hint = Hint.from_text(text)
        return cls(hint and replace(hint, log_id=log_id), of_all, own, Remembered.from_text(clock))
