"""The routes of both protocols: from a path to the function that answers. Large predictions run in the executor."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import orjson
from starlette.convertors import StringConvertor, register_url_convertor
from starlette.routing import Route, Router

from stream_learner.adapters.http import v1, v2
from stream_learner.adapters.http.admission import Admission
from stream_learner.adapters.http.at_once import PredictAtOnce
from stream_learner.adapters.http.bodies import RawHeaders, Receive, compress, read_body, takes_gzip
from stream_learner.adapters.http.executor import RequestExecutor
from stream_learner.adapters.http.gate import Gate
from stream_learner.adapters.http.models import Predictions, ServedModel, ServedModels
from stream_learner.adapters.http.openapi import document
from stream_learner.adapters.http.refused import RETRY_SOON, Headers
from stream_learner.adapters.http.replies import Scope, Send, reply, reply_json
from stream_learner.adapters.http.security import Token
from stream_learner.adapters.telemetry import metric_names as names
from stream_learner.adapters.telemetry.metrics import Metrics

GZIP_FROM_BYTES = 4 << 10
"""Responses from this size on are compressed if the client accepts gzip."""

Predict = Callable[[ServedModel, bytes, int], tuple[bytes, Predictions]]
Answer = Callable[[Scope, Send], Awaitable[None]]


@dataclass(frozen=True)
class Limits:
    """The bounds of a request, and of all at once. held_bytes: of the bodies of all requests together."""

    body_bytes: int
    instances: int
    requests: int
    held_bytes: int
    request_s: float


@dataclass(frozen=True)
class Shared:
    """What all answers are made with, over HTTP and gRPC. version: this program's. token: None where none is asked."""

    models: ServedModels
    metrics: Metrics
    token: Token | None
    limits: Limits
    admission: Admission
    executor: RequestExecutor
    version: str

    def instance_counters(self) -> dict[str, Callable[[float], None]]:
        """What counts the events predicted for each name."""
        return {name: self.metrics.counter_of(names.SERVE_INSTANCES, name=name) for name in self.models.names}


class _NameConvertor(StringConvertor):
    """A part of a path, up to the next slash or colon."""

    regex = "[^/:]+"


register_url_convertor("name", _NameConvertor())


class PredictRoute:
    """A route that reads a body of events and answers with predictions, in one of the protocols."""

    def __init__(self, protocol: str, predict: Predict, shared: Shared) -> None:
        self._protocol = protocol
        self._predict = predict
        self._models = shared.models
        self._instances = shared.instance_counters()
        self._limits = shared.limits
        self._admission = shared.admission
        self._executor = shared.executor

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        name, version = _asked_for(scope, self._models, self._protocol)
        served = self._models.ready(name)
        headers, limits = scope["headers"], self._limits
        with self._admission.body() as held:
            body = await read_body(headers, receive, limits.body_bytes, held, self._executor.threads)

            def work() -> tuple[bytes, Predictions, Headers]:
                made = self._respond(served, body, headers)
                v1.check_version(name, made[1], version)
                return made

            with self._admission.work():
                response, predictions, own = await self._executor.do(len(body), work)
        self._instances[name](float(len(predictions.p_click)))
        await reply(send, 200, response, own)

    def _respond(self, served: ServedModel, body: bytes, headers: RawHeaders) -> tuple[bytes, Predictions, Headers]:
        """The body of the answer to a request, the predictions in it, and its headers."""
        response, predictions = self._predict(served, body, self._limits.instances)
        is_packed = len(response) >= GZIP_FROM_BYTES and takes_gzip(headers)
        return compress(response) if is_packed else response, predictions, _headers(predictions, is_packed)

    def at_once(self, name: str, gate: Gate, token: Token | None) -> PredictAtOnce:
        """The same for ordinary requests of one name, which need no application."""
        labels, instances = (self._protocol, name, 200), self._instances[name]

        def count(predictions: Predictions, seconds: float) -> None:
            instances(float(len(predictions.p_click)))
            gate.count(labels, seconds)

        return PredictAtOnce(
            name,
            self._respond,
            self._models,
            self._admission,
            token,
            count,
            limit_bytes=self._limits.body_bytes,
        )


class ReadRoute:
    """A route that is answered without reading a body."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        await self._answer(scope, send)


def make_app(shared: Shared) -> Gate:
    """The ASGI application that serves the models."""
    models, metrics, token, limits = shared.models, shared.metrics, shared.token, shared.limits
    admission, version = shared.admission, shared.version
    predict = PredictRoute("v1", v1.predict, shared)
    infer = PredictRoute("v2", v2.infer, shared)
    routes = Router(
        [
            *_prediction_routes(predict, infer),
            *_v1_routes(models),
            *_v2_routes(models, version),
            *_probe_routes(models),
            _get("/openapi.json", _constant(document(version, models.names, limits.instances, token is not None))),
        ],
        redirect_slashes=False,
    )
    metrics.follow(names.SERVE_IN_FLIGHT, lambda: float(admission.working))
    metrics.follow(names.SERVE_RECEIVING, lambda: float(admission.receiving))
    metrics.follow(names.SERVE_BODY_BYTES, lambda: float(admission.held_bytes))
    gate = Gate(routes, models, metrics, token, timeout_s=limits.request_s)
    for name in models.names:
        gate.at_once[b"/v1/models/%s:predict" % name.encode()] = predict.at_once(name, gate, token)
        gate.at_once[b"/v2/models/%s/infer" % name.encode()] = infer.at_once(name, gate, token)
    return gate


def _prediction_routes(predict: PredictRoute, infer: PredictRoute) -> list[Route]:
    return [
        Route("/v1/models/{name:name}:predict", predict, methods=["POST"]),
        Route("/v1/models/{name:name}/versions/{version:name}:predict", predict, methods=["POST"]),
        Route("/v2/models/{name:name}/infer", infer, methods=["POST"]),
        Route("/v2/models/{name:name}/versions/{version:name}/infer", infer, methods=["POST"]),
    ]


def _v1_routes(models: ServedModels) -> list[Route]:
    async def listing(scope: Scope, send: Send) -> None:
        await reply_json(send, 200, {"models": models.names})

    async def status(scope: Scope, send: Send) -> None:
        name, version = _asked_for(scope, models, "other")
        served = models.find(name)
        v1.check_served_version(name, served, version)
        code, found = v1.status(name, served)
        await reply_json(send, code, found, RETRY_SOON if code == 503 else ())

    return [
        _get("/v1/models", listing),
        _get("/v1/models/{name:name}", status),
        _get("/v1/models/{name:name}/versions/{version:name}", status),
    ]


def _v2_routes(models: ServedModels, server_version: str) -> list[Route]:
    async def metadata(scope: Scope, send: Send) -> None:
        name, version = _asked_for(scope, models, "other")
        served = models.find(name)
        v1.check_served_version(name, served, version)
        await reply_json(send, 200, v2.metadata(name, served))

    async def ready(scope: Scope, send: Send) -> None:
        name, version = _asked_for(scope, models, "other")
        v1.check_served_version(name, models.ready(name), version)
        await reply_json(send, 200, {"name": name, "ready": True})

    return [
        _get("/v2", _constant(v2.server(server_version))),
        _get("/v2/models/{name:name}", metadata),
        _get("/v2/models/{name:name}/versions/{version:name}", metadata),
        _get("/v2/models/{name:name}/ready", ready),
        _get("/v2/models/{name:name}/versions/{version:name}/ready", ready),
    ]


def _probe_routes(models: ServedModels) -> list[Route]:
    async def live(scope: Scope, send: Send) -> None:
        await reply_json(send, 200, {"live": True})

    async def ready(scope: Scope, send: Send) -> None:
        reason = models.why_not_ready
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
    return Route(path, ReadRoute(answer), methods=["GET"])


def _constant(value: Any) -> Answer:
    body = orjson.dumps(value)

    async def answer(scope: Scope, send: Send) -> None:
        await reply(send, 200, body)

    return answer


def _asked_for(scope: Scope, models: ServedModels, protocol: str) -> tuple[str, str | None]:
    """The name and the version in the path. Stores protocol and name in the scope: the gate counts by them."""
    parameters = scope["path_params"]
    name: str = parameters["name"]
    scope["protocol"] = protocol
    if models.has(name):
        scope["served"] = name
    return name, parameters.get("version")


def _headers(predictions: Predictions, is_packed: bool) -> Headers:
    freshness_ms = predictions.freshness_ms
    headers = [
        (b"stream-learner-model", predictions.model.encode()),
        (b"stream-learner-version", b"%d" % predictions.version),
        (b"vary", b"accept-encoding"),
    ]
    if freshness_ms is not None:
        headers.append((b"stream-learner-freshness-ms", b"%d" % round(freshness_ms)))
    if predictions.version_age_s is not None:
        headers.append((b"stream-learner-version-age", b"%d" % round(predictions.version_age_s)))
    if is_packed:
        headers.append((b"content-encoding", b"gzip"))
    return tuple(headers)
