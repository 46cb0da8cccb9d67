"""Answers the calls of the Open Inference Protocol, with `grpc.aio` in the event loop of the HTTP server.

Each method is taken as one whose requests are a stream, of which the first message is read: so a call counts from its
beginning, and not only once its message is complete.

| HTTP | status of gRPC |
|---|---|
| 400 | INVALID_ARGUMENT |
| 401 | UNAUTHENTICATED |
| 404 | NOT_FOUND |
| 500 | INTERNAL |
| 503 | UNAVAILABLE |
| 504 | DEADLINE_EXCEEDED |

Calls beyond `serve.max_concurrency` are refused with RESOURCE_EXHAUSTED, whether their message is complete or not; so a
connection may have as many as it likes. The library itself refuses a message beyond `serve.max_body` with
RESOURCE_EXHAUSTED, and compressed messages with UNIMPLEMENTED, since it would unpack them without a limit. A client
that sends its message slowly, or does not read its answer, loses its place after twice `serve.request_timeout`.

**The end.** The core ends a call that comes after the server has shut down as if the client had cancelled it, until the
client has heard that it must connect anew. A client that sends its next call when it has the answer to the last would
always have such a call. So answers wait while the server shuts down and clients hear of it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import grpc

from stream_learner.adapters.grpc.infer import infer, parse_request, parsed
from stream_learner.adapters.grpc.messages import SERVICE, message_class
from stream_learner.adapters.http import v1, v2
from stream_learner.adapters.http.gate import GONE, Deadline, Gate
from stream_learner.adapters.http.models import ServedModel
from stream_learner.adapters.http.refused import Refused
from stream_learner.adapters.http.routes import Shared
from stream_learner.adapters.http.security import Certificate
from stream_learner.config.serving import Serve
from stream_learner.errors import NotReady, PortInUse

LONGEST_REASON = 1_000
"""Characters of a reason that are sent: clients take trailers of a few KiB."""
AGE_MS = 10 * 60 * 1000
"""Clients are asked to connect anew after so long, and cut off `serve.request_timeout` later."""
_IDENTITY_ONLY = 1
_HEARD_S = 0.2
"""How long answers wait before the server shuts down, and after it."""
_INFER = f"/{SERVICE}/ModelInfer"
_CODES = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    404: grpc.StatusCode.NOT_FOUND,
    GONE: grpc.StatusCode.CANCELLED,
    500: grpc.StatusCode.INTERNAL,
    503: grpc.StatusCode.UNAVAILABLE,
    504: grpc.StatusCode.DEADLINE_EXCEEDED,
}


@dataclass
class Counted:
    """A call, as it is counted."""

    protocol: str = "other"
    name: str = ""


Answer = Callable[[bytes, Counted], Awaitable[bytes]]
Context: TypeAlias = "grpc.aio.ServicerContext[bytes, bytes]"


class _Methods(grpc.GenericRpcHandler):
    """Gives every call to one function, with its method; so that calls that do not exist are refused and counted."""

    def __init__(self, call: Callable[[str, AsyncIterator[bytes], Context], Awaitable[bytes]]) -> None:
        self._call = call

    def service(self, details: grpc.HandlerCallDetails) -> Any:
        """The handler of a call."""
        method: str = details.method

        async def behavior(requests: AsyncIterator[bytes], context: Context) -> bytes:
            return await self._call(method, requests, context)

        return grpc.stream_unary_rpc_method_handler(behavior)


class GrpcServer:
    """Answers from `start` until `close`. Both are called in the event loop."""

    def __init__(self, shared: Shared, gate: Gate, serve: Serve, certificate: Certificate | None) -> None:
        """gate: counts the calls, and logs what they fail of."""
        self._shared = shared
        self._models = shared.models
        self._limits = shared.limits
        self._instances = shared.instance_counters()
        self._gate = gate
        self._serve = serve
        self._certificate = certificate
        self._answers = self._all_answers()
        self._under_way = 0
        self._server: grpc.aio.Server | None = None
        self._may_answer: asyncio.Event | None = None

    async def start(self) -> None:
        """Answer from now on. Raises PortInUse."""
        host, port = self._serve.host, self._serve.grpc_port
        server = grpc.aio.server(options=self._options())
        server.add_generic_rpc_handlers((_Methods(self._call),))
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            if self._certificate is None:
                bound = server.add_insecure_port(address)
            else:
                bound = server.add_secure_port(address, _credentials(self._certificate))
        except RuntimeError:
            bound = 0
        if not bound:
            raise PortInUse(f"cannot listen on {host} port {port}, serve.grpc_port")
        await server.start()
        self._server = server

    async def close(self) -> None:
        """Take no further call, answer those under way, end."""
        if self._server is None:
            return
        self._may_answer = asyncio.Event()
        await asyncio.sleep(_HEARD_S)
        ending = asyncio.ensure_future(self._server.stop(self._limits.request_s))
        await asyncio.sleep(_HEARD_S)
        self._may_answer.set()
        await ending

    def _options(self) -> list[tuple[str, int]]:
        request_ms = self._serve.request_timeout_ms
        return [
            ("grpc.max_receive_message_length", self._limits.body_bytes),
            ("grpc.max_send_message_length", -1),
            ("grpc.compression_enabled_algorithms_bitset", _IDENTITY_ONLY),
            ("grpc.server_handshake_timeout_ms", request_ms),
            ("grpc.max_connection_idle_ms", self._serve.keep_alive_ms),
            ("grpc.max_connection_age_ms", AGE_MS),
            ("grpc.max_connection_age_grace_ms", request_ms),
            ("grpc.so_reuseport", int(self._serve.workers > 1)),
        ]

    def _all_answers(self) -> dict[str, tuple[Answer, bool]]:
        """What answers each method, and whether it needs a token."""
        found: dict[str, tuple[Answer, bool]] = {
            "ServerLive": (self._server_live, False),
            "ServerReady": (self._server_ready, False),
            "ServerMetadata": (self._server_metadata, True),
            "ModelReady": (self._model_ready, True),
            "ModelMetadata": (self._model_metadata, True),
            "ModelInfer": (self._model_infer, True),
        }
        return {f"/{SERVICE}/{name}": answer for name, answer in found.items()}

    async def _call(self, method: str, requests: AsyncIterator[bytes], context: Context) -> bytes:
        """Answer a call, or end it with a status."""
        if self._under_way >= self._limits.requests:
            self._gate.count(("grpc" if method == _INFER else "other", "", 503), 0.0)
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many requests at once")
        self._under_way += 1
        longest = Deadline(2 * self._limits.request_s)
        context.add_done_callback(partial(self._over, longest))
        if method not in self._answers:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "there is no such call")
        body = None
        try:
            body = await anext(requests, None)
        except asyncio.CancelledError:
            if not longest.expired:
                raise
            reason = f"not over within {2 * self._limits.request_s:g} s"
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, reason)
        if body is None:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the call has no message")
        assert body is not None
        status, reason, found = await self._handle(method, body, context)
        if self._may_answer is not None:
            await self._may_answer.wait()
        if status != 200:
            await context.abort(_CODES[status], reason[:LONGEST_REASON])
        return found

    def _over(self, longest: Deadline, context: Context) -> None:
        longest.done()
        self._under_way -= 1

    async def _handle(self, method: str, body: bytes, context: Context) -> tuple[int, str, bytes]:
        """The status of a call by its HTTP code, the reason if it is not 200, and the answer."""
        began_s = time.perf_counter()
        counted, status = Counted(), GONE
        try:
            found = await self._answer(method, body, context, counted)
            status = 200
            return status, "", found
        except Refused as refused:
            status = refused.status
            return status, refused.reason, b""
        except NotReady as error:
            status = 503
            return status, str(error), b""
        except Exception as error:  # noqa: BLE001 -- a bug; the client must have an answer and the others go on
            self._gate.log_bug(error)
            status = 500
            return status, "the server failed; its log says why", b""
        finally:
            self._gate.count((counted.protocol, counted.name, status), time.perf_counter() - began_s)

    async def _answer(self, method: str, body: bytes, context: Context, counted: Counted) -> bytes:
        """The answer to a call. Raises Refused."""
        answer, needs_token = self._answers[method]
        if needs_token:
            self._admit(context)
        return await answer(body, counted)

    def _admit(self, context: Context) -> None:
        """Raise Refused (401) without the token."""
        token = self._shared.token
        if token is None:
            return
        given = str(dict(context.invocation_metadata() or ()).get("authorization", ""))
        if not token.matches(given.encode("utf-8", "surrogateescape")):
            raise Refused(401, "a bearer token is needed")

    def _asked_for(self, name: str, counted: Counted) -> ServedModel:
        """The model of a name, noted for counting. Raises Refused (404)."""
        counted.name = name if self._models.has(name) else ""
        return self._models.find(name)

    async def _server_live(self, body: bytes, counted: Counted) -> bytes:
        return _encoded("ServerLiveResponse", live=True)

    async def _server_ready(self, body: bytes, counted: Counted) -> bytes:
        return _encoded("ServerReadyResponse", ready=not self._models.why_not_ready)

    async def _server_metadata(self, body: bytes, counted: Counted) -> bytes:
        return _encoded("ServerMetadataResponse", **v2.server(self._shared.version))

    async def _model_ready(self, body: bytes, counted: Counted) -> bytes:
        request = parsed(message_class("ModelReadyRequest"), body)
        served = self._asked_for(request.name, counted)
        v1.check_served_version(request.name, served, request.version or None)
        return _encoded("ModelReadyResponse", ready=not served.why_refused)

    async def _model_metadata(self, body: bytes, counted: Counted) -> bytes:
        request = parsed(message_class("ModelMetadataRequest"), body)
        served = self._asked_for(request.name, counted)
        v1.check_served_version(request.name, served, request.version or None)
        found = v2.metadata(request.name, served)
        del found["parameters"]  # the message of gRPC has none
        return _encoded("ModelMetadataResponse", **found)

    async def _model_infer(self, body: bytes, counted: Counted) -> bytes:
        counted.protocol = "grpc"
        with self._shared.admission.body() as held:
            held.grow(len(body))
            with self._shared.admission.work():
                deadline = Deadline(self._limits.request_s)
                try:
                    return await self._shared.executor.do(len(body), lambda: self._predict(body, counted))
                except asyncio.CancelledError:
                    if not deadline.expired:
                        raise
                    raise Refused(
                        504, f"not answered within serve.request_timeout, {self._limits.request_s:g} s"
                    ) from None
                finally:
                    deadline.done()

    def _predict(self, body: bytes, counted: Counted) -> bytes:
        request = parse_request(body)
        name = request.model_name
        self._asked_for(name, counted)
        answer, predictions = infer(self._models.ready(name), request, self._limits.instances)
        v1.check_version(name, predictions, request.model_version or None)
        self._instances[name](float(len(predictions.p_click)))
        return answer


def _encoded(message: str, /, **fields: Any) -> bytes:
    encoded: bytes = message_class(message)(**fields).SerializeToString()
    return encoded


def _credentials(certificate: Certificate) -> Any:
    """Credentials that follow the certificate's files."""
    shown = certificate.pair

    def newer() -> Any:
        nonlocal shown
        if certificate.pair == shown:
            return None
        shown = certificate.pair
        return grpc.ssl_server_certificate_configuration([shown])

    first = grpc.ssl_server_certificate_configuration([shown])
    return grpc.dynamic_ssl_server_credentials(first, newer, require_client_authentication=False)
