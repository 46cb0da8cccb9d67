"""The least rights of each role on a Kafka with an authorizer.

In: a configuration, and the models that an alias may point at. Out: rights, and the commands that give them.
This file must never ask a broker, and is the only place that says who needs what: pages and tests are made from it.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from stream_learner.config import Config

TOPIC, GROUP, TRANSACTIONAL_ID = "topic", "group", "transactional id"
_OPTIONS = {TOPIC: "--topic", GROUP: "--group", TRANSACTIONAL_ID: "--transactional-id"}


@dataclass(frozen=True)
class Right:
    """To do `operation` on what has this name. Read, Write and Alter bring Describe with them, as with every broker.

    `why` says what for. `without` says what does not work when it is missing; "" where the role stops, or refuses.
    """

    operation: str
    kind: str
    name: str
    why: str
    without: str = ""


_Row = tuple[str, str, str, str, str]

_JOINER: tuple[_Row, ...] = (
    ("Read", TOPIC, "{impressions}", "the impressions", ""),
    ("Read", TOPIC, "{clicks}", "the clicks", ""),
    ("Read", TOPIC, "{examples}", "which tick was accepted last", ""),
    ("Write", TOPIC, "{examples}", "ticks", ""),
    ("DescribeConfigs", TOPIC, "{examples}", "how long the log is kept: how often a mark is a resume point", ""),
    ("Write", TOPIC, "{dead_letters}", "records that cannot be used", ""),
    ("Read", GROUP, "{group}", "sharing the partitions", ""),
)
_LEARNER: tuple[_Row, ...] = (
    ("Read", TOPIC, "{examples}", "the training log", ""),
    ("Read", TOPIC, "{snapshots}", "what was published last", ""),
    ("Write", TOPIC, "{snapshots}", "versions", ""),
    ("Write", TRANSACTIONAL_ID, "{publisher_id}", "being the one publisher", ""),
    ("Read", TOPIC, "{control}", "whether publication is paused", "`pause` is not obeyed, and the log says so"),
)
_SCORER: tuple[_Row, ...] = (
    ("Read", TOPIC, "{any_snapshots}", "versions", ""),
    (
        "Read",
        TOPIC,
        "{control}",
        "which model the alias means, and pins",
        "a scorer that follows a model, not an alias, does not obey pins, and its log says so",
    ),
)
_TOPICS: tuple[_Row, ...] = (
    ("Describe", TOPIC, "{inputs}", "their partition counts", ""),
    ("Create", TOPIC, "{inputs}", "making missing ones", "`topics ensure --partitions` makes no input topic"),
    ("Describe", TOPIC, "{own}", "which exist", ""),
    ("Create", TOPIC, "{own}", "making missing ones", ""),
    ("DescribeConfigs", TOPIC, "{own}", "where settings differ", ""),
    ("AlterConfigs", TOPIC, "{own}", "setting what differs", "`topics ensure --apply` changes no setting"),
)
_PROMOTE: tuple[_Row, ...] = (
    ("Read", TOPIC, "{control}", "what the alias means now", ""),
    ("Write", TOPIC, "{control}", "aliases, pauses, pins", ""),
    ("Read", TOPIC, "{any_snapshots}", "whether the model is fit for the alias", ""),
)

ROLES: Mapping[str, tuple[_Row, ...]] = {
    "joiner": _JOINER,
    "learner": _LEARNER,
    "scorer": _SCORER,
    "serve": _SCORER,
    "topics": _TOPICS,
    "backfill": (*_TOPICS, *_JOINER, *_LEARNER),
    "promote": _PROMOTE,
}
"""Role -> (operation, kind of resource, name, why, what does not work without it)."""


def rights_of(config: Config, role: str, models: Sequence[str] = ()) -> list[Right]:
    """The least rights of a role, each once, in the order of the table.

    `models` are those that an alias may point at, beside the one configured. `config` is that of the model that the
    role works on: for a backfill that of the new one. Raises KeyError for a role that there is not.
    """
    found: dict[tuple[str, str, str], Right] = {}
    for operation, kind, pattern, why, without in ROLES[role]:
        for name in _names(config, role, pattern.strip("{}"), models):
            found.setdefault((operation, kind, name), Right(operation, kind, name, why, without))
    return list(found.values())


def _names(config: Config, role: str, pattern: str, models: Sequence[str]) -> Iterable[str]:
    """The names that a pattern of the table stands for."""
    inputs = (config.input.impressions.topic, config.input.clicks.topic)
    own = (config.examples_topic, config.dead_letters_topic, config.snapshots_topic)
    names = {
        "impressions": inputs[:1],
        "clicks": inputs[1:],
        "inputs": inputs,
        "examples": (config.examples_topic,),
        "dead_letters": (config.dead_letters_topic,),
        "snapshots": (config.snapshots_topic,),
        "own": own if role == "backfill" else (*own, config.control_topic),
        "any_snapshots": _snapshots(config, role, models),
        "control": (config.control_topic,),
        "group": (config.group,),
        "publisher_id": (config.publisher_id,),
    }
    return names[pattern]


def _snapshots(config: Config, role: str, models: Sequence[str]) -> tuple[str, ...]:
    """The snapshot topics of the models that may be followed."""
    served = tuple(config.serve.models) if role == "serve" else ()
    own = () if served and config.model not in served else (config.snapshots_topic,)
    others = (f"{model}.snapshots" for model in (*served, *models) if model != config.model)
    return tuple(dict.fromkeys((*own, *others)))


def commands(rights: Sequence[Right], principal: str, bootstrap: str) -> list[str]:
    """`kafka-acls.sh` commands that give these rights: one for all resources of a kind with the same operations."""
    by_name: dict[tuple[str, str], list[str]] = {}
    for right in rights:
        by_name.setdefault((right.kind, right.name), []).append(right.operation)
    rows = sorted((kind, sorted(operations), name) for (kind, name), operations in by_name.items())
    found = []
    for (kind, operations), group in groupby(rows, key=lambda row: row[:2]):
        words = ["kafka-acls.sh", "--bootstrap-server", bootstrap, "--command-config", "admin.properties", "--add"]
        words += ["--allow-principal", principal]
        words += [word for operation in operations for word in ("--operation", operation)]
        words += [word for _, _, name in group for word in (_OPTIONS[kind], name)]
        found.append(shlex.join(words))
    return found
