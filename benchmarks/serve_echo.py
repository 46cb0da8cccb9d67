"""A plain Starlette application that gives back what it gets: `python -m benchmarks.serve_echo PORT`.

It must never do more than Starlette and uvicorn do by themselves.
"""

from __future__ import annotations

import sys

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route


async def echo(request: Request) -> Response:
    """The body, as it came."""
    return Response(await request.body(), media_type="application/json")


if __name__ == "__main__":
    app = Starlette(routes=[Route("/echo", echo, methods=["POST"])])
    uvicorn.run(app, port=int(sys.argv[1]), loop="uvloop", http="httptools", access_log=False, log_level="warning")
