"""`alias`, `pause`, `resume`, `pin`, `unpin`: show and change what the control topic says.

Only `promote.run` points an alias at another model.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any

from stream_learner.adapters.kafka import Admin, KafkaSettings
from stream_learner.config import Config
from stream_learner.core.control.records import DELETE, Alias, Change, Pin, Publication
from stream_learner.errors import NotFound, TopicMissing
from stream_learner.roles.common.last_publication import read_last_publication
from stream_learner.roles.common.lifecycle import wall_clock_ms
from stream_learner.roles.control.topic import ControlTopic
from stream_learner.wording import moment_of

Fields = dict[str, Any]
NO_ALIAS = "`stream-learner alias list` shows those there are; `stream-learner promote` makes one."


def list_aliases(config: Config) -> list[Fields]:
    """A row for each alias that points at a model. Raises DamagedLog, NewerFormat for a record that cannot be used."""
    control = _control(config)
    for key in control.state.unusable:
        if key.startswith(b"alias/"):
            control.check(key)
    pins = control.state
    return [_row(alias, pins.pin(name)) for name, alias in sorted(control.state.aliases.items()) if alias.model]


def show_alias(config: Config, name: str) -> Fields:
    """One alias with its history, newest change first. Raises NotFound."""
    control = _control(config)
    alias = _alias(control, name)
    return {
        **_row(alias, control.state.pin(name)),
        "previous": alias.previous,
        "note": alias.last.note,
        "history": [
            {
                "when": moment_of(change.when_ms),
                "what": change.what,
                "from": change.from_model,
                "to": change.to_model,
                "who": change.who,
                "forced": change.forced,
                "note": change.note,
            }
            for change in reversed(alias.history)
        ],
    }


def delete_alias(config: Config, name: str, who: str, note: str, clock_ms: Callable[[], int] = wall_clock_ms) -> Fields:
    """Let an alias point at nothing, even if its record cannot be used. Scorers keep the model they have.

    Raises NotFound.
    """
    control = _control(config)
    key = b"alias/" + name.encode()
    alias = control.state.aliases.get(name) if key in control.state.unusable else _alias(control, name)
    before = alias.model if alias is not None else None
    change = Change(secrets.token_hex(8), DELETE, who, clock_ms(), before, None, note=note)
    control.write(alias.changed(change) if alias is not None else Alias(name, (change,)))
    return {"alias": name, "model": None, "from": before, "who": who}


def set_paused(
    config: Config, model: str, paused: bool, who: str, note: str, clock_ms: Callable[[], int] = wall_clock_ms
) -> Fields:
    """Pause or resume the publication of a model. Raises NotFound if it has no snapshot topic."""
    control = _control(config)
    if paused:
        _snapshots(config, model)
    record = Publication(model, paused, who, clock_ms(), note)
    written = control.write(record)
    fields = {"model": model, "paused": paused, "who": who}
    if written.now != record and isinstance(written.now, Publication):
        fields["hint"] = f"{written.now.who} has {'paused' if written.now.paused else 'resumed'} it since"
    return fields


def set_pin(
    config: Config, name: str, version: int | None, who: str, note: str, clock_ms: Callable[[], int] = wall_clock_ms
) -> Fields:
    """Pin a model, or that of an alias, to a version; None pins each scorer to the version it serves.

    Raises NotFound if `name` is neither.
    """
    control = _control(config)
    control.check(b"alias/" + name.encode())
    alias = control.state.aliases.get(name)
    model = alias.model if alias is not None and alias.model is not None else name
    last = _last_version(config, model)
    control.write(Pin(name, model, True, version, who, clock_ms(), note))
    hint = None
    if version is not None and last > version:
        hint = (
            f"the topic holds version {last} by now: scorers that are past {version} stay where they are, "
            "one that starts is not ready"
        )
    return {"pinned": name, "model": model, "version": version, "who": who, "hint": hint}


def remove_pin(config: Config, name: str, who: str, note: str, clock_ms: Callable[[], int] = wall_clock_ms) -> Fields:
    """Let scorers go on with the last version. Raises NotFound if nothing is pinned."""
    control = _control(config)
    pin = control.state.pin(name)
    if pin is None:
        control.check(b"pin/" + name.encode())
        raise NotFound(f"{name} is not pinned", action="Check the name; `alias list` shows pins of aliases.")
    control.write(Pin(name, pin.model, False, None, who, clock_ms(), note))
    return {"unpinned": name, "model": pin.model, "who": who}


def _control(config: Config) -> ControlTopic:
    return ControlTopic(KafkaSettings(config.kafka_options()), config.control_topic)


def _alias(control: ControlTopic, name: str) -> Alias:
    control.check(b"alias/" + name.encode())
    found = control.state.aliases.get(name)
    if found is None:
        raise NotFound(f"there is no alias {name} in {control.topic}", action=NO_ALIAS)
    return found


def _snapshots(config: Config, model: str) -> tuple[Admin, str, int]:
    """The snapshot topic of a model and its shards."""
    topic = config.snapshots_topic if model == config.model else f"{model}.snapshots"
    admin = Admin(KafkaSettings(config.kafka_options()))
    try:
        return admin, topic, admin.require([topic])[topic].partitions
    except TopicMissing as error:
        raise NotFound(f"there is no model {model}: {error.message}", action="Check the name.") from error


def _last_version(config: Config, model: str) -> int:
    admin, topic, shards = _snapshots(config, model)
    return read_last_publication(KafkaSettings(config.kafka_options()), admin.offsets, topic, shards).complete_up_to


def _row(alias: Alias, pin: Pin | None) -> Fields:
    last = alias.last
    pinned = None if pin is None else f"{pin.model} {'as served' if pin.version is None else pin.version}"
    return {
        "alias": alias.name,
        "model": alias.model,
        "since": moment_of(last.when_ms),
        "who": last.who,
        "forced": last.forced,
        "pinned": pinned,
    }
