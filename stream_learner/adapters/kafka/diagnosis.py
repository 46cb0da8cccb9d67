"""Why a broker and this client do not understand each other, found out with one connection of our own.

In: an address, the security settings. Out: a sentence, or nothing. This file must never send a credential, take longer
than a few seconds, or raise: it only adds words to an error that is there already.
"""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path

from stream_learner.adapters.kafka.credentials import subject_of

TIMEOUT_S = 2.0
_ALERT = "tls alert"
_ADDRESS = re.compile(r"(?:ssl|plaintext|sasl_ssl|sasl_plaintext)://([^/\s:]+|\[[^\]]+\]):(\d+)")


def diagnosis(options: Mapping[str, str], words: str = "") -> str:
    """What is wrong between this client and the broker that `words`, or else `bootstrap.servers`, name first; "" if
    that cannot be told. `options` are those of the client.
    """
    if _ALERT in words:
        return _about_certificate(options)
    place = _place(options, words)
    if place is None:
        return ""
    secured = "ssl" in options.get("security.protocol", "plaintext").lower()
    return _with_tls(place, options) if secured else _without_tls(place)


def _about_certificate(options: Mapping[str, str]) -> str:
    """Why a broker may have refused the client's own certificate, as far as its file tells."""
    file = options.get("ssl.certificate.location") or options.get("ssl.keystore.location", "")
    if not file:
        return "the broker wants a client certificate, and kafka.ssl.certificate.location names none"
    subject = subject_of(file)
    if subject is None:
        return f"the broker does not accept the client certificate {file}"
    if subject.valid_until < datetime.now(timezone.utc):
        return f"the client certificate {file} ({subject.name}) has expired on {subject.valid_until:%Y-%m-%d %H:%M} UTC"
    return f"the broker does not accept the client certificate {file} ({subject.name}): is its authority trusted there?"


def _place(options: Mapping[str, str], words: str) -> tuple[str, int] | None:
    named = _ADDRESS.search(words)
    host, _, port = (
        (named[1], "", named[2]) if named else options.get("bootstrap.servers", "").split(",")[0].rpartition(":")
    )
    host = host.rpartition("://")[2].strip("[]")
    return (host, int(port)) if host and port.isdigit() else None


def _without_tls(place: tuple[str, int]) -> str:
    try:
        _handshake(place, _trusting())
    except (OSError, ValueError):
        return ""
    return f"{_text(place)} speaks TLS, and kafka.security.protocol does not ask for it (ssl or sasl_ssl)"


def _with_tls(place: tuple[str, int], options: Mapping[str, str]) -> str:
    try:
        _handshake(place, _context(options))
    except ssl.SSLCertVerificationError as error:
        return f"the certificate of {_text(place)} is not accepted: {error.verify_message}"
    except ssl.SSLEOFError:
        return _not_tls(place)
    except ssl.SSLError as error:
        return _not_tls(place) if error.reason in ("WRONG_VERSION_NUMBER", "UNEXPECTED_EOF_WHILE_READING") else ""
    except ConnectionResetError:
        return _not_tls(place)
    except (OSError, ValueError):
        return ""
    if options.get("security.protocol", "").lower() == "ssl":
        return (
            f"{_text(place)} speaks TLS; it may want SASL (kafka.security.protocol sasl_ssl), or a client certificate"
        )
    return ""


def _not_tls(place: tuple[str, int]) -> str:
    return f"{_text(place)} does not speak TLS, and kafka.security.protocol asks for it"


def _handshake(place: tuple[str, int], context: ssl.SSLContext) -> None:
    with socket.create_connection(place, TIMEOUT_S) as plain:
        context.wrap_socket(plain, server_hostname=place[0]).close()


def _trusting() -> ssl.SSLContext:
    """For asking whether TLS is spoken at all."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _context(options: Mapping[str, str]) -> ssl.SSLContext:
    """What the client itself checks: the authorities that it trusts, and the name."""
    context = ssl.create_default_context()
    location = options.get("ssl.ca.location", "")
    if location and location != "probe":
        folder = Path(location).is_dir()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(cafile=None if folder else location, capath=location if folder else None)
    elif options.get("ssl.ca.pem"):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(cadata=options["ssl.ca.pem"])
    if options.get("ssl.endpoint.identification.algorithm", "https") == "none":
        context.check_hostname = False
    if options.get("enable.ssl.certificate.verification", "true") == "false":
        return _trusting()
    return context


def _text(place: tuple[str, int]) -> str:
    return f"{place[0]}:{place[1]}"
