"""`rights`: the least rights of each role on a Kafka with an authorizer, and the commands that give them.

This file is the only place that says who needs which right: pages of the documentation and tests are made from it.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

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


class _Need(NamedTuple):
    """A right that a role needs on the resources that `pattern` stands for; else as in `Right`."""

    operation: str
    kind: str
    pattern: str
    why: str
    without: str


_RETENTION = "how long it is kept: how often a mark is a resume point"
_NOT_KNOWN = (
    "retention of that input is left out where it is decided how often a mark is a resume point, and the log says so"
)
_JOINER: tuple[_Need, ...] = (
    _Need("Read", TOPIC, "{impressions}", "the impressions", ""),
    _Need("Read", TOPIC, "{clicks}", "the clicks", ""),
    _Need("Read", TOPIC, "{examples}", "which tick was accepted last", ""),
    _Need("Write", TOPIC, "{examples}", "ticks", ""),
    _Need("DescribeConfigs", TOPIC, "{examples}", _RETENTION, ""),
    _Need("DescribeConfigs", TOPIC, "{inputs}", _RETENTION, _NOT_KNOWN),
    _Need("Write", TOPIC, "{dead_letters}", "records that cannot be used", ""),
    _Need("Read", GROUP, "{group}", "sharing the partitions", ""),
)
_NO_LEASE = "a standby stops; another learner goes on, and a standby does not learn that it leads"
_NO_COPIES = "no checkpoint is copied, and the log says so; the learner goes on"
_DECISIONS = _Need(
    "Read",
    TOPIC,
    "{control}",
    "whether publication is paused; decisions on the training log",
    "`pause` is not obeyed, decisions of `gate accept` and `gate skip` are not taken, and the log says so",
)
_HELD = _Need(
    "Write",
    TOPIC,
    "{control}",
    "saying what it holds",
    "`gate status` does not show what it holds, and the log says so; the learner goes on",
)
_NO_HEADROOM = "there is no `learner_retention_headroom_seconds`, and the log says so"
_LEARNER: tuple[_Need, ...] = (
    _Need("Read", TOPIC, "{examples}", "the training log", ""),
    _Need("DescribeConfigs", TOPIC, "{examples}", "how long it keeps records", _NO_HEADROOM),
    _Need("Read", TOPIC, "{snapshots}", "what was published last", ""),
    _Need("Write", TOPIC, "{snapshots}", "versions", ""),
    _Need("Write", TRANSACTIONAL_ID, "{publisher_id}", "being the one publisher", ""),
    _Need("Read", TOPIC, "{checkpoints}", "restoring its state; what was copied last", ""),
    _Need("Write", TOPIC, "{checkpoints}", "copies of checkpoints", _NO_COPIES),
    _Need("Write", TRANSACTIONAL_ID, "{copier_id}", "being the one that copies", ""),
    _Need("Read", GROUP, "{lease_group}", "the lease of the learner that leads", _NO_LEASE),
    _DECISIONS,
    _HELD,
)
_NO_PINS = "a scorer that follows a model, not an alias, does not obey pins, and its log says so"
_SCORER: tuple[_Need, ...] = (
    _Need("Read", TOPIC, "{followed}", "versions", ""),
    _Need("Read", TOPIC, "{control}", "which model the alias means, and pins", _NO_PINS),
)
_UNREADY = "what needs it is not ready, its log says why, and it is tried again; `serve` does not stop"
_SERVE: tuple[_Need, ...] = (
    _Need("Read", TOPIC, "{followed}", "versions", _UNREADY),
    _Need("Read", TOPIC, "{control}", "which models aliases mean, and pins", f"for an alias: {_UNREADY}; {_NO_PINS}"),
)
_TOPICS: tuple[_Need, ...] = (
    _Need("Describe", TOPIC, "{inputs}", "their partition counts", ""),
    _Need("Create", TOPIC, "{inputs}", "making missing ones", "`topics ensure --partitions` makes no input topic"),
    _Need("Describe", TOPIC, "{own}", "which exist", ""),
    _Need("Create", TOPIC, "{own}", "making missing ones", ""),
    _Need("DescribeConfigs", TOPIC, "{own}", "where settings differ", ""),
    _Need("AlterConfigs", TOPIC, "{own}", "setting what differs", "`topics ensure --apply` changes no setting"),
)
_NEW_MODELS: tuple[_Need, ...] = (
    _Need("Create", TOPIC, "{made_for_new}", "making them", ""),
    _Need("Describe", TOPIC, "{new_checkpoints}", "which exist", ""),
    _Need("DescribeConfigs", TOPIC, "{made_for_new}", "whether they are there as they should be", ""),
    _Need("Read", TOPIC, "{new_snapshots}", "what was published last", ""),
    _Need("Write", TOPIC, "{new_snapshots}", "versions", ""),
    _Need("Write", TRANSACTIONAL_ID, "{new_publisher_ids}", "being the one publisher", ""),
    _DECISIONS,
    _HELD,
)
_BACKFILL: tuple[_Need, ...] = (
    _Need("Create", TOPIC, "{made_by_joining}", "making them", ""),
    _Need("DescribeConfigs", TOPIC, "{made_by_joining}", "whether they are there as they should be", ""),
    _Need("Create", TOPIC, "{control}", "making it", "a backfill stops where `topics ensure` has not made it before"),
    _Need("DescribeConfigs", TOPIC, "{control}", "whether it is as it should be", ""),
    *_JOINER,
    *_NEW_MODELS,
)
FROM_LOG: tuple[_Need, ...] = (
    _Need("Read", TOPIC, "{examples}", "the training log", ""),
    _Need("Read", TOPIC, "{source_snapshots}", "how that log was made", ""),
    _Need("Read", TOPIC, "{impressions}", "which keys to leave out", "`--from-log` stops where features are left out"),
    *_NEW_MODELS,
)
"""The rights of a backfill that folds the training log of another model."""
_UNSEEN = "`promote` and `rollback` refuse with this reason, exit code 56, or with --force go on unseen; `pin` stops"
_PROMOTE: tuple[_Need, ...] = (
    _Need("Read", TOPIC, "{control}", "what the alias means now", ""),
    _Need("Write", TOPIC, "{control}", "aliases, pauses, pins, decisions", ""),
    _Need("Read", TOPIC, "{followed}", "whether the model is fit for the alias", _UNSEEN),
)
_DIFF: tuple[_Need, ...] = (
    _Need("Read", TOPIC, "{compared_logs}", "the training logs", ""),
    _Need("Read", TOPIC, "{compared_snapshots}", "what was published last", ""),
    _Need("Read", TOPIC, "{clicks}", "which clicks made the difference", "`diff` stops where labels differ"),
)
_AUDIT: tuple[_Need, ...] = (
    _Need("Read", TOPIC, "{examples}", "the training log", ""),
    _Need("Read", TOPIC, "{inputs}", "where they begin and end; with --replay their records", ""),
    _Need("Read", TOPIC, "{dead_letters}", "whether every dead record has its letter", ""),
    _Need("Read", TOPIC, "{snapshots}", "versions", ""),
    _Need("Read", TOPIC, "{checkpoints}", "the copy of the last checkpoint", ""),
    _Need("Read", TOPIC, "{control}", "with --replay, decisions on the log", ""),
    _Need("Describe", GROUP, "{group}", "what is committed", ""),
)
NOT_ASKED = "`begin-anew` does not see whether joiners run, and reads the whole log"
_BEGIN_ANEW: tuple[_Need, ...] = (
    _Need("Read", TOPIC, "{examples}", "which tick was accepted last", ""),
    _Need("Write", TOPIC, "{examples}", "the marks with which it begins anew", "`begin-anew` shows what it would do"),
    _Need("Describe", TOPIC, "{inputs}", "where they begin and end", ""),
    _Need("Read", TOPIC, "{snapshots}", "the length of the ticks", ""),
    _Need("Describe", GROUP, "{group}", "whether joiners run, and what they have committed", NOT_ASKED),
)
_DELETE: tuple[_Need, ...] = (
    _Need("Describe", TOPIC, "{inputs}", "which offsets the joiners have committed", ""),
    _Need("Describe", TOPIC, "{own_but_control}", "which exist", ""),
    _Need("Delete", TOPIC, "{own_but_control}", "deleting them", "`delete` shows what there is"),
    _Need("Describe", GROUP, "{groups}", "whether a role runs", ""),
    _Need("Delete", GROUP, "{groups}", "deleting them", "`delete` shows what there is"),
    _Need("Read", TOPIC, "{control}", "aliases, pins, decisions", ""),
    _Need("Write", TOPIC, "{control}", "deleting what it says of the model", "`delete` shows what there is"),
)
_LOG_SKIP: tuple[_Need, ...] = (
    _Need("Read", TOPIC, "{examples}", "what is lost by it", ""),
    _Need("Write", TOPIC, "{examples}", "the skip", "`log skip --dry-run` shows what is lost"),
    _Need("Describe", GROUP, "{group}", "whether joiners run, if the record is a mark", "`log skip` does not see it"),
)

ROLES: Mapping[str, tuple[_Need, ...]] = {
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
    "delete": _DELETE,
    "log-skip": _LOG_SKIP,
}
"""The rights that each role needs."""


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
    for need in FROM_LOG if role == "backfill" and source else ROLES[role]:
        for name in names[need.pattern.strip("{}")]:
            right = Right(need.operation, need.kind, name, need.why, need.without)
            found.setdefault((right.operation, right.kind, name), right)
    return list(found.values())


_Names = dict[str, tuple[str, ...]]
"""The names that each pattern stands for."""


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
        "own_but_control": (
            config.examples_topic,
            config.dead_letters_topic,
            config.snapshots_topic,
            config.checkpoints_topic,
        ),
        "control": (config.control_topic,),
        "groups": (config.group, config.lease_group),
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
