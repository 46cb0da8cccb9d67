"""The tables of `docs/performance.md`, as Markdown.

In: the figures of benchmarks that `performance` keeps. Out: text. What is added, multiplied or divided here is written
into the table beside its result, so that a reader can do it again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from benchmarks import cost
from stream_learner.traffic.benchmark import benchmark_impressions

NEEDED = ("machine", "decode", "codec", "join", "growth", "peers", "partitions", "serve")
"""The benchmarks whose figures the page needs."""
WINDOWS = {"1 s": 1, "1 min": 60, "30 min": 1800, "6 h": 21_600, "1 d": 86_400, "7 d": 604_800}
PARTITIONS = (1, 4, 16, 64, 256)
JOINERS = (1, 2, 4, 8, 16)

Kept = dict[str, dict[str, Any]]
"""By benchmark: its machine, the day, whether it was quick, its rows by name as (value, unit, note)."""


class Figures:
    """The figures kept, and what follows from several of them."""

    def __init__(self, kept: Kept) -> None:
        self.kept = kept

    def rows(self, benchmark: str) -> dict[str, tuple[float, str, str]]:
        """The rows of a benchmark by name."""
        return {name: (row[0], row[1], row[2]) for name, row in self.kept[benchmark]["rows"].items()}

    def value(self, benchmark: str, name: str) -> float:
        """One figure."""
        return self.rows(benchmark)[name][0]

    @property
    def join_ns(self) -> float:
        """CPU of the joiner, ns an impression."""
        return self.value("peers", "join: stream-learner-join") * 1000

    @property
    def loop_ns(self) -> float:
        """CPU of joiner and learner, ns an impression."""
        return self.value("peers", "whole loop: stream-learner") * 1000

    @property
    def learn_ns(self) -> float:
        """CPU of the learner alone, ns an impression."""
        return self.value("peers", "learning: stream-learner-learn") * 1000

    @property
    def record_bytes(self) -> dict[int, float]:
        """Bytes an example of the training log, by the number of examples in a record."""
        rows = self.rows("codec")
        return {int(name.rpartition("_")[2]): row[0] for name, row in rows.items() if ".bytes_" in name}

    @property
    def event_bytes(self) -> float:
        """Bytes of an impression, the mean of the benchmarks' traffic."""
        return float(np.diff(benchmark_impressions(1000)[1]).mean())

    @property
    def rows_an_example(self) -> float:
        """Rows of the table that an example takes, with a million features."""
        found = re.search(r"([\d.]+) rows of the table", self.rows("growth")["growth_fold_1000000"][2])
        if found is None:
            raise ValueError("growth_fold_1000000 does not say its rows")
        return float(found[1])

    def grown(self, what: str) -> dict[int, float]:
        """Figures of the fold by the number of features."""
        rows = self.rows("growth")
        prefix = f"growth_{what}_"
        return {int(name.removeprefix(prefix)): row[0] for name, row in rows.items() if name.startswith(prefix)}


def machines(figures: Figures) -> str:
    rows = []
    for benchmark in NEEDED:
        kept = figures.kept[benchmark]
        quick = " --quick" if kept["quick"] else ""
        rows.append([f'`make bench ARGS="{benchmark}{quick}"`', _machine(kept["machine"]), kept["day"]])
    return table(["command", "machine", "day"], rows)


def peers(figures: Figures) -> str:
    rows = []
    for does, base in (("join", figures.join_ns), ("learning", figures.learn_ns), ("whole loop", figures.loop_ns)):
        for name, (seconds, _, note) in figures.rows("peers").items():
            if name.startswith(f"{does}: "):
                settings, lacks = _settings(note)
                times = seconds * 1000 / base
                rows.append([does, name.partition(": ")[2], f"{seconds:.1f}", f"{times:.1f}", settings, lacks])
    return table(["does", "program", "s of CPU a million", "times ours", "settings", "lacks"], rows)


EQUAL = ", p99 at an equal rate"


def serving(figures: Figures) -> str:
    found = figures.rows("serve")
    equal = {name.removesuffix(EQUAL): f"{ms:.3g}" for name, (ms, _, _) in found.items() if name.endswith(EQUAL)}
    rows = []
    for name, (rate, _, note) in found.items():
        cpu, times = re.match(r"(\d+) µs of processor", note), re.findall(r"p99 ([\d.]+) ms", note)
        if cpu:
            program, _, events = name.removesuffix(" a request").rpartition(", ")
            times += [equal.get(name, "")] if equal else []
            rows.append([program, f"{int(events):,}", f"{float(cpu[1]):,.0f}", f"{rate:,.0f}", *times])
    head = [
        "program",
        "events a request",
        "µs of CPU a request",
        "requests/s",
        "p99 of 8 connections, ms",
        "p99 of one, ms",
        *(["p99 at an equal rate, ms"] if equal else []),
    ]
    return table(head, rows)


def limit(figures: Figures) -> str:
    cycle, update, stream = (
        figures.value("machine", f"machine.{name}") for name in ("cycle", "prefetched_update", "stream")
    )
    parts = cost.limit(
        cycle,
        update,
        stream,
        figures.event_bytes,
        cost.record_bytes(1000, figures.record_bytes),
        figures.rows_an_example,
    )
    least = sum(part.ns for part in parts)
    rows = [[part.what, part.how, f"{part.ns:.0f}"] for part in parts]
    rows.append(["**the least**", "sum", f"{least:.0f}"])
    rows.append(["**measured**", "whole loop", f"{figures.loop_ns:.0f}"])
    rows.append(["measured over the least", "", f"{figures.loop_ns / least:.1f} ×"])
    return table(["step", "how it comes about", "ns an impression"], rows)


def spent(figures: Figures) -> str:
    rows = []
    for role, whole, parts, rest in (
        (
            "joiner",
            figures.join_ns,
            {
                "decode and hash": figures.value("decode", "decode.impression"),
                "dedupe, label, gather": figures.value("join", "join.small"),
                "make records": figures.value("codec", "codec.encode_1000"),
            },
            "Kafka's client, Python around each batch, the clock",
        ),
        (
            "learner",
            figures.learn_ns,
            {
                "read records, rule R": figures.value("codec", "codec.rule_r_1000"),
                "fold": figures.grown("fold")[1_000_000],
            },
            "Kafka's client, Python around each record, checkpoints, the gate",
        ),
        (
            "loop",
            figures.loop_ns,
            {"joiner": figures.join_ns, "learner": figures.learn_ns},
            "smaller records, and turns in which one waits for the other",
        ),
    ):
        for part in cost.spent(whole, parts, rest):
            rows.append([role, part.what, part.how, f"{part.ns:.0f}", f"{part.ns / whole:.0%}"])
        rows.append([role, "**sum**", "", f"{whole:.0f}", "100%"])
    return table(["role", "part", "how it is known", "ns an impression", "share"], rows)


def features(figures: Figures) -> str:
    bytes_each = figures.grown("bytes")
    rows = [
        [
            f"{keys:,}",
            f"{ns:.0f}",
            f"{1e9 / ns / 1e3:,.0f} k",
            f"{bytes_each[keys]:.0f}",
            amount(bytes_each[keys] * keys),
        ]
        for keys, ns in sorted(figures.grown("fold").items())
    ]
    return table(["features", "fold, ns an example", "examples/s", "bytes a feature", "table"], rows)


def windows(figures: Figures) -> str:
    a_s = cost.rate_a_s()
    rows = [
        [
            name,
            amount(cost.click_memory_bytes(window_s, a_s)),
            amount(cost.dedupe_memory_bytes(a_s)),
            amount(cost.waiting_bytes(window_s, a_s, figures.event_bytes)),
        ]
        for name, window_s in WINDOWS.items()
    ]
    return table(["window", "joiners: clicks", "joiners: ids of `dedupe`", "Kafka: impressions, one copy"], rows)


def partitions(figures: Figures) -> str:
    rows = []
    for count in PARTITIONS:
        examples = cost.rate_a_s() / count
        each = cost.record_bytes(examples, figures.record_bytes)
        rows.append([str(count), f"{examples:,.0f}", f"{each:.0f}", amount(each * cost.EVENTS_A_DAY)])
    return table(
        ["partitions", "examples a tick and partition", "bytes an example", "training log a day, one copy"], rows
    )


def partitions_seen(figures: Figures) -> str:
    found: dict[str, dict[str, float]] = {}
    for name, (value, _, note) in figures.rows("partitions").items():
        where, _, what = name.partition(": ")
        cpu = re.search(r"(\d+) ns of CPU", note)
        found.setdefault(where, {})[what or "cpu"] = float(cpu[1]) if cpu else value
    seen = ("cpu", "threads", "open files", "connections", "resident memory")
    rows = [[where, *(f"{by_name[what]:,.0f}" for what in seen)] for where, by_name in found.items()]
    return table(["role", "ns of CPU an impression", "threads", "open files", "connections", "memory, MiB"], rows)


def joiners(figures: Figures) -> str:
    rows = []
    for count in JOINERS:
        a_s, who = cost.throughput_a_s(count, figures.join_ns, figures.learn_ns)
        rows.append(
            [
                str(count),
                f"{count * 1e6 / figures.join_ns:,.0f} k",
                f"{1e6 / figures.learn_ns:,.0f} k",
                f"{a_s / 1e3:,.0f} k",
                who,
                f"{a_s * cost.DAY_S / 1e9:,.1f}",
            ]
        )
    return table(
        ["joiners", "they join, a second", "one learner learns", "the loop", "limited by", "billions a day"], rows
    )


def billion(figures: Figures) -> str:
    a_s = cost.rate_a_s()
    rows = [
        ["impressions a second", f"{cost.EVENTS_A_DAY:,} / {cost.DAY_S:,} s", f"{a_s:,.0f}", f"{a_s * cost.PEAK:,.0f}"]
    ]
    for role, ns in (("joiners", figures.join_ns), ("learner", figures.learn_ns)):
        mean = cost.cores(ns, a_s)
        rows.append([f"{role}: cores", f"{ns:,.0f} ns an impression", f"{mean:.3f}", f"{mean * cost.PEAK:.3f}"])
    memory = [cost.click_memory_bytes(1800, a) + cost.dedupe_memory_bytes(a) for a in (a_s, a_s * cost.PEAK)]
    rows.append(["joiners: memory", "clicks and ids of a window of 30 min", *map(amount, memory)])
    row_bytes = figures.grown("bytes")
    largest = max(keys for keys in row_bytes if keys <= cost.MODEL_FEATURES)
    log_bytes = cost.record_bytes(1000, figures.record_bytes)
    for product in cost.stored(figures.event_bytes, log_bytes, row_bytes[largest]):
        rows.append([product.what, product.how, amount(product.size), ""])
    return table(["what", "how it comes about", "mean", f"peak, {cost.PEAK} × the mean"], rows)


TABLES: dict[str, Callable[[Figures], str]] = {
    "machines": machines,
    "peers": peers,
    "serving": serving,
    "limit": limit,
    "spent": spent,
    "features": features,
    "windows": windows,
    "partitions": partitions,
    "partitions-seen": partitions_seen,
    "joiners": joiners,
    "billion": billion,
}


def table(head: list[str], rows: Iterable[list[str]]) -> str:
    """A table of Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def amount(size: float) -> str:
    """A number of bytes with a unit, three digits that mean something."""
    for unit, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if size >= factor:
            return f"{size / factor:.3g} {unit}"
    return f"{size / 1e3:.3g} kB"


def _machine(of: dict[str, Any]) -> str:
    return f"{of['cores']} cores of {of['cpu']}, {of['memory_gib']:.0f} GiB, Python {of['python']}"


def _settings(note: str) -> tuple[str, str]:
    """The settings in the note of a program, and what it lacks."""
    parts = note.split("; ")
    lacks = [part.removeprefix("lacks ") for part in parts if part.startswith("lacks ")]
    return parts[0], lacks[0] if lacks else ""
