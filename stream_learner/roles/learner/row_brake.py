"""The bounds on a model's rows, as a learner keeps and reports them; `core.model.row_bound` decides.

`learner.max_rows` is a setting of the learner, and the log does not say when it was changed. So it can be changed only
where the state is the one that the whole log would have given under the new bound. The bound on the rows of each field
stands in the log, and may change there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from stream_learner.core.model.fold import Learner
from stream_learner.errors import StateOfAnotherModel

if TYPE_CHECKING:
    from stream_learner.adapters.telemetry.logs import Logger


_ANOTHER_BOUND = (
    "With another bound the model goes on from a state before it had so many rows (`stream-learner rewind`), or is "
    "learned from the inputs under another name (`stream-learner backfill`), and promoted."
)
SHOWN_FIELDS = 10
NEAR = 0.8
"""The share of the rows that `learner.max_rows` allows which is near; as in the alert."""


def check_bound(state: Mapping[str, Any], rows: int, learner: Learner, where: str) -> None:
    """Raise StateOfAnotherModel for a state that the log would not have given under the learner's bound.

    That is one that features were held back from under another bound, or one that has more rows than the bound allows.
    Any other state is the same under any bound.
    """
    theirs, mine = state.get("max_rows"), learner.row_bound
    if state.get("held_back", 0) and theirs != (None if mine is None else mine.max_rows):
        now = "not set" if mine is None else str(mine.max_rows)
        raise StateOfAnotherModel(
            f"{where} holds a model that has left features out since it had {theirs} rows; learner.max_rows is {now}",
            action=f"Set learner.max_rows back to {theirs}. {_ANOTHER_BOUND}",
        )
    if mine is not None and rows > mine.max_rows:
        raise StateOfAnotherModel(
            f"{where} holds a model of {rows} rows; learner.max_rows is {mine.max_rows}",
            action=f"Set learner.max_rows to {rows} or more. {_ANOTHER_BOUND}",
        )


class FieldCount(NamedTuple):
    """The rows of one field, and how many features its bound has left out."""

    field: str
    rows: int
    held_back: int


def largest_fields(learner: Learner, names: Mapping[int, str]) -> list[FieldCount]:
    """The fields with the most rows, the largest first. names: by their hashes; a field without one is shown by its."""
    fields = learner.field_rows
    if fields is None:
        return []
    largest = sorted(fields.rows.items(), key=lambda found: (-found[1], found[0]))[:SHOWN_FIELDS]
    return [FieldCount(names.get(name, f"0x{name:016x}"), rows, fields.held_back[name]) for name, rows in largest]


def rows_content(learner: Learner, names: Mapping[int, str]) -> dict[str, Any]:
    """What a model record says of the bounds; nothing without one. names: as of `largest_fields`."""
    bound, fields = learner.row_bound, learner.field_rows
    if bound is None and fields is None:
        return {}
    found: dict[str, Any] = {"count": learner.table.count}
    if bound is not None:
        found |= {"most": bound.max_rows, "held_back": bound.held_back}
    if fields is not None:
        largest = [count._asdict() for count in largest_fields(learner, names)]
        found |= {"most_per_field": fields.most_rows, "fields": largest}
    return {"rows": found}


class BrakeLog:
    """Says once in the life of a learner that its rows come near their bound, and that features are held back, by the
    bound on all rows and by each field's.
    """

    def __init__(self, log: Logger, names: Mapping[int, str]) -> None:
        """names: as of `largest_fields`."""
        self._log = log
        self._names = names
        self._said = self._said_near = False
        self._said_of: set[int] = set()

    def look(self, learner: Learner, tick: int) -> None:
        """Look how near the bound is, and whether features have been held back so far."""
        bound, rows = learner.row_bound, learner.table.count
        if bound is not None and rows > NEAR * bound.max_rows and not self._said_near:
            self._said_near = True
            self._log.warning(
                "rows_near_bound",
                tick=tick,
                max_rows=bound.max_rows,
                rows=rows,
                action="Beyond it new features are left out. See which field grows: `stream-learner inspect fields`.",
            )
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
        fields = learner.field_rows
        new = set() if fields is None else set(fields.held_back) - self._said_of
        for name in sorted(new):
            assert fields is not None
            self._said_of.add(name)
            self._log.warning(
                "field_rows_held_back",
                tick=tick,
                field=self._names.get(name, f"0x{name:016x}"),
                max_rows_per_field=fields.most_rows,
                rows=fields.rows[name],
                features=fields.held_back[name],
                action="New features of the field are left out, known ones learned on. Mend its producer, or raise "
                "features.max_rows_per_field.",
            )
