"""The bound on a model's rows, as a learner keeps and reports it; `core.model.row_bound` decides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from stream_learner.core.model.fold import Learner
from stream_learner.errors import StateOfAnotherModel

if TYPE_CHECKING:
    from stream_learner.adapters.telemetry.logs import Logger


def check_bound(state: Mapping[str, Any], learner: Learner, where: str) -> None:
    """Raise StateOfAnotherModel for a state that features were held back from under another bound than the learner's.

    What it was not taught then depends on that bound. As long as nothing was held back, any bound gives the same state.
    """
    theirs, mine = state.get("max_rows"), learner.row_bound
    if state.get("held_back", 0) and theirs != (None if mine is None else mine.max_rows):
        now = "not set" if mine is None else str(mine.max_rows)
        raise StateOfAnotherModel(
            f"{where} holds a model that has left features out since it had {theirs} rows; learner.max_rows is {now}",
            action=f"Set learner.max_rows back to {theirs}. A model with another bound is learned from the inputs "
            "under another name (`stream-learner backfill`), and promoted.",
        )


def rows_content(learner: Learner) -> dict[str, Any]:
    """What a model record says of a bound; nothing without one."""
    bound = learner.row_bound
    if bound is None:
        return {}
    return {"rows": {"count": learner.table.count, "most": bound.max_rows, "held_back": bound.held_back}}


class BrakeLog:
    """Says once in the life of a learner that features are held back."""

    def __init__(self, log: Logger) -> None:
        self._log = log
        self._said = False

    def look(self, learner: Learner, tick: int) -> None:
        """Look whether features have been held back so far."""
        bound = learner.row_bound
        if bound is not None and bound.held_back and not self._said:
            self._said = True
            self._log.warning(
                "rows_held_back",
                tick=tick,
                max_rows=bound.max_rows,
                features=bound.held_back,
                action="New features are left out, known ones learned on. Look which field grows: "
                "`stream-learner inspect fields`.",
            )
