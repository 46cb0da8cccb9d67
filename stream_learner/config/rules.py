"""Rules between settings that are each valid by themselves.

A rule yields (path of the setting to change, message). All rules are tried, so that all problems are reported at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from stream_learner.config.tree import Tree
from stream_learner.config.values import ABSENCE_MS, SECOND_MS, format_duration_ms, format_size_bytes

if TYPE_CHECKING:
    from stream_learner.core.model.optimizers import Optimizer

Problem = tuple[str, str]
_KAFKA_DEFAULT_MAX_BYTES = 1_000_000
_RECORD_OVERHEAD_BYTES = 4_096


def broken_rules(config: Tree) -> Iterator[Problem]:
    """Every broken rule."""
    yield from _format_rules(config)
    yield from _join_rules(config)
    yield from _core_rules(config)
    yield from _learner_rules(config)
    yield from _size_rules(config)
    yield from _topic_rules(config)
    yield from _scorer_rules(config)
    yield from _serve_rules(config)


def doubtful(config: Tree) -> Iterator[Problem]:
    """Every setting that works but was hardly meant, as (path, message)."""
    yield from config.kafka.unchecked()
    join = config.join
    window = format_duration_ms(join.window_ms)
    if "dedupe_ms" in join.model_fields_set and 0 < join.dedupe_ms < join.window_ms:
        what = "an impression that is sent again later than that counts as a second negative, unless a click on it has"
        yield "join.dedupe", f"is shorter than join.window ({window}): {what} been counted"
    if join.window_ms <= join.lateness_ms:
        lateness = format_duration_ms(join.lateness_ms)
        what = "clicks are kept for longer than they count, and an impression may come after its window and be learned"
        less_ms = max(join.window_ms // 2, SECOND_MS)
        both = "join.lateness and join.max_skew" if join.max_skew_ms > less_ms else "join.lateness"
        fits = f"; {both}: {format_duration_ms(less_ms)} fits" if less_ms < join.window_ms else ""
        yield "join.window", f"is not longer than join.lateness ({lateness}): {what}{fits}"
    if config.topics.retention_ms <= config.must_keep_ms()[config.examples_topic] + ABSENCE_MS:
        kept = format_duration_ms(config.topics.retention_ms)
        yield "topics.retention", f"is {kept}: a role that is away, or held by the gate, for longer cannot go on"
    if join.agree == 1:
        yield "join.agree", "is 1: a single event with a wrong clock closes windows for all others of its partition"
    twice = sorted({*config.features.include} & {*config.features.exclude})
    if twice:
        yield "features.include", f"names {', '.join(twice)}, which features.exclude leaves out: no feature comes of it"
    if join.dedupe_ms == 0:
        yield "join.dedupe", "is 0: impressions that are sent again count again, and their clicks with them"


def _format_rules(config: Tree) -> Iterator[Problem]:
    for side, records in (("impressions", config.input.impressions), ("clicks", config.input.clicks)):
        path, needs_schema, framed = f"input.{side}", records.format != "json", config.is_framed(records)
        if needs_schema and records.schema_file is None and not (config.registry.url and framed):
            yield f"{path}.schema", f"is missing: format {records.format} needs it, or registry.url and framed records"
        if not needs_schema and records.schema_file is not None:
            yield f"{path}.schema", "has no use for format json"
        if records.message is not None and (records.format != "protobuf" or framed):
            yield f"{path}.message", "is for format protobuf without frames: in a frame stands which message it is"
        if records.format == "protobuf" and records.schema_file and framed and config.registry.url:
            yield f"{path}.schema", "must be left out: the registry has the schemas of framed records"
    registry = config.registry
    if registry.user_info is not None and registry.bearer_token is not None:
        yield "registry.bearer.auth.token", "is given beside registry.basic.auth.user.info: only one can be shown"
    if registry.key is not None and registry.certificate is None:
        yield "registry.ssl.certificate.location", "is missing, though registry.ssl.key.location is given"


def _join_rules(config: Tree) -> Iterator[Problem]:
    join = config.join
    window = format_duration_ms(join.window_ms)
    if join.tick_ms > join.window_ms:
        yield "join.tick", f"must not be longer than join.window ({window})"
    if join.skew_ms > join.window_ms:
        yield "join.skew", f"must not be longer than join.window ({window})"
    if join.lateness_ms < join.max_skew_ms:
        skew = format_duration_ms(join.max_skew_ms)
        yield "join.lateness", f"must be at least join.max_skew ({skew}): events may be that far apart"
    if config.topics.retention_ms < 2 * join.window_ms:
        yield "topics.retention", f"must be at least twice join.window ({window})"
    shards = config.snapshots.shards
    if shards & (shards - 1):
        yield "snapshots.shards", f"must be a power of two, not {shards}"
    replication, in_sync = config.topics.replication, config.topics.min_insync_replicas
    if replication is not None and in_sync is not None and in_sync > replication:
        yield "topics.min_insync_replicas", f"must not be above topics.replication ({replication})"


def _core_rules(config: Tree) -> Iterator[Problem]:
    """The rules that `core` checks when it makes decoders."""
    from stream_learner.core.events.decoders import ImpressionDecoder

    try:
        impressions, _ = config.event_specs()
    except ValueError as error:
        yield "input", str(error)
        return
    try:
        ImpressionDecoder(impressions, config.feature_spec())
    except ValueError as error:
        yield "features", str(error)
        return
    try:
        config.field_numbers()
    except ValueError as error:
        yield "features.max_rows_per_field", str(error)
    try:
        config.gate_slices()
    except ValueError as error:
        yield "gate.slices", str(error)


def _learner_rules(config: Tree) -> Iterator[Problem]:
    """The rules that `core` checks for optimizer and loss, each and together."""
    from stream_learner.core.model.fold import check_loss
    from stream_learner.core.model.optimizers import sample_optimizer
    from stream_learner.core.model.table.bounded import MemoryBudget

    try:
        optimizer = config.optimizer()
    except ValueError as error:
        sample = sample_optimizer(config.learner.optimizer.name)
        yield "learner.optimizer", str(error) if sample.streaming else _not_streaming(sample)
        return
    if not optimizer.streaming:
        yield "learner.optimizer", _not_streaming(optimizer)
    if config.learner.memory_bytes is not None:
        try:
            MemoryBudget.of(config.learner.memory_bytes, len(optimizer.columns))
        except ValueError as error:
            yield "learner.memory", str(error)
    try:
        check_loss(optimizer, config.loss())
    except ValueError as error:
        yield "learner.loss", str(error)


def _not_streaming(optimizer: Optimizer) -> str:
    return f"{optimizer.name} with these settings can only be evaluated, not learned from a stream: {optimizer.reason}"


def _size_rules(config: Tree) -> Iterator[Problem]:
    from stream_learner.core.log.examples import largest_record_bytes

    join, kafka = config.join, config.kafka.root
    least_bytes = 4 * max(join.record_bytes, join.max_event_bytes)
    if join.buffer_bytes < least_bytes:
        least = format_size_bytes(least_bytes)
        yield "join.buffer", f"must be four times join.record_bytes and join.max_event_bytes or more: {least}"
    if config.learner.buffer_bytes < 4 * join.record_bytes:
        least = format_size_bytes(4 * join.record_bytes)
        yield "learner.buffer", f"must be at least four times join.record_bytes: {least}"
    counted = config.features.max_rows_per_field is not None
    example_bytes = largest_record_bytes(config.features.max_features + 1, counted=counted)
    if join.record_bytes < example_bytes:
        least = format_size_bytes(example_bytes)
        yield "join.record_bytes", f"must hold an example of features.max_features and the bias: {least} or more"
    limit_bytes = _message_limit_bytes(kafka.get("message.max.bytes", _KAFKA_DEFAULT_MAX_BYTES))
    if limit_bytes is None:
        yield "kafka", "message.max.bytes must be a number"
        return
    sizes = {"join.record_bytes": join.record_bytes, "snapshots.page_bytes": config.snapshots.page_bytes}
    for path, size_bytes in sizes.items():
        if size_bytes + _RECORD_OVERHEAD_BYTES > limit_bytes:
            yield path, f"does not fit in a message of kafka.message.max.bytes ({limit_bytes} bytes)"


def _message_limit_bytes(value: object) -> int | None:
    try:
        return int(str(value))
    except ValueError:
        return None


def _topic_rules(config: Tree) -> Iterator[Problem]:
    paths = {
        "input.impressions.topic": config.input.impressions.topic,
        "input.clicks.topic": config.input.clicks.topic,
        "topics.examples": config.examples_topic,
        "topics.snapshots": config.snapshots_topic,
        "topics.dead_letters": config.dead_letters_topic,
        "topics.checkpoints": config.checkpoints_topic,
        "topics.control": config.control_topic,
    }
    first_path: dict[str, str] = {}
    for path, topic in paths.items():
        if topic in first_path:
            yield path, f"is the same topic as {first_path[topic]} ({topic})"
        first_path.setdefault(topic, path)


def _scorer_rules(config: Tree) -> Iterator[Problem]:
    stale_ms, refuse_ms = config.scorer.stale_after_ms, config.scorer.refuse_after_ms
    if stale_ms is not None and refuse_ms is not None and refuse_ms < stale_ms:
        told = format_duration_ms(stale_ms)
        yield "scorer.refuse_after", f"must be at least scorer.stale_after ({told}), which tells before it"
    if config.scorer.state_dir is not None and Path(config.scorer.state_dir).resolve() == config.state_dir.resolve():
        yield "scorer.state_dir", f"is the directory of the learner's state ({config.state_dir})"


def _serve_rules(config: Tree) -> Iterator[Problem]:
    serve = config.serve
    for name in sorted({*serve.models} & {*serve.aliases}):
        yield "serve.aliases", f"{name} is among serve.models too"
    if (serve.tls_certificate is None) != (serve.tls_key is None):
        given, missing = ("tls_certificate", "tls_key") if serve.tls_certificate else ("tls_key", "tls_certificate")
        yield f"serve.{missing}", f"is missing, though serve.{given} is given"
    if serve.body_memory_bytes is not None and serve.body_memory_bytes < serve.max_body_bytes:
        yield "serve.body_memory", f"must be at least serve.max_body ({format_size_bytes(serve.max_body_bytes)})"
    if serve.port == config.telemetry.http_port:
        yield "telemetry.http_port", f"is the same as serve.port ({serve.port})"
    if serve.grpc_port and serve.grpc_port in (serve.port, config.telemetry.http_port):
        other = "serve.port" if serve.grpc_port == serve.port else "telemetry.http_port"
        yield "serve.grpc_port", f"is the same as {other} ({serve.grpc_port})"
