"""The bearer tokens and the certificate of a server; both follow their files.

Each line of a token's file or variable is one, so that two are valid while clients change from one to the other. The
time of a comparison does not depend on how much of a token is right. No token is logged or shown. A certificate and a
key that do not belong together never come into use, as when only one of the files has been replaced.
"""

from __future__ import annotations

import hmac
import ssl
from hashlib import sha256
from pathlib import Path

from stream_learner.adapters.telemetry.logs import get_logger
from stream_learner.config.references import FromFile, Reference
from stream_learner.errors import ConfigError

NO_PASSWORD = ""
"""Given so that OpenSSL refuses an encrypted key; without it, it asks on the terminal, and all requests wait."""
FileStamp = tuple[int, int, int] | None
"""Inode, time of change and size of a file; None if there is no such file."""


def stamp_of(file: str) -> FileStamp:
    """The stamp of a file: equal as long as the file is the same."""
    try:
        found = Path(file).stat()
    except OSError:
        return None
    return (found.st_ino, found.st_mtime_ns, found.st_size)


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


class Certificate:
    """The certificate that new connections are shown. Call `refresh` in the thread that accepts them.

    pair: the private key and the chain of certificates that are in use, PEM.
    """

    def __init__(self, certificate: str, key: str) -> None:
        """Raises ConfigError, naming the files, if they cannot be read or do not belong together."""
        self._files = (certificate, key)
        self._log = get_logger("serve")
        self._stamp = self._stamp_now()
        self.context = _empty_context()
        try:
            self.pair = self._read()
            self.context.load_cert_chain(certificate, key, NO_PASSWORD)
        except (OSError, ssl.SSLError) as error:
            reason = error.strerror or str(error)
            raise ConfigError(
                f"serve.tls_certificate and serve.tls_key: cannot use {certificate} and {key}: {reason}"
            ) from None

    def refresh(self) -> None:
        """Use the files' new content if they have changed and belong together; else keep the old certificate."""
        stamp = self._stamp_now()
        if stamp == self._stamp:
            return
        try:
            pair = self._read()
            _empty_context().load_cert_chain(*self._files, NO_PASSWORD)
            self.context.load_cert_chain(*self._files, NO_PASSWORD)
            self.pair = pair
        except (OSError, ssl.SSLError) as error:
            self._log.warning("certificate_unusable", reason=str(error))
        else:
            self._log.info("certificate_read_again")
        self._stamp = stamp

    def _read(self) -> tuple[bytes, bytes]:
        certificate, key = self._files
        return Path(key).read_bytes(), Path(certificate).read_bytes()

    def _stamp_now(self) -> list[FileStamp]:
        return [stamp_of(file) for file in self._files]


def _empty_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context
