"""`serve`: predictions over HTTP.

In: arguments. Out: a server that runs until a signal, and an exit code. This file must never import a role before the
command runs.
"""

from __future__ import annotations

import typer

from stream_learner.cli.options import ConfigFile, FailWithoutBrokers, Overrides, load_for_role


def serve(
    config: ConfigFile = None, overrides: Overrides = None, fail_without_brokers: FailWithoutBrokers = False
) -> None:
    """Answer prediction requests over HTTP, as TensorFlow Serving and KServe do (V1, and Open Inference V2).

    Serves serve.models and serve.aliases, or scorer.alias, or model. Health is answered at once, predictions when the
    replica is complete, and from then on whatever becomes of brokers and learner. SIGTERM: not ready for serve.drain,
    then no new connection, then the end. For example:

    curl localhost:8080/v1/models/ctr:predict -d '{"instances": [{"site": "news", "ad": "a1"}]}'
    """
    from stream_learner.roles.scorer.serve.workers import serve as run

    code = run(load_for_role(config, overrides), wait=not fail_without_brokers)
    if code:
        raise typer.Exit(code)
