"""Loads the kernels of a role from the cache before it starts, or compiles them.

While it compiles, a line on stderr names the part, on a terminal. Elsewhere the log has one event: `compiling_kernels`,
or `waiting_for_kernels` where another process compiles them. `kernels_cannot_be_kept` says that the next start compiles
again.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

from stream_learner.adapters.telemetry.logs import get_logger, logs_as_json
from stream_learner.core.machine.kernels import MACHINE_CODE, missing
from stream_learner.core.parts import Part, compile_parts, parts_of

if TYPE_CHECKING:
    from stream_learner.config import Config
    from stream_learner.core.model.optimizers import Optimizer

LOOK_S = 0.1
INTERRUPTED = 130
BUSY = "it takes longer than expected where others use the processors"
_SAID_UNKEPT = threading.Event()


class Stop(Protocol):
    """A flag that ends the waiting early."""

    def is_set(self) -> bool:
        """Whether to stop."""


def load_kernels(roles: Iterable[str], optimizers: Iterable[Optimizer] = (), stop: Stop | None = None) -> bool:
    """`load` the kernels that these roles need, with these optimizers."""
    return load(parts_of(roles, optimizers), stop)


def kernels_of_inputs(config: Config) -> list[str]:
    """What a role that reads these inputs needs besides its own kernels."""
    return ["avro"] if "avro" in (config.input.impressions.format, config.input.clicks.format) else []


def load(parts: Sequence[Part], stop: Stop | None = None) -> bool:
    """Load kernels from the cache, or compile them, and wait for that; returns False as soon as `stop` is set.

    The work is done in a thread of its own, because Python handles no signal while the compiler runs. A process that
    ends before it is done must end with `os._exit`: the compiler crashes at an ordinary end. Raises what the compiler
    raised.
    """
    loading = Loading(parts)
    report = Progress(loading) if _on_terminal() else LogLine(loading)
    try:
        while not loading.ended.wait(LOOK_S):
            report.look()
            _say_unkept()
            if stop is not None and stop.is_set():
                return False
    except KeyboardInterrupt:
        os._exit(INTERRUPTED)
    report.look()
    report.close()
    _say_unkept()
    if loading.error is not None:
        raise loading.error
    return True


class Loading:
    """Kernels that are being loaded or compiled.

    current: the index of the present one of `parts`. error: what the compiler raised. ended: is set at the end.
    """

    def __init__(self, parts: Sequence[Part]) -> None:
        self.parts = parts
        self.current = 0
        self.error: BaseException | None = None
        self.ended = threading.Event()
        self.began_s = time.monotonic()
        self._missing_before = missing()
        threading.Thread(target=self._load, name="kernels", daemon=True).start()

    @property
    def compiles(self) -> bool:
        """Whether a kernel was missing."""
        return missing() > self._missing_before

    @property
    def left(self) -> Sequence[Part]:
        """The present part and those after it."""
        return self.parts[self.current :]

    @property
    def expected_s(self) -> float:
        """About how long it takes to compile the parts that are left, where nothing else runs."""
        return sum(part.first_time_s for part in self.left)

    def _load(self) -> None:
        try:
            compile_parts(self.parts, self._begin)
        except BaseException as error:  # noqa: BLE001 -- raised in the thread that waits, whatever it is
            self.error = error
        self.ended.set()

    def _begin(self, part: Part) -> None:
        self.current = self.parts.index(part)


class LogLine:
    """Logs once that kernels are compiled, or that another process compiles them."""

    def __init__(self, loading: Loading) -> None:
        self._loading = loading
        self._said: set[str] = set()

    def look(self) -> None:
        """Log what has become known since the last look."""
        if MACHINE_CODE.waits:
            self._say("waiting_for_kernels", f"another process compiles them; {BUSY}")
        if self._loading.compiles:
            self._say("compiling_kernels", f"once on this machine, later starts load them; {BUSY}")

    def close(self) -> None:
        """Do nothing: a line of a log stays."""

    def _say(self, event: str, note: str) -> None:
        if event not in self._said:
            self._said.add(event)
            loading = self._loading
            parts = [part.name for part in loading.left]
            get_logger("kernels").warning(event, expected_seconds=round(loading.expected_s), parts=parts, note=note)


class Progress:
    """A line on the terminal: the part that is compiled, the time since the start, and about how long all takes where
    nothing else runs.
    """

    def __init__(self, loading: Loading) -> None:
        self._loading = loading
        self._expected_s = 0.0
        self._shown = False

    def look(self) -> None:
        """Write the line anew, if kernels are compiled."""
        loading = self._loading
        if not loading.compiles and not MACHINE_CODE.waits:
            return
        if not self._shown:
            self._expected_s = loading.expected_s
        self._shown = True
        who = "another process compiles the kernels" if MACHINE_CODE.waits else "compiling the kernels, once"
        name = loading.parts[loading.current].name
        place = f"{name} ({loading.current + 1} of {len(loading.parts)})"
        seconds = (
            f"{time.monotonic() - loading.began_s:.0f} s, in all about {self._expected_s:.0f} s on an idle machine"
        )
        self._write(f"\r{who}: {place}, {seconds}\x1b[K")

    def close(self) -> None:
        """Erase the line."""
        if self._shown:
            self._write("\r\x1b[K")

    def _write(self, text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()


def _on_terminal() -> bool:
    return sys.stderr.isatty() and not logs_as_json()


def _say_unkept() -> None:
    """Log once that compiled kernels cannot be kept on disk."""
    reason = MACHINE_CODE.unkept
    if reason and not _SAID_UNKEPT.is_set():
        _SAID_UNKEPT.set()
        get_logger("kernels").warning(
            "kernels_cannot_be_kept",
            folder=str(MACHINE_CODE.folder),
            reason=reason,
            note="every start compiles them again; NUMBA_CACHE_DIR names the folder",
        )
