"""What a client certificate says: whose it is, and until when.

In: a PEM file. Out: subject and end of validity. This file must never read a private key, nor raise because of what is
in a file: a certificate that cannot be read has no subject.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import NamedTuple

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
    """`name` as brokers write it, the last part first: "CN=joiner,O=Ads"."""

    name: str
    valid_until: datetime


def subject_of(file: str) -> Subject | None:
    """The first certificate of a PEM file (RFC 5280, section 4.1); None where there is none that can be read."""
    try:
        found = _PEM.search(Path(file).read_bytes())
        if found is None:
            return None
        ((_, certificate),) = _parts(base64.b64decode(found[1]))
        fields = list(_parts(next(_parts(certificate))[1]))
        if fields[0][0] == _EXPLICIT_VERSION:
            del fields[0]
        # What is left: serial number, signature, issuer, validity, subject.
        _, (kind, until) = _parts(fields[3][1])
        return Subject(_name(fields[4][1]), _moment(kind, until.decode()))
    except (OSError, ValueError, IndexError, StopIteration):
        return None


def _parts(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The tags and contents that follow each other in DER."""
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
    """UTCTime has two digits of the year, those from 50 on of the last century."""
    if kind == _UTC_TIME:
        text = ("19" if text >= "50" else "20") + text
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=timezone.utc)
