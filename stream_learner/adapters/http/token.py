"""The bearer tokens that requests must carry: each line of a file or variable is one, so that two are valid while
clients change from one to the other.

The time of a comparison does not depend on how much of a token is right. No token is logged or shown.
"""

from __future__ import annotations

import hmac
from hashlib import sha256

from stream_learner.adapters.http.file_stamp import FileStamp, stamp_of
from stream_learner.adapters.telemetry.logs import get_logger
from stream_learner.config.references import FromFile, Reference
from stream_learner.errors import ConfigError


class Token:
    """Compares tokens. `refresh` reads a changed file; while it cannot be read, the old tokens stay valid."""

    def __init__(self, reference: Reference, setting: str) -> None:
        """setting: the name of the setting, for messages. Raises ConfigError if no token can be read."""
        self._reference = reference
        self._setting = setting
        self._log = get_logger("serve")
        self._stamp = self._stamp_now()
        self._digests = self._read()

    def matches(self, authorization: bytes) -> bool:
        """Whether the header's value is `Bearer` and one of the tokens."""
        scheme, _, given = authorization.partition(b" ")
        digest = sha256(given.strip()).digest()
        right = sum([hmac.compare_digest(digest, valid) for valid in self._digests]) > 0
        return right and scheme.lower() == b"bearer"

    def refresh(self) -> None:
        """Read the file again if it has changed."""
        stamp = self._stamp_now()
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._digests = self._read()
            self._log.info("token_read_again", setting=self._setting, tokens=len(self._digests))
        except ConfigError as error:
            self._log.error("token_unreadable", reason=str(error))

    def _read(self) -> list[bytes]:
        lines = [line.strip() for line in self._reference.read(self._setting).splitlines()]
        tokens = [line for line in lines if line]
        if not tokens:
            raise ConfigError(f"{self._setting}: the token is empty")
        return [sha256(token.encode()).digest() for token in tokens]

    def _stamp_now(self) -> FileStamp:
        return stamp_of(self._reference.file) if isinstance(self._reference, FromFile) else None
