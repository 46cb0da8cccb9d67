"""The bearer token that requests must carry.

The time of a comparison does not depend on how much of a token is right. No token is logged or shown.
"""

from __future__ import annotations

import hmac
from hashlib import sha256

from stream_learner.adapters.http.file_stamp import FileStamp, stamp_of
from stream_learner.adapters.telemetry.logs import get_logger
from stream_learner.config.references import FromFile, Reference
from stream_learner.errors import ConfigError

SETTING = "serve.token"


class Token:
    """Compares tokens. `refresh` reads a changed file; while it cannot be read, the old token stays valid."""

    def __init__(self, reference: Reference) -> None:
        """Raises ConfigError if the token cannot be read, or is empty."""
        self._reference = reference
        self._log = get_logger("serve")
        self._stamp = self._stamp_now()
        self._digest = self._read()

    def matches(self, authorization: bytes) -> bool:
        """Whether the header's value is `Bearer` and the token."""
        scheme, _, given = authorization.partition(b" ")
        right = hmac.compare_digest(sha256(given.strip()).digest(), self._digest)
        return right and scheme.lower() == b"bearer"

    def refresh(self) -> None:
        """Read the file again if it has changed."""
        stamp = self._stamp_now()
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._digest = self._read()
            self._log.info("token_read_again")
        except ConfigError as error:
            self._log.error("token_unreadable", reason=str(error))

    def _read(self) -> bytes:
        token = self._reference.read(SETTING)
        if not token.strip():
            raise ConfigError(f"{SETTING}: the token is empty")
        return sha256(token.strip().encode()).digest()

    def _stamp_now(self) -> FileStamp:
        return stamp_of(self._reference.file) if isinstance(self._reference, FromFile) else None
