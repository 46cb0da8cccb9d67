"""The oracle's features, arithmetic, learner and scorer: values worked out by hand, and agreement with libm."""

from __future__ import annotations

import json
import math
import random
import struct

import pytest

from tests import scenarios
from tests.oracles.arithmetic import dot, exp_documented, log1p_documented, log_loss, sigmoid
from tests.oracles.events import BIAS_KEY, hash_bytes
from tests.oracles.fold import model_digest
from tests.oracles.loop import (
    Example,
    Record,
    features,
    fold,
    predict,
    published,
    read_click,
    read_impression,
    settings,
)

# --- hashes and features --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "digest"),
    [("", 0xEF46DB3751D8E999), ("a", 0xD24EC4F1A98C6E5B), ("abc", 0x44BC2CF5AD770999)],
)
def test_hash_is_xxh64_with_seed_0(text: str, digest: int) -> None:
    """The published vectors of XXH64."""
    assert hash_bytes(text.encode()) == digest


def key(text: str) -> int:
    """A feature's key."""
    return hash_bytes(text.encode())


def test_features_follow_the_event_then_missing_then_crosses_then_bias() -> None:
    """Every row of the table of features, in order, worked out by hand."""
    s = settings(
        categorical=("n",),
        number=("f", "0"),
        log=("l",),
        buckets={"b": (1.0, 2.0)},
        missing=("gone", "f"),
        crosses=(("s", "f"),),
    )
    event = {
        "id": 1,
        "s": "x",
        "n": 3,
        "f": 1.5,
        "o": {"t": True, "u": ["p", "q", "p"]},
        "l": -1.0,
        "b": 2,
        "0": 0,
        "w": 360,
    }
    cross = hash_bytes(struct.pack("<QQ", key("s=x"), key("f")))
    assert features({**event, "gone": None}, s) == (
        (key("s=x"), 1.0),
        (key("n=3"), 1.0),
        (key("f"), 1.5),
        (key("o.t=true"), 1.0),
        (key("o.u=p"), 2.0),
        (key("o.u=q"), 1.0),
        (key("l"), -log1p_documented(1.0)),
        (key("b=b2"), 1.0),
        (key("w=b2062"), 1.0),
        (key("gone:missing"), 1.0),
        (cross, 1.5),
        (BIAS_KEY, 1.0),
    )


def test_crosses_take_every_combination_of_lists() -> None:
    """A field with several features crosses with each of them, in order."""
    found = features({"a": ["x", "y"], "b": "z"}, settings(crosses=(("a", "b"),)))
    pairs = [struct.pack("<QQ", key(f"a={v}"), key("b=z")) for v in "xy"]
    assert [k for k, _ in found[3:5]] == [hash_bytes(pair) for pair in pairs]


def test_values_that_cancel_are_dropped() -> None:
    """A number listed twice with opposite signs leaves no feature."""
    assert features({"a": [2.5, -2.5]}, settings(number=("a",))) == ((BIAS_KEY, 1.0),)


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"{",
        b"[]",
        b"\xff",
        b'{"id":true}',
        b'{"id":1.0}',
        b'{"id":-0}',
        b'{"id":"\\ud800"}',
        b'{"id":NaN}',
    ],
)
def test_what_is_no_event_keeps_only_its_place(value: bytes | None) -> None:
    """A bad record has an offset and nothing else, on both topics."""
    assert read_impression(Record(7, 5, value), settings()).time_ms is None
    assert read_click(Record(7, 5, value), settings()).offset == 7


def test_an_integer_id_equals_its_text() -> None:
    """123 and "123" are one id, beyond 2**63 too."""
    for number in (123, 2**64 - 1, -(2**63)):
        as_number = read_click(Record(0, 5, b'{"id":%d}' % number), settings())
        as_text = read_click(Record(0, 5, b'{"id":"%d"}' % number), settings())
        assert as_number == as_text


@pytest.mark.parametrize(
    ("unit", "value"),
    [("ms", 1_700_000_000_123), ("us", 1_700_000_000_123_999), ("iso", "2023-11-14T22:13:20.123Z")],
)
def test_times_come_in_several_units(unit: str, value: int | str) -> None:
    """A moment is read alike in three units."""
    s = settings(time="t", time_unit=unit)
    record = Record(0, 1_700_000_000_123, json.dumps({"id": 1, "t": value}).encode())
    assert read_impression(record, s).time_ms == 1_700_000_000_123


def test_a_time_too_far_ahead_of_its_record_is_bad() -> None:
    """The skew allowed is inclusive."""
    s = settings(time="t", max_skew_ms=10)
    times = [read_impression(Record(0, 100, b'{"id":1,"t":%d}' % t), s).time_ms for t in (110, 111)]
    assert times == [110, None]


# --- the arithmetic and the fold ------------------------------------------------------------------------


def test_exp_and_log1p_are_within_a_few_ulps_of_libm() -> None:
    """The documented operations compute what their names say."""
    rng = random.Random(1)
    for _ in range(3_000):
        x, u = rng.uniform(-700, 700), rng.choice([rng.random(), 10 ** rng.uniform(-12, 12)])
        assert exp_documented(x) == pytest.approx(math.exp(x), rel=1e-15)
        assert log1p_documented(u) == pytest.approx(math.log1p(u), rel=1e-15, abs=1e-300)
    assert exp_documented(0.0) == 1.0
    assert exp_documented(-1e9) == exp_documented(-708.0) > 0


def test_dot_adds_lanes_in_the_documented_tree() -> None:
    """Terms that one sum from left to right would lose, and a ninth that starts again in the first lane."""
    big = 2.0**60
    assert dot([(big, 1), (1, 1), (0, 0), (0, 0), (-big, 1), (1, 1)]) == 2.0
    assert dot((1.0, float(i)) for i in range(9)) == 36.0


def example(label: float, *pairs: tuple[int, float], weight: float = 1.0, tick: int = 0) -> Example:
    """An example of partition 0."""
    return Example(tick, 0, 0, 0, 1, label, weight, pairs)


def test_two_steps_of_ftrl_by_hand() -> None:
    """alpha = beta = 1: g = -1/2, n = 1/4, sigma = 1/2, z = -1/2, so w = 1/3; then one negative."""
    s = settings(alpha=1.0, beta=1.0)
    assert fold([example(1.0, (5, 1.0))], s).state == {5: (-0.5, 0.25)}
    after = fold([example(1.0, (5, 1.0)), example(0.0, (5, 1.0))], s)
    w = 0.5 / 1.5
    q = 1 / (1 + math.exp(-w))
    n = 0.25 + q * q
    z = -0.5 + q - (math.sqrt(n) - 0.5) * w
    assert after.state[5] == pytest.approx((z, n), rel=1e-15)
    assert after.predictions == pytest.approx([0.5, q])
    assert after.log_loss_sum == pytest.approx(math.log(2) - math.log(1 - q))


def test_l1_keeps_small_weights_at_zero() -> None:
    """|z| = l1 is still zero; above it the weight starts from zero."""
    s = settings(alpha=1.0, beta=1.0, l1=0.5)
    first = example(1.0, (5, 1.0))
    assert published(fold([first], s).state, s) == {}
    assert 5 in published(fold([first, first], s).state, s)


def test_order_is_tick_then_partition_then_sequence() -> None:
    """Examples of several partitions fold as the log orders them, whatever order they are given in."""
    rows = [example(float(i % 2), (5, 1.0 + i), tick=i // 4)._replace(partition=i // 2 % 2) for i in range(12)]
    by_partition = sorted(rows, key=lambda e: e.partition)
    assert fold(by_partition, settings()) == fold(rows, settings())
    assert fold(rows[::-1], settings()).digest != fold(rows, settings()).digest


@pytest.mark.parametrize(
    "bad",
    [
        example(math.nan, (5, 1.0)),
        example(1.5, (5, 1.0)),
        example(1.0, (5, 1.0), weight=-1.0),
        example(1.0, (5, 1.0), weight=math.inf),
        example(0.0, (5, 1e200)),
        example(1.0, (5, math.inf)),
    ],
)
def test_an_example_that_is_not_finite_changes_nothing(bad: Example) -> None:
    """Such an example is counted as refused; state, sums and digest are as without it."""
    good = example(1.0, (5, 1.0))
    with_it, without = fold([good, bad, good], settings()), fold([good, good], settings())
    assert (with_it.refused, with_it.state, with_it.digest) == (1, without.state, without.digest)
    assert with_it.log_loss_sum == without.log_loss_sum


def test_libm_instead_of_the_documented_functions_agrees_to_1e_9() -> None:
    """The documented operations cost no accuracy, over a whole scenario."""
    scenario = scenarios.scenario("rich")
    examples = [e for joined in scenario.expected() for e in joined.examples]
    ours = fold(examples, scenario.settings)
    libm = fold(examples, scenario.settings, math.exp, math.log1p)
    assert ours.log_loss_sum == pytest.approx(libm.log_loss_sum, rel=1e-9)
    for k, row in ours.state.items():
        assert row == pytest.approx(libm.state[k], rel=1e-9, abs=1e-9)


def test_digest_sees_every_row_and_the_count_but_not_their_order() -> None:
    """Zero rows are as if they were not there."""
    rows = {1: (0.5, 0.25), 2: (-1.0, 2.0)}
    digest = model_digest(rows, 3)
    assert model_digest(dict(reversed(rows.items())), 3) == digest
    assert model_digest({**rows, 9: (0.0, -0.0)}, 3) == digest
    changed = [
        model_digest(rows, 4),
        model_digest({**rows, 2: (-1.0, 2.5)}, 3),
        model_digest({1: rows[1]}, 3),
    ]
    assert len({digest, *changed}) == 4
    assert len(digest) == 16
    assert model_digest({}, 0) == "0" * 16


def test_a_scorer_predicts_with_float32_weights() -> None:
    """The published weight is the nearest float32; unknown keys count nothing."""
    s = settings(alpha=0.3)
    state = fold([example(1.0, (5, 1.0), (6, 0.7)), example(0.0, (6, 2.0))], s).state
    weights = published(state, s)
    assert all(struct.unpack("<f", struct.pack("<f", w))[0] == w for w in weights.values())
    assert predict(weights, ((5, 1.0), (77, 3.0))) == sigmoid(weights[5])


def test_log_loss_is_the_cross_entropy() -> None:
    """For a soft label as for a hard one."""
    for y in (0.0, 0.3, 1.0):
        q = sigmoid(0.8)
        assert log_loss(0.8, y) == pytest.approx(-y * math.log(q) - (1 - y) * math.log(1 - q))
