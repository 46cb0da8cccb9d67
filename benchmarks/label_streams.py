"""Worlds that are fed to a running joiner as time passes: streams that lag, stall, or lose their clicks for a while.

In: a tree of this program and a broker. Out: a row for each world, with the labels that its impressions deserve beside
those that were learned. A world has 10 impressions a second in two partitions if it says nothing else; one in five is
clicked 2 to 5 s later. Nothing is late but what the world says. Those impressions are judged that come in its first
minutes; the stream goes on until each of them has its outcome.
"""

from __future__ import annotations

import json
import random
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from urllib.request import urlopen

import numpy as np
from confluent_kafka import Producer

from benchmarks.label_run import Joiner, Model, Version
from benchmarks.rows import Row
from stream_learner.core.machine.hashing import hash_texts

WINDOW_S = 60
CTR = 0.2
CLICKED_AFTER_S = (2.0, 5.0)
MOST_S = 780
"""No world lasts longer."""
BEGINS_WITHIN_S = 120.0
LOOK_S = 0.1
GUESSED = "stream_learner_joiner_guessed_examples_total"
FAKETIME = tuple(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
RIGHT, AN_HOUR_AHEAD = "+0", "+3600"

Comes = Callable[[bool, float], float | None]
"""When the record of an event comes, whether it is a click and when it happens given, in s since the world's beginning;
None where the event does not happen at all."""


@dataclass(frozen=True)
class Stream:
    """comes: see `Comes`. begins_s: when its first event happens. judged_s: how long impressions come that are judged.
    killed_s: when the joiner is killed; away_s: how long until it is started again. ahead_s: from when to when its wall
    clock is an hour ahead. partitions: of its topics; used: how many of them have events. per_s: impressions a second,
    all partitions.
    """

    name: str
    comes: Comes
    begins_s: int = 0
    judged_s: int = 240
    killed_s: float | None = None
    away_s: float = 0
    ahead_s: tuple[float, float] | None = None
    partitions: int = 2
    used: int = 2
    per_s: int = 10


class Record(NamedTuple):
    """comes_s: when it is written. happens_s: the time that it has. number: of the impression."""

    comes_s: float
    is_click: bool
    happens_s: float
    number: int


def at_once(is_click: bool, happens_s: float) -> float:
    return happens_s


def _far_behind(is_click: bool, happens_s: float) -> float | None:
    comes_s = happens_s + 630
    return None if is_click and 100 <= comes_s < 165 else comes_s


def _stalled(is_click: bool, happens_s: float) -> float:
    return happens_s if happens_s < 60 else happens_s + 180


def _clicks_late(is_click: bool, happens_s: float) -> float:
    return happens_s + 90 if is_click and happens_s >= 60 else happens_s


def _clicks_dead(is_click: bool, happens_s: float) -> float:
    return 240 if is_click and 120 <= happens_s < 240 else happens_s


def streams(quick: bool) -> list[Stream]:
    """All, or those that are short."""
    judged_s = 90 if quick else 240
    short = [
        Stream("live", at_once, judged_s=judged_s),
        Stream("all of it 3 min late", lambda _, at: at + 180, begins_s=-180, judged_s=judged_s),
        Stream("the joiner's clock an hour ahead for 5 s", at_once, judged_s=judged_s, ahead_s=(60, 65)),
    ]
    if quick:
        return short
    return [
        *short,
        Stream("10.5 min behind, 65 s without a click", _far_behind, begins_s=-630),
        Stream("nothing for 3 min, from then on 3 min late", _stalled, judged_s=300),
        Stream("the same, joiner killed meanwhile", _stalled, judged_s=300, killed_s=150),
        Stream("clicks alone 90 s late", _clicks_late),
        Stream("no click for 2 min, then all of them", _clicks_dead),
        Stream("no click for 2 min, joiner killed meanwhile", _clicks_dead, killed_s=190),
        Stream("no click for 2 min, joiner away as it begins", _clicks_dead, killed_s=110, away_s=80),
        Stream("no click for 2 min, as a new joiner begins", _clicks_dead, killed_s=0, away_s=190),
    ]


def records_of(stream: Stream) -> list[Record]:
    """The records of a world in the order in which they come."""
    rng = random.Random(1)
    found = []
    for number in range((MOST_S - stream.begins_s) * stream.per_s):
        shown_s = stream.begins_s + number / stream.per_s
        moments = [shown_s, shown_s + rng.uniform(*CLICKED_AFTER_S)]
        for happens_s in moments[: 1 + (rng.random() < CTR)]:
            is_click = happens_s > shown_s
            comes_s = stream.comes(is_click, happens_s)
            if comes_s is not None:
                found.append(Record(comes_s, is_click, happens_s, number))
    return sorted(found)


class StreamRun:
    """A world, fed to a joiner."""

    def __init__(self, stream: Stream, version: Version, bootstrap: str, folder: Path) -> None:
        if stream.ahead_s is not None and not FAKETIME:
            raise RuntimeError("no libfaketime, which moves the joiner's clock: apt-get install libfaketime")
        self._stream = stream
        self._port = _free_port()
        join = {"window": f"{WINDOW_S}s", "instance_id": "bench"}
        self._model = Model(version, bootstrap, folder, join, partitions=stream.partitions, http_port=self._port)
        self._wall_clock = folder / f"{self._model.name}.wall"
        self._wall_clock.write_text(RIGHT, encoding="ascii")
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "enable.idempotence": True})
        self._records = records_of(stream)
        self._judged = [one for one in self._records if not one.is_click and one.comes_s < stream.judged_s]
        self._counts = Counter(one.number % stream.used for one in self._judged)
        self._sent = 0
        self._began_ms = 0

    def row(self) -> Row:
        """Feed it until each impression that is judged has its outcome, and compare."""
        killed_s, guessed = self._stream.killed_s, 0
        back_s: float | None = None
        with self._process() as joiner:
            self._wait(joiner)
            self._began_ms = time.time_ns() // 1_000_000
            began_s = time.monotonic()
            while not self._is_done() and (now_s := time.monotonic() - began_s) < MOST_S:
                joiner.check()
                self._send(now_s)
                self._set_wall_clock(now_s)
                if killed_s is not None and now_s >= killed_s:
                    guessed, killed_s, back_s = self._guessed_now(), None, now_s + self._stream.away_s
                    joiner.kill()
                if back_s is not None and now_s >= back_s:
                    back_s = None
                    joiner.start()
                time.sleep(LOOK_S)
            assert self._producer.flush(60) == 0
            guessed += self._guessed_now()
        self._model.found.close()
        return self._compared(guessed, round(time.monotonic() - began_s))

    @contextmanager
    def _process(self) -> Iterator[_Restarted]:
        environment = {}
        if self._stream.ahead_s is not None:
            environment = {
                "LD_PRELOAD": str(FAKETIME[0]),
                "FAKETIME_TIMESTAMP_FILE": str(self._wall_clock),
                "FAKETIME_CACHE_DURATION": "1",
                "DONT_FAKE_MONOTONIC": "1",
            }
        process = _Restarted(lambda: self._model.joiner(**environment))
        try:
            yield process
        finally:
            process.kill()

    def _wait(self, process: _Restarted) -> None:
        until_s = time.monotonic() + BEGINS_WITHIN_S
        joiner = process.joiner
        while joiner is not None and not joiner.has_begun(self._stream.partitions):
            joiner.check()
            if time.monotonic() > until_s:
                raise TimeoutError(f"{self._stream.name}: the joiner has no partitions: {joiner.said()}")
            time.sleep(LOOK_S)

    def _send(self, until_s: float) -> None:
        while self._sent < len(self._records) and self._records[self._sent].comes_s < until_s:
            record = self._records[self._sent]
            name = f"i{record.number}"
            value = json.dumps({"id": name, "time": self._began_ms + int(record.happens_s * 1000)})
            topic = self._model.topics[record.is_click]
            self._producer.produce(topic, value, name, record.number % self._stream.used)
            self._sent += 1
        self._producer.poll(0)

    def _set_wall_clock(self, now_s: float) -> None:
        if self._stream.ahead_s is None:
            return
        begins_s, ends_s = self._stream.ahead_s
        shows = AN_HOUR_AHEAD if begins_s <= now_s < ends_s else RIGHT
        if self._wall_clock.read_text(encoding="ascii") != shows:
            whole = self._wall_clock.with_suffix(".new")
            whole.write_text(shows, encoding="ascii")
            whole.replace(self._wall_clock)

    def _is_done(self) -> bool:
        """Whether all that is judged has an outcome; it comes first in its partition."""
        found = self._model.found
        found.read()
        return all(found.emitted[partition] >= count for partition, count in self._counts.items())

    def _guessed_now(self) -> int:
        """The examples that the joiner counts as guessed; 0 for one that has no such metric."""
        with suppress(OSError), urlopen(f"http://127.0.0.1:{self._port}/metrics", timeout=5) as answer:
            lines = answer.read().decode().splitlines()
            return int(sum(float(line.split()[-1]) for line in lines if line.startswith(GUESSED)))
        return 0

    def _compared(self, guessed: int, seconds: int) -> Row:
        """What was learned beside what should have been."""
        clicked = {one.number for one in self._records if one.is_click}
        judged = self._judged
        keys = hash_texts([f"i{one.number}".encode() for one in judged])
        learned = {one: self._model.found.learned.get(key) for one, key in zip(judged, keys, strict=True)}
        there = {one: example for one, example in learned.items() if example is not None}
        waits_s = [(example.seen_ms - self._began_ms) / 1000 - one.comes_s - WINDOW_S for one, example in there.items()]
        positives = sum(one.number in clicked for one in judged)
        right = sum(example.label and one.number in clicked for one, example in there.items())
        figures: dict[str, Any] = {
            "impressions": len(judged),
            "clicked": positives,
            "right": right,
            "wrong": sum(example.label != (one.number in clicked) for one, example in there.items()),
            "without_example": len(judged) - len(there),
            "clicked_without_example": positives - sum(one.number in clicked for one in there),
            "guessed": guessed,
            "wait_p50_s": round(float(np.percentile(waits_s, 50)), 1) if waits_s else None,
            "wait_p99_s": round(float(np.percentile(waits_s, 99)), 1) if waits_s else None,
            "seconds": seconds,
            "first_wrong": [
                (one.number, round(one.comes_s, 1))
                for one, example in there.items()
                if example.label != (one.number in clicked)
            ][:5],
        }
        note = (
            f"{len(judged):,} impressions; clicked {positives:,}, learned so {right:,}; wrong labels "
            f"{figures['wrong']:,}; late or never emitted {figures['without_example']:,} (clicked "
            f"{figures['clicked_without_example']:,}); counted as guessed {guessed:,}; waited after arrival and window "
            f"{figures['wait_p50_s']} s (p50), {figures['wait_p99_s']} s (p99)"
        )
        name = f"labels lost, live: {self._stream.name}"
        return {"name": name, "value": positives - right, "unit": "impressions", "note": note, **figures}


class _Restarted:
    """A joiner that can be killed and started again. joiner: None while it is away."""

    def __init__(self, start: Callable[[], Joiner]) -> None:
        self._start = start
        self.joiner: Joiner | None = start()

    def check(self) -> None:
        if self.joiner is not None:
            self.joiner.check()

    def kill(self) -> None:
        if self.joiner is not None:
            self.joiner.kill()
        self.joiner = None

    def start(self) -> None:
        self.joiner = self._start()


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])
