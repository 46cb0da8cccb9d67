"""The program, the commands that run roles, and the frame around all commands.

Every error ends here as a message with something to do and an exit code (`docs/errors.md`), never as a bare traceback.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated

import typer
from typer.exceptions import TyperException

from stream_learner.cli import alias_commands
from stream_learner.cli.audit_command import audit
from stream_learner.cli.backfill_command import backfill
from stream_learner.cli.begin_anew_command import begin_anew
from stream_learner.cli.compile_command import compile_kernels
from stream_learner.cli.config_commands import config_app
from stream_learner.cli.delete_command import delete
from stream_learner.cli.diff_command import diff
from stream_learner.cli.doctor_command import doctor
from stream_learner.cli.evaluate_command import evaluate
from stream_learner.cli.gate_commands import gate_app
from stream_learner.cli.groups import GroupedCommands
from stream_learner.cli.inspect_commands import inspect_app
from stream_learner.cli.log_commands import log_app
from stream_learner.cli.options import (
    AsJson,
    ConfigFile,
    FailWithoutBrokers,
    Overrides,
    load_for_command,
    load_for_role,
    seconds,
)
from stream_learner.cli.output import print_error, print_table, print_usage_error
from stream_learner.cli.rewind_command import rewind
from stream_learner.cli.rights_command import rights
from stream_learner.errors import TopicsDiffer
from stream_learner.version import __version__

app = typer.Typer(
    name="stream-learner",
    cls=GroupedCommands,
    help="An online learner for click-through rates that lives on Kafka.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
topics_app = typer.Typer(help="Make and check the model's topics.", no_args_is_help=True)
app.add_typer(config_app, name="config")
app.add_typer(topics_app, name="topics")
app.add_typer(inspect_app, name="inspect")
app.add_typer(gate_app, name="gate")
app.add_typer(log_app, name="log")
app.command()(audit)
app.command()(backfill)
app.command()(begin_anew)
alias_commands.register(app)
app.command("compile")(compile_kernels)
app.command()(delete)
app.command()(diff)
app.command()(doctor)
app.command()(evaluate)
app.command()(rewind)
app.command()(rights)


@cache
def program() -> Callable[..., object]:
    """The commands as Typer makes them of `app`, which takes a tenth of a second."""
    return typer.main.get_command(app)


def run_command(words: Sequence[str]) -> None:
    """Run one command and leave with its exit code."""
    as_json = "--json" in words
    try:
        code = program()(args=list(words), prog_name="stream-learner", standalone_mode=not as_json)
        sys.exit(code if isinstance(code, int) else 0)
    except KeyboardInterrupt:
        sys.exit(130)
    except TyperException as error:
        sys.exit(print_usage_error(error))
    except Exception as error:  # noqa: BLE001 - every error ends here, with a message and a code
        sys.exit(print_error(error, as_json=as_json))


@app.callback(invoke_without_command=True)
def root(version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False) -> None:
    """An online learner for click-through rates that lives on Kafka."""
    if version:
        typer.echo(f"stream-learner {__version__}")
        raise typer.Exit


@app.command()
def serve(
    config: ConfigFile = None, overrides: Overrides = None, fail_without_brokers: FailWithoutBrokers = False
) -> None:
    """Answer prediction requests over HTTP, as TensorFlow Serving and KServe do (V1, and Open Inference V2).

    With serve.grpc_port also those of Open Inference over gRPC. Serves serve.models and serve.aliases, or scorer.alias,
    or model. Health is answered at once, predictions when the replica is complete, and from then on whatever becomes of
    brokers and learner. SIGTERM: not ready for serve.drain, then no new connection, then the end. For example:

    curl localhost:8080/v1/models/ctr:predict -d '{"instances": [{"site": "news", "ad": "a1"}]}'
    """
    from stream_learner.roles.scorer.serve.workers import serve as run

    code = run(load_for_role(config, overrides), wait=not fail_without_brokers)
    if code:
        raise typer.Exit(code)


@app.command()
def run(
    config: ConfigFile = None, overrides: Overrides = None, fail_without_brokers: FailWithoutBrokers = False
) -> None:
    """Run joiner and learner in one process, for a laptop or a small site.

    The topics must be there: `stream-learner topics ensure` makes them. A signal (^C, SIGTERM) ends it with everything
    kept, and the next start goes on from there. With telemetry.http_port it serves /metrics, /healthz and /readyz.
    """
    from stream_learner.operations import run as roles

    roles.run(load_for_role(config, overrides), wait=not fail_without_brokers)


@app.command()
def join(
    config: ConfigFile = None,
    overrides: Overrides = None,
    leave: Annotated[
        bool,
        typer.Option("--leave", help="When told to stop, give the partitions away at once, join.instance_id or not."),
    ] = False,
    fail_without_brokers: FailWithoutBrokers = False,
) -> None:
    """Join impressions and clicks into the training log.

    Several share the partitions, up to one for each; they may come, go and be killed at any time. Without a training
    log they begin where join.start says. One with join.instance_id keeps its partitions when it stops, and has
    session.timeout.ms to come back to them; with --leave, which is for one that will not come back, the others have
    them at once.
    """
    from stream_learner.operations import run as roles

    roles.join(load_for_role(config, overrides), leave=leave, wait=not fail_without_brokers)


@app.command()
def learn(
    config: ConfigFile = None,
    overrides: Overrides = None,
    standby: Annotated[
        bool,
        typer.Option("--standby", help="Follow, and lead only while no other learner of the model holds the lease."),
    ] = False,
    fail_without_brokers: FailWithoutBrokers = False,
) -> None:
    """Fold the training log into the model and publish it.

    One per model publishes: a second one takes the first one's place, which then stops. With --standby it does not: it
    follows with a learner.state_dir of its own, and takes over when the first one ends, is killed, or is silent for
    learner.lease_timeout. Two with --standby and no other: one of them leads.
    """
    from stream_learner.operations import run as roles

    roles.learn(load_for_role(config, overrides), standby=standby, wait=not fail_without_brokers)


@app.command()
def score(
    events: Annotated[
        Path | None, typer.Argument(metavar="[EVENTS]", help="JSON lines to predict; stdin if left out.")
    ] = None,
    config: ConfigFile = None,
    overrides: Overrides = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Where to write; stdout if left out.")
    ] = None,
    batch: Annotated[int, typer.Option(min=1, help="Most lines predicted at once, with one version.")] = 1_000,
) -> None:
    """Predict events: reads JSON lines, writes a line {"p": …, "version": …} for each, in order.

    A line that is no event gives {"error": …} in its place. For example:

    echo '{"site": "news", "ad": "a1"}' | stream-learner score -c model.yaml
    """
    loaded = load_for_command(config, overrides)
    from stream_learner.operations.score import score as run

    run(loaded, events, output, batch)


@app.command()
def demo(
    duration: Annotated[
        float, typer.Option(parser=seconds, metavar="TIME", help="How long to run: 60, 90s or 5m.")
    ] = 60.0,
    rate: Annotated[int, typer.Option(min=1, help="Impressions a second.")] = 2_000,
    window: Annotated[
        float, typer.Option(parser=seconds, metavar="TIME", help="The join window: how long clicks may take.")
    ] = 5.0,
    partitions: Annotated[int, typer.Option(min=1, max=64, help="Partitions of the input topics.")] = 4,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the traffic.")] = 1,
    bootstrap_servers: Annotated[
        str | None, typer.Option(metavar="HOST:PORT,…", help="Run on this cluster instead of the embedded broker.")
    ] = None,
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Run the whole loop on generated traffic, with a broker inside this process, and show how it learns."""
    from stream_learner.demo import run_demo

    code = run_demo(
        duration_s=duration,
        bootstrap_servers=bootstrap_servers,
        as_json=as_json,
        rate=rate,
        seed=seed,
        window_s=window,
        partitions=partitions,
        overrides=overrides or (),
    )
    raise typer.Exit(code)


@topics_app.command("ensure")
def topics_ensure(
    config: ConfigFile = None,
    overrides: Overrides = None,
    partitions: Annotated[
        int | None, typer.Option(min=1, help="Make missing input topics too, with this many partitions.")
    ] = None,
    apply: Annotated[bool, typer.Option("--apply", help="Change settings of existing topics that differ.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Make and change nothing, only show.")] = False,
    as_json: AsJson = False,
) -> None:
    """Make the model's missing topics, and show where existing ones differ from what they should be.

    Nothing is deleted, no partition count changed, and no setting of an existing topic without --apply. A topic that
    has more than is asked for, such as a longer retention or more replicas, is shown and left as it is, also with
    --apply. Where something is left to do, the exit code is 25.
    """
    from stream_learner.operations.doctor.retention import retention_warnings
    from stream_learner.operations.topics import ensure_topics

    loaded = load_for_command(config, overrides)
    rows = ensure_topics(loaded, partitions=partitions, apply=apply, dry_run=dry_run)
    print_table(rows, title="topics", as_json=as_json)
    for warning in retention_warnings(loaded):
        typer.echo(f"warning: {warning}", err=True)
    left = [f"{row['topic']} ({row['setting']})" for row in rows if not (row["done"] or row["enough"])]
    if left:
        raise TopicsDiffer(f"not as it should be: {', '.join(left)}")
