"""An OpenID Connect provider on loopback: hands out signed tokens that live for seconds.

It must never accept a request from elsewhere than this machine.
"""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from tests.security.certificates import rsa_key, rsa_modulus, rsa_sign

AUDIENCE = "kafka"
KEY_ID = "test-key"


class _Server(ThreadingHTTPServer):
    """Lets as many wait as all clients of several roles; of more than the usual five, some try again seconds later."""

    daemon_threads = True
    request_queue_size = 256


class TokenServer:
    """Serves until `close`.

    `issued` counts the tokens given to each client. Within a second a client gets the same one again: it is signed
    once, however many ask, as dozens of connections of a role do at its start. While `away`, none is given, and
    `refused` counts. `lifetime_s` is how long they live at least: brokers take no second authentication within a second
    after the first, so that those of some seconds only cannot be renewed.
    """

    def __init__(self, folder: Path, clients: Mapping[str, str], *, lifetime_s: int = 7) -> None:
        self.clients = dict(clients)
        self.lifetime_s = lifetime_s
        self.away = False
        self.refused = 0
        self.issued: dict[str, int] = {}
        self._key = rsa_key(folder / "token.key")
        self._lock = threading.Lock()
        self._signed: dict[str, tuple[int, str]] = {}
        """Of each client, the last token, and the second it is of."""
        self._server = _Server(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, name="token-server", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """The issuer."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def token_url(self) -> str:
        """The address that hands out tokens."""
        return f"{self.url}/token"

    @property
    def keys_url(self) -> str:
        """The address of the public keys."""
        return f"{self.url}/keys"

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                found = self.path == "/keys"
                self._answer(200 if found else 404, server._keys() if found else {})

            def do_POST(self) -> None:
                asked = parse_qs(self.rfile.read(int(self.headers.get("Content-Length", "0"))).decode())
                if server.away:
                    server.refused += 1
                    self._answer(503, {"message": "try again later"})
                    return
                client = server._client(self.headers.get("Authorization", ""))
                if client is None or asked.get("grant_type") != ["client_credentials"]:
                    self._answer(401, {"error": "invalid_client", "error_description": "unknown client or secret"})
                    return
                self._answer(200, server._token(client))

            def _answer(self, status: int, value: Mapping[str, Any]) -> None:
                body = json.dumps(value).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args: object) -> None:
                """Log nothing: requests do not belong into a test's output."""

        return Handler

    def _client(self, authorization: str) -> str | None:
        kind, _, text = authorization.partition(" ")
        if kind != "Basic":
            return None
        name, _, secret = base64.b64decode(text).decode().partition(":")
        return name if secret and self.clients.get(name) == secret else None

    def _keys(self) -> dict[str, Any]:
        modulus = rsa_modulus(self._key)
        number = modulus.to_bytes((modulus.bit_length() + 7) // 8, "big")
        return {
            "keys": [
                {
                    "kty": "RSA",
                    "use": "sig",
                    "alg": "RS256",
                    "kid": KEY_ID,
                    "n": _base64(number),
                    "e": _base64(b"\1\0\1"),
                }
            ]
        }

    def _token(self, client: str) -> dict[str, Any]:
        with self._lock:
            now_s = int(time.time()) + 1
            if self._signed.get(client, (0, ""))[0] != now_s:
                self._signed[client] = now_s, self._sign(client, now_s)
            self.issued[client] = self.issued.get(client, 0) + 1
            token = self._signed[client][1]
        return {"access_token": token, "token_type": "Bearer", "expires_in": self.lifetime_s}

    def _sign(self, client: str, now_s: int) -> str:
        claims = {
            "iss": self.url,
            "aud": AUDIENCE,
            "sub": client,
            "iat": now_s - 1,
            "exp": now_s + self.lifetime_s,
        }
        head = {"alg": "RS256", "typ": "JWT", "kid": KEY_ID}
        signed = f"{_base64(json.dumps(head).encode())}.{_base64(json.dumps(claims).encode())}"
        return f"{signed}.{_base64(rsa_sign(self._key, signed.encode()))}"


def _base64(data: bytes) -> str:
    """URL-safe, without padding, as tokens have it."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
