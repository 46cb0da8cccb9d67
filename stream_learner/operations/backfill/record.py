"""Records the plan of a backfill, so that the same command goes on with it and another one is refused.

The record is a small file in each model's state directory. It is written before anything else of the model, and never
changed. If it is missing the model is new, and its topics must be empty.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stream_learner.adapters.kafka import Admin
from stream_learner.config import Config
from stream_learner.config.values import format_start
from stream_learner.errors import ConfigError, NewerFormat, StateDamaged
from stream_learner.operations.backfill.plan import BackfillPlan

FILE = "backfill.json"
FORMAT = 1
ANOTHER_NAME = "Give the backfill another name, or remove that model with `stream-learner delete NAME` and begin anew."


def check_and_record(plan: BackfillPlan, admin: Admin) -> bool:
    """Check every model against its record, and write the records that are missing. Whether all were there.

    Raises ConfigError for a model that was begun otherwise, or not by a backfill.
    """
    went_on = [_check(config, _record_of(plan, config), admin) for config in plan.models]
    return all(went_on)


def _record_of(plan: BackfillPlan, config: Config) -> dict[str, Any]:
    """The settings that must stay as they were, except those that the state directory or the training log guards."""
    start = format_start(plan.span.start) if plan.joins else "the beginning of the log"
    join = config.join
    return {
        "format": FORMAT,
        "model": config.model,
        "log": config.examples_topic,
        "from": start,
        "input": config.shown()["input"],
        "limits": {"max_event_bytes": join.max_event_bytes, "max_skew_ms": join.max_skew_ms},
        "features": config.feature_spec().to_dict(),
    }


def _check(config: Config, record: Mapping[str, Any], admin: Admin) -> bool:
    path = config.state_dir / FILE
    found = _read(path)
    if found is None:
        own = [config.snapshots_topic]
        if config.examples_topic == f"{config.model}.examples":
            own.append(config.examples_topic)
        _refuse_begun(config, own, admin)
        _write(path, record)
        return False
    begun = f"the backfill of {config.model} was begun with"
    same = f"Say the same as before, and it goes on where it was. {ANOTHER_NAME}"
    for name, what in (("model", "model"), ("log", "training log"), ("from", "--from")):
        if found.get(name) != record[name]:
            raise ConfigError(f"{begun} {what} {found.get(name)}, not {record[name]} ({path})", action=same)
    for name, what in (
        ("input", "input"),
        ("limits", "join.max_event_bytes or join.max_skew"),
        ("features", "features"),
    ):
        if found.get(name) != record[name]:
            raise ConfigError(f"{begun} other settings of {what} ({path})", action=same)
    return True


def _refuse_begun(config: Config, topics: list[str], admin: Admin) -> None:
    """Raise ConfigError if the topics of a model without a record hold anything."""
    places = [
        (info.name, partition) for info in admin.describe(topics).values() for partition in range(info.partitions)
    ]
    held = sorted({topic for (topic, _), end in admin.offsets.high_watermarks(places).items() if end > 0})
    if held:
        raise ConfigError(
            f"model {config.model} is there already: {', '.join(held)} holds records, and {config.state_dir} does not "
            "say of a backfill that made them",
            action=ANOTHER_NAME,
        )


def _read(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise StateDamaged(f"{path} cannot be read: {error}") from error
    if not isinstance(found, dict) or not isinstance(found.get("format"), int):
        raise StateDamaged(f"{path} is not the record of a backfill")
    if found["format"] > FORMAT:
        raise NewerFormat(f"{path} has format {found['format']}; this version knows {FORMAT}")
    return found


def _write(path: Path, record: Mapping[str, Any]) -> None:
    """Write the whole file or none, and sync it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(".draft")
        with draft.open("w", encoding="utf-8") as file:
            file.write(json.dumps(record, indent=2) + "\n")
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError as error:
        raise ConfigError(
            f"the state directory {path.parent} cannot be used: {error.strerror}",
            action="Give learner.state_dir a place that this user may write to.",
        ) from error
