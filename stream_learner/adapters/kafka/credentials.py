"""Credentials that change on disk while clients run, and what a client certificate says.

librdkafka reads certificates and passwords when a client is made, and never again. So the clients of this package make
themselves anew once `Credentials.version` has risen, each where it costs nothing: readers at their position, members by
joining again, producers between two transactions or attempts.

This file must never log or show a value; never use files that are still being written (a new certificate counts only
with its key); and never read a private key to find the subject of a certificate.
"""

from __future__ import annotations

import base64
import hashlib
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

from stream_learner.adapters.kafka.clients import log
from stream_learner.config.references import FromEnvironment, FromFile
from stream_learner.errors import ConfigError, RetryLater

PERIOD_S = 2.0
FILE_ENDINGS = (".location", ".keytab", "private.key.file", "jwt.template.file")
"""Endings of the options that name a file which a client reads when it is made."""


def text_of(value: object) -> str:
    """The value of an option as librdkafka takes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


class Credentials:
    """The options of a client; values may be kept in files and variables. Thread-safe.

    A change counts once two looks, `period_s` apart, have found the same new files, and `refused` finds nothing wrong
    with the new values. Until then the old values stay, and each look tries again: the process may have no files or
    threads left for a while. Raises ConfigError if a file or a variable cannot be read at the start.
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
        """Rises by one with every change that counts. Looks at the files at most every `period_s`."""
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
        if found == self._known or not settled:
            return
        try:
            values = self._read()
            problems = self._refused(values)
        except (ConfigError, RetryLater) as error:
            values, problems = {}, [error.message]
        if problems:
            if found != self._rejected:
                words = "; ".join(problems)
                log.warning("credentials have changed and cannot be used, the ones before stay: %s", words)
            self._rejected = found
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
        """A checksum over all files. A file that cannot be read counts as empty; of a directory, the names count."""
        total = hashlib.blake2b(digest_size=16)
        for path in self._files:
            try:
                content = path.read_bytes() if path.is_file() else str(sorted(p.name for p in path.iterdir())).encode()
            except OSError:
                content = b""
            total.update(len(content).to_bytes(8, "little") + content)
        return total.digest()


_PEM = re.compile(rb"-----BEGIN CERTIFICATE-----(.+?)-----END CERTIFICATE-----", re.DOTALL)
_NAMES = {
    b"\x55\x04\x03": "CN",
    b"\x55\x04\x06": "C",
    b"\x55\x04\x07": "L",
    b"\x55\x04\x08": "ST",
    b"\x55\x04\x0a": "O",
    b"\x55\x04\x0b": "OU",
}
_EXPLICIT_VERSION = 0xA0
_UTC_TIME = 0x17


class Subject(NamedTuple):
    """The subject of a certificate. `name` as brokers write it, the last part first: "CN=joiner,O=Ads"."""

    name: str
    valid_until: datetime


def subject_of(file: str) -> Subject | None:
    """The subject of the first certificate in a PEM file (RFC 5280, section 4.1); None if none can be read."""
    try:
        found = _PEM.search(Path(file).read_bytes())
        if found is None:
            return None
        ((_, certificate),) = _parts(base64.b64decode(found[1]))
        fields = list(_parts(next(_parts(certificate))[1]))
        if fields[0][0] == _EXPLICIT_VERSION:
            del fields[0]
        # The fields are now: serial number, signature, issuer, validity, subject.
        _, (kind, until) = _parts(fields[3][1])
        return Subject(_name(fields[4][1]), _moment(kind, until.decode()))
    except (OSError, ValueError, IndexError, StopIteration):
        return None


def _parts(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The tag and content of each element of a DER sequence."""
    at = 0
    while at < len(data):
        tag, size, start = data[at], data[at + 1], at + 2
        if size >= 0x80:
            count = size & 0x7F
            size = int.from_bytes(data[start : start + count], "big")
            start += count
        yield tag, data[start : start + size]
        at = start + size


def _name(data: bytes) -> str:
    parts = []
    for _, group in _parts(data):
        for _, pair in _parts(group):
            (_, kind), (_, value) = _parts(pair)
            parts.append(f"{_NAMES.get(kind, kind.hex())}={value.decode('utf-8', 'replace')}")
    return ",".join(reversed(parts))


def _moment(kind: int, text: str) -> datetime:
    """The moment that a DER time says. UTCTime has a year of two digits; 50 to 99 mean 1950 to 1999."""
    if kind == _UTC_TIME:
        text = ("19" if text >= "50" else "20") + text
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=timezone.utc)
