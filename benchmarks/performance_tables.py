"""The tables of `docs/performance.md` and `docs/performance-growth.md`, as Markdown.

In: the figures of benchmarks that `performance` keeps. Out: text. What is added, multiplied or divided here is written
into the table beside its result, so that a reader can do it again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks import cost
from benchmarks.bench_instructions import NOT_COUNTED
from benchmarks.bench_partitions import COPIED, NODES
from benchmarks.bench_peers import BASE
from benchmarks.counters import EVENTS
from stream_learner.operations.doctor import sizing
from stream_learner.operations.doctor.sizing import amount
from stream_learner.traffic.benchmark import benchmark_impressions

NEEDED = (
    "machine",
    "decode",
    "codec",
    "join",
    "instructions",
    "growth",
    "window",
    "fold",
    "store",
    "partitions",
    "joiners",
    "peers",
    "serve",
    "predict",
    "freshness",
    "idle",
    "start",
)
"""The benchmarks whose figures the page and README need."""
WINDOWS = {"1 s": 1, "1 min": 60, "30 min": 1800, "6 h": 21_600, "1 d": 86_400, "7 d": 604_800}
PARTITIONS = (1, 4, 16, 64, 256)
JOINERS = (1, 2, 4)
STEPS = {
    "decode": "decode and hash",
    "join": "dedupe, label, gather",
    "records": "make records",
    "reading": "read records, rule R",
    "fold": "fold, a million features",
}
"""The steps of `instructions`, in the page's words."""
ROLES = {
    "join: stream-learner-join": "**joiner**, the whole process",
    "learning: stream-learner-learn": "**learner**, the whole process",
}
"""The programs of `peers` whose counts stand beside those of the steps."""

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
    def read_ns(self) -> float:
        """CPU of the joiner's client alone, ns an impression."""
        return self.value("peers", "reading: stream-learner-read") * 1000

    @property
    def brokers_ns(self) -> float | None:
        """CPU of brokers that keep several copies, ns an impression: sent, joined and learned. None if not known."""
        names = [f"{does}, {COPIED} partitions, {NODES} brokers: brokers" for does in ("send", "join", "learn")]
        found = [self.rows("partitions")[name][0] for name in names if name in self.rows("partitions")]
        return sum(found) if len(found) == len(names) else None

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
    def prices(self) -> sizing.Prices:
        """What an impression takes."""
        row_bytes = self.grown("bytes")
        return sizing.Prices(
            join_ns=self.join_ns,
            learn_ns=self.learn_ns,
            brokers_ns=self.brokers_ns,
            row_bytes=row_bytes[max(keys for keys in row_bytes if keys <= cost.MODEL_FEATURES)],
            example_bytes=cost.record_bytes(1000, self.record_bytes),
            features=cost.FEATURES,
            event_bytes=self.event_bytes,
            copies=cost.REPLICAS,
        )

    @property
    def rows_an_example(self) -> float:
        """Rows of the table that an example takes, with a million features."""
        found = re.search(r"([\d.]+) rows of the table", self.rows("growth")["growth_fold_1000000"][2])
        if found is None:
            raise ValueError("growth_fold_1000000 does not say its rows")
        return float(found[1])

    def counts(self, benchmark: str, name: str) -> list[float]:
        """What the processor has counted under a name with its place for the event, [] where it does not count."""
        rows = self.rows(benchmark)
        found = [rows[name.format(event)][0] for event in EVENTS if name.format(event) in rows]
        return found if len(found) == len(EVENTS) else []

    def instructions(self, step: str) -> float | None:
        """Instructions of a step for an impression, None where they are not counted."""
        counts = self.counts("instructions", f"{step}: {{}}")
        return counts[0] if counts else None

    def grown(self, what: str) -> dict[int, float]:
        """Figures of the fold by the number of features."""
        rows = self.rows("growth")
        prefix = f"growth_{what}_"
        return {int(name.removeprefix(prefix)): row[0] for name, row in rows.items() if name.startswith(prefix)}


def machines(figures: Figures) -> str:
    together: dict[tuple[str, str], list[str]] = {}
    for benchmark in NEEDED:
        kept = figures.kept[benchmark]
        quick = " --quick" if kept["quick"] else ""
        together.setdefault((machine(kept["machine"]), kept["day"]), []).append(f"`{benchmark}{quick}`")
    return table(["benchmarks", "machine", "day"], [[", ".join(names), *where] for where, names in together.items()])


def peers(figures: Figures) -> str:
    rows = []
    for does, base in BASE.items():
        ours = figures.value("peers", f"{does}: {base}")
        for name, (seconds, _, note) in figures.rows("peers").items():
            if name.startswith(f"{does}: "):
                settings, lacks = _settings(note)
                times = seconds / ours
                brokers = figures.rows("peers").get(f"brokers, {name}")
                row = [does, name.partition(": ")[2], f"{seconds:.1f}", f"{times:.1f}", settings, lacks]
                rows.append([*row, f"{brokers[0]:.1f}" if brokers else ""])
    head = ["does", "program", "s of CPU a million", "times ours", "settings", "lacks", "the broker's s of CPU"]
    return table(head, rows)


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


def rest(figures: Figures) -> str:
    start, rows = figures.rows("start"), []
    for name, (share, _, _) in figures.rows("idle").items():
        role, _, what = name.partition(": ")
        if what != "idle":
            continue
        seconds = [
            start[f"{role}: {what}"][0]
            for what in ("processor time of that", "exec to ready, warm", "processor time of a first start")
        ]
        rows.append([f"`{role}`", f"{share:.2f}", *(f"{one:.1f}" for one in seconds)])
    head = [
        "role",
        "idle, % of a core",
        "start, s of CPU",
        "exec to ready, s",
        "first start, nothing compiled, s of CPU",
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
    counted = {part.what: figures.instructions(part.what) for part in parts}
    whole = figures.counts("peers", "{}, whole loop: stream-learner")
    rows = [[part.what, part.how, f"{part.ns:.0f}", _whole(counted[part.what])] for part in parts]
    rows.append(["**the least**", "sum", f"{least:.0f}", _whole(sum(filter(None, counted.values())) or None)])
    rows.append(["**measured**", "whole loop", f"{figures.loop_ns:.0f}", _whole(whole[0] if whole else None)])
    rows.append(["measured over the least", "", f"{figures.loop_ns / least:.1f} ×", ""])
    return table(["step", "how it comes about", "ns an impression", "instructions that it takes today"], rows)


def instructions(figures: Figures) -> str:
    if reason := figures.rows("instructions").get(NOT_COUNTED):
        return f"Not counted: {reason[2]}.\n"
    steps = {what: figures.counts("instructions", f"{step}: {{}}") for step, what in STEPS.items()}
    roles = {what: figures.counts("peers", f"{{}}, {name}") for name, what in ROLES.items()}
    rows = [
        [what, f"{number:,.0f}", f"{cycles:,.0f}", f"{number / cycles:.1f}", f"{cache:,.1f}"]
        for what, counts in (steps | roles).items()
        if counts
        for number, cycles, cache, _ in [counts]
    ]
    head = ["for an impression", "instructions", "cycles", "instructions a cycle", "cache misses"]
    return table(head, rows)


def spent(figures: Figures) -> str:
    rows = []
    for role, whole, parts, rest in (
        (
            "joiner",
            figures.join_ns,
            {
                "Kafka's client: fetch, unpack, hand over": figures.read_ns,
                "decode and hash": figures.value("decode", "decode.impression"),
                "dedupe, label, gather": figures.value("join", "join.small"),
                "make records": figures.value("codec", "codec.encode_1000"),
            },
            "what is left: sending records, Python around each batch, the clock",
        ),
        (
            "learner",
            figures.learn_ns,
            {
                "read records, rule R": figures.value("codec", "codec.rule_r_1000"),
                "fold": figures.grown("fold")[1_000_000],
            },
            "what is left: Kafka's client, Python around each record, checkpoints, the gate",
        ),
        (
            "loop",
            figures.loop_ns,
            {"joiner": figures.join_ns, "learner": figures.learn_ns},
            "what is left: smaller records, and turns in which one waits for the other",
        ),
    ):
        for part in cost.spent(whole, parts, rest):
            rows.append([role, part.what, f"{part.ns:.0f}", f"{part.ns / whole:.0%}"])
        rows.append([role, "**sum**", f"{whole:.0f}", "100%"])
    return table(["role", "part", "ns an impression", "share"], rows)


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
    rows = []
    for name, window_s in WINDOWS.items():
        traffic = replace(cost.BILLION, window_s=window_s, event_bytes=figures.event_bytes)
        sizes = sizing.click_memory_bytes(traffic), sizing.dedupe_memory_bytes(traffic), cost.waiting_bytes(traffic)
        rows.append([name, *map(amount, sizes)])
    return table(["window", "joiners: clicks", "joiners: ids of `dedupe`", "Kafka: impressions, one copy"], rows)


def windows_seen(figures: Figures) -> str:
    rows = []
    for name, window_s in WINDOWS.items():
        seen = {what: figures.rows("window").get(f"{window_s}: {what}") for what in ("clicks", "bytes", "at most")}
        if seen["clicks"] and seen["bytes"] and seen["at most"]:
            clicks, each, most = seen["clicks"][0], seen["bytes"][0], seen["at most"][0]
            rows.append([name, f"{clicks:,.0f}", f"{each:.0f}", f"{most:.0f}", f"{each / most:.0%}"])
    return table(["window", "clicks remembered", "bytes a click, measured", "at most", "share"], rows)


def partitions(figures: Figures) -> str:
    rows = []
    for count in PARTITIONS:
        examples = cost.BILLION.a_s / count
        each = cost.record_bytes(examples, figures.record_bytes)
        rows.append([str(count), f"{examples:,.0f}", f"{each:.0f}", amount(each * cost.EVENTS_A_DAY)])
    return table(
        ["partitions", "examples a tick and partition", "bytes an example", "training log a day, one copy"], rows
    )


def partitions_seen(figures: Figures) -> str:
    found: dict[str, dict[str, dict[str, float]]] = {}
    for name, (value, _, note) in figures.rows("partitions").items():
        where, _, what = name.partition(": ")
        role, _, count = where.partition(", ")
        cpu, counted = (re.search(rf"([\d,]+) {unit}", note) for unit in ("ns of CPU", "instructions"))
        seen = found.setdefault(count, {}).setdefault(role, {})
        seen |= {what: value} if what else {}
        seen |= {"cpu": _number(cpu[1])} if cpu else {}
        seen |= {"instructions": _number(counted[1])} if counted else {}
    both = ("join", "learn")
    head = {
        "ns of CPU an impression": ("cpu", both),
        "instructions": ("instructions", both),
        "once, ms of CPU": ("once", both),
        "open files": ("open files", both),
        "memory, MiB": ("resident memory", both),
        "the brokers' ns: send, join, learn": ("brokers", ("send", *both)),
    }
    rows = [
        [
            re.sub(r" partitions?", "", count),
            *("; ".join(_whole(roles[role].get(what)) for role in of) for what, of in head.values()),
        ]
        for count, roles in found.items()
    ]
    return table(["partitions", *head], rows)


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
                f"{a_s * sizing.DAY_S / 1e9:,.1f}",
            ]
        )
    return table(
        ["joiners", "they join, a second", "one learner learns", "the loop", "limited by", "billions a day"], rows
    )


def joiners_seen(figures: Figures) -> str:
    found: dict[str, dict[str, float]] = {}
    for name, (value, _, _) in figures.rows("joiners").items():
        who, _, what = name.partition(": ")
        found.setdefault(who, {})[what] = value
    one = found["1 joiner"]["processor time"]
    rows = [
        [
            who,
            f"{seen['processor time']:,.0f}",
            f"{seen['processor time'] / one:.2f} ×",
            *(_whole(seen.get(what)) for what in ("instructions", "brokers")),
            f"{seen['impressions'] / 1e3:,.0f} k",
        ]
        for who, seen in found.items()
    ]
    head = [
        "joiners",
        "ns of CPU an impression",
        "to one joiner's",
        "instructions",
        "the broker's ns of CPU",
        "a second",
    ]
    return table(head, rows)


def billion(figures: Figures) -> str:
    prices, a_s = figures.prices, cost.BILLION.a_s
    rows = [
        [
            "impressions a second",
            f"{cost.EVENTS_A_DAY:,} / {sizing.DAY_S:,} s",
            f"{a_s:,.0f}",
            f"{a_s * sizing.PEAK:,.0f}",
        ]
    ]
    for need in sizing.needs(replace(cost.BILLION, event_bytes=prices.event_bytes), prices):
        shown = {"cores": "{:.3f}".format, "bytes": amount, "partitions": "{:.0f}".format}[need.unit]
        rows.append([need.what, need.how, shown(need.size), shown(need.size * sizing.PEAK) if need.grows else ""])
    for product in cost.network(figures.event_bytes, prices.example_bytes, figures.rows_an_example):
        rows.append([product.what, product.how, amount(product.size), amount(product.size * sizing.PEAK)])
    return table(["what", "how it comes about", "mean", f"peak, {sizing.PEAK} × the mean"], rows)


TABLES: dict[str, Callable[[Figures], str]] = {
    "machines": machines,
    "peers": peers,
    "serving": serving,
    "rest": rest,
    "limit": limit,
    "instructions": instructions,
    "spent": spent,
    "features": features,
    "windows": windows,
    "windows-seen": windows_seen,
    "partitions": partitions,
    "partitions-seen": partitions_seen,
    "joiners": joiners,
    "joiners-seen": joiners_seen,
    "billion": billion,
}


def table(head: list[str], rows: Iterable[list[str]]) -> str:
    """A table of Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _number(text: str) -> float:
    return float(text.replace(",", ""))


def _whole(value: float | None) -> str:
    """A number without its fraction, "" if there is none."""
    return "" if value is None else f"{value:,.0f}"


def machine(of: dict[str, Any]) -> str:
    """A machine in a few words."""
    return f"{of['cores']} cores of {of['cpu']}, {of['memory_gib']:.0f} GiB, Python {of['python']}"


def _settings(note: str) -> tuple[str, str]:
    """The settings in the note of a program, and what it lacks."""
    parts = note.split("; ")
    lacks = [part.removeprefix("lacks ") for part in parts if part.startswith("lacks ")]
    return parts[0], lacks[0] if lacks else ""
