"""Schemas from a registry that speaks Confluent's API: asked for once each, in a thread, kept in bounded memory.

Only an answer settles what a schema is. An id counts as not there where the registry itself has said so, in its own
JSON, `ABSENT_ANSWERS` times in a row with `ABSENT_AGAIN_S` between: replicas of a registry may be behind. Whatever else
comes, from a refused connection to a page of a proxy, leaves the id unknown, and it is asked for again.

The client is three GET requests by the standard library: Confluent's own would bring httpx, attrs, cachetools and
authlib. It follows no redirects, so that a password goes nowhere else. This file must never log or raise one.
"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from stream_learner.adapters.telemetry.logs import get_logger
from stream_learner.core.events.schemas import MOST_SCHEMA_BYTES, Schema
from stream_learner.errors import ConfigError, SchemaNotKnown

ABSENT = 40403
"""The registry's own code for an id that it does not have."""
ABSENT_ANSWERS = 3
ABSENT_AGAIN_S = 1.0
ABSENT_FOR_S = 60.0
"""So long an id counts as not there; then it is asked for again."""
MOST_REFERENCES = 100
MOST_KEPT_BYTES = 64 << 20
"""Of schemas that are kept; each takes `SCHEMA_BYTES` besides its text."""
SCHEMA_BYTES = 1_000
FIRST_WAIT_S, LONGEST_WAIT_S = 0.2, 5.0
ACCEPT = "application/vnd.schemaregistry.v1+json, application/json"


@dataclass(frozen=True)
class RegistryClient:
    """What a registry is asked with. urls: of the registry, the first that answers counts. authorization: gives the
    header of that name, "" for none; it is asked each time, since a secret may change."""

    urls: tuple[str, ...]
    timeout_s: float
    authorization: Callable[[], str] = str
    context: ssl.SSLContext | None = None

    def schema(self, schema_id: int) -> Schema | None:
        """The schema of an id, None if the registry says that it has none. Raises SchemaNotKnown, ConfigError."""
        found = self._get(f"/schemas/ids/{schema_id}")
        try:
            return None if found is None else self._whole(found, {}, f"schema id {schema_id}")
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
            raise SchemaNotKnown(f"the registry answered with no good references for schema id {schema_id}") from None

    def _whole(self, found: dict[str, Any], known: dict[tuple[str, int], tuple[str, Schema]], what: str) -> Schema:
        """A schema with its references. known: by subject and version, those that were asked for."""
        kind, text = found.get("schemaType") or "AVRO", found.get("schema")
        if not isinstance(text, str) or not isinstance(kind, str):
            raise SchemaNotKnown(f"the registry answered without a schema for {what}")
        references: list[tuple[str, Schema]] = []
        for reference in found.get("references") or ():
            name, place = str(reference["name"]), (str(reference["subject"]), int(reference["version"]))
            if place not in known:
                if len(known) == MOST_REFERENCES:
                    raise SchemaNotKnown(f"{what} has more than {MOST_REFERENCES} references")
                known[place] = name, Schema(kind)  # one that refers to itself ends here
                path = f"/subjects/{quote(place[0], safe='')}/versions/{place[1]}"
                inner = self._get(path, "deleted=true")
                if inner is None:
                    raise SchemaNotKnown(f"the registry lacks {place[0]} version {place[1]}, to which {what} refers")
                whole = self._whole({"schemaType": kind, **inner}, known, f"{place[0]} version {place[1]}")
                known[place] = name, Schema(kind, whole.text)
                references += whole.references
            references.append(known[place])
        return Schema(kind, text, tuple(dict(references).items()))

    def _get(self, path: str, query: str = "") -> dict[str, Any] | None:
        trouble = ""
        for url in self.urls:
            # A registry that does not know the format of descriptors answers with the text of the file.
            request = f"{url}{path}?{'&'.join(filter(None, (query, 'format=serialized')))}"
            try:
                return self._ask(request)
            except SchemaNotKnown as error:
                trouble = error.message
        raise SchemaNotKnown(trouble)

    def _ask(self, url: str) -> dict[str, Any] | None:
        request = urllib.request.Request(url, headers={"Accept": ACCEPT})
        authorization = self.authorization()
        if authorization:
            request.add_unredirected_header("Authorization", authorization)
        where = url.partition("?")[0]
        try:
            with self._opener().open(request, timeout=self.timeout_s) as answer:
                body = answer.read(2 * MOST_SCHEMA_BYTES + 1)
        except urllib.error.HTTPError as error:
            with error:
                if error.code == 404 and _error_code(error.read(MOST_SCHEMA_BYTES)) == ABSENT:
                    return None
            hint = "; look at registry.basic.auth.user.info" if error.code in (401, 403) else ""
            raise SchemaNotKnown(f"{where} answered {error.code}{hint}") from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            reason = error.reason if isinstance(error, urllib.error.URLError) else error
            raise SchemaNotKnown(f"{where} cannot be asked: {reason or type(error).__name__}") from None
        if len(body) > 2 * MOST_SCHEMA_BYTES:
            raise SchemaNotKnown(f"{where} answered with more than {2 * MOST_SCHEMA_BYTES} bytes")
        found = _json(body)
        if not isinstance(found, dict) or len(str(found.get("schema", ""))) > MOST_SCHEMA_BYTES:
            raise SchemaNotKnown(f"{where} answered without a schema of at most {MOST_SCHEMA_BYTES} bytes")
        return found

    def _opener(self) -> urllib.request.OpenerDirector:
        handlers: list[urllib.request.BaseHandler] = [_NoRedirects()]
        if self.context is not None:
            handlers.append(urllib.request.HTTPSHandler(context=self.context))
        return urllib.request.build_opener(*handlers)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """Follow none: the answer 3xx is an error."""


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _error_code(body: bytes) -> int:
    found = _json(body)
    return found.get("error_code", 0) if isinstance(found, dict) else 0


class RegistrySchemas:
    """The schemas of a registry, by id. May be used by several threads."""

    def __init__(self, ask: Callable[[int], Schema | None], wait_s: float = 0.0) -> None:
        """ask: as `RegistryClient.schema`. wait_s: how long `known` waits for an answer; then it raises SchemaNotKnown.
        0 to never wait: it says what is known.
        """
        self._ask, self._wait_s = ask, wait_s
        self._changed = threading.Condition()
        self._kept: OrderedDict[int, tuple[Schema, float]] = OrderedDict()
        self._kept_bytes = 0
        self._wanted: dict[int, int] = {}
        """Ids that are asked for, with how often the registry has said that it lacks them."""
        self._troubles: dict[int, str] = {}
        """By id that is still unknown, why its last question had no answer."""
        self._thread: threading.Thread | None = None
        self._log = get_logger("registry")

    @property
    def trouble(self) -> str:
        """What the registry answered last where a schema is still unknown; "" where none is."""
        return next(reversed(self._troubles.copy().values()), "")

    def known(self, ids: Sequence[int]) -> dict[int, Schema]:
        """As of `core.events.schemas.Schemas`. Raises SchemaNotKnown after `wait_s`."""
        until_s = time.monotonic() + self._wait_s
        with self._changed:
            while True:
                found = {schema_id: schema for schema_id in ids if (schema := self._look(schema_id)) is not None}
                left_s = until_s - time.monotonic()
                missing = [schema_id for schema_id in ids if schema_id not in found]
                if not missing or self._wait_s == 0:
                    return found
                if left_s <= 0:
                    raise SchemaNotKnown(f"schema id {missing[0]}: {self.trouble or 'the registry has not answered'}")
                self._changed.wait(left_s)

    def _look(self, schema_id: int) -> Schema | None:
        kept = self._kept.get(schema_id)
        if kept is not None and time.monotonic() < kept[1]:
            self._kept.move_to_end(schema_id)
            return kept[0]
        self._wanted.setdefault(schema_id, 0)
        if self._thread is None:
            self._thread = threading.Thread(target=self._ask_all, name="registry", daemon=True)
            self._thread.start()
        return None

    def _ask_all(self) -> None:
        """Ask for what is wanted, until nothing is."""
        wait_s = FIRST_WAIT_S
        while True:
            with self._changed:
                wanted = list(self._wanted)
                if not wanted:
                    self._thread = None
                    return
            answered = [self._ask_one(schema_id) for schema_id in wanted]
            if not all(answered):
                time.sleep(wait_s)
                wait_s = min(2 * wait_s, LONGEST_WAIT_S)
            else:
                wait_s = FIRST_WAIT_S
                if self._wanted:  # the registry lacks some, and is asked again
                    time.sleep(ABSENT_AGAIN_S)

    def _ask_one(self, schema_id: int) -> bool:
        """Ask for one schema; False if there was no answer."""
        try:
            schema = self._ask(schema_id)
        except (SchemaNotKnown, ConfigError) as error:
            trouble = f"schema id {schema_id}: {error.message}"
            if not self._troubles:
                self._log.warning("registry_silent", reason=trouble, note="partitions with records of it wait")
            self._troubles.pop(schema_id, None)
            self._troubles[schema_id] = trouble
            return False
        with self._changed:
            if schema is None:
                self._wanted[schema_id] += 1
                if self._wanted[schema_id] == ABSENT_ANSWERS:
                    self._log.warning("schema_absent", schema_id=schema_id, note="its records become dead letters")
                    self._keep(schema_id, Schema(""), time.monotonic() + ABSENT_FOR_S)
            else:
                self._keep(schema_id, schema, float("inf"))
            if schema_id not in self._wanted and self._troubles.pop(schema_id, "") and not self._troubles:
                self._log.info("registry_answers")
        return True

    def _keep(self, schema_id: int, schema: Schema, until_s: float) -> None:
        del self._wanted[schema_id]
        replaced = self._kept.pop(schema_id, None)
        if replaced is not None:
            self._kept_bytes -= _size(replaced[0])
        self._kept[schema_id] = schema, until_s
        self._kept_bytes += _size(schema)
        while self._kept_bytes > MOST_KEPT_BYTES and len(self._kept) > 1:
            _, (oldest, _) = self._kept.popitem(last=False)
            self._kept_bytes -= _size(oldest)
        self._changed.notify_all()


def _size(schema: Schema) -> int:
    return SCHEMA_BYTES + len(schema.text) + sum(_size(reference) for _, reference in schema.references)


def basic(user_info: str) -> str:
    """The header Authorization for `user:password`."""
    return "Basic " + base64.b64encode(user_info.encode()).decode()


def tls_context(ca: str | None, certificate: str | None, key: str | None, password: str | None) -> ssl.SSLContext:
    """What TLS is spoken with. Raises ConfigError if a file cannot be used."""
    for name, file in (("ssl.ca.location", ca), ("ssl.certificate.location", certificate), ("ssl.key.location", key)):
        if file is not None and not Path(file).is_file():
            raise ConfigError(f"registry.{name}: {file} is no file")
    try:
        context = ssl.create_default_context(cafile=ca)
        if certificate is not None:
            context.load_cert_chain(certificate, key, password or "")
    except (OSError, ValueError) as error:
        raise ConfigError(f"registry.ssl: the certificates cannot be used: {type(error).__name__}") from None
    return context
