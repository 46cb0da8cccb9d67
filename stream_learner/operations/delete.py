"""`delete`: list all that there is of a model, and remove it, so that its name can be used again at once.

It must never touch the input topics, nor what another model needs. With `write`:

1. Refuse while a role of the model runs, while another model learns from its training log, and while an alias points at
   it; an alias only unless it is told otherwise.
2. Let the aliases that point at it point at nothing.
3. Remove what is on this machine: the state directory, and the scorer's copy.
4. Delete the consumer groups, with their offsets.
5. Delete the topics, that of the training log last.
6. Delete the control records.

| a crash after  | leaves                                          | what next                           |
|----------------|-------------------------------------------------|-------------------------------------|
| step 1         | everything                                      | the same command                    |
| step 2, 3 or 4 | the topics: a model that roles can go on with   | the same command, or the roles      |
| step 5, partly | the training log, from which all can be learned | the same command                    |
| step 5         | control records of a model that is gone         | the same command: it finds them all |

Each step finds what is left of it, and what is gone is no error; so the same command finishes what was interrupted.
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from stream_learner.adapters.kafka import Admin, Appender, KafkaSettings
from stream_learner.adapters.kafka.deletion import delete_group, delete_topic
from stream_learner.adapters.kafka.ends import committed_offsets, group_exists, group_members
from stream_learner.adapters.rocksdb.store import stored_identity
from stream_learner.core.control.records import DELETE, Alias, Change, LogDecision, Pin
from stream_learner.errors import ConfigError, ModelInUse, StateDamaged, StateInUse, TopicMissing
from stream_learner.roles.common.lifecycle import wall_clock_ms
from stream_learner.roles.control.topic import PARTITION, ControlTopic
from stream_learner.roles.learner.state_dir import database_files
from stream_learner.roles.learner.state_swap import locked
from stream_learner.wording import count_of

if TYPE_CHECKING:
    from stream_learner.config import Config
    from stream_learner.core.control.records import Record

FLUSH_S = 30.0
THERE: Final = "there"
REMOVED: Final = "removed"
LEFT: Final = "left"
"""The states of a thing in the report: it is there, was removed, or is left where it is."""
EXPIRES = "Kafka forgets it by itself, a week after its last use unless set otherwise; it is in nobody's way"
NOT_NAMED = "it is not named after the model, so others may need it; --all-topics deletes it, too"
STATE_FOLDERS = ("history", "damaged-*", "rewound", "rewound-making", "rewound-moving")
STATE_FILES = ("LOCK", "backfill.json")


@dataclass(frozen=True)
class DeleteRequest:
    """The request of an operator. write: whether to do it, or only to show it. force: although an alias points at the
    model. all_topics: also topics that are not named after the model. who: for the record of the alias."""

    write: bool = False
    force: bool = False
    all_topics: bool = False
    who: str = ""


@dataclass
class _Thing:
    """One thing there is of the model. remove: removes it; None where it is left."""

    kind: str
    name: str
    what: str
    remove: Callable[[], None] | None
    state: str = THERE
    fields: dict[str, Any] = field(default_factory=dict)

    def row(self) -> dict[str, Any]:
        """As the report shows it."""
        return {"kind": self.kind, "name": self.name, "state": self.state, "what": self.what, **self.fields}


def delete(config: Config, request: DeleteRequest, clock_ms: Callable[[], int] = wall_clock_ms) -> dict[str, Any]:
    """Show or do what the request says, and return the report as `--json` prints it.

    Raises ModelInUse, before anything is removed; ConfigError if the state directory holds another model;
    NotAuthorised, BrokerUnreachable, RetryLater: what was removed before stays removed.
    """
    return _Deletion(config, request, clock_ms).run()


class _Deletion:
    def __init__(self, config: Config, request: DeleteRequest, clock_ms: Callable[[], int]) -> None:
        self._config, self._request, self._clock_ms = config, request, clock_ms
        self._settings = KafkaSettings(config.kafka_options())
        self._admin = Admin(self._settings)
        self._reasons: list[str] = []
        try:
            self._control: ControlTopic | None = ControlTopic(self._settings, config.control_topic)
        except TopicMissing:
            self._control = None

    def run(self) -> dict[str, Any]:
        found = [*self._aliases(), *self._on_disk(), *self._groups(), *self._topics(), *self._records()]
        # Step 1: refuse while the model is in use.
        in_use = self._in_use()
        if self._request.write:
            if in_use:
                raise ModelInUse(f"{self._config.model} is in use: {'; '.join(in_use)}")
            # Steps 2 to 6, in this order.
            for thing in found:
                if thing.remove is not None:
                    thing.remove()
                    thing.state = REMOVED
        return {
            "model": self._config.model,
            "written": self._request.write,
            "in_use": in_use,
            "found": [thing.row() for thing in found],
        }

    def _in_use(self) -> list[str]:
        """Why nothing may be removed now."""
        config, reasons = self._config, self._reasons
        for group, what in ((config.group, "joiner"), (config.lease_group, "learner")):
            members = group_members(self._settings.with_group(group))
            if members:
                reasons.append(f"a {what} runs, or ended without leaving: the group {group} has {members} in it")
        reasons += [f"a transaction to {topic} is open" for topic in self._open_transactions()]
        if self._control is not None and not self._request.force:
            reasons += [f"the alias {alias.name} points at it (--force lets it go)" for alias in self._pointing()]
            reasons += [
                f"{model} learns from its training log {gate.log} (--force takes the log away)"
                for model, gate in sorted(self._control.state.gates.items())
                if model != config.model and gate.log == config.examples_topic and self._deletes(gate.log)
            ]
        return reasons

    def _open_transactions(self) -> Iterator[str]:
        config = self._config
        for topic, info in self._admin.describe([config.snapshots_topic, config.checkpoints_topic]).items():
            places = [(topic, partition) for partition in range(info.partitions)]
            ends = self._admin.offsets.high_watermarks(places)
            stable = self._admin.offsets.last_stable_offsets(places)  # asked for last, so that it lags by nothing else
            if any(stable[place] < ends[place] for place in places):
                yield topic

    def _pointing(self) -> list[Alias]:
        """The aliases that point at the model."""
        if self._control is None:
            return []
        aliases = self._control.state.aliases
        return [alias for _, alias in sorted(aliases.items()) if alias.model == self._config.model]

    # What there is, in the order in which it is removed

    def _aliases(self) -> Iterator[_Thing]:
        for alias in self._pointing():
            yield _Thing("alias", alias.name, f"points at it, by {alias.last.who}", partial(self._release, alias))

    def _release(self, alias: Alias) -> None:
        """Let an alias point at nothing."""
        assert self._control is not None
        who, note = self._request.who, "the model is deleted"
        change = Change(secrets.token_hex(8), DELETE, who, self._clock_ms(), alias.model, None, note=note)
        self._control.write(alias.changed(change))

    def _on_disk(self) -> Iterator[_Thing]:
        config = self._config
        path = config.state_dir
        parts = list(_parts_of_state(path)) if path.is_dir() else []
        if parts:
            self._check_whose(path)
            yield _Thing("state directory", str(path), count_of(len(parts), "entry", "entries"), partial(_empty, path))
        if config.scorer.state_dir is not None:
            copy = Path(config.scorer.state_dir) / f"model-{config.model}.copy"
            if copy.exists():
                yield _Thing("scorer's copy", str(copy), f"{copy.stat().st_size:,} bytes", copy.unlink)

    def _check_whose(self, path: Path) -> None:
        """Raise ConfigError if the state directory holds another model; note if somebody has it open."""
        try:
            identity = stored_identity(path)
        except StateDamaged:
            return  # there is nothing in it that anybody could go on with
        except StateInUse as error:
            self._reasons.append(error.message)
            return
        whose = None if identity is None else identity.get("model")
        if whose not in (None, self._config.model):
            raise ConfigError(
                f"{path} holds the state of {whose}, not of {self._config.model}",
                action="Set learner.state_dir to the directory of this model, or to one that does not exist.",
            )

    def _groups(self) -> Iterator[_Thing]:
        config = self._config
        inputs = (config.input.impressions.topic, config.input.clicks.topic)
        places = [(n, p) for n, info in self._admin.describe(inputs).items() for p in range(info.partitions)]
        for group in (config.group, config.lease_group):
            settings = self._settings.with_group(group)
            if not group_exists(settings):
                continue
            offsets = committed_offsets(settings, places) if places and group == config.group else {}
            rows = [
                {"topic": topic, "partition": partition, "offset": one.offset}
                for (topic, partition), one in sorted(offsets.items())
            ]
            what = f"offsets of {count_of(len(rows), 'partition')}" if rows else "no offsets"
            yield _Thing("consumer group", group, what, partial(delete_group, settings), fields={"offsets": rows})

    def _own_topics(self) -> list[str]:
        """The topics of the model, in the order in which they are deleted."""
        config = self._config
        return [config.checkpoints_topic, config.snapshots_topic, config.dead_letters_topic, config.examples_topic]

    def _topics(self) -> Iterator[_Thing]:
        there = self._admin.describe(self._own_topics())
        for name in self._own_topics():
            if name not in there:
                continue
            places = [(name, partition) for partition in range(there[name].partitions)]
            ends, starts = self._admin.offsets.high_watermarks(places), self._admin.offsets.earliest(places)
            offsets = sum(ends[place] - starts[place] for place in places)
            what = f"{count_of(there[name].partitions, 'partition')}, {count_of(offsets, 'offset')}"
            fields = {"offsets": offsets}
            if self._deletes(name):
                yield _Thing(
                    "topic", name, what, partial(delete_topic, self._settings, self._admin, name), fields=fields
                )
            else:
                yield _Thing("topic", name, f"{what}; {NOT_NAMED}", None, LEFT, fields)
        for identity in (self._config.publisher_id, self._config.copier_id):
            yield _Thing("transactional id", identity, EXPIRES, None, LEFT)

    def _records(self) -> Iterator[_Thing]:
        if self._control is None:
            return
        for key, record in sorted(self._control.state.latest.items()):
            if self._is_about_model(key, record):
                yield _Thing("control record", key.decode(), f"in {self._control.topic}", partial(self._forget, key))

    def _is_about_model(self, key: bytes, record: Record) -> bool:
        config = self._config
        if isinstance(record, Pin):
            return record.model == config.model
        if isinstance(record, LogDecision):
            return record.log == config.examples_topic and self._deletes(record.log)
        return key.partition(b"/")[2] == config.model.encode() and not isinstance(record, Alias)

    def _deletes(self, topic: str) -> bool:
        """Whether a topic is deleted: it is named after the model, or all are."""
        own = [f"{self._config.model}.{kind}" for kind in ("checkpoints", "snapshots", "dead-letters", "examples")]
        return self._request.all_topics or topic in own

    def _forget(self, key: bytes) -> None:
        assert self._control is not None
        appender = Appender(self._settings, name="delete")
        try:
            appender.append(self._control.topic, PARTITION, None, key=key)
            (delivery,) = appender.flush(FLUSH_S)
        finally:
            appender.close()
        if delivery.error is not None:
            raise delivery.error


def _parts_of_state(path: Path) -> Iterator[Path]:
    """What a learner, a rewind and a backfill make in a state directory. What else is there is not ours."""
    yield from database_files(path)
    for name in STATE_FILES:
        if (path / name).exists():
            yield path / name
    for pattern in STATE_FOLDERS:
        yield from sorted(path.glob(pattern))


def _empty(path: Path) -> None:
    """Remove a state directory. A directory that holds something else, or that may not go, stays, without the state."""
    with locked(path):
        for part in _parts_of_state(path):
            if part.is_dir():
                shutil.rmtree(part)
            elif part.name != "LOCK":
                part.unlink(missing_ok=True)
        (path / "LOCK").unlink(missing_ok=True)
    try:
        path.rmdir()
    except OSError:
        return
