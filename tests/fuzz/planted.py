"""Targets with a fault planted in what they test, to see that the harness finds it.

A crash, a wrong accept, a hang, an exception, or too much memory, if an input ends with a `z`. It must never be run but
by the harness.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from random import Random

import numpy as np

from proofs.fuzz.guard import GuardedBuffer, Side
from proofs.fuzz.target import Target, Wrong
from stream_learner.core.machine.kernels import kernel
from stream_learner.core.machine.memory import address_of, load_byte

TRIGGER = 0x7A


@kernel
def sum_of_bytes(at: int, count: int) -> int:
    """The sum of so many bytes, and of one more if the last is the trigger."""
    total = 0
    for i in range(count):
        total += load_byte(at + i)
    if count > 0 and load_byte(at + count - 1) == TRIGGER:
        total += load_byte(at + count)
    return total


class _Planted(Target):
    batch_inputs = 16

    def make(self, rng: Random) -> bytes:
        return bytes(rng.randrange(TRIGGER) for _ in range(rng.randrange(1, 9))) + (
            b"z" if rng.random() < 0.05 else b""
        )

    def check(self, inputs: Sequence[bytes], side: Side) -> int:
        for data in inputs:
            self.read(data, side)
        return len(inputs)

    def read(self, data: bytes, side: Side) -> None:
        """The reading that the target tests."""
        raise NotImplementedError


class OverRead(_Planted):
    """A kernel that reads one byte too far."""

    name = "planted-over-read"

    def __init__(self, corpus: Sequence[bytes]) -> None:
        super().__init__(corpus)
        self._buffer = GuardedBuffer("end")

    def read(self, data: bytes, side: Side) -> None:
        if sum_of_bytes(address_of(self._buffer.put(data)), len(data)) != sum(data):
            raise Wrong("another sum")


class WrongAccept(_Planted):
    """A reader that takes what its oracle refuses."""

    name = "planted-wrong-accept"

    def read(self, data: bytes, side: Side) -> None:
        if data.endswith(b"z"):
            raise Wrong(f"{data!r} was taken")


class Undocumented(_Planted):
    """A reader that lets out an exception of another kind."""

    name = "planted-undocumented"

    def read(self, data: bytes, side: Side) -> None:
        if data.endswith(b"z"):
            {}[data]


class Hang(_Planted):
    """A reader that does not come back."""

    name = "planted-hang"

    def read(self, data: bytes, side: Side) -> None:
        while data.endswith(b"z"):
            time.sleep(1.0)


class Greedy(_Planted):
    """A reader that takes a length at its word."""

    name = "planted-greedy"

    def read(self, data: bytes, side: Side) -> None:
        if data.endswith(b"z"):
            np.empty(1 << 34, np.uint8)
