"""Topics: describes those that exist, compares them with a plan, and creates or changes them when told to.

It never changes the number of partitions: ids would move to other partitions. Nor does it delete anything: only
`deletion.py` does, for a person who has named the model (`stream-learner delete --write`). No role uses that file.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from enum import Enum
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartitionInfo, Uuid
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
    TopicDescription,
)

from stream_learner.adapters.kafka.clients import PendingAnswers, answered, new_client
from stream_learner.adapters.kafka.ends import OffsetQueries
from stream_learner.adapters.kafka.faults import MISSING, Operation, Reports, fault, kafka_error
from stream_learner.adapters.kafka.settings import KafkaSettings
from stream_learner.errors import BrokerUnreachable, NotAuthorised, RetryLater, StreamLearnerError, TopicMissing
from stream_learner.wording import count_of

REQUEST_TIMEOUT_S = 15.0
LOOK_S = 1.0
REFUSED_S = 3.0
"""How long a broker may take to begin to listen, while connections are refused."""
NO_TOPIC_ID = bytes(16)
MOCK_CLUSTER = "mockCluster"
MORE = "more than asked for; left as it is"
"""The note of a difference that is enough."""
_FIXED = {
    "partitions": "a partition count is never changed: ids would move",
    "replication": "move replicas with the brokers' own tools",
}
CLIENT_FILES, BROKER_FILES = 6, 3
"""Files that a client has open, by itself and for each broker: a connection, and the pipe that wakes its thread."""

T = TypeVar("T")


@dataclass(frozen=True)
class TopicInfo:
    """A topic as it is. `id` changes when the topic is deleted and made again; zeros if the brokers give none.

    replication: replicas of the partition that has the fewest. in_sync: of each partition how many replicas are in
    sync, 0 without a leader. operations: what the client may do with it, in the words of `kafka-acls.sh`; None where
    that was not asked or the brokers do not say.
    """

    name: str
    id: bytes
    partitions: int
    replication: int
    configs: Mapping[str, str] = field(default_factory=dict)
    in_sync: tuple[int, ...] = ()
    operations: frozenset[str] | None = None


@dataclass(frozen=True)
class TopicPlan:
    """A topic as it should be.

    `replication` None means the brokers' default. Settings not in `configs` may be anything. at_least: what the topic
    may have more of than is planned here: names of settings, "partitions" or "replication".
    """

    name: str
    partitions: int
    replication: int | None = None
    configs: Mapping[str, str] = field(default_factory=dict)
    at_least: Collection[str] = ()


@dataclass(frozen=True)
class Difference:
    """One way in which a topic differs from its plan.

    setting: "topic" if the topic is missing, "partitions", "replication", or the name of a topic setting. done: whether
    it was corrected. note: why it cannot be corrected, if it cannot. enough: whether the topic has more than was
    planned, of what it may have more of; that is never corrected.
    """

    topic: str
    setting: str
    planned: str
    found: str
    done: bool = False
    note: str = ""
    enough: bool = False

    def __str__(self) -> str:
        state = "set" if self.done else "differs"
        return f"{self.topic}: {self.setting}: {self.found} -> {self.planned} ({self.note or state})"


class Admin:
    """Describes, creates and changes topics; thread-safe. `offsets` asks for offsets of partitions.

    Every method raises BrokerUnreachable, RetryLater, NotAuthorised, AuthenticationFailed.
    """

    def __init__(self, settings: KafkaSettings, *, request_timeout_s: float = REQUEST_TIMEOUT_S) -> None:
        self._settings = settings
        self._timeout_s = request_timeout_s
        self._reports = Reports(self._operation("reach the cluster"))
        self._connect()
        self._mock: bool | None = None
        self._brokers = 1
        self.offsets = OffsetQueries(settings, request_timeout_s=request_timeout_s)

    def _connect(self) -> None:
        version = self._settings.credentials_version()
        self._admin = new_client(AdminClient, self._settings.admin(error_cb=self._reports))
        self._credentials = version

    def describe(self, topics: Iterable[str], *, with_configs: bool = False) -> dict[str, TopicInfo]:
        """The topics that exist, by name.

        with_configs: fill `configs` with all settings, defaults included; else they are empty. The mock cluster has
        neither ids nor settings.
        """
        names = sorted(set(topics))
        if not names:
            return {}
        if self.is_mock():
            return self._describe_mock(names)
        found = {name: self.described(name, answer) for name, answer in self.ask(names).items()}
        known = {name: info for name, info in found.items() if info is not None}
        if not with_configs:
            return known
        configs = self._configs(list(known))
        return {name: replace(info, configs=configs[name]) for name, info in known.items()}

    def look(self, topics: Iterable[str]) -> dict[str, TopicInfo]:
        """The topics that exist, each with its settings and the operations that are allowed.

        What may not be asked for raises nothing: settings are empty then, and a topic that may not be described has no
        partitions and no operations, whether it exists or not. The mock cluster tells of neither.
        """
        names = sorted(set(topics))
        if self.is_mock():
            return self._describe_mock(names)
        found = {}
        for name, answer in self.ask(names, with_operations=True).items():
            try:
                info = self.described(name, answer)
            except NotAuthorised:
                info = TopicInfo(name, NO_TOPIC_ID, 0, 0, operations=frozenset())
            if info is not None:
                found[name] = info
                with suppress(NotAuthorised):
                    found[name] = replace(info, configs=self._configs([name])[name])
        return found

    def require(self, topics: Iterable[str]) -> dict[str, TopicInfo]:
        """Describe topics as `describe` does. Raises TopicMissing, with their names, if some do not exist."""
        names = list(topics)
        found = self.describe(names)
        missing = [name for name in names if name not in found]
        if missing:
            near = "".join(f"; there is {name}" for name in self._nearest(missing))
            raise TopicMissing(f"missing on {self._settings.bootstrap}: {', '.join(missing)}{near}")
        return found

    def _nearest(self, missing: Iterable[str]) -> list[str]:
        """The topic with the nearest name to each, where one is near."""
        try:
            known = [*self._admin.list_topics(timeout=self._timeout_s).topics]
        except KafkaException:
            return []
        return [near for name in missing for near in get_close_matches(name, known, 1, cutoff=0.8)]

    def is_mock(self) -> bool:
        """Whether this is the mock cluster inside librdkafka.

        It is asked before anything else, so errors of the connection are raised here.
        """
        if self._mock is None:
            self._mock = self._cluster_id().startswith(MOCK_CLUSTER)
        return self._mock

    @property
    def brokers(self) -> int:
        """How many brokers the cluster has now."""
        self.is_mock()
        return self._brokers

    def files_of(self, clients: int) -> int:
        """How many files these clients open, each connected to every broker that the first request has found."""
        return clients * (CLIENT_FILES + BROKER_FILES * self.brokers)

    def _cluster_id(self) -> str:
        """Ask until a broker answers or the time is up. Refused credentials are raised at once.

        The time is up after `REFUSED_S` if nobody listens at any of the addresses, or the first one wants TLS or SASL.
        """
        began_s = time.monotonic()
        while True:
            try:
                cluster = self._admin.list_topics(timeout=min(LOOK_S, self._timeout_s))
                self._brokers = max(len(cluster.brokers), 1)
                return cluster.cluster_id or ""
            except KafkaException as error:
                self._admin.poll(0)
                found = self._fault(error, self._operation("reach the cluster"))
                if not isinstance(found, BrokerUnreachable):
                    raise found from error
                waited_s = time.monotonic() - began_s
                if waited_s > self._timeout_s or (waited_s > REFUSED_S and self._settings.why_not_understood()):
                    raise self._unreachable(found) from error

    def _unreachable(self, found: BrokerUnreachable) -> StreamLearnerError:
        """The error to raise if no broker has answered, with what a connection of our own has found out."""
        last = self._reports.at_last(found)
        why = self._settings.explain() if last is found else ""
        return BrokerUnreachable(f"{found}; {why}") if why else last

    def _describe_mock(self, names: list[str]) -> dict[str, TopicInfo]:
        try:
            known = self._admin.list_topics(timeout=self._timeout_s).topics
        except KafkaException as error:
            raise self._fault(error, self._operation("list topics")) from error
        return {n: TopicInfo(n, NO_TOPIC_ID, len(known[n].partitions), 1) for n in names if n in known}

    def group_operations(self, group: str) -> frozenset[str] | None:
        """The operations that are allowed on a consumer group, as of a topic. None where the brokers do not say, as of
        a group that does not exist."""
        if self.is_mock():
            return None
        options = {"include_authorized_operations": True, "request_timeout": self._timeout_s}
        answers = self._begin(lambda admin: admin.describe_consumer_groups([group], **options))
        try:
            return _operations(answered(answers[group], self._timeout_s).authorized_operations)
        except KafkaException as error:
            refused = isinstance(self._fault(error, self._operation("describe a group")), NotAuthorised)
            return frozenset() if refused else None

    def ask(self, names: list[str], *, with_operations: bool = False) -> PendingAnswers[str, TopicDescription]:
        """Ask for descriptions without waiting; `described` takes the answers. Not on the mock cluster."""
        if self._settings.credentials_version() != self._credentials:
            with suppress(RetryLater):  # then the client that is there goes on
                self._connect()
        self._admin.poll(0)
        options = {"include_authorized_operations": with_operations, "request_timeout": self._timeout_s}
        return self._begin(lambda admin: admin.describe_topics(TopicCollection(names), **options))

    def _begin(self, ask: Callable[[AdminClient], Any]) -> PendingAnswers[Any, Any]:
        return PendingAnswers(self._admin, ask)

    def described(self, name: str, answer: Future[TopicDescription]) -> TopicInfo | None:
        """Wait for an answer of `ask`; None if the topic does not exist."""
        try:
            found = answered(answer, self._timeout_s)
        except KafkaException as error:
            reported = kafka_error(error)
            if reported is not None and reported.code() in MISSING:
                return None
            raise self._fault(error, self._operation("describe", name, "Describe")) from error
        replication = min((len(one.replicas) for one in found.partitions), default=0)
        in_sync = tuple(len(one.isr) if _has_leader(one) else 0 for one in found.partitions)
        allowed = _operations(found.authorized_operations)
        topic_id = _id_bytes(found.topic_id)
        return TopicInfo(name, topic_id, len(found.partitions), replication, in_sync=in_sync, operations=allowed)

    def _configs(self, names: list[str]) -> dict[str, dict[str, str]]:
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
        if not resources:
            return {}
        answers = self._begin(lambda admin: admin.describe_configs(resources, request_timeout=self._timeout_s))
        found = {}
        for resource, answer in answers.items():
            entries = self._result(answer, self._operation("describe settings of", resource.name, "DescribeConfigs"))
            found[resource.name] = {name: entry.value or "" for name, entry in entries.items()}
        return found

    def ensure(self, plans: Iterable[TopicPlan], *, create: bool = False, change: bool = False) -> list[Difference]:
        """The differences between topics and their plans, and what was done about them.

        create: make missing topics. change: set settings of existing topics. Partition counts and replication are only
        compared: with more partitions, ids would lie in other partitions than before.
        On the mock cluster only existence and partition counts are compared.
        """
        wanted = list(plans)
        found = self.describe([plan.name for plan in wanted], with_configs=True)
        missing = [plan for plan in wanted if plan.name not in found]
        if create:
            self.create(missing)
        differences = [_missing(plan, create) for plan in missing]
        for plan in wanted:
            if plan.name in found:
                differences += self._compare(plan, found[plan.name], change)
        return differences

    def create(self, plans: Iterable[TopicPlan]) -> None:
        """Make topics and wait until they can be used. A topic that exists already is left as it is.

        Raises RetryLater if the brokers have made them but do not show leaders for them in time.
        """
        new = [
            NewTopic(p.name, p.partitions, -1 if p.replication is None else p.replication, config=dict(p.configs))
            for p in plans
        ]
        if not new:
            return
        answers = self._begin(lambda admin: admin.create_topics(new, request_timeout=self._timeout_s))
        for name, answer in answers.items():
            try:
                answered(answer, self._timeout_s)
            except KafkaException as error:
                reported = kafka_error(error)
                if reported is None or reported.code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise self._fault(error, self._operation("create", name, "Create")) from error
        self._await_leaders({topic.topic for topic in new})

    def _await_leaders(self, names: set[str]) -> None:
        """Wait until the brokers describe new topics with a leader for each partition: brokers learn of topics late."""
        deadline_s = time.monotonic() + self._timeout_s
        while names:
            for name, answer in self.ask(sorted(names)).items():
                try:
                    partitions = answered(answer, self._timeout_s).partitions
                except KafkaException:
                    continue
                if partitions and all(map(_has_leader, partitions)):
                    names.discard(name)
            if names and time.monotonic() > deadline_s:
                raise RetryLater(f"made, but not ready: {', '.join(sorted(names))}")
            time.sleep(0.02 if names else 0.0)

    def _compare(self, plan: TopicPlan, found: TopicInfo, change: bool) -> list[Difference]:
        differs = differences(plan, found)
        settings = {one.setting: one.planned for one in differs if one.setting in plan.configs and not one.enough}
        changed = settings if change else {}
        if changed:
            self._set_configs(plan.name, changed)
        return [replace(one, done=one.setting in changed) for one in differs]

    def _set_configs(self, topic: str, configs: Mapping[str, str]) -> None:
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in configs.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        timeout_s = self._timeout_s
        answers = self._begin(lambda admin: admin.incremental_alter_configs([resource], request_timeout=timeout_s))
        for answer in answers.values():
            self._result(answer, self._operation("change settings of", topic, "AlterConfigs"))

    def _result(self, answer: Future[T], operation: Operation) -> T:
        try:
            return answered(answer, self._timeout_s)
        except KafkaException as error:
            raise self._fault(error, operation) from error

    def _fault(self, error: KafkaException, operation: Operation) -> StreamLearnerError:
        self._admin.poll(0)
        return self._reports.instead_of(fault(error, operation))

    def _operation(self, what: str, topic: str = "", right: str = "") -> Operation:
        return self._settings.operation(what, topic, right=right)


def differences(plan: TopicPlan, found: TopicInfo) -> list[Difference]:
    """In what a topic that exists differs from its plan; without what the brokers do not tell."""
    planned = {"partitions": str(plan.partitions)}
    there = {"partitions": str(found.partitions)}
    if plan.replication is not None and found.in_sync:
        planned["replication"], there["replication"] = str(plan.replication), str(found.replication)
    if found.configs:
        planned |= plan.configs
        there |= {name: found.configs.get(name, "unknown") for name in plan.configs}
    return [
        _difference(plan, setting, asked, there[setting])
        for setting, asked in planned.items()
        if asked != there[setting]
    ]


def _difference(plan: TopicPlan, setting: str, planned: str, found: str) -> Difference:
    enough = setting in plan.at_least and _is_more(setting, found, planned)
    return Difference(
        plan.name, setting, planned, found, note=MORE if enough else _FIXED.get(setting, ""), enough=enough
    )


def _is_more(setting: str, found: str, planned: str) -> bool:
    """Whether a number is above the one planned. A retention of -1 is without an end."""
    try:
        there, asked = int(found), int(planned)
    except ValueError:
        return False
    if setting.startswith("retention.") and -1 in (there, asked):
        return there == -1 != asked
    return there > asked


def _missing(plan: TopicPlan, created: bool) -> Difference:
    return Difference(
        plan.name, "topic", f"{count_of(plan.partitions, 'partition')}", "missing", created, "made" if created else ""
    )


def _has_leader(partition: TopicPartitionInfo) -> bool:
    return partition.leader is not None and partition.leader.id >= 0


def _operations(allowed: Iterable[Enum] | None) -> frozenset[str] | None:
    """Operations in the words of `kafka-acls.sh`, such as DescribeConfigs."""
    return None if allowed is None else frozenset(one.name.title().replace("_", "") for one in allowed)


def _id_bytes(topic_id: Uuid | None) -> bytes:
    """A topic id as its 16 bytes, most significant first."""
    if topic_id is None:
        return NO_TOPIC_ID
    high, low = topic_id.get_most_significant_bits(), topic_id.get_least_significant_bits()  # type: ignore[attr-defined]
    return b"".join((part & (2**64 - 1)).to_bytes(8, "big") for part in (high, low))
