"""Answers the calls of the Open Inference Protocol.

An ordinary call, a small request for predictions that gets them, is answered at once by the thread that takes calls.
All others are answered in the event loop of the HTTP server, from the beginning. So nothing that is done at once says
what is wrong with a request, as over HTTP (`at_once.py`).

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
that sends its message slowly, or does not read its answer, is cut off after twice `serve.request_timeout`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import grpc

from stream_learner.adapters.grpc.calls import Call, CallQueue
from stream_learner.adapters.grpc.infer import infer, parse_request, parsed
from stream_learner.adapters.grpc.messages import SERVICE, message_class
from stream_learner.adapters.http import v1, v2
from stream_learner.adapters.http.executor import INLINE_BYTES
from stream_learner.adapters.http.gate import GONE, Deadline, Gate
from stream_learner.adapters.http.models import ServedModel
from stream_learner.adapters.http.refused import Refused
from stream_learner.adapters.http.routes import Shared
from stream_learner.adapters.http.tls import Certificate
from stream_learner.config.serving import Serve
from stream_learner.errors import NotReady, PortInUse

LONGEST_REASON = 1_000
"""Characters of a reason that are sent: clients take trailers of a few KiB."""
AGE_MS = 10 * 60 * 1000
"""Clients are asked to connect anew after so long, and cut off `serve.request_timeout` later."""
_IDENTITY_ONLY = 1
_INFER = f"/{SERVICE}/ModelInfer".encode()
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
        self._loop: asyncio.AbstractEventLoop | None = None
        self._calls: CallQueue | None = None

    async def start(self) -> None:
        """Answer from now on. Raises PortInUse."""
        host, port = self._serve.host, self._serve.grpc_port
        calls = CallQueue(
            self._options(),
            self._take,
            self._refuse,
            self._gate.log_bug,
            most=self._limits.requests,
            longest_s=2 * self._limits.request_s,
        )
        credentials = None if self._certificate is None else _credentials(self._certificate)
        if not calls.listen(f"[{host}]:{port}" if ":" in host else f"{host}:{port}", credentials):
            raise PortInUse(f"cannot listen on {host} port {port}, serve.grpc_port")
        self._loop = asyncio.get_running_loop()
        calls.start()
        self._calls = calls

    async def close(self) -> None:
        """Take no further call, answer those under way, end."""
        if self._calls is not None:
            await asyncio.to_thread(self._calls.stop, self._limits.request_s)

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

    def _all_answers(self) -> dict[bytes, tuple[Answer, bool]]:
        """What answers each method, and whether it needs a token."""
        found: dict[str, tuple[Answer, bool]] = {
            "ServerLive": (self._server_live, False),
            "ServerReady": (self._server_ready, False),
            "ServerMetadata": (self._server_metadata, True),
            "ModelReady": (self._model_ready, True),
            "ModelMetadata": (self._model_metadata, True),
            "ModelInfer": (self._model_infer, True),
        }
        return {f"/{SERVICE}/{name}".encode(): answer for name, answer in found.items()}

    def _take(self, call: Call) -> None:
        """Answer a call, or leave it to the event loop. Called in the thread that takes calls."""
        if call.method == _INFER and (answer := self._at_once(call)) is not None:
            call.answer(answer)
        elif call.method not in self._answers:
            call.refuse(grpc.StatusCode.UNIMPLEMENTED, "there is no such call")
        else:
            assert self._loop is not None
            call.watch()
            call.gone = asyncio.run_coroutine_threadsafe(self._handle(call), self._loop).cancel

    def _refuse(self, call: Call) -> None:
        """Refuse a call for which there is no place."""
        self._gate.count(("grpc" if call.method == _INFER else "other", "", 503), 0.0)
        call.refuse(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many requests at once")

    def _at_once(self, call: Call) -> bytes | None:
        """The answer to an ordinary request for predictions; None for the event loop to answer."""
        size, began_s, counted = len(call.body), time.perf_counter(), Counted("grpc")
        if size > INLINE_BYTES or not self._shared.admission.has_room(size):
            return None
        try:
            self._admit(call)
            answer = self._predict(call.body, counted)
        except Exception:  # noqa: BLE001 -- the event loop comes to the same, and says it
            return None
        self._gate.count((counted.protocol, counted.name, 200), time.perf_counter() - began_s)
        return answer

    async def _handle(self, call: Call) -> None:
        """Answer or refuse a call."""
        began_s = time.perf_counter()
        counted, status, reason, found = Counted(), GONE, "", b""
        try:
            found = await self._answer(call, counted)
            status = 200
        except Refused as refused:
            status, reason = refused.status, refused.reason
        except NotReady as error:
            status, reason = 503, str(error)
        except Exception as error:  # noqa: BLE001 -- a bug; the client must have an answer and the others go on
            self._gate.log_bug(error)
            status, reason = 500, "the server failed; its log says why"
        finally:
            self._gate.count((counted.protocol, counted.name, status), time.perf_counter() - began_s)
            if status == 200:
                call.answer(found)
            else:
                call.refuse(_CODES[status], reason[:LONGEST_REASON])

    async def _answer(self, call: Call, counted: Counted) -> bytes:
        """The answer to a call. Raises Refused."""
        answer, needs_token = self._answers[call.method]
        if needs_token:
            self._admit(call)
        return await answer(call.body, counted)

    def _admit(self, call: Call) -> None:
        """Raise Refused (401) without the token."""
        token = self._shared.token
        if token is None:
            return
        given = dict(call.metadata).get("authorization", "")
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
