"""A client of gRPC: the library's own, with messages written here from the numbers of the protocol's description."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc

from tests.roles.scorer.serve.running import Server
from tests.waiting import patience

Fields = list[tuple[int, "int | bytes | float | Fields"]]


def encoded(fields: Fields) -> bytes:
    """A message in the wire form of Protocol Buffers: whole numbers as varints, lists as messages."""
    parts = []
    for number, value in fields:
        if isinstance(value, int):
            parts.append(_varint(number << 3) + _varint(value))
        elif isinstance(value, float):
            parts.append(_varint(number << 3 | 1) + struct.pack("<d", value))
        else:
            content = encoded(value) if isinstance(value, list) else value
            parts.append(_varint(number << 3 | 2) + _varint(len(content)) + content)
    return b"".join(parts)


def decoded(message: bytes) -> dict[int, list[Any]]:
    """The values of a message by their numbers: varints as numbers, all others as bytes."""
    found: dict[int, list[Any]] = {}
    at = 0
    while at < len(message):
        tag, at = _read_varint(message, at)
        if tag & 7 == 0:
            value, at = _read_varint(message, at)
        else:
            assert tag & 7 == 2
            length, at = _read_varint(message, at)
            value, at = message[at : at + length], at + length
        found.setdefault(tag >> 3, []).append(value)
    return found


def _varint(number: int) -> bytes:
    parts = bytearray()
    while number > 127:
        parts.append(number & 127 | 128)
        number >>= 7
    return bytes((*parts, number))


def _read_varint(message: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = message[at]
        number, shift, at = number | (byte & 127) << shift, shift + 7, at + 1
        if byte < 128:
            return number, at


def infer_request(name: str, events: list[bytes], *, raw: bool = False, version: str = "", **other: Any) -> bytes:
    """A `ModelInferRequest` for these events. other: `datatype`, `shape`, `tensor`, `id`, `output` that differ."""
    tensor: Fields = [
        (1, other.get("tensor", "events").encode()),
        (2, other.get("datatype", "BYTES").encode()),
        (3, _varint(other.get("shape", len(events)))),
    ]
    if not raw:
        tensor.append((5, [(8, event) for event in events]))
    fields: Fields = [(1, name.encode()), (2, version.encode()), (3, other.get("id", "").encode()), (5, tensor)]
    if "output" in other:
        fields.append((6, [(1, other["output"].encode())]))
    if raw:
        fields.append((7, b"".join(struct.pack("<I", len(event)) + event for event in events)))
    return encoded(fields)


class Answered:
    """A `ModelInferResponse`, read by the numbers of its fields."""

    def __init__(self, message: bytes) -> None:
        found = decoded(message)
        self.model, self.version = found[1][0].decode(), found[2][0].decode()
        self.id = found[3][0].decode() if 3 in found else ""
        pairs = [decoded(entry) for entry in found.get(4, [])]
        self.parameters = {pair[1][0].decode(): decoded(pair[2][0])[2][0] for pair in pairs}
        (output,) = found[5]
        tensor = decoded(output)
        self.name, self.datatype, self.shape = tensor[1][0].decode(), tensor[2][0].decode(), list(tensor[3][0])
        self.is_raw = 6 in found
        values = found[6][0] if self.is_raw else decoded(tensor[5][0])[7][0] if 7 in decoded(tensor[5][0]) else b""
        self.p_click = [value for (value,) in struct.iter_unpack("<d", values)]


class Client:
    """Calls the methods of the service on one connection."""

    def __init__(self, channel: Any) -> None:
        self._channel = channel

    def call(self, method: str, body: bytes = b"", *, token: str | None = None, **options: Any) -> bytes:
        """The answer's bytes. Raises grpc.RpcError."""
        metadata = () if token is None else (("authorization", token),)
        do = self._channel.unary_unary(f"/inference.GRPCInferenceService/{method}")
        answer: bytes = do(body, metadata=metadata, timeout=patience(), **options)
        return answer

    def begin(self, method: str, body: bytes) -> Any:
        """A call that goes on while the caller does."""
        return self._channel.unary_unary(f"/inference.GRPCInferenceService/{method}").future(body, timeout=patience())

    def without_message(self, method: str, *, ends: bool = False) -> Any:
        """A call that sends no message. ends: whether it says that none will come."""
        silent = threading.Event()

        def nothing() -> Iterator[bytes]:
            if not ends:
                silent.wait()
            yield from ()

        call = self._channel.stream_unary(f"/inference.GRPCInferenceService/{method}").future(nothing())
        call.add_done_callback(lambda _: silent.set())
        return call

    def infer(self, *given: Any, token: str | None = None, **options: Any) -> Answered:
        """The answer to `infer_request` of these arguments."""
        return Answered(self.call("ModelInfer", infer_request(*given, **options), token=token))

    def refusal(self, method: str, body: bytes = b"", **options: Any) -> tuple[str, str]:
        """The status and the reason that a call ends with."""
        try:
            self.call(method, body, **options)
        except grpc.RpcError as error:
            return error.code().name, error.details()  # type: ignore[attr-defined]
        return "OK", ""


@contextmanager
def client_of(server: Server | int, credentials: Any = None) -> Iterator[Client]:
    """A client of a server, or of a port, on a connection of its own."""
    address = f"127.0.0.1:{server if isinstance(server, int) else server.config.serve.grpc_port}"
    own = (("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1))
    if credentials is None:
        made = grpc.insecure_channel(address, options=own)
    else:
        made = grpc.secure_channel(address, credentials, options=own)
    with made as channel:
        yield Client(channel)


@contextmanager
def calls_that_read_nothing(server: Server, method: str, body: bytes, *, count: int) -> Iterator[None]:
    """Calls on a connection that lets the server send no data: frames of HTTP/2, written by hand."""
    port = server.config.serve.grpc_port
    headers = {
        ":method": "POST",
        ":scheme": "http",
        ":path": f"/inference.GRPCInferenceService/{method}",
        ":authority": f"127.0.0.1:{port}",
        "te": "trailers",
        "content-type": "application/grpc",
    }
    block = b"".join(b"\0" + bytes([len(n)]) + n.encode() + bytes([len(v)]) + v.encode() for n, v in headers.items())
    message = b"\0" + struct.pack(">I", len(body)) + body
    no_window = struct.pack(">HI", 4, 0)
    sent = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _frame(4, 0, 0, no_window)
    for stream in range(1, 2 * count, 2):
        sent += _frame(1, 4, stream, block) + _frame(0, 1, stream, message)
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(sent)
        yield


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload
