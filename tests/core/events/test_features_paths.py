"""The fast path and the plain path: same columns, same reasons, whatever the bytes."""

from __future__ import annotations

import ctypes
import mmap
from dataclasses import replace
from random import Random

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_learner.core.events.decoders import BatchDecoder, EventSpec
from stream_learner.core.events.fast.layout import PADDING
from stream_learner.core.events.features import FeatureEncoder, FeatureSpec, FieldSpec
from stream_learner.core.events.field_numbers import FieldNumbers
from stream_learner.core.events.plan import Plan
from stream_learner.core.events.reasons import Reason
from tests.core.events import decode_help, json_texts

RICH = FeatureSpec(
    categorical=("cat", "n"),
    fields={
        "log": FieldSpec("log", missing="indicator"),
        "bucket": FieldSpec("bucket", (-1.0, 0.0, 0.5, 3.0), missing="indicator"),
        "number": FieldSpec("number", missing="indicator"),
        "x": FieldSpec("ignore"),
    },
    crosses=(("a", "b"), ("a", "cat", "log"), ("d.e", "a"), ("f", "f"), ("a", "number")),
    max_features=60,
    max_value_bytes=48,
)
NARROW = FeatureSpec(include=("a", "d.e", "user", "é"), exclude=("a.b", "user.id"), max_features=5, bias=False)
FEATURES = (FeatureSpec(), RICH, replace(RICH, key_rule=2), NARROW, None)
EVENTS = (
    EventSpec(time="t", time_unit="auto", weight="w", value="v", max_skew_ms=10**15),
    EventSpec(time="t", time_unit="ms", weight="w"),
    EventSpec(id="user.id", time="t", time_unit="s", value="v", max_event_bytes=300, max_skew_ms=1000),
    EventSpec(),
    None,
)
TIMES = (1_700_000_000_000, 1_700_000_000_000, 1_700_000_000_000, 5, -1, 253_402_300_800_000)


def plan_of(event_spec: EventSpec | None, features: FeatureSpec | None) -> Plan:
    """The plan of an encoder, a click decoder or an impression decoder, which counts where fields are named."""
    if event_spec is None:
        return Plan(roles={}, features=features or FeatureSpec(), ignore=("id", "t"))
    if features is None:
        return event_spec.click_plan()
    try:
        return event_spec.impression_plan(features, FieldNumbers(features))
    except ValueError:
        return event_spec.impression_plan(features)


def random_batch(rng: Random, oddness: float) -> list[bytes]:
    """Events, repeats of them (the second is known to the kernel), and damaged ones between them."""
    raws: list[bytes] = []
    for _ in range(rng.randrange(1, 10)):
        raw = json_texts.event(rng, rng.choice((0.0, 0.0, oddness)))
        raws += [raw] * rng.randrange(1, 3)
        if rng.random() < oddness:
            raws.append(json_texts.damage(rng, raw))
    return raws


@pytest.mark.parametrize("event_spec", EVENTS)
@pytest.mark.parametrize("features", FEATURES)
@pytest.mark.parametrize("oddness", [0.02, 0.5])
@pytest.mark.parametrize("ones_left_out", [False, True])
def test_paths_agree_on_generated_and_damaged_json(event_spec, features, oddness, ones_left_out) -> None:  # type: ignore[no-untyped-def]
    """One decoder over many batches, learning fields as it goes, against the plain path event by event."""
    rng = Random(f"{event_spec} {features} {oddness}")
    plan = plan_of(event_spec, features)
    decoder, accepted = BatchDecoder(plan, ones_left_out), 0
    for _ in range(60):
        raws = random_batch(rng, oddness)
        accepted += decode_help.check(decoder, plan, raws, [rng.choice(TIMES) for _ in raws])
    assert accepted > 0


ONES = [b'{"id":"1","a":"x","b":7,"c":null}', b'{"id":"2","a":"y","b":8}']
NOT_ONES = {
    "a number": b'{"id":"3","a":"x","n":2.5}',
    "a number before the others": b'{"n":-1,"id":"3","a":["x","z"]}',
    "a repeat": b'{"id":"3","a":["x","x"]}',
    "an unusual event": b'{"id":"3","a":"x","n":2.5,"\\u0061b":1}',
    "a cross of numbers": b'{"id":"3","m":3,"o":0.5}',
}


@pytest.mark.parametrize("name", NOT_ONES)
@pytest.mark.parametrize("known", [False, True])
def test_values_are_left_out_until_one_is_not_1(name: str, known: bool) -> None:
    """Of a batch of categories there are none; the first other value brings those of its batch and of all later ones.

    known: whether the fields were met before; otherwise the plain path meets the value.
    """
    plan = EventSpec().impression_plan(FeatureSpec(categorical=("b",), crosses=(("m", "o"),), key_rule=2))
    decoder = BatchDecoder(plan, ones_left_out=True)

    def values(raws: list[bytes]) -> int:
        decode_help.check(decoder, plan, raws, [0] * len(raws))
        return len(decoder.decode(*decode_help.batch(raws)).values)

    assert values(ONES + [b'{"id":"3","m":1,"n":1,"o":true}'] * known) == 0
    assert values(ONES * 3) == 0
    decode_help.check(decoder, plan, [*ONES, NOT_ONES[name], *ONES], [0] * 5)
    assert values(ONES) == len(decoder.decode(*decode_help.batch(ONES)).keys) > 0


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=40),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.dictionaries(st.sampled_from(json_texts.KEYS) | st.text(max_size=4), JSON, max_size=6), max_size=4))
def test_paths_agree_on_any_values(objects: list[dict]) -> None:  # type: ignore[type-arg]
    """Any JSON values, written with and without escapes of what is not ASCII, twice each."""
    import json

    plan = plan_of(None, RICH)
    raws = [
        json.dumps(o, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
        for o in objects
        for ascii_only in (0, 1)
    ]
    decode_help.check(BatchDecoder(plan), plan, raws * 2, [0] * (2 * len(raws)))


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_paths_agree_on_flipped_bytes(data: st.DataObject) -> None:
    """Any byte of an event set to any other."""
    plan = plan_of(EVENTS[0], RICH)
    decoder = BatchDecoder(plan)
    raw = '{"id":"x1","t":1700000000.5,"a":["é",{"b":-1.5e3}],"cat":12,"d":{"e":"\\u00e9"},"log":3,"f":null}'.encode()
    decode_help.check(decoder, plan, [raw, raw], [TIMES[0]] * 2)
    flipped = bytearray(raw)
    for _ in range(data.draw(st.integers(1, 3))):
        flipped[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    decode_help.check(decoder, plan, [bytes(flipped)], [TIMES[0]])


@pytest.mark.parametrize("name", ["cat", "log", "bucket", "number", "f", "x", "id", "t", "w", "v"])
def test_numbers_at_the_edges(name: str) -> None:
    """Every odd number, in a field of every kind and every role, and in a list there."""
    rest = {
        "id": '"i"',
        "t": "1700000000",
        "w": "1",
        "cat": "1",
        "log": "1",
        "bucket": "1",
        "number": "1",
        "f": "1",
        "x": "1",
    }
    for event_spec, features in ((EVENTS[0], RICH), (EVENTS[0], None), (EVENTS[1], RICH), (EVENTS[2], RICH)):
        plan = plan_of(event_spec, features)
        for text in json_texts.NUMBERS:
            events = [rest | {name: number} for number in ("1", text, text, f"[{text}]")]
            raws = ["{" + ",".join(f'"{k}":{v}' for k, v in event.items()) + "}" for event in events]
            decode_help.check(BatchDecoder(plan), plan, [raw.encode() for raw in raws], [TIMES[0]] * 4)


def test_floats_are_the_nearest() -> None:
    """Numbers of up to 19 digits and moderate exponents: the kernel's value is Python's float, to the bit."""
    rng = Random(7)
    texts = [repr(rng.uniform(-1, 1) * 10.0 ** rng.randrange(-30, 30)) for _ in range(2000)]
    texts += [f"{rng.randrange(10 ** rng.randrange(1, 20))}e{rng.randrange(-60, 60)}" for _ in range(2000)]
    texts += [f"{rng.randrange(1 << 53, 1 << 54)}.5" for _ in range(200)] + ["9007199254740993.0", "0.1", "8.5e22"]
    texts += [repr((rng.randrange(1 << 52, 1 << 53) + 0.5) * 2.0**k) for k in range(-60, 60)]
    encoder = FeatureEncoder(FeatureSpec(bias=False, fields={"v": FieldSpec("number")}))
    data, bounds = decode_help.batch([f'{{"v":{text}}}'.encode() for text in ["1", *texts]])
    rows = encoder.encode_json(data, bounds)
    expected = [float(text) for text in ["1", *texts] if float(text) != 0.0]
    assert rows.values.tolist() == expected
    assert encoder.handed_over <= 1 + len(texts) // 100


@pytest.mark.parametrize("text", [*json_texts.ESCAPES, *json_texts.RAW_BYTES], ids=repr)
def test_every_escape_and_byte_sequence(text: str | bytes) -> None:
    """Inside values, ids and keys: first, last, between, and alone."""
    odd = text if isinstance(text, bytes) else text.encode()
    plan = plan_of(EventSpec(), FeatureSpec())
    raws = [b'{"id":"1","a":"x"}']
    for string in (odd, odd + b"x", b"x" + odd, b"seven b" + odd + b" and more than eight", odd + odd):
        raws += [
            b'{"id":"1","a":"' + string + b'"}',
            b'{"id":"' + string + b'","a":"x"}',
            b'{"id":"1","' + string + b'":"x"}',
        ]
    decode_help.check(BatchDecoder(plan), plan, raws * 2, [5] * (2 * len(raws)))


def test_what_lies_behind_a_record_never_counts() -> None:
    """Every cut of an event, followed by exactly what was cut off, or by anything else, is as the cut alone."""
    plan = plan_of(EVENTS[0], RICH)
    decoder = BatchDecoder(plan)
    raw = '{"id":"x1","t":1700000000000 ,"a":["ü\\n",{"b}":true}],"cat":12,"d":{"e":"yz"},"log":1e2}  '.encode()
    decode_help.check(decoder, plan, [raw, raw], [TIMES[0]] * 2)
    rng = Random(3)
    for cut in range(len(raw) + 1):
        expected = decode_help.plainly(plan, raw[:cut], TIMES[0])
        for behind in (raw[cut:] + bytes(2 * PADDING), rng.randbytes(2 * PADDING), b'"}]' * 60, b"", b"}"):
            columns = decoder.decode(raw[:cut] + behind, np.array([0, cut]), np.array(TIMES[:1]))
            assert decode_help.events(columns) == [expected], (cut, behind)


def test_nothing_is_read_behind_the_buffer() -> None:
    """A buffer whose next page must not be touched: every cut of an event at its very end."""
    page = mmap.PAGESIZE
    area = mmap.mmap(-1, 2 * page)
    start = ctypes.addressof(ctypes.c_char.from_buffer(area))
    protect = ctypes.CDLL(None).mprotect
    protect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    plan = plan_of(None, FeatureSpec())
    decoder = BatchDecoder(plan)
    raw = '{"name of a field":"text","a":[1.25,"ünï",true],"b":{"c":123456789}}'.encode()
    decode_help.check(decoder, plan, [raw, raw], [0, 0])
    assert protect(start + page, page, 0) == 0
    try:
        for cut in range(1, len(raw) + 1):
            area[page - 2 * cut : page] = raw[-cut:] + raw[:cut]
            data = memoryview(area)[page - 2 * cut : page]
            columns = decoder.decode(data, np.array([0, cut, 2 * cut]), np.zeros(2, np.int64))  # type: ignore[arg-type]
            assert decode_help.events(columns) == [decode_help.plainly(plan, r, 0) for r in (raw[-cut:], raw[:cut])]
            data.release()
    finally:
        protect(start + page, page, 3)


def test_batches_of_any_cut_give_the_same() -> None:
    """An event decodes to the same columns alone, in small batches and in one large batch."""
    rng = Random(5)
    plan = plan_of(EVENTS[1], FeatureSpec())
    raws = [json_texts.event(rng, 0.02) for _ in range(200)]
    data, bounds = decode_help.batch(raws)
    times = np.full(len(raws), TIMES[0])
    whole = decode_help.events(BatchDecoder(plan).decode(data, bounds, times))
    decoder, pieces = BatchDecoder(plan), []
    for first in range(0, len(raws), 7):
        last = min(first + 7, len(raws))
        pieces += decode_help.events(decoder.decode(data, bounds[first : last + 1], times[first:last]))
    assert pieces == whole


def test_ordinary_events_stay_in_the_kernel() -> None:
    """Blanks after commas, nesting, lists, escapes, UTF-8, numbers of all kinds: only new fields leave the kernel."""
    event = {
        "id": "a",
        "s": "日本",
        "e": "naïve",
        "n": [1, -2.5, 0.1 + 0.2],
        "o": {"p": True, "q": None, "r": [{"s": 1}]},
    }
    compact, spaced = orjson.dumps(event), b'{"id" : "a", "s": "\\u65e5", "e": "x\\ty", "n": [], "o": { }\n}'
    indented = orjson.dumps(event, option=orjson.OPT_INDENT_2)
    plan = plan_of(EventSpec(), FeatureSpec())
    decoder = BatchDecoder(plan)
    decode_help.check(decoder, plan, [compact, spaced, indented] * 20, [1] * 60)
    assert decoder.handed_over == 1


def test_fields_in_random_order_stay_in_the_kernel() -> None:
    """What cannot be guessed is found by hash."""
    rng = Random(1)
    plan = plan_of(EventSpec(), FeatureSpec())
    decoder = BatchDecoder(plan)
    members = [f'"name_{i}":"{i}"' for i in range(30)] + ['"id":"x"']
    raws = [("{" + ",".join(rng.sample(members, len(members))) + "}").encode() for _ in range(40)]
    decode_help.check(decoder, plan, raws, [1] * 40)
    assert decoder.handed_over == 1


def test_more_fields_than_the_kernel_can_know() -> None:
    """Random names without end: the kernel's memory fills, the columns stay right."""
    plan = plan_of(EventSpec(), FeatureSpec(max_features=300))
    decoder = BatchDecoder(plan)
    raws = [orjson.dumps({"id": "x", **{f"f{i}_{j}": j for j in range(250)}}) for i in range(20)]
    assert decode_help.check(decoder, plan, raws + raws[-2:] + raws[:2], [1] * 24) == 24


def test_a_click_needs_no_known_fields() -> None:
    """What a click holds besides its id, time and value is skipped, checked, and never leaves the kernel."""
    plan = plan_of(EventSpec(id="ad.id", time="t", value="v"), None)
    decoder = BatchDecoder(plan)
    raws = [f'{{"f{i}":[{{"x":1}},[2]],"ad":{{"y{i}":"z","id":"{i}"}},"t":{i},"v":0.5}}'.encode() for i in range(50)]
    assert decode_help.check(decoder, plan, raws, [TIMES[0]] * 50) == 50
    assert decoder.handed_over == 0
    assert plan_status(decoder, b'{"ad":{"id":"1"},"t":1,"junk":[1,}') == Reason.NOT_JSON


def plan_status(decoder: BatchDecoder, raw: bytes) -> int:
    """Status of one event."""
    return int(decoder.decode(raw, np.array([0, len(raw)]), np.array(TIMES[:1])).status[0])


def test_deep_nesting_is_decided_by_orjson() -> None:
    """Depths around every limit: the kernel's, and orjson's 1,024."""
    plan = plan_of(EventSpec(), FeatureSpec(exclude=("s",), max_value_bytes=4096))
    decoder = BatchDecoder(plan)
    raws = [b'{"id":"1","a":1,"s":1}']
    for deep in (1, 45, 46, 47, 48, 49, 50, 100, 1022, 1023, 1024, 1025, 5000):
        raws += [b'{"id":"1","%s":%s1%s}' % (k, b"[" * deep, b"]" * deep) for k in (b"a", b"s")]
        raws += [b'{"id":"1","a":' + b'{"a":' * deep + b"1" + b"}" * deep + b"}"]
    decode_help.check(decoder, plan, raws * 2, [1] * (2 * len(raws)))


def test_bounds_that_do_not_fit_are_refused() -> None:
    """Falling bounds, bounds outside of the data, and columns of other lengths raise instead of being read."""
    decoder = BatchDecoder(plan_of(EventSpec(), FeatureSpec()))
    for bounds in ([0, 3, 2], [-1, 2], [0, 11], [5, 4, 10], []):
        with pytest.raises(ValueError, match="bounds must"):
            decoder.decode(b"0123456789", np.array(bounds, np.int64), np.zeros(max(len(bounds) - 1, 0), np.int64))
    with pytest.raises(ValueError, match="timestamps"):
        decoder.decode(b"{}", np.array([0, 2]), np.zeros(2, np.int64))
    assert len(decoder.decode(b"", np.array([0]), np.zeros(0, np.int64)).status) == 0


def test_results_belong_to_the_caller() -> None:
    """Later batches do not change the columns of earlier ones."""
    plan = plan_of(EventSpec(), FeatureSpec())
    decoder = BatchDecoder(plan)
    raws = [b'{"id":"%d","a":"%d"}' % (i, i) for i in range(50)]
    data, bounds = decode_help.batch(raws)
    first = decoder.decode(data, bounds, np.ones(50, np.int64))
    before = decode_help.events(first)
    decoder.decode(data[::-1], bounds, np.ones(50, np.int64))
    assert decode_help.events(first) == before
