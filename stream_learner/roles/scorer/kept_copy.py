"""A copy on disk of the last whole version, with which a scorer can start while no broker answers.

A copy that is damaged or of another model is never handed out, and no thread that predicts waits for the writing.

1. Copy the rows of the version served, in memory; records of the topic wait for so long.
2. Write them to a temporary file, and sync it.
3. Rename the file to that of the copy before.

| a crash after | leaves                               | the next scorer                        |
|---------------|--------------------------------------|----------------------------------------|
| step 1        | the copy before                      | begins with it                         |
| step 2        | the copy before, and a temporary file | begins with it; the file is overwritten |
| step 3        | the new copy                         | begins with it                         |

Several processes may share a directory: one of them writes at a time, and none writes soon after another.
"""

from __future__ import annotations

import fcntl
import math
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from stream_learner.adapters.machine import free_bytes_of
from stream_learner.adapters.telemetry import metric_names as names
from stream_learner.adapters.telemetry.logs import Logger
from stream_learner.adapters.telemetry.metrics import Metrics
from stream_learner.core.errors import NewerVersion, RecordError
from stream_learner.core.snapshots.replica_copy import Copy, WholeVersion, encode_copy, read_copy
from stream_learner.errors import ConfigError
from stream_learner.roles.scorer.replica import KeptVersion, ModelReplica

LOOK_S = 0.5
"""Time between two looks for a version that is not copied yet."""
STOP_S = 2.0
"""How long `stop` waits for a copy that is being written; if it is not finished, the copy before stays."""


class KeptCopy:
    """The copy for one model, or for one alias."""

    def __init__(
        self, folder: Path, name: str, log: Logger, metrics: Metrics, *, is_alias: bool, every_ms: int
    ) -> None:
        """every_ms: time between two copies, at least. Raises ConfigError if the directory cannot be made."""
        self._path = folder / f"{'alias' if is_alias else 'model'}-{name}.copy"
        self._model = None if is_alias else name
        self._log = log
        self._metrics = metrics
        self._every_s = every_ms / 1000
        self._kept: tuple[str, int, int] | None = None
        self._failed = False
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(
                f"cannot make scorer.state_dir, {folder}: {error.strerror}", action="Give a directory that can be made."
            ) from error

    def load(self) -> tuple[str, KeptVersion] | None:
        """The model and the version of the copy, None if there is no copy that can be served.

        A damaged copy is renamed to `.damaged`, which replaces one renamed before.
        """
        try:
            with self._path.open("rb") as file:
                copy = read_copy(file, os.fstat(file.fileno()).st_size)
        except FileNotFoundError:
            return None
        except NewerVersion as error:
            self._say_not_served(error.what)
            return None
        except RecordError as error:
            self._set_aside(error.what)
            return None
        except OSError as error:
            self._say_not_served(str(error))
            return None
        model: str = copy.replica.model["name"]
        if self._model not in (None, model):
            self._say_not_served(f"it is of model {model}")
            return None
        return model, KeptVersion(copy.replica, _age_s(copy))

    def start(self, current: Callable[[], ModelReplica | None]) -> None:
        """Begin to copy what is served; `current` returns it, and is called every `LOOK_S`."""
        self._metrics.follow(names.SCORER_FREE_BYTES, self._free_bytes)
        self._thread = threading.Thread(target=self._run, args=(current,), name="copy-keeper", daemon=True)
        self._thread.start()

    def _free_bytes(self) -> float:
        """NaN where the system does not say."""
        try:
            return free_bytes_of(self._path.parent)
        except OSError:
            return math.nan

    def stop(self) -> None:
        """Make no further copy."""
        self._stop.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(STOP_S)

    def _say_not_served(self, reason: str) -> None:
        self._log.warning("copy_not_served", file=str(self._path), reason=reason)

    def _set_aside(self, reason: str) -> None:
        aside = self._path.with_suffix(".damaged")
        with suppress(OSError):
            self._path.replace(aside)
        self._log.error("copy_damaged", file=str(self._path), reason=reason, set_aside=str(aside))

    def _run(self, current: Callable[[], ModelReplica | None]) -> None:
        wait_s = LOOK_S
        while not self._stop.wait(wait_s):
            replica = current()
            wait_s = self._every_s if replica is not None and self._keep(replica) else LOOK_S

    def _keep(self, replica: ModelReplica) -> bool:
        """Copy what is served, if it is new. Whether a copy was tried: then the next look is `every_ms` later."""
        served = replica.replica.served
        if served is None or (replica.model, served.version, served.digest) == self._kept:
            return False
        # Step 1: copy the rows.
        version, age_s = replica.whole_version(), replica.version_age_s
        if version is None:
            return False
        try:
            with self._writing() as may_write:
                if may_write:
                    self._write(version, round((time.time() - (age_s or 0.0)) * 1000))
        except OSError as error:
            self._metrics.inc(names.SCORER_COPIES, outcome="failed")
            if not self._failed:
                self._log.error("copy_failed", file=str(self._path), reason=str(error))
            self._failed = True
            return True
        self._failed = False
        self._kept = (replica.model, version.served.version, version.served.digest)
        return True

    def _write(self, version: WholeVersion, published_ms: int) -> None:
        temporary = self._path.with_suffix(".tmp")
        try:
            # Step 2: write a temporary file, and sync it.
            with temporary.open("wb") as file:
                for piece in encode_copy(version, published_ms):
                    file.write(piece)
                file.flush()
                os.fsync(file.fileno())
            # Step 3: rename it.
            temporary.replace(self._path)
        except OSError:
            with suppress(OSError):
                temporary.unlink()
            raise
        _sync_folder(self._path.parent)
        self._metrics.inc(names.SCORER_COPIES, outcome="kept")
        self._metrics.set(names.SCORER_COPY_VERSION, version.served.version)

    @contextmanager
    def _writing(self) -> Iterator[bool]:
        """Whether this process may write now: no other one is writing, or wrote within half of `every_ms`."""
        with self._path.with_suffix(".lock").open("ab") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            yield self._kept is not None or not self._is_new()

    def _is_new(self) -> bool:
        """Whether any process wrote a copy within half of `every_ms`."""
        try:
            return time.time() - self._path.stat().st_mtime < self._every_s / 2
        except OSError:
            return False


def _age_s(copy: Copy) -> float:
    """How long ago the version of a copy was published, seconds; 0 if the clock was set back before that."""
    return max(time.time() - copy.published_ms / 1000, 0.0)


def _sync_folder(folder: Path) -> None:
    """Sync a directory, so that a rename in it survives a crash."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
