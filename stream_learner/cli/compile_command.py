"""`stream-learner compile`: compiles the kernels before a role needs them. It needs no configuration and no broker."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer

from stream_learner.cli.options import AsJson
from stream_learner.cli.output import print_fields


class Role(str, Enum):
    """The roles whose kernels can be compiled, and what those that join read Avro with."""

    joiner = "joiner"
    learner = "learner"
    scorer = "scorer"
    serve = "serve"
    backfill = "backfill"
    avro = "avro"


def compile_kernels(
    role: Annotated[
        list[Role] | None, typer.Option(help="Only what this role runs; avro: what it reads Avro with. Repeatable.")
    ] = None,
    optimizer: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="What the roles fold with, FTRL-Proximal if left out; repeatable."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compile the kernels and keep the machine code on disk, so that no role compiles anything when it starts.

    Without --role: everything, for every role and optimizer. What is in the cache already is only loaded. The folder is
    NUMBA_CACHE_DIR, or one beside the program; machine code serves the processor that NUMBA_CPU_NAME names, or this
    one, and this version of the program. Needs no configuration. For example:

    NUMBA_CACHE_DIR=/var/cache/stream-learner stream-learner compile --role joiner --role learner
    """
    from stream_learner.adapters.telemetry.logs import configure_logging
    from stream_learner.operations.compile import compile_ahead

    configure_logging()
    done = compile_ahead([one.value for one in role or ()], optimizer or ())
    print_fields({**done._asdict(), "seconds": round(done.seconds, 1)}, as_json=as_json)
