"""The routes of both protocols.

In: ASGI requests that the gate has let through. Out: responses. This file must never compute a prediction itself, nor
hold the event loop with a large one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import orjson
from starlette.convertors import StringConvertor, register_url_convertor
from starlette.routing import Route, Router

from stream_learner.adapters.http import v1, v2
from stream_learner.adapters.http.bodies import Receive, compress, read_body, takes_gzip
from stream_learner.adapters.http.executor import Workbench
from stream_learner.adapters.http.gate import Gate
from stream_learner.adapters.http.models import Answers, Served, Shelf
from stream_learner.adapters.http.openapi import document
from stream_learner.adapters.http.refused import RETRY_SOON, Headers
from stream_learner.adapters.http.replies import Scope, Send, reply, reply_json
from stream_learner.adapters.http.token import Token
from stream_learner.adapters.telemetry import metric_names as names
from stream_learner.adapters.telemetry.metrics import Metrics

GZIP_FROM_BYTES = 4 << 10
"""A smaller response is not compressed."""

Predict = Callable[[Served, bytes, int], tuple[bytes, Answers]]
Answer = Callable[[Scope, Send], Awaitable[None]]


@dataclass(frozen=True)
class Limits:
    """The bounds of a request, and of all at once."""

    body_bytes: int
    instances: int
    requests: int
    request_s: float


class _NameConvertor(StringConvertor):
    """A part of a path that ends at a slash or a colon."""

    regex = "[^/:]+"


register_url_convertor("name", _NameConvertor())


class Predictions:
    """The route of predictions, in one of the protocols."""

    def __init__(
        self, protocol: str, predict: Predict, shelf: Shelf, metrics: Metrics, limits: Limits, bench: Workbench
    ) -> None:
        self._protocol = protocol
        self._predict = predict
        self._shelf = shelf
        self._instances = {name: metrics.counter_of(names.SERVE_INSTANCES, name=name) for name in shelf.names}
        self._limits = limits
        self._bench = bench

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        name, version = _asked_for(scope, self._shelf, self._protocol)
        served = self._shelf.ready(name)
        headers = scope["headers"]
        limits = self._limits
        body = await read_body(headers, receive, limits.body_bytes, self._bench.threads)
        packed = takes_gzip(headers)

        def work() -> tuple[bytes, Answers, bool]:
            response, answers = self._predict(served, body, limits.instances)
            v1.check_version(name, answers, version)
            pack = packed and len(response) >= GZIP_FROM_BYTES
            return compress(response) if pack else response, answers, pack

        response, answers, is_packed = await self._bench.do(len(body), work)
        self._instances[name](float(len(answers.p_click)))
        await reply(send, 200, response, _headers(answers, is_packed))


class Question:
    """A route that is answered from what is known, without reading a body."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        await self._answer(scope, send)


def make_app(
    shelf: Shelf, metrics: Metrics, token: Token | None, limits: Limits, bench: Workbench, version: str
) -> Gate:
    """The ASGI application that serves the models on the shelf; `version` is this program's."""
    routes = Router(
        [
            *_prediction_routes(shelf, metrics, limits, bench),
            *_v1_routes(shelf),
            *_v2_routes(shelf, version),
            *_probe_routes(shelf),
            _get("/openapi.json", _constant(document(version, shelf.names, limits.instances, token is not None))),
        ],
        redirect_slashes=False,
    )
    return Gate(routes, shelf, metrics, token, most=limits.requests, timeout_s=limits.request_s)


def _prediction_routes(shelf: Shelf, metrics: Metrics, limits: Limits, bench: Workbench) -> list[Route]:
    predict = Predictions("v1", v1.predict, shelf, metrics, limits, bench)
    infer = Predictions("v2", v2.infer, shelf, metrics, limits, bench)
    return [
        Route("/v1/models/{name:name}:predict", predict, methods=["POST"]),
        Route("/v1/models/{name:name}/versions/{version:name}:predict", predict, methods=["POST"]),
        Route("/v2/models/{name:name}/infer", infer, methods=["POST"]),
        Route("/v2/models/{name:name}/versions/{version:name}/infer", infer, methods=["POST"]),
    ]


def _v1_routes(shelf: Shelf) -> list[Route]:
    async def listing(scope: Scope, send: Send) -> None:
        await reply_json(send, 200, {"models": shelf.names})

    async def status(scope: Scope, send: Send) -> None:
        name, version = _asked_for(scope, shelf, "other")
        served = shelf.find(name)
        v1.check_served_version(name, served, version)
        code, found = v1.status(name, served)
        await reply_json(send, code, found, RETRY_SOON if code == 503 else ())

    return [
        _get("/v1/models", listing),
        _get("/v1/models/{name:name}", status),
        _get("/v1/models/{name:name}/versions/{version:name}", status),
    ]


def _v2_routes(shelf: Shelf, server_version: str) -> list[Route]:
    async def metadata(scope: Scope, send: Send) -> None:
        name, version = _asked_for(scope, shelf, "other")
        served = shelf.find(name)
        v1.check_served_version(name, served, version)
        await reply_json(send, 200, v2.metadata(name, served))

    async def ready(scope: Scope, send: Send) -> None:
        name, version = _asked_for(scope, shelf, "other")
        v1.check_served_version(name, shelf.ready(name), version)
        await reply_json(send, 200, {"name": name, "ready": True})

    return [
        _get("/v2", _constant(v2.server(server_version))),
        _get("/v2/models/{name:name}", metadata),
        _get("/v2/models/{name:name}/versions/{version:name}", metadata),
        _get("/v2/models/{name:name}/ready", ready),
        _get("/v2/models/{name:name}/versions/{version:name}/ready", ready),
    ]


def _probe_routes(shelf: Shelf) -> list[Route]:
    async def live(scope: Scope, send: Send) -> None:
        await reply_json(send, 200, {"live": True})

    async def ready(scope: Scope, send: Send) -> None:
        reason = shelf.why_not_ready
        if reason:
            await reply_json(send, 503, {"ready": False, "error": reason}, RETRY_SOON)
        else:
            await reply_json(send, 200, {"ready": True})

    return [
        _get("/v2/health/live", live),
        _get("/healthz", live),
        _get("/v2/health/ready", ready),
        _get("/readyz", ready),
    ]


def _get(path: str, answer: Answer) -> Route:
    return Route(path, Question(answer), methods=["GET"])


def _constant(value: Any) -> Answer:
    body = orjson.dumps(value)

    async def answer(scope: Scope, send: Send) -> None:
        await reply(send, 200, body)

    return answer


def _asked_for(scope: Scope, shelf: Shelf, protocol: str) -> tuple[str, str | None]:
    """The name and the version in the path; noted in the scope for the metrics."""
    parameters = scope["path_params"]
    name: str = parameters["name"]
    scope["protocol"] = protocol
    if shelf.has(name):
        scope["served"] = name
    return name, parameters.get("version")


def _headers(answers: Answers, is_packed: bool) -> Headers:
    freshness_ms = answers.freshness_ms
    headers = [
        (b"stream-learner-model", answers.model.encode()),
        (b"stream-learner-version", b"%d" % answers.version),
        (b"vary", b"accept-encoding"),
    ]
    if freshness_ms is not None:
        headers.append((b"stream-learner-freshness-ms", b"%d" % round(freshness_ms)))
    if answers.version_age_s is not None:
        headers.append((b"stream-learner-version-age", b"%d" % round(answers.version_age_s)))
    if is_packed:
        headers.append((b"content-encoding", b"gzip"))
    return tuple(headers)
