"""`inspect weights`, `inspect feature`, `inspect snapshot`: look into the model.

They must never change what is published or learned, make a state directory, or join a group.
"""

from __future__ import annotations

from typing import Any

from stream_learner.adapters.kafka import Admin, KafkaSettings
from stream_learner.config import Config
from stream_learner.core.machine.hashing import hash_texts
from stream_learner.core.model.fold import Learner
from stream_learner.core.snapshots.records import VersionRecord
from stream_learner.errors import ConfigError, NotFound, StateInUse, StateOfAnotherModel
from stream_learner.roles.common.last_publication import LastPublication, read_last_publication
from stream_learner.roles.learner.checkpoints import open_store
from stream_learner.roles.scorer.scorer import Scorer

LOOKS = 10
ROCKSDB_FILE = "CURRENT"
"""Every RocksDB database has this file; opening a directory without it would make a database."""


def inspect_weights(config: Config, limit: int) -> list[dict[str, Any]]:
    """The `limit` largest published weights by magnitude: key as hex, weight."""
    with _scorer(config) as scorer:
        scorer.wait_ready(config.scorer.ready_timeout_ms / 1000)
        keys, weights = scorer.largest_weights(limit)
    return [
        {"key": f"0x{key:016x}", "weight": weight} for key, weight in zip(keys.tolist(), weights.tolist(), strict=True)
    ]


def inspect_feature(config: Config, name: str) -> dict[str, Any]:
    """One feature: its key, its published weight, and its state if the state directory is here and not in use."""
    key = _key(name)
    with _scorer(config) as scorer:
        scorer.wait_ready(config.scorer.ready_timeout_ms / 1000)
        fields = {"feature": name, "key": f"0x{key:016x}", "weight": scorer.weight(key), "version": scorer.version}
    return {**fields, **_state_of(config, key)}


def inspect_snapshot(config: Config) -> dict[str, Any]:
    """The published version: digest, metrics, and the shards' sequence numbers and pages.

    Looks again if a learner has published between two shards. Raises NotFound, TopicMissing, DamagedLog,
    NewerFormat.
    """
    last = _last_whole(config)
    if last.model is None:
        raise NotFound(f"{config.snapshots_topic} holds no published version yet")
    content = last.model.content
    shards = [_shard_fields(version) for version in last.versions if version is not None]
    return {
        "model": content["name"],
        "version": last.complete_up_to,
        "digest": content["digest"],
        "optimizer": content["optimizer"],
        "loss": content.get("loss", {"name": "logistic"}),
        "metrics": content["metrics"],
        **({"rows": content["rows"]} if "rows" in content else {}),
        "shards": shards,
    }


def _settings(config: Config) -> KafkaSettings:
    return KafkaSettings(config.kafka_options(), group=f"{config.model}.inspect")


def _scorer(config: Config) -> Scorer:
    return Scorer(model=config.model, kafka=config.kafka_options(), topic=config.snapshots_topic, stale_after_ms=None)


def _last_whole(config: Config) -> LastPublication:
    settings, topic = _settings(config), config.snapshots_topic
    admin = Admin(settings)
    shards = admin.require([topic])[topic].partitions
    last = read_last_publication(settings, admin.offsets, topic, shards)
    for _ in range(LOOKS):
        if last.is_whole or last.model is None:
            break
        last = read_last_publication(settings, admin.offsets, topic, shards)
    return last


def _key(name: str) -> int:
    """The key of a feature: the hash of `name=value` or `name`; a text of 0x and hex digits is the key itself."""
    if not name.startswith("0x"):
        return hash_texts([name.encode()])[0]
    try:
        key = int(name, 16)
    except ValueError:
        key = 0
    if not 0 < key < 1 << 64:
        raise ConfigError(f"{name} is no key", action="Write a key as 0x and 16 hex digits.")
    return key


def _state_of(config: Config, key: int) -> dict[str, Any]:
    """The learner's columns of a key, if the state directory exists and no learner has it open."""
    if not (config.state_dir / ROCKSDB_FILE).exists():
        return {"state": f"not here ({config.state_dir})"}
    learner = Learner(config.optimizer(), loss=config.loss())
    try:
        store = open_store(config, learner, _log_partitions(config))
    except (StateInUse, StateOfAnotherModel) as error:
        return {"state": str(error)}
    fields: dict[str, Any] = {"state": "no example had it"}
    with store:
        loaded = store.load()
        for rows in loaded.rows if loaded is not None else ():
            found = rows.where(rows.keys == key)
            if len(found):
                fields = dict(zip(learner.optimizer.columns, found.columns[0].tolist(), strict=True))
                fields["touched_tick"] = int(found.touched[0])
    return {**fields, "checkpoint_tick": loaded.version if loaded is not None else -1}


def _log_partitions(config: Config) -> int:
    return Admin(_settings(config)).require([config.examples_topic])[config.examples_topic].partitions


def _shard_fields(version: VersionRecord) -> dict[str, Any]:
    return {
        "shard": version.stamp.shard,
        "sequence": version.stamp.sequence,
        "version": version.stamp.version,
        "pages": len(version.state.pages),
        "oldest_page": version.state.oldest,
        "delta_records": int(version.state.slot_parts.sum()),
    }
