"""What the processor counts for an impression in each step: instructions, cycles, misses of caches and of branches.

The steps are those of the benchmarks decode, join and codec, on the same data, and the fold into a model of a million
features. Counted is the thread that works, without the system. Where the machine does not count, a row says why.
Instructions hardly depend on what else the machine does; cycles and misses do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import bench_codec, bench_decode, bench_join
from benchmarks.bench_fold import SETTINGS, Keyed, _load
from benchmarks.counters import EVENTS, Counters, NotCounted
from benchmarks.rows import Row
from stream_learner.core.events.decoders import Clicks, EventSpec, ImpressionDecoder, Impressions
from stream_learner.core.events.features import FeatureSpec
from stream_learner.core.join.gather import ExampleScratch
from stream_learner.core.join.spec import JoinSpec
from stream_learner.core.join.state import JoinState
from stream_learner.core.log.dictionary import Scratch
from stream_learner.core.log.examples import ExampleRecord, encode_examples
from stream_learner.core.log.marks import GENESIS
from stream_learner.core.log.rule_r import RuleR
from stream_learner.core.log.rule_w import Attempt
from stream_learner.core.model.fold import Learner
from stream_learner.core.model.optimizers import FtrlProximal
from stream_learner.core.parts import DECODING, FOLD, JOIN, TRAINING_LOG, compile_parts

BATCH = 1000
FEATURES = 1_000_000
RECORD = 4000
TICKS = 60_000
"""Impressions that are joined at least: several ticks of them."""
WARM = 10
"""Pieces of work that are done before counting begins."""
NOT_COUNTED = "not counted"
Work = Callable[[], int]
"""A piece of work; it gives how many impressions it was."""


def run(quick: bool) -> list[Row]:
    """A row for each step and event, or one that says why there are none."""
    impressions = 20_000 if quick else 100_000
    try:
        with Counters() as counters:
            return [row for step, works in STEPS.items() for row in _rows(step, works(impressions), counters)]
    except NotCounted as error:
        return [{"name": NOT_COUNTED, "value": 0.0, "unit": "", "note": str(error)}]


def _rows(step: str, works: Iterator[Work], counters: Counters) -> Iterator[Row]:
    each, impressions = counted(works, counters)
    for event, value in zip(EVENTS, each.tolist(), strict=True):
        note = f"{impressions:,} impressions, the program's own"
        yield {"name": f"{step}: {event}", "value": round(value, 1), "unit": "an impression", "note": note}


def counted(works: Iterator[Work], counters: Counters) -> tuple[NDArray[np.float64], int]:
    """The counts of an impression, and of how many impressions; making the pieces of work is not counted."""
    total, impressions = np.zeros(len(EVENTS)), 0
    for place, work in enumerate(works):
        before = counters.read()
        done = work()
        if place >= WARM:
            total += counters.read() - before
            impressions += done
    return total / impressions, impressions


def _decode(impressions: int) -> Iterator[Work]:
    compile_parts([DECODING])
    categories = FeatureSpec(categorical=tuple(f"I{i}" for i in range(1, bench_decode.INTEGERS + 1)))
    decoder = ImpressionDecoder(EventSpec(), categories, ones_left_out=True)
    for batch in bench_decode._batches(bench_decode._events(impressions)):
        yield partial(_in_batch, decoder.decode, *batch)


def _join(impressions: int) -> Iterator[Work]:
    """The join with 100,000 ids in `dedupe`, after its tables have reached their size."""
    compile_parts([JOIN])
    rng, ids, window_ms, clicks_taken = np.random.default_rng(7), 100_000, 60_000, 0
    pool = bench_join._pool(rng)
    spec = JoinSpec(window_ms=window_ms, skew_ms=1000, tick_ms=200, dedupe_ms=ids // bench_join.PER_MS)
    join, scratch, settle = JoinState(spec, impression_start=0, click_start=0), ExampleScratch(), 2 * ids // BATCH
    for b in range(settle + max(impressions, TICKS) // BATCH):
        offsets = np.arange(b * BATCH, (b + 1) * BATCH, dtype=np.int64)
        shown = bench_join._impressions(rng, offsets, 10**12, pool[b % len(pool)], 0.0)
        clicked = shown.id_hash[rng.random(BATCH) < bench_join.CLICK_SHARE]
        clicks = bench_join._clicks(rng, clicked, int(shown.time_ms[-1]) + window_ms)
        click_offsets = np.arange(clicks_taken, clicks_taken + len(clicks), dtype=np.int64)
        clicks_taken += len(clicks)
        work = partial(_joined, join, scratch, offsets, shown, click_offsets, clicks)
        if b < settle:
            work()
        else:
            yield work


def _joined(
    join: JoinState,
    scratch: ExampleScratch,
    offsets: NDArray[np.int64],
    shown: Impressions,
    click_offsets: NDArray[np.int64],
    clicks: Clicks,
) -> int:
    join.add_impressions(offsets, shown)
    join.add_clicks(click_offsets, clicks)
    while cut := join.next_cut(allow_empty=False):
        join.emit(cut, scratch)
    return BATCH


def _records(impressions: int) -> Iterator[Work]:
    compile_parts([TRAINING_LOG])
    encode = partial(encode_examples, 0, 5, 77, scratch=Scratch())
    for batch in bench_codec._batches(bench_codec._keys(impressions), BATCH):
        yield partial(_in_batch, encode, batch)


def _reading(impressions: int) -> Iterator[Work]:
    compile_parts([TRAINING_LOG])
    attempt, rule, offset = Attempt(0, 77, GENESIS, 0, scratch=Scratch()), RuleR(partition=0), 0
    for tick, batch in enumerate(bench_codec._batches(bench_codec._keys(impressions), BATCH)):
        records = list(enumerate(bench_codec._tick(attempt, tick, batch), offset))
        offset += len(records)
        yield partial(_in_batch, lambda given: [rule.take(*record) for record in given], records)


def _in_batch(does: Callable[..., Any], *given: Any) -> int:
    does(*given)
    return BATCH


def _fold(impressions: int) -> Iterator[Work]:
    compile_parts([FOLD])
    world = Keyed(FEATURES)
    learner = Learner(FtrlProximal(**SETTINGS))
    _load(learner, world.known)
    for record in world.records(max(impressions, 2 * WARM * RECORD), RECORD, np.random.default_rng(7)):
        yield partial(_folded, learner, record)


def _folded(learner: Learner, record: ExampleRecord) -> int:
    learner.fold(record, learner.examples // 10_000 + 1)
    return len(record.label)


STEPS: dict[str, Callable[[int], Iterator[Work]]] = {
    "decode": _decode,
    "join": _join,
    "records": _records,
    "reading": _reading,
    "fold": _fold,
}
"""By step of an impression's way: the pieces of work that make up so many impressions."""
