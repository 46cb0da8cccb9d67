"""The sections `serve` and `telemetry`: the ports that a process answers on, and what it writes about itself.

Units are in the names of attributes, as in `sections.py`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from stream_learner.config.references import Reference
from stream_learner.config.section import Section
from stream_learner.config.sections import ModelName
from stream_learner.config.values import (
    MIB,
    SECOND_MS,
    DurationMs,
    SizeBytes,
    counting,
    lasting,
    sized,
)


class Serve(Section):
    """Predictions over HTTP and gRPC: `stream-learner serve`."""

    host: str = Field("0.0.0.0", min_length=1, description="Address to answer requests on.")
    port: Annotated[int, counting(1, 65_535)] = Field(8080, description="Port to answer requests on.")
    grpc_port: Annotated[int, counting(0, 65_535)] = Field(
        0, description="Port to answer gRPC on, by the Open Inference Protocol; 0 answers none."
    )
    models: list[ModelName] = Field(
        [],
        description=(
            "Models to serve, each under its own name. Without models and aliases, `scorer.alias` or `model` is served."
        ),
    )
    aliases: list[ModelName] = Field([], description="Aliases to serve, each under the alias's name.")
    max_instances: Annotated[int, counting(1, 1_000_000)] = Field(
        10_000, description="A request with more instances is refused."
    )
    max_body_bytes: Annotated[SizeBytes, sized("1KiB", "1GiB")] = Field(
        16 * MIB, alias="max_body", description="A larger request body, after decompression too, is refused."
    )
    max_concurrency: Annotated[int, counting(1, 100_000)] = Field(
        1_000, description="Requests worked on at once, their bodies complete; further ones are told to come back."
    )
    body_memory_bytes: Annotated[SizeBytes, sized("1KiB", "1024GiB")] | None = Field(
        None,
        alias="body_memory",
        description=(
            "Bound of the memory of all bodies together, in each worker; beyond it the largest incomplete one is told "
            "to come back. null means an eighth of the memory of container or machine, for all workers together; at "
            "least `max_body`."
        ),
    )
    request_timeout_ms: Annotated[DurationMs, lasting("10ms", "10m")] = Field(
        5 * SECOND_MS,
        alias="request_timeout",
        description="How long a request may take, the sending of its body included.",
    )
    keep_alive_ms: Annotated[DurationMs, lasting("1s", "1h")] = Field(
        75 * SECOND_MS, alias="keep_alive", description="How long an idle connection is kept."
    )
    drain_ms: Annotated[DurationMs, lasting("0", "10m")] = Field(
        10 * SECOND_MS,
        alias="drain",
        description=(
            "When told to stop: how long it is not ready but still answers, so that balancers look elsewhere first."
        ),
    )
    workers: Annotated[int, counting(1, 256)] = Field(
        1, description="Processes that answer requests, each with a replica of its own."
    )
    token: Reference | None = Field(
        None,
        description=(
            "Bearer token that requests must carry, as `{file: PATH}` or `{env: NAME}`; each line is a token that is "
            "valid. null asks none."
        ),
    )
    tls_certificate: str | None = Field(None, min_length=1, description="File of the TLS certificate chain, PEM.")
    tls_key: str | None = Field(None, min_length=1, description="File of the certificate's private key, PEM.")


class Telemetry(Section):
    """Logs, metrics and health."""

    log_format: Literal["auto", "console", "json"] = Field(
        "auto",
        description="Form of the log; auto is console on a terminal and of commands that end by themselves, json "
        "elsewhere.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="Least level logged.")
    http_host: str = Field(
        "0.0.0.0", min_length=1, description="Address to serve `/metrics`, `/healthz` and `/readyz` on."
    )
    http_port: Annotated[int, counting(0, 65_535)] = Field(
        0, description="Port to serve `/metrics`, `/healthz` and `/readyz` on; 0 serves nothing."
    )
    token: Reference | None = Field(
        None,
        description=(
            "Bearer token that `/metrics` asks for, as `{file: PATH}` or `{env: NAME}`; each line is a token that is "
            "valid. Probes need none. null asks none."
        ),
    )
