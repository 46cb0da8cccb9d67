"""Worlds that are fed to a running joiner as time passes: streams that lag, stall, or lose their clicks for a while.

In: a tree of this program and a broker. Out: a row for each world, with the labels that its impressions deserve beside
those that were learned. A world has 10 impressions a second in two partitions if it says nothing else; one in five is
clicked 2 to 5 s later. Nothing is late but what the world says. Those impressions are judged that come in its first
minutes and can be used; the stream goes on until each of them has its outcome.
"""

from __future__ import annotations

import json
import os
import random
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch
from urllib.request import urlopen

import numpy as np
from confluent_kafka import Producer

from benchmarks.label_run import Joiner, Model, Version
from benchmarks.rows import Row
from stream_learner.core.machine.hashing import hash_texts
from tests.kafka_broker.broker import Broker

WINDOW_S = 60
CTR = 0.2
CLICKED_AFTER_S = (2.0, 5.0)
MOST_S = 780
"""No world lasts longer."""
BEGINS_WITHIN_S = 120.0
LOOK_S = 0.1
COUNTED = {name: f"stream_learner_joiner_{name}_examples_total" for name in ("guessed", "early")}
FAKETIME = tuple(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
RIGHT, AN_HOUR_AHEAD, AN_HOUR_BACK = "+0", "+3600", "-3600"
DAY_S = 86_400
LEAST_BUFFER = {"buffer": "1MiB", "record_bytes": "256KiB", "max_event_bytes": "256KiB"}
AHEAD_SHARE = 10
"""Of so many devices one has a clock that is ahead."""

Comes = Callable[[bool, float, int], float | None]
"""When the record of an event comes; given are whether it is a click, when it happens (both in s since the world's
beginning), and its partition. None where the event does not happen at all."""


@dataclass(frozen=True)
class Stream:
    """comes: see `Comes`. begins_s: when its first event happens. judged_s: how long impressions come that are judged.
    killed_s: when the joiner is killed; away_s: how long until it is started again; forgets: whether it is of another
    group then, which has committed nothing. wall: from when to when its wall clock is wrong, and what it shows;
    of_broker: it is a broker's clock, not the joiner's. partitions: of its topics; used: how many of them have events.
    per_s: impressions a second, all partitions. features: of an impression. ahead_s: how far the clocks of one device
    in `AHEAD_SHARE` are ahead; max_skew_s: `join.max_skew`. again_s: from when to when records come that are sent once
    more, the moment from which on, and in how many seconds. join: further settings.
    """

    name: str
    comes: Comes
    begins_s: int = 0
    judged_s: int = 240
    killed_s: float | None = None
    away_s: float = 0
    forgets: bool = False
    wall: tuple[float, float, str] | None = None
    of_broker: bool = False
    partitions: int = 2
    used: int = 2
    per_s: int = 10
    features: int = 0
    ahead_s: int = 0
    max_skew_s: int = 300
    again_s: tuple[float, float, float, float] | None = None
    join: Mapping[str, Any] = field(default_factory=dict)


class Record(NamedTuple):
    """comes_s: when it is written. happens_s: the time that it has. number: of the impression."""

    comes_s: float
    is_click: bool
    happens_s: float
    number: int


def at_once(is_click: bool, happens_s: float, partition: int) -> float:
    return happens_s


def _far_behind(is_click: bool, happens_s: float, partition: int) -> float | None:
    comes_s = happens_s + 630
    return None if is_click and 100 <= comes_s < 165 else comes_s


def _stalled(is_click: bool, happens_s: float, partition: int) -> float:
    return happens_s if happens_s < 60 else happens_s + 180


def _clicks_late(is_click: bool, happens_s: float, partition: int) -> float:
    return happens_s + 90 if is_click and happens_s >= 60 else happens_s


def _clicks_dead(is_click: bool, happens_s: float, partition: int) -> float:
    return 240 if is_click and 120 <= happens_s < 240 else happens_s


def _behind(is_click: bool, happens_s: float, partition: int) -> float | None:
    """4 min; in one partition no click comes for 62 s."""
    comes_s = happens_s + 240
    return None if is_click and partition == 0 and 100 <= comes_s < 162 else comes_s


def _more_and_more(is_click: bool, happens_s: float, partition: int) -> float:
    return happens_s * 1.5


def _less_and_less(is_click: bool, happens_s: float, partition: int) -> float:
    return max(happens_s, (happens_s + 180) / 2)


def _one_behind(is_click: bool, happens_s: float, partition: int) -> float | None:
    if partition == 0:
        return happens_s + 240
    return happens_s if happens_s >= 0 else None


def _one_added(is_click: bool, happens_s: float, partition: int) -> float | None:
    return None if partition == 2 and happens_s < 90 else happens_s


def _in_batches(is_click: bool, happens_s: float, partition: int) -> float:
    return (happens_s // 30 + 1) * 30


def streams(quick: bool) -> list[Stream]:
    """All, or those that are short."""
    judged_s = 90 if quick else 240
    short = [
        Stream("live", at_once, judged_s=judged_s),
        Stream("all of it 3 min late", lambda _click, at, _partition: at + 180, begins_s=-180, judged_s=judged_s),
        Stream("the joiner's clock an hour ahead for 5 s", at_once, judged_s=judged_s, wall=(60, 65, AN_HOUR_AHEAD)),
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
        Stream("4 min behind, 62 s without a click in one partition", _behind, begins_s=-240),
        Stream("further and further behind, by 2 min after 6", _more_and_more),
        Stream("less and less behind, 3 min at first", _less_and_less, begins_s=-180),
        Stream("one partition of four 4 min behind", _one_behind, begins_s=-240, partitions=4, used=4),
        Stream("the first events of a third partition after 90 s", _one_added, partitions=3, used=3),
        Stream("all events of 30 s at once", _in_batches),
        Stream("live, killed, nothing remembered", at_once, killed_s=120, forgets=True),
        Stream("stalled, killed, nothing remembered", _stalled, judged_s=300, killed_s=150, forgets=True),
        Stream("4 min behind, killed, nothing remembered", _behind, begins_s=-240, killed_s=150, forgets=True),
        Stream("clicks 90 s late, killed, nothing remembered", _clicks_late, killed_s=190, forgets=True),
        Stream("the joiner's clock an hour back, after a minute", at_once, wall=(60, MOST_S, AN_HOUR_BACK)),
        Stream("the broker's clock an hour ahead for 10 s", at_once, wall=(90, 100, AN_HOUR_AHEAD), of_broker=True),
        Stream("a tenth a day ahead, dead", at_once, ahead_s=DAY_S, join={"max_bad_share": 1}),
        Stream("a tenth a day ahead, max_skew 25 h", at_once, ahead_s=DAY_S, max_skew_s=25 * 3600),
        Stream("a buffer of a third of a window", at_once, features=900, join=LEAST_BUFFER),
        Stream("the same, all events of 30 s at once", _in_batches, features=900, join=LEAST_BUFFER),
        Stream("2 min are sent once more in 4 min", at_once, again_s=(20, 140, 150, 240)),
        Stream("2 min are sent once more in 2 min", at_once, again_s=(20, 140, 150, 120)),
        Stream("2 min are sent once more in 5 s", at_once, again_s=(20, 140, 150, 5)),
    ]


def records_of(stream: Stream) -> list[Record]:
    """The records of a world in the order in which they come."""
    rng = random.Random(1)
    found = []
    for number in range((MOST_S - stream.begins_s) * stream.per_s):
        shown_s = stream.begins_s + number / stream.per_s
        moments = [shown_s, shown_s + rng.uniform(*CLICKED_AFTER_S)]
        partition = number % stream.used
        ahead_s = stream.ahead_s if number // stream.used % AHEAD_SHARE == 0 else 0
        for happens_s in moments[: 1 + (rng.random() < CTR)]:
            is_click = happens_s > shown_s
            comes_s = stream.comes(is_click, happens_s, partition)
            if comes_s is not None:
                found.append(Record(comes_s, is_click, happens_s + ahead_s, number))
    if stream.again_s is not None:
        begins_s, ends_s, at_s, lasts_s = stream.again_s
        speed = (ends_s - begins_s) / lasts_s
        again = [one for one in found if begins_s <= one.comes_s < ends_s]
        found += [one._replace(comes_s=at_s + (one.comes_s - begins_s) / speed) for one in again]
    return sorted(found)


class StreamRun:
    """A world, fed to a joiner."""

    def __init__(self, stream: Stream, version: Version, bootstrap: str, folder: Path) -> None:
        if stream.wall is not None and not FAKETIME:
            raise RuntimeError("no libfaketime, which moves a clock: apt-get install libfaketime")
        self._stream = stream
        self._port = _free_port()
        self._wall_clock = folder / f"{self._port}.wall"
        self._wall_clock.write_text(RIGHT, encoding="ascii")
        self._broker: Broker | None = None
        if stream.of_broker:
            with patch.dict(os.environ, self._faked()):
                self._broker = Broker().start()
            bootstrap = self._broker.bootstrap
        join = {"window": f"{WINDOW_S}s", "instance_id": "bench", **stream.join}
        if stream.max_skew_s > Stream.max_skew_s:
            join |= dict.fromkeys(("max_skew", "lateness"), f"{stream.max_skew_s}s")
        self._model = Model(version, bootstrap, folder, join, partitions=stream.partitions, http_port=self._port)
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "enable.idempotence": True})
        self._records = records_of(stream)
        shown = [one for one in self._records if not one.is_click and one.comes_s < stream.judged_s]
        self._counts = Counter(one.number % stream.used for one in shown)
        usable = [one for one in shown if one.happens_s <= one.comes_s + stream.max_skew_s]
        self._judged = list({one.number: one for one in reversed(usable)}.values())[::-1]
        self._more = {f"f{number}": number / 7 for number in range(stream.features)}
        self._sent = 0
        self._began_ms = 0

    def row(self) -> Row:
        """Feed it until each impression that is judged has its outcome, and compare."""
        killed_s, counted = self._stream.killed_s, Counter[str]()
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
                    counted, killed_s, back_s = self._counted_now(), None, now_s + self._stream.away_s
                    joiner.kill()
                if back_s is not None and now_s >= back_s:
                    back_s = None
                    joiner.start()
                time.sleep(LOOK_S)
            assert self._producer.flush(60) == 0
            counted += self._counted_now()
        self._model.found.close()
        if self._broker is not None:
            self._broker.stop()
        return self._compared(counted, round(time.monotonic() - began_s))

    @contextmanager
    def _process(self) -> Iterator[_Restarted]:
        environment = {} if self._stream.wall is None or self._stream.of_broker else self._faked()

        def start() -> Joiner:
            if self._stream.forgets:
                environment["STREAM_LEARNER__JOIN__GROUP"] = f"{self._model.name}-{time.monotonic_ns()}"
            return self._model.joiner(**environment)

        process = _Restarted(start)
        try:
            yield process
        finally:
            process.kill()

    def _faked(self) -> dict[str, str]:
        """The environment of a process whose wall clock is ours to move.

        libfaketime leaves `cnd_timedwait` alone: librdkafka's waits end at once while the clock is back.
        """
        return {
            "LD_PRELOAD": str(FAKETIME[0]),
            "FAKETIME_TIMESTAMP_FILE": str(self._wall_clock),
            "FAKETIME_CACHE_DURATION": "1",
            "DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_FORCE_MONOTONIC_FIX": "0",  # a JVM waits for seconds where it should for milliseconds
        }

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
            event = {"id": name, "time": self._began_ms + int(record.happens_s * 1000)}
            value = json.dumps(event if record.is_click else {**event, **self._more})
            topic = self._model.topics[record.is_click]
            self._producer.produce(topic, value, name, record.number % self._stream.used)
            self._sent += 1
        self._producer.poll(0)

    def _set_wall_clock(self, now_s: float) -> None:
        if self._stream.wall is None:
            return
        begins_s, ends_s, wrong = self._stream.wall
        shows = wrong if begins_s <= now_s < ends_s else RIGHT
        if self._wall_clock.read_text(encoding="ascii") != shows:
            whole = self._wall_clock.with_suffix(".new")
            whole.write_text(shows, encoding="ascii")
            whole.replace(self._wall_clock)

    def _is_done(self) -> bool:
        """Whether all that is judged has an outcome; it comes first in its partition."""
        found = self._model.found
        found.read()
        return all(found.emitted[partition] >= count for partition, count in self._counts.items())

    def _counted_now(self) -> Counter[str]:
        """The examples that the joiner counts as guessed, or as early; 0 for one that has no such metric."""
        with suppress(OSError), urlopen(f"http://127.0.0.1:{self._port}/metrics", timeout=5) as answer:
            lines = answer.read().decode().splitlines()
            values = {what: [line for line in lines if line.startswith(name)] for what, name in COUNTED.items()}
            return Counter({what: sum(int(float(one.split()[-1])) for one in found) for what, found in values.items()})
        return Counter()

    def _compared(self, counted: Counter[str], seconds: int) -> Row:
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
            **{what: counted[what] for what in COUNTED},
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
            f"{figures['clicked_without_example']:,}); counted as guessed {counted['guessed']:,}, as early "
            f"{counted['early']:,}; waited after arrival and window {figures['wait_p50_s']} s (p50), "
            f"{figures['wait_p99_s']} s (p99)"
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
