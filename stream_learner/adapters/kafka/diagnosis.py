"""Finds out, with one connection of its own, why a broker and this client do not understand each other.

It only adds words to an error that there is already. So it sends no credential, takes a few seconds at most, and never
raises.
"""

from __future__ import annotations

import re
import socket
import ssl
import struct
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path

from stream_learner.adapters.kafka.credentials import subject_of

TIMEOUT_S = 2.0
_ALERT = "tls alert"
_ADDRESS = re.compile(r"(?:ssl|plaintext|sasl_ssl|sasl_plaintext)://([^/\s:]+|\[[^\]]+\]):(\d+)")
_ASKS_FOR_BROKERS = struct.pack(">ihhih14sib", 29, 3, 4, 1, 14, b"stream-learner", 0, 0)
"""A request of Kafka's protocol: its length, Metadata, version 4, its number, the client, no topics."""


def diagnosis(options: Mapping[str, str], words: str = "") -> str:
    """Say what is wrong between this client and a broker; "" if that cannot be told.

    options: those of the client. words: librdkafka's report. The broker is the one that the report names, or else the
    first of `bootstrap.servers`.
    """
    if _ALERT in words:
        return _about_certificate(options)
    found = why_not_understood(options, words)
    address = _address(options, words)
    if not found and address is not None and options.get("security.protocol", "").lower() == "ssl":
        found = (
            f"{_text(address)} speaks TLS; it may want SASL (kafka.security.protocol sasl_ssl), or a client certificate"
        )
    return found


def why_not_understood(options: Mapping[str, str], words: str = "") -> str:
    """Say what is wrong for certain, as `diagnosis` does: no waiting will mend it. "" if nothing is."""
    if not words and (refusals := why_nobody_listens(options)):
        return refusals
    address, protocol = _address(options, words), options.get("security.protocol", "plaintext").lower()
    if address is None:
        return ""
    return _with_tls(address, options) if "ssl" in protocol else _without_tls(address, wants_sasl="sasl" in protocol)


def why_nobody_listens(options: Mapping[str, str]) -> str:
    """Say why each of `bootstrap.servers` cannot be a broker now: it refuses connections, or its name does not resolve.

    "" if that is not so of one of them.
    """
    found = []
    for server in options.get("bootstrap.servers", "").split(","):
        address = _parsed(server)
        refusal = _refusal(address) if address is not None else ""
        if not refusal:
            return ""
        found.append(refusal)
    return "; ".join(found)


def _refusal(address: tuple[str, int]) -> str:
    try:
        socket.create_connection(address, TIMEOUT_S).close()
    except ConnectionRefusedError:
        return f"{_text(address)} refuses connections: nothing listens there"
    except socket.gaierror as error:
        return f"the name {address[0]} does not resolve ({error.strerror})"
    except (OSError, ValueError):
        return ""
    return ""


def _about_certificate(options: Mapping[str, str]) -> str:
    """The reason why a broker may have refused the client's certificate, as far as the certificate's file tells."""
    file = options.get("ssl.certificate.location") or options.get("ssl.keystore.location", "")
    if not file:
        return "the broker wants a client certificate, and kafka.ssl.certificate.location names none"
    subject = subject_of(file)
    if subject is None:
        return f"the broker does not accept the client certificate {file}"
    if subject.valid_until < datetime.now(timezone.utc):
        return f"the client certificate {file} ({subject.name}) has expired on {subject.valid_until:%Y-%m-%d %H:%M} UTC"
    return f"the broker does not accept the client certificate {file} ({subject.name}): is its authority trusted there?"


def _address(options: Mapping[str, str], words: str) -> tuple[str, int] | None:
    """Host and port of the broker to try."""
    named = _ADDRESS.search(words)
    return _parsed(f"{named[1]}:{named[2]}" if named else options.get("bootstrap.servers", "").split(",")[0])


def _parsed(server: str) -> tuple[str, int] | None:
    """Host and port of one of `bootstrap.servers`; without a port it is librdkafka's.

    >>> _parsed("ssl://kafka:9093"), _parsed("kafka"), _parsed("[::1]"), _parsed("[::1]:1"), _parsed("kafka:x")
    (('kafka', 9093), ('kafka', 9092), ('::1', 9092), ('::1', 1), None)
    """
    name = server.strip().rpartition("://")[2]
    host, _, port = name.rpartition(":") if ":" in name and not name.endswith("]") else (name, "", "9092")
    return (host.strip("[]"), int(port)) if host and port.isdigit() else None


def _without_tls(address: tuple[str, int], *, wants_sasl: bool) -> str:
    try:
        _handshake(address, _trusting())
    except (OSError, ValueError):
        if wants_sasl or not _hangs_up(address):
            return ""
        return (
            f"{_text(address)} wants SASL: kafka.security.protocol sasl_plaintext, with kafka.sasl.mechanism, "
            "kafka.sasl.username and kafka.sasl.password, or those of another mechanism"
        )
    return f"{_text(address)} speaks TLS, and kafka.security.protocol does not ask for it (ssl or sasl_ssl)"


def _with_tls(address: tuple[str, int], options: Mapping[str, str]) -> str:
    try:
        _handshake(address, _context(options))
    except ssl.SSLCertVerificationError as error:
        return f"the certificate of {_text(address)} is not accepted: {error.verify_message}"
    except ssl.SSLEOFError:
        return _not_tls(address)
    except ssl.SSLError as error:
        return _not_tls(address) if error.reason in ("WRONG_VERSION_NUMBER", "UNEXPECTED_EOF_WHILE_READING") else ""
    except ConnectionResetError:
        return _not_tls(address)
    except (OSError, ValueError):
        return ""
    return ""


def _hangs_up(address: tuple[str, int]) -> bool:
    """Whether a listener ends the connection when it is asked for the brokers, as one does that wants SASL first."""
    try:
        with socket.create_connection(address, TIMEOUT_S) as connection:
            connection.sendall(_ASKS_FOR_BROKERS)
            return connection.recv(1) == b""
    except ConnectionResetError:
        return True
    except (OSError, ValueError):
        return False


def _not_tls(address: tuple[str, int]) -> str:
    return f"{_text(address)} does not speak TLS, and kafka.security.protocol asks for it"


def _handshake(address: tuple[str, int], context: ssl.SSLContext) -> None:
    with socket.create_connection(address, TIMEOUT_S) as plain:
        context.wrap_socket(plain, server_hostname=address[0]).close()


def _trusting() -> ssl.SSLContext:
    """A context that accepts any certificate, to find out whether the broker speaks TLS at all."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _context(options: Mapping[str, str]) -> ssl.SSLContext:
    """A context that checks what the client checks: the authorities that it trusts, and the host name."""
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


def _text(address: tuple[str, int]) -> str:
    return f"{address[0]}:{address[1]}"
