"""Credentials that change on disk while clients run.

In: options, some of which name files. Out: the values to make a client with, and a number that grows when they changed.
This file must never show a value, nor take up files that are being written: a certificate without its key is none.

librdkafka reads certificates and passwords when a client is made, and never again. So the clients of this package make
themselves anew, each where it costs nothing, once `version` has grown: readers at their position, members by joining
again, producers between two transactions or attempts.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from stream_learner.config.references import FromEnvironment, FromFile
from stream_learner.edges.kafka.client_log import log
from stream_learner.errors import ConfigError

PERIOD_S = 2.0
FILE_ENDINGS = (".location", ".keytab", "private.key.file", "jwt.template.file")
"""Options that name a file which a client reads when it is made."""


def text_of(value: object) -> str:
    """An option's value as librdkafka takes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


class Credentials:
    """Options, with those values that are kept elsewhere; thread-safe.

    A change counts when the files were the same at two looks, `period_s` apart, and `refused` finds nothing wrong with
    the new values: until then the values before go on being given out. Raises ConfigError where a file or a variable
    cannot be read at the start.
    """

    def __init__(
        self,
        options: Mapping[str, Any],
        *,
        refused: Callable[[Mapping[str, str]], list[str]] = lambda values: [],
        period_s: float = PERIOD_S,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._options = dict(options)
        self._refused = refused
        self._period_s = period_s
        self._clock_s = clock_s
        self._lock = threading.Lock()
        self._version = 0
        self._values = self._read()
        self._files = self._named_files()
        self._known = self._pending = self._rejected = self._fingerprint()
        self._look_at_s = clock_s() + period_s

    @property
    def values(self) -> Mapping[str, str]:
        """The options as text. They hold secrets: never log them."""
        return self._values

    def version(self) -> int:
        """Grows by one with every change that counts. Looks at the files at most every `period_s`."""
        if self._files and self._clock_s() >= self._look_at_s and self._lock.acquire(blocking=False):
            try:
                self._look_at_s = self._clock_s() + self._period_s
                self._look()
            finally:
                self._lock.release()
        return self._version

    def _look(self) -> None:
        found = self._fingerprint()
        settled, self._pending = found == self._pending, found
        if found == self._known or not settled or found == self._rejected:
            return
        try:
            values = self._read()
            problems = self._refused(values)
        except ConfigError as error:
            values, problems = {}, [error.message]
        if problems:
            self._rejected = found
            log.warning("credentials have changed and cannot be used, the ones before stay: %s", "; ".join(problems))
            return
        self._values, self._known = values, found
        self._version += 1
        log.info("credentials have changed: clients are made anew")

    def _read(self) -> dict[str, str]:
        return {
            name: value.read(f"kafka.{name}") if isinstance(value, (FromFile, FromEnvironment)) else text_of(value)
            for name, value in self._options.items()
        }

    def _named_files(self) -> list[Path]:
        kept = [Path(value.file) for value in self._options.values() if isinstance(value, FromFile)]
        return kept + [Path(value) for name, value in self._values.items() if name.endswith(FILE_ENDINGS) and value]

    def _fingerprint(self) -> bytes:
        """A checksum over all files; one that cannot be read counts as empty, a directory as its names."""
        total = hashlib.blake2b(digest_size=16)
        for path in self._files:
            try:
                content = path.read_bytes() if path.is_file() else str(sorted(p.name for p in path.iterdir())).encode()
            except OSError:
                content = b""
            total.update(len(content).to_bytes(8, "little") + content)
        return total.digest()
