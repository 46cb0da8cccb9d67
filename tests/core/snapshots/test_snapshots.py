"""Pages, deltas and their records: what a publication consists of, and that no bytes pass for others."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_learner.core.errors import DamagedRecord, ForeignRecord, NewerVersion, RecordError
from stream_learner.core.snapshots.pages import (
    PagePlan,
    PagePlanner,
    PagePolicy,
    PageState,
    Prefix,
    is_partition,
    shard_prefix,
)
from stream_learner.core.snapshots.records import (
    DeltaRecord,
    PageRecord,
    Stamp,
    VersionRecord,
    decode,
    encode_delta,
    encode_model,
    encode_page,
    encode_version,
    publication,
)
from stream_learner.core.snapshots.rows import StateRows, WeightRows, row_bytes, rows_between

CONTENT = {"name": "m", "tick_ms": 1, "features": {}, "optimizer": {}, "inputs": {}, "metrics": {}}
STAMP = Stamp(0, 1, 3, 5, 7)
PREFIXES = st.builds(
    lambda number, nbits: Prefix((number >> (64 - nbits)) << (64 - nbits) if nbits else 0, nbits),
    st.integers(0, 2**64 - 1),
    st.integers(0, 64),
)


def weights_of(model: dict[int, float], keys: list[int] | None = None) -> WeightRows:
    ordered = sorted(model if keys is None else keys)
    return WeightRows(np.array(ordered, np.uint64), np.array([model[k] for k in ordered], np.float32))


@given(PREFIXES)
def test_a_prefix_is_its_text(prefix: Prefix) -> None:
    """Text and prefix are the same thing; its keys are those that begin with the text."""
    assert Prefix.parse(prefix.text) == prefix
    assert f"{prefix.bits:064b}".startswith(prefix.text) and f"{prefix.last:064b}".startswith(prefix.text)
    assert prefix.last - prefix.bits == 2 ** (64 - prefix.nbits) - 1
    assert prefix.number == int(prefix.text or "0", 2)
    if prefix.nbits < 64:
        assert is_partition(prefix, prefix.halves())


@pytest.mark.parametrize("text", ["2", "0x", " 1", "-1", "0" * 65])
def test_what_is_not_bits_is_no_prefix(text: str) -> None:
    """Only 0 and 1, at most 64 of them."""
    with pytest.raises(ValueError):
        Prefix.parse(text)


@pytest.mark.parametrize(("shard", "shards"), [(0, 0), (0, 3), (0, 512), (2, 2), (-1, 2)])
def test_shards_are_a_power_of_two(shard: int, shards: int) -> None:
    """Anything else is refused."""
    with pytest.raises(ValueError):
        shard_prefix(shard, shards)


class Shard:
    """A shard's rows as a dict, and its planner."""

    def __init__(self, policy: PagePolicy, seed: int = 1) -> None:
        self.planner: PagePlanner[WeightRows] = PagePlanner(shard_prefix(1, 2), policy)
        self.rng = np.random.default_rng(seed)
        self.model: dict[int, float] = {}
        self.known: dict[int, float] = {}

    def publish(self, changes: int) -> PagePlan[WeightRows]:
        keys = self.rng.integers(2**63, 2**64, changes, dtype=np.uint64).tolist()
        if self.model:
            keys += self.rng.choice(np.array(sorted(self.model), np.uint64), min(changes, 9)).tolist()
        changed = {key: float(self.rng.choice([0.0, 1.0, 2.0])) for key in keys}
        self.model.update(changed)
        rows = weights_of(self.model)
        plan = self.planner.plan(weights_of(changed), lambda p: rows_between(rows, p.bits, p.last))
        self.planner.commit(plan)
        return plan


@pytest.mark.parametrize("ring", [4, 5, 16, 64])
@pytest.mark.parametrize("changes", [0, 3, 40])
def test_every_page_is_written_within_the_ring(ring: int, changes: int) -> None:
    """At every publication the pages cover the shard, none is too large, and no delta that is needed is overwritten."""
    policy = PagePolicy(page_bytes=96, part_bytes=48, ring=ring)
    shard = Shard(policy)
    for _ in range(3 * ring):
        plan = shard.publish(changes)
        state = plan.state
        assert is_partition(shard.planner.root, (prefix for prefix, _ in state.pages))
        assert state.sequence - state.oldest < ring - 1
        assert all(len(rows) * row_bytes(0) <= policy.page_bytes for _, rows in plan.pages)
        assert all((rows.weights != 0).all() for _, rows in plan.pages)
        for sequence in range(state.oldest + 1, plan.sequence + 1):
            assert state.slot_parts[sequence % ring] > 0
        assert state.slot_parts[plan.slot] == len(plan.parts) > 0


def test_the_compacted_topic_holds_what_is_needed_and_no_more() -> None:
    """Of each key the last value: exactly the current pages, and the parts of the deltas after the oldest of them."""
    shard = Shard(PagePolicy(page_bytes=96, part_bytes=48, ring=8))
    topic: dict[bytes, bytes | None] = {}
    for round_ in range(60):
        plan = shard.publish(60 if round_ % 7 == 0 else 4)
        stamp = Stamp(1, 2, plan.sequence, round_, round_)
        topic.update(publication(plan, stamp, 1, None))
        live = [decode(key, value) for key, value in topic.items() if value is not None]
        pages = {record.prefix: record.stamp.sequence for record in live if isinstance(record, PageRecord)}
        assert pages == dict(plan.state.pages)
        deltas = [record for record in live if isinstance(record, DeltaRecord)]
        for delta in deltas:
            assert plan.state.oldest < delta.stamp.sequence or delta.stamp.sequence == plan.sequence
        found = sorted((d.stamp.sequence, d.part) for d in deltas)
        first = min(plan.state.oldest + 1, plan.sequence)
        assert {sequence for sequence, _ in found} == set(range(first, plan.sequence + 1))


def test_steady_publications_cost_the_changes_and_a_part_of_the_model() -> None:
    """After the first publication no single one writes more than a small part of the pages."""
    shard = Shard(PagePolicy(page_bytes=600, ring=32, delta_share=0.5))
    shard.publish(4_000)
    sizes = [sum(len(rows) for _, rows in shard.publish(9).pages) for _ in range(100)]
    assert max(sizes) < 4_000 / 8 and sum(sizes[50:]) > 4_000


def test_a_lean_delta_leaves_out_what_the_pages_hold() -> None:
    """Pages and delta of a lean publication have no key in common, and together hold every change."""
    shard = Shard(PagePolicy(page_bytes=96, part_bytes=10_000, ring=4, lean=True))
    for _ in range(30):
        before = dict(shard.model)
        plan = shard.publish(10)
        changed = {key for key, weight in shard.model.items() if before.get(key) != weight}
        spans = [(prefix.bits, prefix.last) for prefix, _ in plan.pages]
        delta = set(plan.parts[0].keys.tolist())
        assert not any(first <= key <= last for key in delta for first, last in spans)
        assert all(key in delta or any(f <= key <= t for f, t in spans) for key in changed)


def test_planning_goes_on_from_the_last_version_record() -> None:
    """A planner made from a version record plans what the one before would have, but for the credit."""
    shard = Shard(PagePolicy(page_bytes=96, part_bytes=48, ring=8))
    for _ in range(20):
        plan = shard.publish(12)
    stamp = Stamp(1, 2, plan.sequence, 1, 1)
    record = decode(b"version", encode_version(stamp, 1, 1, plan.state))
    assert isinstance(record, VersionRecord)
    again: PagePlanner[WeightRows] = PagePlanner(shard_prefix(1, 2), shard.planner.policy, record.state)
    assert again.state.pages == shard.planner.state.pages
    with pytest.raises(ValueError, match="cannot follow"):
        again.commit(plan)


def test_another_ring_is_taken_over_at_once() -> None:
    """With a ring of another size every page is written and every old delta deleted in the first publication."""
    shard = Shard(PagePolicy(page_bytes=96, ring=16))
    for _ in range(30):
        shard.publish(12)
    old = shard.planner.state
    shard.planner = PagePlanner(shard_prefix(1, 2), PagePolicy(page_bytes=96, ring=5), old)
    plan = shard.publish(3)
    assert all(written == plan.sequence for _, written in plan.state.pages)
    gone = set(plan.retired) | {(plan.slot, part) for part in range(len(plan.parts))}
    assert gone >= {(int(s), p) for s in np.flatnonzero(old.slot_parts) for p in range(old.slot_parts[s])}


def test_pages_that_do_not_cover_the_shard_are_refused() -> None:
    """A planner does not begin from a state with a hole."""
    state = PageState(1, ((Prefix(0, 1), 1),), np.zeros(8, np.int64))
    with pytest.raises(ValueError, match="cover"):
        PagePlanner(shard_prefix(0, 1), PagePolicy(ring=8), state)


@pytest.mark.parametrize("policy", [{"ring": 3}, {"page_bytes": 0}, {"part_bytes": 0}, {"delta_share": -1.0}])
def test_an_impossible_policy_is_refused(policy: dict[str, float]) -> None:
    """Rings under 4 and sizes under 1 cannot work."""
    with pytest.raises(ValueError):
        PagePolicy(**policy)  # type: ignore[arg-type]


@settings(max_examples=60)
@given(
    st.dictionaries(st.integers(1, 2**64 - 1), st.floats(width=32, allow_nan=False), max_size=20),
    st.integers(0, 3),
)
def test_rows_come_back_to_the_bit(model: dict[int, float], ncols: int) -> None:
    """Deltas and pages of weights, and of one to three state columns."""
    rows: WeightRows | StateRows = weights_of(model)
    if ncols:
        columns = np.random.default_rng(1).standard_normal((len(rows), ncols))
        rows = StateRows(rows.keys, columns, np.arange(len(rows)))
    values = [(b"delta/3/1", encode_delta(STAMP, 1, 2, rows)), (b"page/", encode_page(STAMP, Prefix(0, 0), rows))]
    for key, value in values:
        record = decode(key, value)
        assert isinstance(record, DeltaRecord | PageRecord) and record.stamp == STAMP
        np.testing.assert_array_equal(record.rows.keys, rows.keys)
        if isinstance(rows, StateRows):
            assert isinstance(record.rows, StateRows)
            assert record.rows.columns.tobytes() == rows.columns.tobytes()
            np.testing.assert_array_equal(record.rows.touched, rows.touched)
        else:
            assert isinstance(record.rows, WeightRows)
            assert record.rows.weights.tobytes() == rows.weights.tobytes()


RECORDS = [
    (b"model", encode_model(STAMP, 9, CONTENT)),
    (b"version", encode_version(STAMP, 9, 2, PageState(3, ((Prefix(0, 0), 2),), np.zeros(4, np.int64)))),
    (b"delta/3/0", encode_delta(STAMP, 0, 1, weights_of({5: 1.0, 9: 2.0}))),
    (b"page/", encode_page(STAMP, Prefix(0, 0), weights_of({5: 1.0, 9: 2.0}))),
]


@settings(max_examples=300)
@given(st.sampled_from(RECORDS), st.integers(0, 10_000), st.integers(1, 255))
def test_a_changed_byte_is_always_found(record: tuple[bytes, bytes], place: int, change: int) -> None:
    """Whatever byte of a record is changed, reading it raises."""
    key, value = record
    damaged = bytearray(value)
    damaged[place % len(value)] ^= change
    with pytest.raises(RecordError):
        decode(key, bytes(damaged))


@given(st.sampled_from(RECORDS), st.integers(0, 200))
def test_a_cut_record_is_always_found(record: tuple[bytes, bytes], kept: int) -> None:
    """A record without its last bytes raises."""
    key, value = record
    with pytest.raises(RecordError):
        decode(key, value[: min(kept, len(value) - 1)])


@given(st.binary(max_size=300))
def test_foreign_bytes_are_foreign(value: bytes) -> None:
    """Bytes without our magic raise ForeignRecord."""
    if value[:4] != b"SLsn":
        with pytest.raises(ForeignRecord):
            decode(b"model", value)


def test_a_newer_version_is_said_to_be_newer() -> None:
    """Format 2 raises NewerVersion, whatever else is in the record."""
    for key, value in RECORDS:
        with pytest.raises(NewerVersion, match="format 2"):
            decode(key, value[:4] + b"\x02\x00" + value[6:20])


@pytest.mark.parametrize("wrong", [b"model", b"version", b"delta/3/1", b"delta/x/0", b"page/1", b"", b"delta/0"])
def test_a_record_under_a_wrong_key_is_refused(wrong: bytes) -> None:
    """The key must be the one that the value belongs to."""
    for key, value in RECORDS:
        if key != wrong:
            with pytest.raises(DamagedRecord):
                decode(wrong, value)


def test_rows_out_of_order_or_out_of_the_page_are_refused() -> None:
    """A checksum alone does not make a record."""
    falling = WeightRows(np.array([9, 5], np.uint64), np.ones(2, np.float32))
    for value in (encode_delta(STAMP, 0, 1, falling), encode_delta(STAMP, 1, 1, weights_of({5: 1.0}))):
        with pytest.raises(DamagedRecord):
            decode(None, value)
    with pytest.raises(DamagedRecord):
        decode(None, encode_page(STAMP, Prefix(1 << 63, 1), weights_of({5: 1.0})))
    with pytest.raises(DamagedRecord, match="shard"):
        decode(None, encode_page(Stamp(1, 2, 1, 1, 1), Prefix(0, 1), weights_of({5: 1.0})))


def test_a_model_record_needs_its_fields() -> None:
    """What a scorer must know cannot be left out."""
    with pytest.raises(ValueError, match="optimizer"):
        encode_model(STAMP, 1, {**{k: v for k, v in CONTENT.items() if k != "optimizer"}})


def test_a_publication_counts_its_records_and_ends_with_the_version() -> None:
    """The version record is last and counts the others that have a value."""
    shard = Shard(PagePolicy(page_bytes=96, part_bytes=48, ring=8))
    for _ in range(9):
        plan = shard.publish(20)
        records = list(publication(plan, Stamp(1, 2, plan.sequence, 1, 1), 1, None))
        last = decode(*records[-1])  # type: ignore[arg-type]
        assert isinstance(last, VersionRecord)
        assert last.records == sum(value is not None for _, value in records[:-1])
    with pytest.raises(ValueError):
        list(publication(plan, Stamp(1, 2, plan.sequence + 1, 1, 1), 1, None))
    with pytest.raises(ValueError):
        list(publication(plan, Stamp(1, 2, plan.sequence, 1, 1), 1, CONTENT))
