"""TLS for the server: a context whose certificate follows its files.

A certificate and a key that do not belong together never come into use, as when only one of the files has been
replaced.
"""

from __future__ import annotations

import ssl
from pathlib import Path

from stream_learner.adapters.http.file_stamp import FileStamp, stamp_of
from stream_learner.adapters.telemetry.logs import get_logger
from stream_learner.errors import ConfigError

NO_PASSWORD = ""
"""Given so that OpenSSL refuses an encrypted key; without it, it asks on the terminal, and all requests wait."""


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
