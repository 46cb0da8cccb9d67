"""The differences between two models, and the report of them.

All are counted, the first ones listed; no more is kept than these. An example that the clock has put into another tick
is none: it is counted as such, and its log time, which goes by its tick, is not compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from stream_learner.core.log.compare import COLUMNS, columns_that_differ
from stream_learner.core.log.examples import ExampleBatch
from stream_learner.operations.diff.click_search import ClickSearch, WantedClicks
from stream_learner.operations.diff.matching import Examples, Paired

ONLY, ORDER = "only_in", "order"

Batches: TypeAlias = tuple[ExampleBatch, ExampleBatch]


class LabelToExplain(NamedTuple):
    """An entry of the report whose labels differ, and the clicks that may explain it."""

    entry: dict[str, Any]
    clicks: list[WantedClicks]


@dataclass(frozen=True)
class ComparedModel:
    """One of the two models: its log and inputs, and what it has published; version -1 and no digest for nothing."""

    name: str
    log: str
    tick_ms: int
    impressions: str
    clicks: str
    version: int = -1
    digest: str | None = None
    optimizer: dict[str, Any] | None = None

    def fields(self) -> dict[str, Any]:
        """The model as the report shows it."""
        return {
            "name": self.name,
            "log": self.log,
            "impressions": self.impressions,
            "clicks": self.clicks,
            "version": self.version,
            "digest": self.digest,
        }


@dataclass
class Differences:
    """All differences counted, the first `limit` listed."""

    models: tuple[ComparedModel, ComparedModel]
    limit: int
    total: int = 0
    other_ticks: int = 0
    """How many examples are in both logs in other ticks."""
    counts: Counter[str] = field(default_factory=Counter)
    examples: list[int] = field(default_factory=lambda: [0, 0])
    left_out: list[int] = field(default_factory=lambda: [0, 0])
    outcomes: tuple[Counter[str], Counter[str]] = field(default_factory=lambda: (Counter(), Counter()))
    """For each log, what became there of the impressions that are examples in the other one only."""
    not_yet: list[int] = field(default_factory=lambda: [0, 0])
    """For each log, how many examples of the other one are of impressions that it has not come to."""
    listed: list[dict[str, Any]] = field(default_factory=list)
    spans: list[dict[str, int]] = field(default_factory=list)
    labels: list[LabelToExplain] = field(default_factory=list)

    def note_examples(self, counts: Sequence[int], *, compared: bool) -> None:
        """Count the examples of a tick in both logs. compared: False for one before those compared."""
        total = self.examples if compared else self.left_out
        for side, count in enumerate(counts):
            total[side] += count

    def add_pairs(self, partition: int, begin: int, end: int, found: Paired) -> None:
        """Compare the pairs of which an example lies in the ticks `begin..end`, or one before and one after them."""
        (first, second), (rows, partners) = found.examples, found.rows
        ticks = first.places["tick"][rows], second.places["tick"][partners]
        told = (np.maximum(*ticks) >= begin) & (np.minimum(*ticks) <= end)
        rows, partners, ticks = rows[told], partners[told], (ticks[0][told], ticks[1][told])
        moved = ticks[0] != ticks[1]
        columns = columns_that_differ(first.batch, rows, second.batch, partners)
        columns["log_time"] &= ~moved
        differs = np.flatnonzero(np.logical_or.reduce(list(columns.values())))
        self.other_ticks += int(moved.sum())
        self.total += len(differs)
        for name in COLUMNS:
            self.counts[name] += int(columns[name].sum())
        for at in differs[: self._room()].tolist():
            differing = [name for name in COLUMNS if columns[name][at]]
            self._list_pair(partition, differing, found.examples, (int(rows[at]), int(partners[at])))
        self._add_order(partition, ticks[0][~moved], partners[~moved])

    def _add_order(self, partition: int, ticks: NDArray[np.int64], partners: NDArray[np.int64]) -> None:
        """Look for ticks whose examples have another order in the second log. Both in the order of the first one."""
        reordered = np.unique(ticks[1:][(np.diff(ticks) == 0) & (np.diff(partners) < 0)])
        self.total += len(reordered)
        self.counts[ORDER] += len(reordered)
        for tick in reordered[: self._room()].tolist():
            self.listed.append({"partition": partition, "tick": tick, "what": ORDER})

    def add_only(self, partition: int, side: int, examples: Examples, became: Sequence[str]) -> None:
        """Take in examples that the other log does not have. became: of each, what became of its impression there."""
        what, other = f"{ONLY} {self.models[side].name}", self.models[1 - side].name
        self.total += len(became)
        self.counts[what] += len(became)
        self.outcomes[1 - side].update(became)
        for row, outcome in enumerate(became[: self._room()]):
            where = {"partition": partition, "tick": int(examples.places["tick"][row]), "what": what}
            self.listed.append({**where, **self._example(side, examples.batch, row), "outcomes": {other: outcome}})

    def _room(self) -> int:
        return max(self.limit - len(self.listed), 0)

    def _example(self, side: int, batch: ExampleBatch, row: int) -> dict[str, Any]:
        return {
            "id_hash": f"0x{int(batch.id_hash[row]):016x}",
            "log_time_ms": int(batch.log_time_ms[row]),
            "labels": {self.models[side].name: float(batch.label[row])},
        }

    def _list_pair(
        self, partition: int, differing: list[str], both: tuple[Examples, Examples], pair: tuple[int, int]
    ) -> None:
        names, batches = [model.name for model in self.models], (both[0].batch, both[1].batch)
        places = [one.places[row] for one, row in zip(both, pair, strict=True)]
        ticks = [int(place["tick"]) for place in places]
        entry: dict[str, Any] = {"partition": partition, "tick": ticks[0], "what": ", ".join(differing)}
        if ticks[0] != ticks[1]:
            entry["ticks"] = dict(zip(names, ticks, strict=True))
        entry |= self._example(0, batches[0], pair[0])
        for column, of in (("label", "labels"), ("weight", "weights"), ("log_time", "log_times_ms")):
            if column in (*differing, "label"):
                name = "log_time_ms" if column == "log_time" else column
                values = [getattr(batch, name)[row].item() for batch, row in zip(batches, pair, strict=True)]
                entry[of] = dict(zip(names, values, strict=True))
        if "features" in differing:
            entry["features"] = _features(names, batches, pair)
        self.listed.append(entry)
        if "label" in differing:
            clicks = [(int(place["clicks_begin"]), int(place["clicks_end"])) for place in places]
            self._want_clicks(entry, int(batches[0].id_hash[pair[0]]), clicks)

    def _want_clicks(self, entry: dict[str, Any], id_hash: int, clicks: list[tuple[int, int]]) -> None:
        """Note which clicks to look for: in one topic all that either log had read, in two what each had read."""
        topics = [model.clicks for model in self.models]
        begins, ends = zip(*clicks, strict=True)
        if topics[0] == topics[1]:
            wanted = [WantedClicks(topics[0], id_hash, min(begins), max(ends))]
        else:
            wanted = [WantedClicks(topic, id_hash, *span) for topic, span in zip(topics, clicks, strict=True)]
        entry["click_cursors"] = dict(zip((model.name for model in self.models), ends, strict=True))
        self.labels.append(LabelToExplain(entry, wanted))

    def find_clicks(self, search: ClickSearch, partition: int) -> None:
        """Take step 3 for the labels of a partition that are listed."""
        found_clicks = search.find(partition, [label.clicks for label in self.labels])
        for (entry, _), found in zip(self.labels, found_clicks, strict=True):
            cursors = entry["click_cursors"]
            entry["clicks"] = []
            for click in found:
                late = [
                    m.name for m in self.models if m.clicks == click["topic"] and click["offset"] >= cursors[m.name]
                ]
                entry["clicks"].append({**click, "too_late_for": late})
        self.labels.clear()

    def report(self) -> dict[str, Any]:
        """The report, as plain values."""
        first, second = self.models
        same_log = first.log == second.log
        digests = self._digests()
        differences = {name: count for name, count in self.counts.items() if count}
        return {
            "models": [first.fields(), second.fields()],
            "same_log": same_log,
            "same_inputs": (first.impressions, first.clicks) == (second.impressions, second.clicks),
            "spans": self.spans,
            "examples": {model.name: count for model, count in zip(self.models, self.examples, strict=True)},
            "examples_before": {model.name: count for model, count in zip(self.models, self.left_out, strict=True)},
            "differences": differences,
            "outcomes": {
                model.name: dict(outcomes)
                for model, outcomes in zip(self.models, self.outcomes, strict=True)
                if outcomes
            },
            "other_ticks": self.other_ticks,
            "not_yet": {model.name: count for model, count in zip(self.models, self.not_yet, strict=True)},
            "total": self.total,
            "listed": self.listed,
            "digests": digests,
            "same_optimizer": None
            if None in (first.optimizer, second.optimizer)
            else first.optimizer == second.optimizer,
            "equal": not self.total and digests != "differ",
        }

    def _digests(self) -> str:
        """Take step 4."""
        first, second = self.models
        if first.digest is None or second.digest is None:
            return "not published"
        if first.version != second.version:
            return "of different versions"
        return "equal" if first.digest == second.digest else "differ"


def _features(names: list[str], batches: Batches, pair: tuple[int, int]) -> dict[str, Any]:
    """For each model, the number of features, and of (key, value) pairs that the other does not have."""
    rows = []
    for batch, row in zip(batches, pair, strict=True):
        place = slice(batch.row_start[row], batch.row_start[row + 1])
        rows.append(set(zip(batch.keys[place].tolist(), batch.values[place].tolist(), strict=True)))
    return {
        name: {"count": len(mine), "only_here": len(mine - other)}
        for name, mine, other in zip(names, rows, rows[::-1], strict=True)
    }
