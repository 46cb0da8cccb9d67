"""`rights`: the least rights of each role on a Kafka with an authorizer, and the commands that give them.

This file is the only place that says who needs which right: pages of the documentation and tests are made from it.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from stream_learner.config import Config

TOPIC, GROUP, TRANSACTIONAL_ID = "topic", "group", "transactional id"
_OPTIONS = {TOPIC: "--topic", GROUP: "--group", TRANSACTIONAL_ID: "--transactional-id"}


@dataclass(frozen=True)
class Right:
    """The right to an operation on a resource. Read, Write and Alter include Describe, as with every broker.

    why: what it is needed for. without: what does not work without it; "" if the role stops or refuses.
    """

    operation: str
    kind: str
    name: str
    why: str
    without: str = ""


_Row = tuple[str, str, str, str, str]

_RETENTION = "how long it is kept: how often a mark is a resume point"
_NOT_KNOWN = (
    "retention of that input is left out where it is decided how often a mark is a resume point, and the log says so"
)
_JOINER: tuple[_Row, ...] = (
    ("Read", TOPIC, "{impressions}", "the impressions", ""),
    ("Read", TOPIC, "{clicks}", "the clicks", ""),
    ("Read", TOPIC, "{examples}", "which tick was accepted last", ""),
    ("Write", TOPIC, "{examples}", "ticks", ""),
    ("DescribeConfigs", TOPIC, "{examples}", _RETENTION, ""),
    ("DescribeConfigs", TOPIC, "{inputs}", _RETENTION, _NOT_KNOWN),
    ("Write", TOPIC, "{dead_letters}", "records that cannot be used", ""),
    ("Read", GROUP, "{group}", "sharing the partitions", ""),
)
_NO_LEASE = "a standby stops; another learner goes on, and a standby does not learn that it leads"
_NO_COPIES = "no checkpoint is copied, and the log says so; the learner goes on"
_LEARNER: tuple[_Row, ...] = (
    ("Read", TOPIC, "{examples}", "the training log", ""),
    ("Read", TOPIC, "{snapshots}", "what was published last", ""),
    ("Write", TOPIC, "{snapshots}", "versions", ""),
    ("Write", TRANSACTIONAL_ID, "{publisher_id}", "being the one publisher", ""),
    ("Read", TOPIC, "{checkpoints}", "restoring its state; what was copied last", ""),
    ("Write", TOPIC, "{checkpoints}", "copies of checkpoints", _NO_COPIES),
    ("Write", TRANSACTIONAL_ID, "{copier_id}", "being the one that copies", ""),
    ("Read", GROUP, "{lease_group}", "the lease of the learner that leads", _NO_LEASE),
    ("Read", TOPIC, "{control}", "whether publication is paused", "`pause` is not obeyed, and the log says so"),
)
_NO_PINS = "a scorer that follows a model, not an alias, does not obey pins, and its log says so"
_SCORER: tuple[_Row, ...] = (
    ("Read", TOPIC, "{followed}", "versions", ""),
    ("Read", TOPIC, "{control}", "which model the alias means, and pins", _NO_PINS),
)
_UNREADY = "what needs it is not ready, its log says why, and it is tried again; `serve` does not stop"
_SERVE: tuple[_Row, ...] = (
    ("Read", TOPIC, "{followed}", "versions", _UNREADY),
    ("Read", TOPIC, "{control}", "which models aliases mean, and pins", f"for an alias: {_UNREADY}; {_NO_PINS}"),
)
_TOPICS: tuple[_Row, ...] = (
    ("Describe", TOPIC, "{inputs}", "their partition counts", ""),
    ("Create", TOPIC, "{inputs}", "making missing ones", "`topics ensure --partitions` makes no input topic"),
    ("Describe", TOPIC, "{own}", "which exist", ""),
    ("Create", TOPIC, "{own}", "making missing ones", ""),
    ("DescribeConfigs", TOPIC, "{own}", "where settings differ", ""),
    ("AlterConfigs", TOPIC, "{own}", "setting what differs", "`topics ensure --apply` changes no setting"),
)
_NEW_MODELS: tuple[_Row, ...] = (
    ("Create", TOPIC, "{made_for_new}", "making them", ""),
    ("Describe", TOPIC, "{new_checkpoints}", "which exist", ""),
    ("DescribeConfigs", TOPIC, "{made_for_new}", "whether they are there as they should be", ""),
    ("Read", TOPIC, "{new_snapshots}", "what was published last", ""),
    ("Write", TOPIC, "{new_snapshots}", "versions", ""),
    ("Write", TRANSACTIONAL_ID, "{new_publisher_ids}", "being the one publisher", ""),
    _LEARNER[-1],
)
_BACKFILL: tuple[_Row, ...] = (
    ("Create", TOPIC, "{made_by_joining}", "making them", ""),
    ("DescribeConfigs", TOPIC, "{made_by_joining}", "whether they are there as they should be", ""),
    ("Create", TOPIC, "{control}", "making it", "a backfill stops where `topics ensure` has not made it before"),
    ("DescribeConfigs", TOPIC, "{control}", "whether it is as it should be", ""),
    *_JOINER,
    *_NEW_MODELS,
)
FROM_LOG: tuple[_Row, ...] = (
    ("Read", TOPIC, "{examples}", "the training log", ""),
    ("Read", TOPIC, "{source_snapshots}", "how that log was made", ""),
    ("Read", TOPIC, "{impressions}", "which keys to leave out", "`--from-log` stops where features are left out"),
    *_NEW_MODELS,
)
"""The rights of a backfill that folds the training log of another model."""
_UNSEEN = "`promote` and `rollback` refuse with this reason, exit code 56, or with --force go on unseen; `pin` stops"
_PROMOTE: tuple[_Row, ...] = (
    ("Read", TOPIC, "{control}", "what the alias means now", ""),
    ("Write", TOPIC, "{control}", "aliases, pauses, pins", ""),
    ("Read", TOPIC, "{followed}", "whether the model is fit for the alias", _UNSEEN),
)
_DIFF: tuple[_Row, ...] = (
    ("Read", TOPIC, "{compared_logs}", "the training logs", ""),
    ("Read", TOPIC, "{compared_snapshots}", "what was published last", ""),
    ("Read", TOPIC, "{clicks}", "which clicks made the difference", "`diff` stops where labels differ"),
)
_AUDIT: tuple[_Row, ...] = (
    ("Read", TOPIC, "{examples}", "the training log", ""),
    ("Read", TOPIC, "{inputs}", "where they begin and end; with --replay their records", ""),
    ("Read", TOPIC, "{dead_letters}", "whether every dead record has its letter", ""),
    ("Read", TOPIC, "{snapshots}", "versions", ""),
    ("Read", TOPIC, "{checkpoints}", "the copy of the last checkpoint", ""),
    ("Describe", GROUP, "{group}", "what is committed", ""),
)
NOT_ASKED = "`begin-anew` does not see whether joiners run, and reads the whole log"
_BEGIN_ANEW: tuple[_Row, ...] = (
    ("Read", TOPIC, "{examples}", "which tick was accepted last", ""),
    ("Write", TOPIC, "{examples}", "the marks with which it begins anew", "`begin-anew` shows what it would do"),
    ("Describe", TOPIC, "{inputs}", "where they begin and end", ""),
    ("Read", TOPIC, "{snapshots}", "the length of the ticks", ""),
    ("Describe", GROUP, "{group}", "whether joiners run, and what they have committed", NOT_ASKED),
)

ROLES: Mapping[str, tuple[_Row, ...]] = {
    "joiner": _JOINER,
    "learner": _LEARNER,
    "scorer": _SCORER,
    "serve": _SERVE,
    "topics": _TOPICS,
    "backfill": _BACKFILL,
    "promote": _PROMOTE,
    "diff": _DIFF,
    "audit": _AUDIT,
    "begin-anew": _BEGIN_ANEW,
}
"""By role: operation, kind of resource, name, why, what does not work without it."""


def rights_of(
    config: Config, role: str, models: Sequence[str] = (), *, source: Config | None = None, variants: Sequence[str] = ()
) -> list[Right]:
    """The least rights of a role, each once, in the order of the table.

    `config` is that of the model that the role works on, for a backfill of the new model. `models` are others that
    an alias may point at, or that are compared. For a backfill, `source` is the model whose training log is folded,
    None if it joins, and `variants` are the models learned beside. Raises KeyError for an unknown role.
    """
    found: dict[tuple[str, str, str], Right] = {}
    names = {**_own_names(config), **_backfill_names(config, source or config, variants)}
    names |= _names_of_others(config, role, models)
    for operation, kind, pattern, why, without in FROM_LOG if role == "backfill" and source else ROLES[role]:
        for name in names[pattern.strip("{}")]:
            found.setdefault((operation, kind, name), Right(operation, kind, name, why, without))
    return list(found.values())


_Names = dict[str, tuple[str, ...]]


def _own_names(config: Config) -> _Names:
    """The names that patterns of the table stand for, of one model."""
    inputs = (config.input.impressions.topic, config.input.clicks.topic)
    return {
        "impressions": inputs[:1],
        "clicks": inputs[1:],
        "inputs": inputs,
        "examples": (config.examples_topic,),
        "dead_letters": (config.dead_letters_topic,),
        "snapshots": (config.snapshots_topic,),
        "checkpoints": _copies(config),
        "own": (
            config.examples_topic,
            config.dead_letters_topic,
            config.snapshots_topic,
            *_copies(config),
            config.control_topic,
        ),
        "control": (config.control_topic,),
        "group": (config.group,),
        "lease_group": (config.lease_group,),
        "publisher_id": (config.publisher_id,),
        "copier_id": (config.copier_id,) if config.learner.copies else (),
    }


def _copies(config: Config) -> tuple[str, ...]:
    """The topic of the copies, if the model has one."""
    return (config.checkpoints_topic,) if config.learner.copies else ()


def _backfill_names(config: Config, source: Config, variants: Sequence[str]) -> _Names:
    """The names of what a backfill makes, and of what it makes that from."""
    learned = (config, *(config.renamed(variant) for variant in variants))
    return {
        "made_by_joining": (config.examples_topic, config.dead_letters_topic),
        "made_for_new": tuple(topic for model in learned for topic in (model.snapshots_topic, *_copies(model))),
        "new_checkpoints": tuple(topic for model in learned for topic in _copies(model)),
        "new_snapshots": tuple(model.snapshots_topic for model in learned),
        "new_publisher_ids": tuple(model.publisher_id for model in learned),
        "source_snapshots": (source.snapshots_topic,),
    }


def _names_of_others(config: Config, role: str, models: Sequence[str]) -> _Names:
    """The names of other models that are followed or compared."""
    others = tuple(model for model in models if model != config.model)
    served = tuple(config.serve.models) if role == "serve" else ()
    own = () if served and config.model not in served else (config.snapshots_topic,)
    # By an alias only the name of a model is known, so its topic has the default name.
    by_name = role == "promote" or config.scorer.alias or (role == "serve" and config.serve.aliases)
    named = (*((config.model,) if by_name else ()), *(model for model in served if model != config.model), *others)
    return {
        "followed": tuple(dict.fromkeys((*own, *(f"{model}.snapshots" for model in named)))),
        "compared_logs": (config.examples_topic, *(f"{model}.examples" for model in others)),
        "compared_snapshots": (config.snapshots_topic, *(f"{model}.snapshots" for model in others)),
    }


def commands(rights: Sequence[Right], principal: str, bootstrap: str) -> list[str]:
    """`kafka-acls.sh` commands that give these rights: one for each kind of resource and set of operations."""
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
