"""A scorer's copy: predictions against an oracle, tables that grow, readers beside a writer, and what is not ready."""

from __future__ import annotations

import math
import threading
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_learner.core.errors import DamagedRecord, ForeignRecord
from stream_learner.core.snapshots.kernels import SUB_TABLES
from stream_learner.core.snapshots.pages import PagePlanner, PagePolicy, Prefix, shard_prefix
from stream_learner.core.snapshots.records import Stamp, encode_delta, publication
from stream_learner.core.snapshots.replica import Replica
from stream_learner.core.snapshots.rows import StateRows, WeightRows, rows_between
from stream_learner.core.snapshots.table import ReplicaTable

CONTENT = {"name": "m", "tick_ms": 1, "features": {}, "optimizer": {}, "inputs": {}, "metrics": {}}
U64 = st.integers(1, 2**64 - 1)
WEIGHTS = st.floats(-3, 3, width=32)


def array_of(weights: dict[int, float]) -> tuple[np.ndarray, np.ndarray]:
    keys = sorted(weights)
    return np.array(keys, np.uint64), np.array([weights[key] for key in keys], np.float32)


def sigmoid_of_dot(weights: dict[int, float], event: list[tuple[int, float]]) -> float:
    """The documented order of additions, in plain Python."""
    lanes = [0.0] * 8
    for i, (key, value) in enumerate(event):
        lanes[i % 8] += float(np.float32(weights.get(key, 0.0))) * value
    a = (lanes[0] + lanes[4]) + (lanes[2] + lanes[6])
    b = (lanes[1] + lanes[5]) + (lanes[3] + lanes[7])
    return 1.0 / (1.0 + math.exp(-(a + b)))


@settings(max_examples=60, deadline=None)
@given(
    st.dictionaries(U64, WEIGHTS, max_size=60),
    st.lists(st.lists(st.tuples(st.one_of(st.integers(0, 59), U64), st.floats(-2, 2)), max_size=20), max_size=6),
)
def test_a_prediction_is_the_sigmoid_of_the_dot_product(
    weights: dict[int, float], drawn: list[list[tuple[int, float]]]
) -> None:
    """Any events, with known and unknown keys, give what a plain loop over the documented sum gives."""
    known = list(weights) or [1]
    events = [[(known[k % len(known)] if k < 60 else k, v) for k, v in event] for event in drawn]
    table = ReplicaTable(lambda: None)
    table.apply([(None, *array_of(weights))], 7)
    flat = [feature for event in events for feature in event]
    keys = np.array([key for key, _ in flat], np.uint64)
    values = np.array([value for _, value in flat], np.float64)
    row_start = np.cumsum([0] + [len(event) for event in events]).astype(np.int64)
    p_click, version, _ = table.predict(keys, values, row_start)
    assert version == 7
    np.testing.assert_allclose(p_click, [sigmoid_of_dot(weights, e) for e in events], rtol=1e-12)


@pytest.mark.parametrize("spread", [1, 2**40, 0x9E3779B97F4A7C15])
def test_a_table_grows_without_losing_a_weight(spread: int) -> None:
    """Keys that crowd in one sub-table, or in one slot, are found like evenly spread ones."""
    keys = np.unique(np.arange(1, 3001, dtype=np.uint64) * np.uint64(spread))
    weights = np.arange(len(keys), dtype=np.float32) + 1
    table = ReplicaTable(lambda: None)
    order = np.random.default_rng(1).permutation(len(keys))
    for version, part in enumerate(np.array_split(order, 7)):
        chosen = np.sort(part)
        table.apply([(None, keys[chosen], weights[chosen])], version)
    assert [table.weight(int(key)) for key in keys] == weights.tolist()
    assert table.weight(12345678901) == 0.0 and table.rows == len(keys)


def test_weights_of_zero_make_room() -> None:
    """Keys whose weight became 0 are dropped when their sub-table grows, so churn does not fill the memory."""
    table = ReplicaTable(lambda: None)
    rng = np.random.default_rng(2)
    for version in range(30):
        keys = np.unique(rng.integers(1, 2**64, 20_000, dtype=np.uint64))
        table.apply([(None, keys, np.ones(len(keys), np.float32))], 2 * version)
        table.apply([(None, keys, np.zeros(len(keys), np.float32))], 2 * version + 1)
    assert table.rows < 300_000


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(U64, st.sampled_from([-2.0, -0.5, 0.0, 0.5, 2.0, 3.0]), max_size=80), U64, st.integers(1, 100))
def test_the_largest_weights_come_first(weights: dict[int, float], crowded: int, count: int) -> None:
    """As sorting all of them: by magnitude, of equal ones the smaller key first; weights of 0 are none."""
    weights |= {(crowded & ~0xFF) + i + 1: 1.0 for i in range(40)}
    table = ReplicaTable(lambda: None)
    table.apply([(None, *array_of(weights))], 7)
    keys, found = table.largest_weights(count)
    expected = sorted((-abs(w), key, w) for key, w in weights.items() if w)[:count]
    assert keys.dtype == np.uint64 and found.dtype == np.float32
    assert list(zip(keys.tolist(), found.tolist(), strict=True)) == [(key, w) for _, key, w in expected]


def test_the_largest_weights_are_of_the_version_served() -> None:
    """None before the first version, and none that a later version took away, also where a sub-table has grown."""
    table = ReplicaTable(lambda: None)
    some = {(5 << 32) + (key << 20): float(key) for key in range(1, 2000)}
    table.load(*array_of(some))
    assert len(table.largest_weights(3)[0]) == 0
    table.apply([], 1)
    assert table.largest_weights(3)[1].tolist() == [1999.0, 1998.0, 1997.0]
    table.apply([((0, 2**64 - 1), *array_of({9: -4.0}))], 2)
    assert [part.tolist() for part in table.largest_weights(3)] == [[9], [-4.0]]


def test_a_page_replaces_the_rows_below_its_prefix() -> None:
    """Rows in the span that the page does not have become 0; rows outside stay."""
    table = ReplicaTable(lambda: None)
    keys = np.array([5, 1 << 62, (1 << 62) + 9, 3 << 62], np.uint64)
    table.load(keys, np.array([1, 2, 3, 4], np.float32))
    table.load_range(1 << 62, (1 << 63) - 1, keys[2:3], np.array([7], np.float32))
    assert [table.weight(int(key)) for key in keys] == [1, 0, 7, 4]
    table.apply([((0, (1 << 64) - 1), keys[:1], np.array([9], np.float32))], 1)
    assert [table.weight(int(key)) for key in keys] == [9, 0, 0, 0]


def test_readers_beside_a_writer_never_see_a_mixture() -> None:
    """Whatever a thread predicts while versions are applied and tables grow is the model of the version it names."""
    rng = np.random.default_rng(3)
    keys = np.unique(rng.integers(1, 2**64, 6_000, dtype=np.uint64))
    table = ReplicaTable(lambda: None)
    row_start = np.array([0, len(keys) // 2, len(keys)])
    values = np.full(len(keys), 1.0 / len(keys))
    wrong: list[tuple[int, float]] = []
    counts = [0] * 3
    stop = threading.Event()

    def read(number: int) -> None:
        while not stop.is_set():
            p_click, version, _ = table.predict(keys, values, row_start)
            counts[number] += 1
            logits = np.log(p_click) - np.log1p(-p_click)
            expected = -(version % 64) * np.diff(row_start) / len(keys) if version >= 0 else np.zeros(2)
            if not np.allclose(logits, expected, atol=1e-9):
                wrong.append((version, float(logits[0])))

    threads = [threading.Thread(target=read, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for version in range(120):
        crowd = np.unique(rng.integers(1, 2**64, 3_000, dtype=np.uint64))
        crowd = crowd[~np.isin(crowd, keys)]
        table.apply(
            [
                (None, keys, np.full(len(keys), -(version % 64), np.float32)),
                (None, crowd, np.ones(len(crowd), np.float32)),
            ],
            version,
        )
    stop.set()
    for thread in threads:
        thread.join()
    assert not wrong and min(counts) > 20 and table.rows > 100 * SUB_TABLES


class Feed:
    """Publications of a model of one shard, and a replica that reads them."""

    def __init__(self) -> None:
        policy = PagePolicy(page_bytes=120, part_bytes=120, ring=8)
        self.planner: PagePlanner[WeightRows] = PagePlanner(shard_prefix(0, 1), policy)
        self.weights: dict[int, float] = {}
        self.replica = Replica([0])
        self.offset = 0

    def records(self, change: dict[int, float]) -> list[tuple[bytes, bytes | None]]:
        """The next publication."""
        self.weights.update(change)
        rows = WeightRows(*array_of(self.weights))
        plan = self.planner.plan(
            WeightRows(*array_of(change)), lambda prefix: rows_between(rows, prefix.bits, prefix.last)
        )
        self.planner.commit(plan)
        return list(publication(plan, Stamp(0, 1, plan.sequence, 1, 10 * plan.sequence), 99, CONTENT))

    def take(self, records: list[tuple[bytes, bytes | None]]) -> list[int]:
        """Give records to the replica; the versions it began to serve."""
        served = []
        for key, value in records:
            served.append(self.replica.take(0, self.offset, key, value))
            self.offset += 1
        return [version for version in served if version is not None]


def test_a_replica_serves_a_version_with_its_last_record() -> None:
    """Nothing of a publication shows before its version record, everything with it."""
    feed = Feed()
    assert not feed.replica.ready and "no version record" in feed.replica.why_not_ready
    assert feed.take(feed.records({key << 50: 1.5 for key in range(1, 40)})) == [10]
    second = feed.records({1 << 50: 0.0, 77: 2.0})
    assert feed.take(second[:-1]) == []
    assert feed.replica.weight(77) == 0.0 and feed.replica.version == 10
    assert feed.take(second[-1:]) == [20]
    replica = feed.replica
    assert (replica.weight(77), replica.weight(1 << 50), replica.weight(2 << 50)) == (2.0, 0.0, 1.5)
    assert (replica.version, replica.sequence, replica.digest, replica.ready) == (20, 2, 99, True)
    assert replica.model["name"] == "m" and replica.bytes > 0 and replica.why_not_ready == ""


def test_a_deletion_beyond_the_end_does_not_make_an_old_version_the_last() -> None:
    """A reader that finds what was at its end compacted away is ready at the version that follows, not before."""
    feed = Feed()
    first, second = feed.records({1: 1.0}), feed.records({2: 2.0})
    feed.replica = Replica([len(first) + len(second)])
    assert feed.take(first) == []
    feed.offset += len(second)
    third = feed.records({3: 3.0})
    deletion = next(place for place, (_, value) in enumerate(third) if value is None)
    feed.offset += deletion
    assert feed.take(third[deletion : deletion + 1]) == []
    assert feed.replica.version == -1 and "the end of the log" in feed.replica.why_not_ready
    feed.take(third[deletion + 1 :])
    for _ in range(9):
        feed.take(feed.records({4: 4.0}))
        assert feed.replica.version != 10
    assert feed.replica.ready and [feed.replica.weight(key) for key in (1, 2, 3, 4)] == [1.0, 2.0, 3.0, 4.0]


def test_a_damaged_record_is_named_and_the_last_good_version_kept() -> None:
    """The copy is not ready after damage, serves on, and is ready again once every page has been published anew."""
    feed = Feed()
    feed.take(feed.records({key << 50: 1.0 for key in range(1, 40)}))
    records = feed.records({77: 2.0})
    place = next(i for i, (key, _) in enumerate(records) if key.startswith(b"delta/"))
    key, value = records[place]
    damaged = bytearray(value or b"")
    damaged[-1] ^= 1
    feed.take(records[:place])
    with pytest.raises(DamagedRecord) as raised:
        feed.replica.take(0, feed.offset, key, bytes(damaged))
    assert (raised.value.partition, raised.value.offset) == (0, feed.offset)
    assert not feed.replica.ready and feed.replica.version == 10
    feed.offset += 1
    feed.take(records[place + 1 :])
    assert "delta of publication 2" in feed.replica.why_not_ready and feed.replica.weight(77) == 0.0
    for _ in range(9):
        feed.take(feed.records({78: 3.0}))
    assert feed.replica.ready and feed.replica.version == 110
    assert (feed.replica.weight(77), feed.replica.weight(78), feed.replica.weight(1 << 50)) == (2.0, 3.0, 1.0)


def test_a_shard_far_ahead_of_another_loses_nothing() -> None:
    """Versions queued for a shard that is behind are merged, and served when it catches up."""
    planners = [PagePlanner(shard_prefix(s, 2), PagePolicy(ring=16)) for s in range(2)]
    replica = Replica([0, 0])
    logs: list[list[tuple[bytes, bytes | None]]] = [[], []]
    truth: dict[int, float] = {}
    for sequence in range(1, 121):
        change = {(sequence * 2654435761 << 33) % 2**64: float(sequence), 5: float(sequence), 2**63 + 5: 1.0 * sequence}
        truth.update(change)
        rows, changed = WeightRows(*array_of(truth)), WeightRows(*array_of(change))
        for shard, planner in enumerate(planners):
            root = planner.root
            plan = planner.plan(rows_between(changed, root.bits, root.last), partial(_below, rows))
            planner.commit(plan)
            stamp = Stamp(shard, 2, sequence, sequence, sequence)
            logs[shard] += publication(plan, stamp, 1, CONTENT if shard == 0 else None)
    for shard, log in enumerate(logs):
        for offset, (key, value) in enumerate(log):
            replica.take(shard, offset, key, value)
    assert replica.ready and replica.version == 120
    assert all(replica.weight(key) == weight for key, weight in truth.items())


def test_a_pinned_replica_does_not_pile_up_whole_models() -> None:
    """Where every publication is the whole model: a few copies wait, the last is served when the pin is gone."""
    planner = PagePlanner(shard_prefix(0, 1), PagePolicy(page_bytes=120, ring=8, whole=True))
    replica, offset, waiting = Replica([0]), 0, []
    keys = np.arange(1, 51, dtype=np.uint64) << np.uint64(56)
    for number in range(1, 41):
        rows = WeightRows(keys[number // 10 :], np.full(50 - number // 10, number, np.float32))
        plan = planner.plan(rows, partial(_below, rows))
        planner.commit(plan)
        for key, value in publication(plan, Stamp(0, 1, plan.sequence, 1, number), 99, CONTENT):
            replica.take(0, offset, key, value)
            offset += 1
        replica.last_version = 1
        queue = replica._followers[0].queue
        waiting.append(sum(len(change[1]) for version in queue for change in version.changes))
    assert replica.version == 1 and max(waiting) <= 4 * len(keys)
    replica.last_version = None
    assert replica.reached(0, offset) == 40
    assert [replica.weight(int(key)) for key in keys] == [0.0] * 4 + [40.0] * 46


def _below(rows: WeightRows, prefix: Prefix) -> WeightRows:
    return rows_between(rows, prefix.bits, prefix.last)


def test_records_that_do_not_belong_are_refused() -> None:
    """Another shard's record, a checkpoint's rows, another number of shards: each raises and names its place."""
    replica = Replica([0, 0], topic="m.snapshots")
    none = WeightRows(np.zeros(0, np.uint64), np.zeros(0, np.float32))
    state = StateRows(np.zeros(0, np.uint64), np.zeros((0, 2)), np.zeros(0, np.int64))
    for stamp, rows in ((Stamp(1, 2, 1, 1, 1), none), (Stamp(0, 2, 1, 1, 1), state)):
        with pytest.raises(ForeignRecord, match=r"topic m.snapshots, partition 0, offset 3"):
            replica.take(0, 3, b"delta/1/0", encode_delta(stamp, 0, 1, rows))
    with pytest.raises(ForeignRecord, match="4 shards"):
        replica.take(0, 3, b"delta/1/0", encode_delta(Stamp(0, 4, 1, 1, 1), 0, 1, none))
    with pytest.raises(ForeignRecord):
        replica.take(0, 3, None, b"hello")


def test_arrays_that_do_not_fit_together_are_refused() -> None:
    """Rows beyond the features, falling or missing bounds raise ValueError instead of reading foreign memory."""
    replica = Replica([0])
    keys, values = np.ones(3, np.uint64), np.ones(3)
    for row_start in ([0, 4], [0, 2, 1], [-1, 2], []):
        with pytest.raises(ValueError):
            replica.predict(keys, values, np.array(row_start, np.int64))
    frozen = np.frombuffer(np.ones(3, np.uint64).tobytes(), np.uint64)
    assert replica.predict(frozen, values, np.array([0, 3], np.int64))[1] == -1
