"""librdkafka's properties: who may set which, and which clients they concern."""

from __future__ import annotations

FIXED: dict[str, tuple[str, str]] = {
    "group.protocol": ("classic", "a killed static member never comes back under the new protocol"),
    "partition.assignment.strategy": ("range", "only range keeps a partition of both input topics together"),
    "enable.auto.commit": ("false", "positions are recorded in the training log"),
    "enable.auto.offset.store": ("false", "positions are recorded in the training log"),
    "auto.offset.reset": ("error", "a position that was trimmed must not be skipped silently"),
    "enable.partition.eof": ("true", "the reader's position includes transaction markers"),
    "enable.idempotence": ("true", "a record must not be appended twice or out of order"),
    "acks": ("all", "an acknowledged record must survive the loss of a broker"),
    "api.version.request": ("true", "without it, record timestamps and transactions are not available"),
}
"""Properties with one permitted value, and why."""

OURS: dict[str, str] = {
    "group.id": "it is set from the model's name, or with `join.group`",
    "group.instance.id": "it is set with `join.instance_id`",
    "transactional.id": "it is set from the model's name",
    "isolation.level": "inputs are read with read_committed",
    "group.remote.assignor": "it belongs to the consumer group protocol, which is not used",
    "delivery.report.only.error": "the offsets that come back are watched",
    "plugin.library.paths": "plug-ins may change what is read and written",
    "ssl.engine.location": "it loads a library into this process",
    "ssl.engine.id": "it names what `ssl.engine.location` loads, which is not settable",
    "ssl.providers": "it loads libraries into this process",
    "sasl.kerberos.kinit.cmd": "it is a command that a shell runs; renew tickets with a `kinit` of your own",
    "test.mock.num.brokers": "it replaces the cluster; use `stream-learner demo`",
    "test.mock.broker.rtt": "it belongs to the mock cluster",
}
"""Properties that are not given under `kafka:`, and why."""

IN_A_COMMAND = frozenset(["sasl.kerberos.principal", "sasl.kerberos.keytab"])
"""Properties whose values librdkafka writes into the command with which it renews a Kerberos ticket, for a shell."""

CALLBACKS = frozenset(
    [
        "error_cb",
        "stats_cb",
        "throttle_cb",
        "log_cb",
        "on_commit",
        "on_delivery",
        "oauth_cb",
        "logger",
        "dr_cb",
        "dr_msg_cb",
        "rebalance_cb",
        "offset_commit_cb",
        "socket_cb",
        "connect_cb",
        "closesocket_cb",
        "open_cb",
        "resolve_cb",
        "opaque",
    ]
)

PRODUCER_ONLY = frozenset(
    [
        "transaction.timeout.ms",
        "enable.idempotence",
        "enable.gapless.guarantee",
        "queue.buffering.max.messages",
        "queue.buffering.max.kbytes",
        "queue.buffering.max.ms",
        "linger.ms",
        "message.send.max.retries",
        "retries",
        "queue.buffering.backpressure.threshold",
        "compression.codec",
        "compression.type",
        "compression.level",
        "batch.num.messages",
        "batch.size",
        "delivery.report.only.error",
        "sticky.partitioning.linger.ms",
        "acks",
        "request.timeout.ms",
        "message.timeout.ms",
        "delivery.timeout.ms",
        "queuing.strategy",
        "partitioner",
        "produce.offset.report",
    ]
)
CONSUMER_ONLY = frozenset(
    [
        "group.protocol",
        "partition.assignment.strategy",
        "session.timeout.ms",
        "heartbeat.interval.ms",
        "group.protocol.type",
        "coordinator.query.interval.ms",
        "max.poll.interval.ms",
        "enable.auto.commit",
        "auto.commit.interval.ms",
        "enable.auto.offset.store",
        "queued.min.messages",
        "queued.max.messages.kbytes",
        "fetch.wait.max.ms",
        "fetch.queue.backoff.ms",
        "fetch.message.max.bytes",
        "max.partition.fetch.bytes",
        "fetch.max.bytes",
        "fetch.min.bytes",
        "fetch.error.backoff.ms",
        "offset.store.method",
        "enable.partition.eof",
        "check.crcs",
        "auto.offset.reset",
        "allow.auto.create.topics",
        "client.rack",
        "consume.callback.max.messages",
    ]
)

COMMON = frozenset(
    [
        "bootstrap.servers",
        "client.id",
        "security.protocol",
        "sasl.mechanisms",
        "sasl.mechanism",
        "sasl.username",
        "sasl.password",
        "sasl.oauthbearer.method",
        "sasl.oauthbearer.client.id",
        "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.token.endpoint.url",
        "ssl.ca.location",
        "ssl.certificate.location",
        "ssl.key.location",
        "ssl.key.password",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.endpoint.identification.algorithm",
        "enable.ssl.certificate.verification",
        "socket.timeout.ms",
        "socket.keepalive.enable",
        "reconnect.backoff.ms",
        "reconnect.backoff.max.ms",
        "broker.address.family",
        "metadata.max.age.ms",
        "message.max.bytes",
        "receive.message.max.bytes",
        "statistics.interval.ms",
        "debug",
        "log_level",
    ]
)
"""Widely used properties of every client; needed only to suggest the nearest name."""

ALIASES = {"metadata.broker.list": "bootstrap.servers", "request.required.acks": "acks"}
"""Second names of properties, and the names used here."""
