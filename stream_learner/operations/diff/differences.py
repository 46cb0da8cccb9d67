"""The differences between two models, and the report of them.

All are counted, the first ones listed. Of a tick, no more is kept than the differences that are listed.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from stream_learner.core.log.compare import COLUMNS, TickDifference, compare
from stream_learner.core.log.examples import ExampleBatch
from stream_learner.operations.diff.click_search import ClickSearch, WantedClicks

ONLY, ORDER = "only_in", "order"

Batches: TypeAlias = tuple[ExampleBatch, ExampleBatch]


class ClickRange(NamedTuple):
    """The clicks at offsets [start, end) of a partition."""

    start: int
    end: int


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
    counts: Counter[str] = field(default_factory=Counter)
    examples: list[int] = field(default_factory=lambda: [0, 0])
    left_out: list[int] = field(default_factory=lambda: [0, 0])
    listed: list[dict[str, Any]] = field(default_factory=list)
    spans: list[dict[str, int]] = field(default_factory=list)
    labels: list[LabelToExplain] = field(default_factory=list)

    def add(self, partition: int, tick: int, batches: Batches, clicks: tuple[ClickRange, ClickRange]) -> None:
        """Compare the examples of a tick. clicks: of each log, the offsets [start, end) that decided its labels."""
        for side, batch in enumerate(batches):
            self.examples[side] += len(batch)
        found = compare(*batches)
        if found is None:
            return
        self.total += found.count
        self._count(found)
        where = {"partition": partition, "tick": tick}
        for side, rows in enumerate((found.only_first, found.only_second)):
            for row in rows[: self._room()].tolist():
                what = {"what": f"{ONLY} {self.models[side].name}"}
                self.listed.append({**where, **what, **self._example(side, batches[side], row)})
        self._list_pairs(where, found, batches, clicks)
        if found.reordered and self._room():
            self.listed.append({**where, "what": ORDER})

    def leave_out(self, *batches: ExampleBatch) -> None:
        """Count the examples of a tick that is not compared."""
        for side, batch in enumerate(batches):
            self.left_out[side] += len(batch)

    def _room(self) -> int:
        return max(self.limit - len(self.listed), 0)

    def _count(self, found: TickDifference) -> None:
        for side, rows in enumerate((found.only_first, found.only_second)):
            self.counts[f"{ONLY} {self.models[side].name}"] += len(rows)
        for name in COLUMNS:
            self.counts[name] += int(found.columns[name].sum())
        self.counts[ORDER] += found.reordered

    def _example(self, side: int, batch: ExampleBatch, row: int) -> dict[str, Any]:
        return {
            "id_hash": f"0x{int(batch.id_hash[row]):016x}",
            "log_time_ms": int(batch.log_time_ms[row]),
            "labels": {self.models[side].name: float(batch.label[row])},
        }

    def _list_pairs(
        self,
        where: dict[str, int],
        found: TickDifference,
        batches: Batches,
        clicks: tuple[ClickRange, ClickRange],
    ) -> None:
        names = [model.name for model in self.models]
        for i, pair in enumerate(zip(found.first[: self._room()].tolist(), found.second.tolist(), strict=False)):
            differing = [name for name in COLUMNS if found.columns[name][i]]
            entry: dict[str, Any] = {**where, "what": ", ".join(differing), **self._example(0, batches[0], pair[0])}
            for column, of in (("label", "labels"), ("weight", "weights"), ("log_time", "log_times_ms")):
                if column in (*differing, "label"):
                    name = "log_time_ms" if column == "log_time" else column
                    values = [getattr(batch, name)[row].item() for batch, row in zip(batches, pair, strict=True)]
                    entry[of] = dict(zip(names, values, strict=True))
            if "features" in differing:
                entry["features"] = _features(names, batches, pair)
            self.listed.append(entry)
            if "label" in differing:
                self._want_clicks(entry, int(batches[0].id_hash[pair[0]]), clicks)

    def _want_clicks(self, entry: dict[str, Any], id_hash: int, clicks: tuple[ClickRange, ClickRange]) -> None:
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
