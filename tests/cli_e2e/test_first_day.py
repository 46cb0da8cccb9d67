"""Mistakes of a first day, on a real Kafka: each is told with its cause and the line to change, and nothing wrong that
was learned of it is published; where nothing is wrong, nothing is found, and the model is published.

`MISTAKES` are those that `doctor` finds, `COMMANDS` those that any command tells, `ROLES` those that a role stops with.
Through joiner and learner go all mistakes: `SILENT` are those that would be learned without an error, `TOLD` those that
are no harm. Topics that are written alike are made once.
"""

from __future__ import annotations

import gzip
import json
import socket
import ssl
import threading
import time
import uuid
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from structlog.testing import capture_logs

from stream_learner import errors
from stream_learner.adapters.telemetry.metrics import Metrics
from stream_learner.config import Config
from stream_learner.operations import gate
from stream_learner.operations.doctor.watch import FIRST_S, TopicsLook
from stream_learner.operations.topics import ensure_topics
from stream_learner.roles.common.lifecycle import all_ready
from stream_learner.roles.joiner.role import JoinerRole
from stream_learner.roles.learner.role import LearnerRole
from tests.cli_e2e.commands import Ended, answer_of
from tests.cli_e2e.scraped import values_of
from tests.cli_e2e.world import free_port
from tests.conftest import MakeTopic
from tests.e2e.site import failure_of, running, wait_until
from tests.kafka_broker.broker import delete_topics
from tests.operations.doctor import site as sites
from tests.operations.doctor.site import IMPRESSIONS, Happened, Site, Topic, by_user, click, impression, iso
from tests.security.certificates import Authority

MONTH_MS, HOUR_MS = 30 * 86_400_000, 3_600_000
SITE = Site()


def changed(event: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """An event with other fields."""
    return {**event, **fields}


def shown(**fields: Callable[[Happened], Any]) -> Site:
    """A site whose impressions have other fields."""
    return SITE.with_impressions(write=lambda one: changed(impression(one), **{k: of(one) for k, of in fields.items()}))


def clicked(**fields: Callable[[Happened], Any]) -> Site:
    """A site whose clicks have other fields."""
    return SITE.with_clicks(write=lambda one: changed(click(one), **{k: of(one) for k, of in fields.items()}))


def other_site(one: Happened) -> dict[str, Any]:
    """Half of the clicks are of a site whose impressions are elsewhere."""
    if one.number % 2:
        return click(one)
    return changed(click(one), site="sport", ref={"impression_id": f"s{one.id}"})


def avro(one: Happened) -> bytes:
    """What a serializer of a schema registry writes."""
    return b"\0\0\0\0\x2a" + json.dumps(click(one)).encode()[::-1]


NO_EVENTS: dict[str, bytes | None] = {
    "null": None,
    "framed": b"\0\0\0\0\x09{}",
    "no_object": b"[1, 2]",
    "text": b"a,b,c",
    "binary": b"\x9f\x01\x02",
    "beyond": b'{"p": 1e400}',
    "nan": b'{"p": NaN}',
    "packed": gzip.compress(b"{}", mtime=0),
    "utf16": '{"p": 1}'.encode("utf-16"),
    "marked": '{"p": 1}'.encode("utf-8-sig"),
}
"""Each is one record in twenty of the topic that has them."""
KINDS = " ".join(f"impressions_{kind}" for kind in NO_EVENTS)


def no_events(one: Happened) -> dict[str, Any] | bytes | None:
    """Half of the impressions are none, in ten ways."""
    return [*NO_EVENTS.values()][one.number // 2 % 10] if one.number % 2 else impression(one)


CLICKED = {one.number for one in sites.happened(0)[1]}


def lacking(words: Iterable[str], text: str) -> list[str]:
    """Those of the words that a text lacks."""
    return [word for word in words if word not in text]


MISTAKES: dict[str, tuple[Site, str]] = {
    "the click's id is another field": (
        SITE.with_settings('input.clicks.id="event"'),
        "id_fields | input.clicks.id: ref.impression_id | 0 of | `event` | `ref.impression_id`",
    ),
    "the path of the id is not there": (
        SITE.with_settings('input.impressions.id="id"'),
        "impressions_id | input.impressions.id: imp.id | 0 of 600 | `imp.id`",
    ),
    "keys of another field": (
        SITE.with_impressions(key=by_user),
        "keys_differ | the same key in both | `user.id` | `ref.impression_id` | CRC32",
    ),
    "no keys": (SITE.with_clicks(key=lambda one: None), "no_keys | the producer of clicks | 100 %"),
    "murmur2 against CRC32": (
        SITE.with_impressions(partitioner="murmur2_random"),
        "partitioners_differ | partitioner=murmur2_random | murmur2 (Java's default) | CRC32 (librdkafka's default)",
    ),
    "partition counts differ": (SITE.with_clicks(partitions=3), "partition_counts | copy one input | 4 partitions | 3"),
    "seconds read as milliseconds": (
        SITE.with_settings('input.impressions.time_unit="iso"', 'input.clicks.time_unit="ms"'),
        "clicks_time_unit | input.clicks.time_unit: s | 1970-01-21 | read as s it is 20",
    ),
    "text with the unit ms": (
        SITE.with_settings('input.impressions.time_unit="ms"'),
        "impressions_time_unit | input.impressions.time_unit: iso | no time",
    ),
    "milliseconds read as seconds": (
        clicked(at=lambda one: one.time_ms).with_settings(
            'input.impressions.time_unit="iso"', 'input.clicks.time_unit="s"'
        ),
        "clicks_time_unit | input.clicks.time_unit: ms | no time | read as ms it is 20",
    ),
    "local time without a zone": (
        shown(ts=lambda one: iso(one.time_ms + 2 * HOUR_MS)[:-1]),
        "impressions_time_ahead | zone | 100 % | 120 min",
    ),
    "ids of different types": (
        shown(imp=lambda one: {"id": 10**9 + one.number, "slot": 1}).with_clicks(
            write=lambda one: changed(click(one), ref={"impression_id": float(10**9 + one.number)})
        ),
        "clicks_id | write the id as text | neither text nor whole numbers | .0",
    ),
    "ids in other letters": (
        clicked(ref=lambda one: {"impression_id": one.id.lower()}),
        "id_forms | write the id as the other does | upper and lower case",
    ),
    "ids without their dashes": (
        clicked(ref=lambda one: {"impression_id": one.id.replace("-", "")}),
        "id_forms | write the id as the other does | dashes",
    ),
    "a schema registry's frame": (
        SITE.with_clicks(write=avro),
        "clicks_framed | input.clicks.format: avro (or protobuf), and registry.url | schema id 42 | 100 %",
    ),
    "clicks of another site": (SITE.with_clicks(write=other_site), "matches | input.clicks.topic | `site` 'sport'"),
    "retention too short": (
        SITE.with_impressions(configs={"retention.ms": "600000"}),
        "impressions_retention | retention.ms: | 10 min | 46 min",
    ),
    "topics that keep the last event of each key": (
        SITE.with_impressions(key=by_user, configs={"cleanup.policy": "compact"}).with_clicks(key=by_user),
        "compacted | cleanup.policy of impressions | has cleanup.policy compact | a user's earlier impressions",
    ),
    "a number without a scale": (
        SITE.with_settings('features.categorical=["imp.slot", "ad.id"]', "features.key_rule=2"),
        "number_without_scale | features.categorical: [device.w] | `device.w` | 1440",
    ),
    "the window is shorter than delays": (
        SITE.with_settings('join.window="2s"', 'join.skew="1s"'),
        "window | join.window:  | covers | 95 %",
    ),
    "clocks of the producers disagree": (
        clicked(at=lambda one: one.time_ms / 1000 - 60),
        "clocks_differ | join.skew | before their impression",
    ),
    "a clock three hours behind": (
        shown(ts=lambda one: iso(one.time_ms - 3 * HOUR_MS)),
        "clocks_differ | the zone of the producer of impressions | lies 3 h before its record | lies 50 ms before",
    ),
    "seconds and milliseconds in one topic": (
        clicked(at=lambda one: one.time_ms / (1000 if one.number % 10 < 3 else 1)).with_settings(
            'input.clicks.time_unit="ms"'
        ),
        "clicks_time_units | input.clicks.time_unit: auto | in several units | in s, such as 17 | in ms, such as 17",
    ),
    "partitions that the producer names": (
        SITE.with_clicks(partition=lambda one: one.number % 4),
        "partitions_chosen | which names partitions itself | by no known partitioner of the key or a field",
    ),
    "partitions by another field than the key": (
        SITE.with_clicks(partition=lambda one: zlib.crc32(by_user(one)) % 4),
        "partitioners_differ | partitioner | placed CRC32 (librdkafka's default) of `user.id`",
    ),
    "a third of the ids is null": (
        clicked(ref=lambda one: {"impression_id": one.id if one.number % 3 else None}),
        "clicks_id | the producer: an id in every event; or join.max_bad_share above 3 | `ref.impression_id`",
    ),
    "a third of the times is null": (
        clicked(at=lambda one: one.time_ms / 1000 if one.number % 3 else None),
        "clicks_time_missing | input.clicks.time: null | have a `at`",
    ),
    "times of records, not of events": (
        SITE.with_impressions(delay_ms=MONTH_MS)
        .with_clicks(configs={"retention.ms": "-1"})  # they are a month old, and would be deleted after minutes
        .with_settings("input.impressions.time=null"),
        "impressions_record_time | input.impressions.time: ts | `ts` | 30 d",
    ),
    "a request's id among the features": (
        shown(bid=lambda one: {"req": f"r{one.number}"}),
        "unique_field | features.exclude: [bid.req] | `bid.req` | 600 distinct",
    ),
    "a label among the features": (
        shown(outcome=lambda one: one.number in CLICKED),
        "label_leaks | features.exclude: [outcome] | `outcome`",
    ),
    "ten kinds of records that are no events": (
        SITE.with_impressions(write=no_events),
        f"{KINDS} | compression.type: zstd of the Kafka client | 5 % of 600 | schema id 9 | NaN and Infinity are",
    ),
    "microseconds read as milliseconds": (
        clicked(at=lambda one: one.time_ms * 1_000).with_settings('input.clicks.time_unit="ms"'),
        "clicks_time_unit | input.clicks.time_unit: us | read as us it is 20",
    ),
    "nanoseconds": (
        clicked(at=lambda one: one.time_ms * 10**6),
        "clicks_time_unreadable | input.clicks.time: another field, or null | there is no unit for nanoseconds",
    ),
    "the path of the time is not there": (
        SITE.with_settings('input.clicks.time="when"'),
        "clicks_time_missing | input.clicks.time: at, with input.clicks.time_unit: s | 0 of | have a `when`",
    ),
    "a time that is not read, and none configured": (
        shown(ts=lambda one: f"24/Nov/2026:{one.time_ms // 1000 % 86_400}:{one.number}").with_settings(
            "input.impressions.time=null", 'features.exclude=["ts"]'
        ),
        "impressions_time_unread | the producer: ISO 8601 or milliseconds | `ts` | neither ISO 8601 nor a number",
    ),
    "impressions that come late": (
        shown(ts=lambda one: iso(one.time_ms - (HOUR_MS // 4 if one.number % 20 == 0 else 0))),
        "disorder | join.lateness: 15m",
    ),
    "each event is sent twice": (
        SITE.with_impressions(times=lambda one: 2),
        "id_not_unique | or the producer sends events twice | comes 2 times",
    ),
    "the id is the user's": (
        SITE.with_settings('input.impressions.id="user.id"', 'input.clicks.id="user.id"'),
        "id_not_unique | input.impressions.id: imp.id; input.clicks.id: ref.impression_id | the `user.id` of",
    ),
    "clicks collected later than impressions": (
        SITE.with_clicks(times=lambda one: int(one.number > IMPRESSIONS // 2)),
        "clicks_begin_late | join.start: 20 | were before them",
    ),
    "ids in a list of values": (
        clicked(ref=lambda one: {"impression_id": [one.id]}),
        "clicks_id_in_list | the id as a field of its own | are in `ref.impression_id`, a list of values",
    ),
    "clicks that have stopped": (
        replace(SITE.with_clicks(times=lambda one: int(one.number < IMPRESSIONS // 3)), spacing_ms=2_000).with_settings(
            'join.window="2m"', 'join.lateness="1m"', 'join.max_skew="1m"'
        ),
        "clicks_missing | what sends clicks | no click from 20 | would have one",
    ),
    "no clicks in a partition": (
        SITE.with_clicks(times=lambda one: int(zlib.crc32(one.id.encode()) % 4 != 2)),
        "clicks_missing | leaves them out | has none in partition 2, with 2",
    ),
    "half of the ids in other letters": (
        clicked(ref=lambda one: {"impression_id": one.id.lower() if one.number % 2 else one.id}),
        "matches | input.clicks.topic | of the others would, but for upper and lower case",
    ),
    "clicks that are views": (
        SITE.with_impressions(times=lambda one: int(one.number in CLICKED)),
        "mostly_clicked | input.clicks.topic | views or the impressions themselves",
    ),
    "an hour of what is no time": (
        shown(seen=lambda one: "24/Nov/2026").with_settings('features.fields={"seen": {"kind": "hour"}}'),
        "impressions_not_a_time | the setting of that name | 100 % | `seen` is text like 99/Aaa/9999",
    ),
    "an empty topic": (SITE.with_clicks(times=lambda one: 0), "clicks_empty | input.clicks.topic | holds no record"),
    "every field is left out": (
        SITE.with_settings(
            'features.exclude=["imp", "ts", "device", "price", "user", "site", "ad"]', "features.categorical=[]"
        ),
        "no_features | features.include and features.exclude | `device.os`",
    ),
    "a field's name is misspelt": (
        SITE.with_settings('features.categorical=["imp.slott", "ad.id", "device.w"]'),
        "field_missing | features.categorical: imp.slot | `imp.slott`",
    ),
    "a field of a cross is misspelt": (
        SITE.with_settings('features.crosses=[["imp.slott", "ad.id"]]'),
        "field_missing | features.crosses: [[imp.slot, ad.id]] | `imp.slott`",
    ),
    "a field that is to be left out is misspelt": (
        SITE.with_settings('features.exclude=["device.oss"]'),
        "field_missing | features.exclude: device.os | `device.oss`",
    ),
}
"""A site; the findings of `doctor`, the line to change, and words of what it says, with | between."""
PLACED = {"murmur2_random": "murmur2", "consistent_random": "CRC32", "fnv1a_random": "FNV-1a"}
"""The words for each partitioner of librdkafka."""
HEALTHY: dict[str, Site] = {
    "keyed by the id, Sarama's partitioner": SITE.with_impressions(partitioner="fnv1a_random").with_clicks(
        partitioner="fnv1a_random"
    ),
    "keyed by the id, times of records": SITE.with_settings(
        "input.impressions.time=null", "input.clicks.time=null", 'features.exclude=["ts"]'
    ),
    "the hour of the event's own time alone": SITE.with_settings(
        'features.include=["ts"]', "features.categorical=[]", 'features.fields={"ts": {"kind": "hour"}}'
    ),
    "keyed by the user": SITE.with_impressions(key=by_user).with_clicks(key=by_user),
    "keyed by the user, Java's partitioner": SITE.with_impressions(
        key=by_user, partitioner="murmur2_random"
    ).with_clicks(key=by_user, partitioner="murmur2_random"),
    "ids in lists": shown(imps=lambda one: [{"id": one.id, "cats": ["a", f"c{one.number % 5}"]}]).with_settings(
        'input.impressions.id="imps.id"', 'features.exclude=["imp"]', 'features.categorical=["ad.id", "device.w"]'
    ),
    "times as text and as numbers": SITE.with_settings(
        'input.time_unit="ms"', 'input.impressions.time_unit="iso"', 'input.clicks.time_unit="s"'
    ),
    "a month that is replayed": SITE.with_impressions(delay_ms=MONTH_MS).with_clicks(delay_ms=MONTH_MS),
    "whole numbers against text, a few nulls": SITE.with_impressions(
        write=lambda one: (
            None if one.number == 7 else changed(impression(one), imp={"id": 10**9 + one.number, "slot": 1})
        )
    ).with_clicks(write=lambda one: changed(click(one), ref={"impression_id": str(10**9 + one.number)})),
}

NEEDED = 50
"""So many examples are enough for a first version."""
QUICKLY = {"tick": "500ms", "grace": "100ms", "idle_after": "0"}


class Model:
    """A model of a newcomer on topics that are there: its configuration, and its roles in this process."""

    def __init__(self, tree: dict[str, Any], folder: Path) -> None:
        self.tree = {
            **tree,
            "model": f"d{uuid.uuid4().hex[:10]}",
            "join": {"window": "15s", "skew": "5s", **QUICKLY, **tree.get("join", {})},
            "learner": {"state_dir": str(folder / "state"), "checkpoint_interval": "1s"},
            "snapshots": {"shards": 2, "interval": "100ms", "first": {"examples": NEEDED, "positives": 5}},
            "telemetry": {"log_format": "json"},
        }
        self.tree["topics"] = {"control": f"{self.tree['model']}.control"}
        self.config = self.changed()
        self.file = folder / f"{self.config.model}.yaml"
        self.file.write_text(json.dumps(self.tree), encoding="utf-8")

    def changed(self, **sections: dict[str, Any]) -> Config:
        """Its configuration with other settings in some sections."""
        tree = {**self.tree, **{name: {**self.tree[name], **of} for name, of in sections.items()}}
        return Config.model_validate(tree)

    def roles(self) -> tuple[JoinerRole, LearnerRole]:
        """Both as `join` and `learn` have them."""
        metrics, look = Metrics(self.config.model), partial(TopicsLook, role="joiner", for_s=FIRST_S)
        return JoinerRole(self.config, metrics, look=look), LearnerRole(self.config, metrics, look=TopicsLook)

    @property
    def status(self) -> dict[str, Any]:
        """What `gate status` says of it."""
        return dict(gate.status(self.config))


class Day:
    """One broker on which all of it happens."""

    def __init__(self, bootstrap: str, topics: MakeTopic, folder: Path) -> None:
        self.bootstrap, self._topics, self.folder = bootstrap, topics, folder
        self._now_ms = int(time.time() * 1000)
        self._made: dict[tuple[int, int], str] = {}
        self.models: list[Model] = []

    def tree(self, site: Site) -> dict[str, Any]:
        """The configuration of a site whose topics are there."""
        replayed = max(site.impressions.delay_ms, site.clicks.delay_ms)
        end_ms = self._now_ms - (replayed if replayed == MONTH_MS else 0)
        both = sites.happened(end_ms, spacing_ms=site.spacing_ms)
        sides = zip(("impressions", "clicks"), (site.impressions, site.clicks), both, strict=True)
        names = {side: self._topic(side, topic, of) for side, topic, of in sides}
        return sites.tree_of(site, bootstrap=self.bootstrap, **names)

    def _topic(self, side: str, topic: Topic, events: list[Happened]) -> str:
        """The name of a topic that is written like this."""
        key = id(topic), events[0].time_ms
        if key not in self._made:
            self._made[key] = self._topics(side, topic.partitions, **topic.configs)
            sites.send(self.bootstrap, self._made[key], topic, events)
        return self._made[key]

    def file(self, site: Site) -> Path:
        """The configuration of a site as a file."""
        path = self.folder / f"{uuid.uuid4().hex[:8]}.yaml"
        path.write_text(json.dumps({**self.tree(site), "telemetry": {"log_format": "json"}}), encoding="utf-8")
        return path

    def model(self, site: Site) -> Model:
        """A model of a site, with its own topics."""
        folder = self.folder / uuid.uuid4().hex[:8]
        folder.mkdir()
        self.models.append(Model(self.tree(site), folder))
        ensure_topics(self.models[-1].config)
        return self.models[-1]

    @cached_property
    def published(self) -> Model:
        """A model of topics that fit, which was published by itself. The hour of the event's own time is a feature."""
        model = self.model(SITE.with_settings('features.fields={"ts": {"kind": "hour"}}'))
        joiner, learner = model.roles()
        with capture_logs() as logged, running(joiner, learner):
            wait_until(lambda: model.status["published"] is not None, lambda: f"a version: {learner.why_not_ready}")
        told = {event["event"]: event["log_level"] for event in logged}
        assert told["first_version_waits"] == "info" and "publication_held" not in told, "nothing is wrong"
        return model

    def score(self, event: str) -> Ended:
        """Ask that model for a prediction."""
        events = self.folder / "events.jsonl"
        events.write_text(event, encoding="utf-8")
        return answer_of("score", "-c", self.published.file, events)


@pytest.fixture(scope="module")
def day(kafka: str, topics: MakeTopic, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Day]:
    day = Day(kafka, topics, tmp_path_factory.mktemp("day"))
    yield day
    kinds = ("examples", "snapshots", "dead_letters", "checkpoints", "control")
    own = [getattr(model.config, f"{kind}_topic") for model in day.models for kind in kinds]
    if own:
        delete_topics(kafka, own)


def looked_at(day: Day, site: Site) -> Ended:
    """What `doctor` says of a site."""
    return answer_of("doctor", "-c", day.file(site), "--json")


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_told_with_its_cause_and_no_other_is(mistake: str, day: Day) -> None:
    """By `doctor`: the finding's name, its evidence, and the line to change; the exit code says whether it stops."""
    site, said = MISTAKES[mistake]
    looked, (names, change, *words) = looked_at(day, site), said.split(" | ")
    found = looked.json["findings"]
    assert sorted(one["name"] for one in found) == sorted(names.split()), found
    assert {one["severity"] for one in found} <= {"stops", "warns"}
    in_the_way = any(one["severity"] == "stops" for one in found)
    assert looked.code == (errors.InputsUnfit.exit_code if in_the_way else 0)
    assert any(change in one["change"] for one in found), found
    text = " ".join(f"{one['seen']} {one['means']}" for one in found)
    assert lacking(words, text) == [], text


@pytest.mark.parametrize("shape", HEALTHY)
def test_nothing_is_found_where_nothing_is_wrong(shape: str, day: Day) -> None:
    """No finding at all; what was read is told, and by what field and partitioner it is keyed."""
    site = HEALTHY[shape]
    looked = looked_at(day, site)
    assert (looked.code, looked.json["findings"]) == (0, [])
    assert looked.json["delays"]["clicks"] > 100
    for topic, written in zip(looked.json["topics"], (site.impressions, site.clicks), strict=True):
        assert topic["records"] == topic["held"]
        assert f"placed {PLACED[written.partitioner]} " in topic["keys"]
        assert ("`user.id`" in topic["keys"]) == (written.key is by_user)


def asked(command: str, *settings: str) -> Callable[[Day], Ended]:
    """A command with the configuration of topics that fit, and other settings."""
    more = [word for setting in settings for word in ("--set", setting)]
    return lambda day: answer_of(*command.split(), "-c", day.file(SITE), *more)


def one_topic_for_both(day: Day) -> Ended:
    tree = day.tree(SITE)
    return asked("config check", f"input.clicks.topic={tree['input']['impressions']['topic']}")(day)


def swapped_topics(day: Day) -> Ended:
    inputs, file = day.tree(SITE)["input"], day.folder / "swapped.yaml"
    topics = ["--impressions", inputs["clicks"]["topic"], "--clicks", inputs["impressions"]["topic"]]
    ended = answer_of("doctor", "--bootstrap", day.bootstrap, *topics, "--write", file)
    assert ended.out.count("stops: ") == 1 and not file.exists(), "a right command can follow"
    return ended


def tls_is_wanted(day: Day) -> Ended:
    with tls_listener(day.folder) as address:
        return asked("doctor", f"kafka.bootstrap.servers={address}")(day)


@contextmanager
def tls_listener(folder: Path) -> Iterator[str]:
    """The address of something that speaks TLS, and nothing else."""
    authority, context = Authority(folder, "listener"), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.file, folder / "listener.key")
    with socket.create_server(("127.0.0.1", 0)) as plain, context.wrap_socket(plain, server_side=True) as listener:

        def serve() -> None:
            while listener.fileno() >= 0:
                try:
                    listener.accept()[0].close()
                except OSError:
                    continue

        threading.Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"


class Tells(NamedTuple):
    """What a command tells on stderr, and the error of its exit code; None where a prediction is made."""

    ask: Callable[[Day], Ended]
    error: type[errors.StreamLearnerError] | None
    words: str


COMMANDS: dict[str, Tells] = {
    "a setting is misspelt": Tells(
        asked("config check", "join.windw=10s"), errors.ConfigError, "join.windw | did you mean join.window?"
    ),
    "one topic for both": Tells(
        one_topic_for_both, errors.ConfigError, "input.clicks.topic | is the same topic as input.impressions.topic"
    ),
    "each topic in the place of the other": Tells(
        swapped_topics, errors.InputsUnfit, "stops: swapped | input.impressions.topic: impressions | is not written"
    ),
    "a topic that does not exist": Tells(
        asked("doctor", "input.clicks.topic=nobody-clicks"), errors.TopicMissing, "nobody-clicks"
    ),
    "topics that were never made": Tells(
        asked("topics ensure", "input.clicks.topic=nobody-clicks"),
        errors.TopicMissing,
        "nobody-clicks | --partitions N",
    ),
    "nobody listens at the address": Tells(
        lambda day: asked("doctor", f"kafka.bootstrap.servers=127.0.0.1:{free_port()}")(day),
        errors.BrokerUnreachable,
        "refuses connections | kafka.bootstrap.servers",
    ),
    "a broker's name that does not resolve, without a port": Tells(
        asked("doctor", "kafka.bootstrap.servers=nobody.invalid"),
        errors.BrokerUnreachable,
        "the name nobody.invalid does not resolve | kafka.bootstrap.servers",
    ),
    "http:// before a broker's address": Tells(
        lambda day: asked("doctor", f"kafka.bootstrap.servers=http://{day.bootstrap}")(day),
        errors.ConfigError,
        "bootstrap.servers is HOST:PORT | not a URL",
    ),
    "TLS is asked of a broker without": Tells(
        asked("doctor", "kafka.security.protocol=ssl"),
        errors.BrokerUnreachable,
        "does not speak TLS, and kafka.security.protocol asks for it",
    ),
    "TLS is wanted by the broker": Tells(
        tls_is_wanted, errors.BrokerUnreachable, "speaks TLS, and kafka.security.protocol does not ask for it"
    ),
    "a request's field is misspelt": Tells(
        lambda day: day.score('{"sitee": "news", "price": 1.2}'),
        None,
        "request_fields_unknown | sitee: did you mean site?",
    ),
    "a request without the time whose hour is a feature": Tells(
        lambda day: day.score('{"site": "news"}'), None, 'request_time_missing | ["ts"] | mostly now'
    ),
    "a request whose time cannot be read": Tells(
        lambda day: day.score('{"site": "news", "ts": "24/Nov/2026"}'), None, "`ts` is text like 99/Aaa/9999"
    ),
    "a request without a field": Tells(
        lambda day: day.score("{}"), None, "events_without_known_feature | those of the bias alone | inspect fields"
    ),
}


@pytest.mark.parametrize("mistake", COMMANDS)
def test_a_command_tells_what_is_wrong(mistake: str, day: Day) -> None:
    """On stderr, or where an answer would be, with the exit code of the error; what can be predicted is."""
    ask, error, words = COMMANDS[mistake]
    ended = ask(day)
    assert ended.code == (0 if error is None else error.exit_code), ended
    assert lacking(words.split(" | "), ended.err + ended.out) == [], ended


def test_a_request_that_fits_is_no_word(day: Day) -> None:
    """Beside the mistakes in requests: nothing is told."""
    ended = day.score('{"site": "news", "device": {"os": "ios"}, "ts": "2026-11-24T19:08:47Z"}')
    assert (ended.code, ended.err) == (0, "")


class Stops(NamedTuple):
    """What a role of the published model stops with, by other settings; {folder} is a folder, {file} a file."""

    role: type[JoinerRole | LearnerRole]
    changes: dict[str, dict[str, Any]]
    error: type[errors.StreamLearnerError]
    words: str


ROLES: dict[str, Stops] = {
    "a model's name that others use": Stops(
        JoinerRole, {"features": {"exclude": ["site"]}}, errors.InputsChanged, "features.exclude | site"
    ),
    "the same, by a learner elsewhere": Stops(
        LearnerRole,
        {"learner": {"state_dir": "{folder}/elsewhere", "copies": False, "optimizer": {"alpha": 0.5}}},
        errors.StateOfAnotherModel,
        "alpha",
    ),
    "a state directory that cannot be used": Stops(
        LearnerRole,
        {"learner": {"state_dir": "{file}/state", "copies": False}},
        errors.StateUnusable,
        "/state cannot be used",
    ),
}


@pytest.mark.parametrize("mistake", ROLES)
def test_a_role_stops_and_says_what_is_wrong(mistake: str, day: Day) -> None:
    """Before it reads or writes an event."""
    role, changes, error, words = ROLES[mistake]
    model = day.published
    changes = json.loads(json.dumps(changes).replace("{folder}", str(day.folder)).replace("{file}", str(model.file)))
    stopped = failure_of(role(model.changed(**changes), Metrics(model.config.model)), error)
    assert lacking(words.split(" | "), str(stopped)) == [], stopped


SILENT = (
    "keys of another field",
    "no keys",
    "murmur2 against CRC32",
    "the click's id is another field",
    "ids in other letters",
    "ids without their dashes",
    "each event is sent twice",
    "the id is the user's",
    "seconds read as milliseconds",
    "a clock three hours behind",
    "clicks collected later than impressions",
    "a number without a scale",
    "clicks that have stopped",
    "a schema registry's frame",
)
UNLEARNED = ("clicks that have stopped", "a schema registry's frame")
"""With these the joiner waits, or is held, before there is anything to learn."""
FIGURES = {
    "a number without a scale": "a constant has 1",
    "times of records, not of events": "found their impression, 50% are needed",
}
"""Words of what holds the model where the findings only warn; else it is held for the change that `doctor` names."""
TOLD = (
    "clicks of another site",
    "retention too short",
    "a request's id among the features",
    "a time that is not read, and none configured",
    "impressions that come late",
    "a field's name is misspelt",
    "a field of a cross is misspelt",
    "a field that is to be left out is misspelt",
)
"""Of these nothing wrong is learned: a warning in both logs is enough."""
ELSEWHERE = ("partition counts differ", "an empty topic")
"""The first is refused by `topics ensure`, the second is waited for."""
OTHERS = [mistake for mistake in MISTAKES if mistake not in (*SILENT, *TOLD, *ELSEWHERE)]
Note = Callable[[str, object], None]


def findings_in(logged: Iterable[Mapping[str, Any]]) -> set[tuple[str, str]]:
    """The roles, each with a finding that it has logged."""
    return {(event["role"], event["finding"]) for event in logged if event["event"] == "topics_do_not_fit"}


def by_both(names: str) -> set[tuple[str, str]]:
    """Joiner and learner, with each of the findings."""
    return {(role, name) for role in ("joiner", "learner") for name in names.split()}


@contextmanager
def held(day: Day, mistake: str, note: Note) -> Iterator[tuple[Model, LearnerRole, str]]:
    """Joiner and learner, which run without an error, tell in their logs what is wrong and nothing else, and hold the
    model; with the words of `/readyz`. How long that took is noted.
    """
    site, said = MISTAKES[mistake]
    names, change, *_ = said.split(" | ")
    words, model = FIGURES.get(mistake, change), day.model(site)
    joiner, learner = model.roles()
    began_s = time.monotonic()
    with capture_logs() as logged, running(joiner, learner):
        wait_until(lambda: words in learner.why_not_ready, lambda: f"it is held: {learner.why_not_ready}")
        wait_until(lambda: words in (model.status["publication_reason"] or ""), "gate status says so")
        wait_until(lambda: findings_in(logged) == by_both(names), lambda: f"both tell it: {findings_in(logged)}")
        note("told_s", round(time.monotonic() - began_s, 1))
        assert learner.waits == "", "it does not wait for more of the same"
        yield model, learner, words
        assert (model.status["publication"], model.status["published"]) == ("held", None)
    assert findings_in(logged) == by_both(names)


@pytest.mark.parametrize("mistake", SILENT)
def test_nothing_of_it_is_published(mistake: str, day: Day, record_property: Note) -> None:
    """Though enough is learned. `score` says why, and does not wait unless it is told how long."""
    with held(day, mistake, record_property) as (model, learner, words):
        if mistake in UNLEARNED:
            assert learner.learner.examples < NEEDED
        else:
            wait_until(lambda: learner.learner.examples >= NEEDED, "enough to publish")
    ended = answer_of("score", "-c", model.file)
    told = ["is not ready after 3 s", "the learner holds the first version", words, "stream-learner gate status"]
    assert ended.code == errors.NotReady.exit_code
    assert lacking(told, ended.err.splitlines()[-1]) == [], "the error says it, too, not only the warning before it"


@pytest.mark.thorough
@pytest.mark.parametrize("mistake", OTHERS)
def test_nothing_of_any_other_mistake_is_published(mistake: str, day: Day, record_property: Note) -> None:
    with held(day, mistake, record_property):
        pass


@pytest.mark.thorough
@pytest.mark.parametrize("name", [*HEALTHY, *TOLD])
def test_a_model_is_published_where_nothing_wrong_is_learned(name: str, day: Day) -> None:
    """Without a word where nothing is wrong; else with a warning of each role, and no other."""
    site, said = MISTAKES.get(name) or (HEALTHY[name], "")
    model = day.model(site)
    joiner, learner = model.roles()
    with capture_logs() as logged, running(joiner, learner):
        wait_until(lambda: model.status["published"] is not None, lambda: f"a version: {learner.why_not_ready}")
        both = by_both(said.split(" | ")[0])
        wait_until(lambda: findings_in(logged) >= both, lambda: f"both tell it: {findings_in(logged)}")
        assert all_ready([joiner, learner]) == (True, "ok")
    levels = {event["log_level"] for event in logged if event["event"] == "topics_do_not_fit"}
    assert (findings_in(logged), levels) == (both, {"warning"} if both else set())
    assert not any(event["event"] == "publication_held" for event in logged)


@pytest.mark.parametrize(
    ("site", "nothing"),
    [
        (SITE.with_impressions(times=lambda one: 0).with_clicks(times=lambda one: 0), f"0 of {NEEDED} examples"),
        (MISTAKES["an empty topic"][0], "0 of 5 positives"),
    ],
)
def test_topics_without_an_event_are_waited_for_by_a_learner_that_is_ready(day: Day, site: Site, nothing: str) -> None:
    """A rollout goes on, and it says what it waits for: on `/readyz`, in its log and metrics, and where a prediction is
    asked for."""
    model = day.model(site)
    joiner, learner = model.roles()
    with capture_logs() as logged, running(joiner, learner):
        wait_until(lambda: nothing in learner.waits, lambda: f"it waits: {learner.waits} {learner.why_not_ready}")
        wait_until(lambda: nothing in (model.status["publication_reason"] or ""), "gate status says so")
        assert all_ready([joiner, learner]) == (True, f"ok; the first version waits: it has learned {nothing}")
        metrics, metric = learner.models[0].metrics, "learner_first_version_waits_seconds"
        wait_until(lambda: values_of(metrics.text().decode())[metric, ""] > 0, "so do metrics")
    assert {one["log_level"] for one in logged if one["event"] == "first_version_waits"} == {"info"}
    ended = answer_of("score", "-c", model.file, "--set", "scorer.ready_timeout=3500ms")
    assert ended.code == errors.NotReady.exit_code
    assert (
        f"the learner holds the first version ({nothing.split()[-1]}): it has learned {nothing}"
        in ended.err.splitlines()[-1]
    )
