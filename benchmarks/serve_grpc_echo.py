"""A plain server of grpcio that gives every `ModelInfer` the same answer: `python -m benchmarks.serve_grpc_echo PORT`.

It must never do more than the library does by itself, in the event loop that the echo of HTTP has.
"""

from __future__ import annotations

import sys
from typing import Any

import grpc
import uvloop

from benchmarks.serve_grpc import SERVICE

ANSWER = bytes(100)


async def infer(body: bytes, context: Any) -> bytes:
    """An answer as long as one with one prediction."""
    return ANSWER


async def main(port: int) -> None:
    """Answer until the process ends."""
    server = grpc.aio.server()
    methods = {"ModelInfer": grpc.unary_unary_rpc_method_handler(infer)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, methods),))
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    await server.wait_for_termination()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1])))
