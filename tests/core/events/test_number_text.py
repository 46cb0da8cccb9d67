"""Numbers written by kernels are the text that orjson writes, and so the shortest that reads as the number."""

from __future__ import annotations

from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_learner.core.events.fast.number_text import write_float, write_float32, write_integer
from stream_learner.core.machine.kernels import kernel
from stream_learner.core.machine.memory import address_of

SLOT = 40


@kernel
def write_floats(values: Any, out: int, lengths: Any) -> None:
    """Each into a slot of its own."""
    for i in range(len(values)):
        lengths[i] = write_float(values[i], out + SLOT * i) - out - SLOT * i


@kernel
def write_floats32(bits: Any, out: int, lengths: Any) -> None:
    """The same of the bits of float32."""
    for i in range(len(bits)):
        lengths[i] = write_float32(bits[i], out + SLOT * i) - out - SLOT * i


@kernel
def write_integers(values: Any, out: int, lengths: Any) -> None:
    """The same of whole numbers."""
    for i in range(len(values)):
        lengths[i] = write_integer(values[i], out + SLOT * i) - out - SLOT * i


def assert_written(write: Any, values: np.ndarray, given: np.ndarray, most: int) -> None:
    """The kernel writes `given` as orjson writes `values`; floats as the same number, in as many digits."""
    out, lengths = np.zeros(SLOT * len(values), np.uint8), np.zeros(len(values), np.int64)
    write(given, address_of(out), lengths)
    assert lengths.max() <= most
    for i, value in enumerate(values):
        text = out[SLOT * i : SLOT * i + lengths[i]].tobytes()
        right = orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)
        assert text.replace(b"e+", b"e") == right.replace(b"e+", b"e"), repr(value)


EDGES = [*(2.0**power for power in range(-1074, 1024)), *(10.0**power for power in range(-308, 309))]
NEAR = np.array(EDGES).view(np.int64)[:, None] + np.arange(-2, 3)


def test_floats_at_every_power_and_beside_it() -> None:
    """Of two, where the float below is nearer than the one above, and of ten."""
    values = NEAR.ravel().view(np.float64)
    values = np.concatenate([values[np.isfinite(values)], [0.0, -0.0, 5e-324, 1.7976931348623157e308, 0.1, 2 / 3]])
    assert_written(write_floats, values, values, 25)


def test_float32_at_every_power_and_beside_it() -> None:
    """And at random."""
    edges = np.array([2.0**power for power in range(-149, 128)] + [10.0**n for n in range(-38, 39)], np.float32)
    near = (edges.view(np.int32)[:, None] + np.arange(-2, 3, dtype=np.int32)).ravel()
    bits = np.concatenate([near.view(np.uint32), np.random.default_rng(1).integers(0, 1 << 32, 20_000, np.uint32)])
    bits = bits[np.isfinite(bits.view(np.float32))]
    assert_written(write_floats32, bits.view(np.float32), bits.astype(np.int64), 17)


@pytest.mark.parametrize("kind", ["bits", "unit", "thousandths", "whole"])
def test_floats_at_random(kind: str) -> None:
    """All floats, and those that events have."""
    rng = np.random.default_rng(2)
    values = {
        "bits": rng.integers(0, 1 << 64, 20_000, np.uint64).view(np.float64),
        "unit": rng.random(20_000),
        "thousandths": rng.integers(-(10**9), 10**9, 20_000) / 1000,
        "whole": rng.integers(0, 1 << 62, 20_000).astype(np.float64),
    }[kind]
    values = values[np.isfinite(values)]
    assert_written(write_floats, values, values, 25)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-(10**9), 10**9), min_size=1))
def test_integers(values: list[int]) -> None:
    """Of every length."""
    more = [*values, 0, 10**8, 10**8 - 1, -(2**63), *(10**n for n in range(19)), *(10**n - 1 for n in range(19))]
    numbers = np.array(more, np.int64)
    assert_written(write_integers, numbers, numbers, 20)
