"""A schema registry in the test's process: a real HTTP server that speaks what is asked of Confluent's API.

`answers` says how it behaves now: "well"; "away", where it cuts the connection; "proxy", where something else answers
404; "empty", where its answer has no schema; or a status such as "503".
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit


class SchemaRegistry:
    """Schemas by id, and by subject and version. asked: paths, in order. authorization: what a question must show."""

    def __init__(self) -> None:
        self.ids: dict[int, dict[str, Any]] = {}
        self.versions: dict[tuple[str, int], dict[str, Any]] = {}
        self.serialized: dict[int, str] = {}
        """By id, what `format=serialized` gives instead of the text; nothing in a registry that does not know it."""
        self.answers = "well"
        self.lost: set[int] = set()
        """Ids of schemas for which a proxy answers."""
        self.authorization = ""
        self.asked: list[str] = []
        self.url = ""

    def answer(self, path: str, query: dict[str, list[str]], authorization: str) -> tuple[int, bytes] | None:
        """Status and body; None to cut the connection."""
        self.asked.append(path)
        if self.answers == "away":
            return None
        if self.answers == "proxy" or path in [f"/schemas/ids/{schema_id}" for schema_id in self.lost]:
            return 404, b"<html>404 Not Found</html>"
        if self.answers == "empty":
            return 200, b"{}"
        if self.answers.isdigit():
            return int(self.answers), b'{"error_code":50001,"message":"no leader"}'
        if authorization != self.authorization:
            return 401, b'{"error_code":40101,"message":"Unauthorized"}'
        _, kind, *rest = path.split("/")
        found = None
        if kind == "schemas":
            found = self.ids.get(int(rest[1]))
            if found and query.get("format") == ["serialized"] and int(rest[1]) in self.serialized:
                found = {**found, "schema": self.serialized[int(rest[1])]}
        elif kind == "subjects":
            found = self.versions.get((rest[0], int(rest[2])))
        return (
            (200, json.dumps(found).encode()) if found else (404, b'{"error_code":40403,"message":"Schema not found"}')
        )


@contextmanager
def running_registry() -> Iterator[SchemaRegistry]:
    """A registry that answers until the block ends."""
    registry = SchemaRegistry()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            found = registry.answer(parts.path, parse_qs(parts.query), self.headers.get("Authorization", ""))
            if found is None:
                self.connection.close()
                return
            self.send_response(found[0])
            self.send_header("Content-Length", str(len(found[1])))
            if 300 <= found[0] < 400:
                self.send_header("Location", f"{registry.url}/schemas/ids/1")
            self.end_headers()
            self.wfile.write(found[1])

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

        def handle(self) -> None:
            try:
                super().handle()
            except (OSError, ValueError):  # the connection was cut on purpose
                return

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        registry.url = f"http://127.0.0.1:{server.server_port}"
        try:
            yield registry
        finally:
            server.shutdown()
            thread.join()
