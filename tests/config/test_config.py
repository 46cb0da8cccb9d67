"""The configuration: where values come from, what is refused and how it is said, what the roles get."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from stream_learner.config import Config, load_config
from stream_learner.config.load import unread_variables
from stream_learner.config.paths import leaves
from stream_learner.config.references import FromEnvironment, FromFile
from stream_learner.config.rules import doubtful
from stream_learner.config.values import (
    format_duration_ms,
    format_size_bytes,
    format_start,
    parse_duration_ms,
    parse_size_bytes,
    parse_start,
)
from stream_learner.config.yaml import YamlError, read_yaml
from stream_learner.core.events.kinds import Kind
from stream_learner.core.model.optimizers import make_optimizer
from stream_learner.errors import ConfigError

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
LEAST = [
    "model=ctr",
    "kafka.bootstrap.servers=localhost:9092",
    "input.impressions.topic=impressions",
    "input.clicks.topic=clicks",
]


def load(*overrides: str, environ: dict[str, str] | None = None, file: Path | None = None) -> Config:
    return load_config(file, environ=environ, overrides=[*LEAST, *overrides])


def problems(*overrides: str, environ: dict[str, str] | None = None, file: Path | None = None) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(*overrides, environ=environ, file=file)
    return list(caught.value.problems)


def written(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "config.yaml"
    file.write_text(text, encoding="utf-8")
    return file


# Values


@given(st.integers(0, 10**12))
def test_a_duration_is_read_back_as_it_was_written(value_ms: int) -> None:
    """Formatting and parsing a duration are inverse."""
    assert parse_duration_ms(format_duration_ms(value_ms)) == value_ms


@given(st.integers(0, 2**50))
def test_a_size_is_read_back_as_it_was_written(value_bytes: int) -> None:
    """Formatting and parsing a size are inverse."""
    assert parse_size_bytes(format_size_bytes(value_bytes)) == value_bytes


@given(st.integers(0, 253_402_300_799_999))
def test_a_moment_is_read_back_as_it_was_written(value_ms: int) -> None:
    """Formatting and parsing a start are inverse, to the millisecond."""
    assert parse_start(format_start(value_ms)) == value_ms


@pytest.mark.parametrize("text", ["30", 30, 1.5, True, None, "", "s", "-1s", "1 h", "1h 30m", "0.5ms", "1e3s"])
def test_a_duration_without_a_clear_unit_is_refused(text: Any) -> None:
    """A bare number is no duration: seconds and milliseconds would be mistaken for each other."""
    with pytest.raises(ValueError, match="duration"):
        parse_duration_ms(text)


@pytest.mark.parametrize("text", ["", "MiB", "-1", "1.5", "64 mebibytes", True, None, 1.5])
def test_a_size_that_is_not_one_is_refused(text: Any) -> None:
    """Sizes are whole numbers of bytes with a known unit."""
    with pytest.raises(ValueError, match="size"):
        parse_size_bytes(text)


def test_a_start_is_a_moment_with_a_zone() -> None:
    """A moment without a zone means something else on every machine, so it is refused."""
    moment = datetime(2026, 11, 1, 2, tzinfo=timezone.utc)
    assert parse_start("2026-11-01T02:00Z") == parse_start("2026-11-01T04:00:00+02:00")
    assert parse_start("2026-11-01T02:00Z") == round(moment.timestamp() * 1000)
    for text in ("2026-11-01T02:00", "2026-11-01", "yesterday", "1960-01-01T00:00Z", 5):
        with pytest.raises(ValueError, match=r"moment"):
            parse_start(text)


# Where values come from


def test_defaults_fill_what_is_not_said() -> None:
    """Four settings are enough; topics, group and state directory are named after the model."""
    config = load()
    assert config.join.window_ms == 30 * 60_000
    assert config.examples_topic == "ctr.examples"
    assert config.snapshots_topic == "ctr.snapshots"
    assert config.dead_letters_topic == "ctr.dead-letters"
    assert config.group == "ctr.joiner"
    assert config.state_dir == Path("state/ctr")
    assert config.kafka_options() == {"bootstrap.servers": "localhost:9092"}


def test_later_sources_win(tmp_path: Path) -> None:
    """--set wins over the environment, which wins over the file, which wins over the defaults."""
    file = written(tmp_path, "join: {window: 1m, tick: 2s, skew: 3s}\n")
    environ = {"STREAM_LEARNER__JOIN__TICK": "4s", "STREAM_LEARNER__JOIN__SKEW": "5s"}
    join = load("join.skew=6s", environ=environ, file=file).join
    assert (join.window_ms, join.tick_ms, join.skew_ms, join.dedupe_ms) == (60_000, 4_000, 6_000, 300_000)


def test_kafka_options_keep_their_dots() -> None:
    """Options of librdkafka are one name each, in --set as in the environment, and stay text as given."""
    environ = {"STREAM_LEARNER__KAFKA__SASL_PASSWORD": "0123", "STREAM_LEARNER__KAFKA__CLIENT_ID": "no"}
    options = load("kafka.fetch.wait.max.ms=50", environ=environ).kafka_options()
    assert options["sasl.password"] == "0123"
    assert options["client.id"] == "no"
    assert options["fetch.wait.max.ms"] == "50"


def test_settings_that_are_text_stay_text() -> None:
    """A model called 2024 and a field called 1e3 are not numbers."""
    config = load("model=2024", "input.impressions.id=1e3", "input.impressions.time=null")
    assert (config.model, config.input.impressions.id, config.input.impressions.time) == ("2024", "1e3", None)


def test_overrides_may_be_lists_and_mappings() -> None:
    """Values of --set are YAML; mappings merge, and a field's name may contain dots."""
    config = load(
        "features.crosses=[[a, b.c], [a, d]]",
        "features.fields={a: {missing: indicator}}",
        "features.fields.b.c.kind=bucket",
        "features.fields.b.c.edges=[1, 2.5]",
    )
    assert config.features.crosses == [["a", "b.c"], ["a", "d"]]
    assert config.features.fields["a"].missing == "indicator"
    assert config.features.fields["b.c"].edges == [1, 2.5]


def test_unrelated_environment_is_left_alone() -> None:
    """Only names with the prefix and two underscores are settings."""
    assert load(environ={"STREAM_LEARNER_CONFIG": "x", "PATH": "/bin"}) == load()


# What is refused


def test_every_finding_is_named_with_its_place(tmp_path: Path) -> None:
    """All findings at once, each with its path and where it was written."""
    file = written(tmp_path, "join:\n  windw: 10m\n  tick: 30\nsnapshots:\n  shards: many\n")
    found = problems("join.skew=1x", "learnr.publish=true", environ={"STREAM_LEARNER__NOPE": "1"}, file=file)
    expected = {
        "join.windw: unknown setting; did you mean join.window?": f"{file}, line 2",
        "join.tick: write a duration": f"{file}, line 3",
        "snapshots.shards: must be a valid integer": f"{file}, line 5",
        "join.skew: write a duration": "--set join.skew",
        "learnr: unknown setting; did you mean learner?": "--set learnr.publish",
        "nope: unknown setting": "environment variable STREAM_LEARNER__NOPE",
    }
    assert len(found) == len(expected)
    for start, place in expected.items():
        assert any(line.startswith(start) and place in line for line in found), (start, found)


def test_rules_are_asked_of_the_other_settings_where_some_are_refused() -> None:
    """Nobody has to correct one setting to learn of the next; what a rule says of a refused one is left out."""
    unfit = ("join.tick=5m", "join.window=2m", "join.lateness=1m")
    of_rules = problems(*unfit)
    assert [line.split(":")[0] for line in of_rules] == ["join.tick", "join.lateness"]
    refused = problems(*unfit, "join.nosuch=1", "snapshots.shards=many")
    assert {line.split(":")[0] for line in refused} == {"join.tick", "join.lateness", "join.nosuch", "snapshots.shards"}
    with_window = problems(*unfit, "join.window=2")
    assert {line.split(":")[0] for line in with_window} == {"join.window", "join.lateness"}
    with pytest.raises(ConfigError) as nameless:
        load_config(None, overrides=["kafka.bootstrap.servers=x:1", "input.impressions.topic=i", *unfit])
    found = {line.split(":")[0] for line in nameless.value.problems}
    assert found == {"model", "input.clicks", "join.tick", "join.lateness"}


def test_variables_that_are_nearly_read_are_told() -> None:
    """One line too few; not what Kubernetes sets for a service of that name, nor what is no setting."""
    environ = {
        "STREAM_LEARNER_JOIN_WINDOW": "5s",
        "STREAM_LEARNER__JOIN__WINDOW": "5s",
        "STREAM_LEARNER_SERVE_PORT": "tcp://10.0.0.1:80",
        "STREAM_LEARNER_SERVICE_HOST": "10.0.0.1",
        "STREAM_LEARNER_CONFIG": "m.yaml",
        "JOIN_WINDOW": "5s",
    }
    told = [("STREAM_LEARNER_JOIN_WINDOW", "is not read: the variable of join.window is STREAM_LEARNER__JOIN__WINDOW")]
    assert list(unread_variables(environ)) == told


def test_a_setting_in_the_wrong_section_is_found() -> None:
    """Someone who writes `window` at the top is told where it belongs."""
    assert "did you mean join.window?" in problems("window=10m")[0]
    assert "did you mean join.window?" in problems("join.window_ms=10")[0]


def test_a_setting_that_has_another_name_now_is_refused_with_that_name() -> None:
    """The message has the new name, and what has changed."""
    (found,) = problems("scorer.max_staleness=1m")
    assert found.startswith("scorer.max_staleness: unknown setting; it is scorer.stale_after now")
    assert "scorer.refuse_after" in found


def test_what_is_missing_is_described() -> None:
    """A missing setting says what it is for."""
    with pytest.raises(ConfigError) as caught:
        load_config(None, overrides=["model=m", "kafka.client.id=x", "input.clicks.topic=c"])
    assert caught.value.problems == (
        'kafka: bootstrap.servers is missing, for example "localhost:9092"',
        "input.impressions: is missing. The impressions.",
    )


@pytest.mark.parametrize(
    ("override", "path"),
    [
        ("join.window=500ms", "join.window"),
        ("join.window=8d", "join.window"),
        ("join.tick=1h", "join.tick"),
        ("join.skew=40m", "join.skew"),
        ("join.keep_negatives=0", "join.keep_negatives"),
        ("join.keep_negatives=.nan", "join.keep_negatives"),
        ("join.buffer=1MiB", "join.buffer"),
        ("join.record_bytes=2MiB", "join.record_bytes"),
        ("join.record_bytes=16KiB", "join.record_bytes"),
        ("learner.buffer=1MiB", "learner.buffer"),
        ("learner.optimizer.alpha=0", "learner.optimizer.alpha"),
        ("learner.optimizer.alpha=1e-320", "learner.optimizer"),
        ("learner.optimizer.name=adam", "learner.optimizer.name"),
        ("learner.optimizer.eta=0.1", "learner.optimizer"),
        ("learner.optimizer={name: ogd, alpha: 0.1}", "learner.optimizer"),
        ("learner.optimizer={name: fobos, l1: -1}", "learner.optimizer.l1"),
        ("learner.optimizer={name: entropic}", "learner.optimizer"),
        ("learner.optimizer={name: passive_aggressive}", "learner.loss"),
        ("learner.loss.name=linear", "learner.loss.name"),
        ("learner.loss.tau=0.3", "learner.loss"),
        ("snapshots.shards=6", "snapshots.shards"),
        ("snapshots.shards=512", "snapshots.shards"),
        ("snapshots.ring=1", "snapshots.ring"),
        ("snapshots.page_bytes=1MiB", "snapshots.page_bytes"),
        ("topics.retention=59m", "topics.retention"),
        ("topics={replication: 1, min_insync_replicas: 2}", "topics.min_insync_replicas"),
        ("topics.examples=clicks", "topics.examples"),
        ("input.clicks.topic=impressions", "input.clicks.topic"),
        ("input.clicks.topic=a b", "input.clicks.topic"),
        ("input.impressions.time=id", "input"),
        ("features.categorical=[id]", "features"),
        ("features.crosses=[[a]]", "features.crosses.0"),
        ("features={crosses: [[a, b]], exclude: [b]}", "features"),
        ("features.fields.a.kind=bucket", "features"),
        ("features.fields.a={kind: bucket, edges: [2, 1]}", "features"),
        ("telemetry.http_port=70000", "telemetry.http_port"),
        ("kafka.message.max.bytes=a lot", "kafka"),
        ("model=a/b", "model"),
    ],
)
def test_what_cannot_work_is_refused(override: str, path: str) -> None:
    """Ranges, types and rules between settings, each named at the setting to change."""
    found = problems(override)
    assert [line.split(":")[0] for line in found] == [path], found


def test_a_wider_message_limit_allows_larger_records() -> None:
    """record_bytes goes up to what kafka.message.max.bytes allows."""
    config = load("join.record_bytes=2MiB", "kafka.message.max.bytes=4000000")
    assert config.join.record_bytes == 2 * 2**20


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: [1", "line"),
        ("a: 1\na: 2\n", "a is there twice"),
        ("a: &x 1\nb: *x\n", "aliases"),
        ("a: !!python/object:os.system {}\n", "line 1"),
        ("- 1\n", "must hold settings"),
        ("{1, 2}: 3\n", "must be text"),
        ("a: \x00", "config.yaml"),
        ("[" * 5000, "not YAML"),
    ],
)
def test_a_file_that_is_not_yaml_says_where(tmp_path: Path, text: str, words: str) -> None:
    """Broken YAML, repeated names, aliases and foreign tags end as a ConfigError with the line."""
    assert words in problems(file=written(tmp_path, text))[0]


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """A missing file, and one that is not UTF-8, are named."""
    assert "No such file" in problems(file=tmp_path / "none.yaml")[0]
    (tmp_path / "latin").write_bytes(b"model: caf\xe9\n")
    assert "UTF-8" in problems(file=tmp_path / "latin")[0]


def test_an_empty_file_says_nothing(tmp_path: Path) -> None:
    """An empty file, or one of comments, leaves the defaults."""
    assert load(file=written(tmp_path, "# nothing\n")) == load()


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    """No text makes the reader fail in another way, or hang."""
    with suppress(YamlError):
        read_yaml(text)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["model", "kafka", "join", "topic", "file", "x"]), inner, max_size=3)
        ),
    )
)
def test_any_value_anywhere_is_accepted_or_refused(value: Any) -> None:
    """Any tree below any section ends as a configuration or a ConfigError, never as another error."""
    for section in ("kafka", "input", "join", "features", "learner", "topics"):
        with suppress(ConfigError):
            load(f"{section}={json.dumps(value)}")


def test_scalars_follow_yaml_1_2() -> None:
    """Fields called on, no and y stay text, and so do dates and times; 010 is no octal number."""
    text = "[on, no, y, 2026-11-01, 12:30, 010, true, null, 7, 1e3, .5, 0x10]"
    assert read_yaml(text).data == [
        *("on", "no", "y", "2026-11-01", "12:30", "010"),
        *(True, None, 7, 1000.0, 0.5, "0x10"),
    ]


# Secrets


def test_secrets_are_never_shown() -> None:
    """What may be a secret prints as ***, in the tree, in its repr and in its dumps."""
    hidden = "hunter2"
    options = ("sasl.password", "sasl.username", "ssl.key.password", "ssl.key.pem", "sasl.oauthbearer.config")
    config = load(*(f"kafka.{name}={hidden}" for name in options), "kafka.sasl.mechanisms=PLAIN")
    shown = config.shown()["kafka"]
    assert {shown[name] for name in options} == {"***"}
    assert (shown["sasl.mechanisms"], shown["bootstrap.servers"]) == ("PLAIN", "localhost:9092")
    for text in (repr(config), str(config), str(config.kafka), json.dumps(config.shown()), config.model_dump_json()):
        assert hidden not in text
    assert config.kafka_options()["sasl.password"] == hidden


def test_findings_do_not_show_secrets() -> None:
    """A wrong value below kafka is not repeated in the message."""
    found = problems("kafka={bootstrap.servers: a, sasl.password: [hunter2], ssl.key.password: {fil: hunter2}}")
    assert "sasl.password" in found[0]
    assert "hunter2" not in "".join(found)


@pytest.mark.parametrize("written", ["hunter2", "{fil: hunter2}", "{file: hunter2, env: x}", "[hunter2]", "{file: }"])
@pytest.mark.parametrize("setting", ["serve.token", "telemetry.token"])
def test_a_token_that_is_written_itself_is_refused_and_not_shown(setting: str, written: str) -> None:
    """One finding, which says what to write."""
    (found,) = problems(f"{setting}={written}")
    assert found.startswith(f"{setting}: must be `{{file: PATH}}` or `{{env: NAME}}`")
    assert "hunter2" not in found


def test_secrets_come_from_files_and_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reference is read when it is asked for, so a rotated secret is seen; what is shown is the reference."""
    secret = tmp_path / "password"
    secret.write_text("first\n", encoding="utf-8")
    monkeypatch.setenv("KAFKA_USER", "ada")
    config = load(f"kafka.sasl.password={{file: {secret}}}", "kafka.sasl.username={env: KAFKA_USER}")
    options = config.kafka_options()
    password, user = options["sasl.password"], options["sasl.username"]
    assert isinstance(password, FromFile) and isinstance(user, FromEnvironment)
    assert password.read("kafka.sasl.password") == "first"
    secret.write_text("second", encoding="utf-8")
    assert (password.read("kafka.sasl.password"), user.read("kafka.sasl.username")) == ("second", "ada")
    assert config.shown()["kafka"]["sasl.password"] == {"file": str(secret)}


def test_missing_secrets_are_named_all_at_once() -> None:
    """Every file and variable that is not there is named with the option it is for."""
    config = load("kafka.sasl.password={file: /nowhere/x}", "kafka.sasl.username={env: NO_SUCH_VARIABLE}")
    assert list(config.kafka.unreadable()) == [
        "kafka.sasl.password: cannot read the file /nowhere/x: No such file or directory",
        "kafka.sasl.username: the environment variable NO_SUCH_VARIABLE is not set",
    ]


# What comes out


def test_each_topic_may_have_a_unit_of_its_own() -> None:
    """`input.time_unit` is that of the topics that name none; one that names it is the same specification."""
    topics = "input={impressions: {topic: i, time: t, time_unit: iso}, clicks: {topic: c, time: t}, time_unit: s}"
    impressions, clicks = load(topics).event_specs()
    assert (impressions.time_unit, clicks.time_unit) == ("iso", "s")
    _, named = load(topics, "input.clicks.time_unit=s", "input.time_unit=us").event_specs()
    assert (named, named.fingerprint) == (clicks, clicks.fingerprint)


def test_core_gets_its_specs() -> None:
    """The settings arrive in the specs of core, in their units."""
    config = load(
        "join={window: 10m, skew: 1s, tick: 200ms, dedupe: 0, keep_negatives: 0.5, max_skew: 2m}",
        "input={impressions: {topic: i, id: x.id, time: t, weight: w}, clicks: {topic: c, value: v}, time_unit: s}",
        "features={categorical: [slot], fields: {age: {kind: log, missing: indicator}}, crosses: [[slot, age]]}",
        "learner.optimizer={alpha: 0.05, l1: 0}",
    )
    join = config.join_spec()
    assert (join.window_ms, join.skew_ms, join.tick_ms, join.dedupe_ms) == (600_000, 1_000, 200, 0)
    assert join.keep_negatives == 0.5
    impressions, clicks = config.event_specs()
    assert (impressions.id, impressions.time, impressions.weight) == ("x.id", "t", "w")
    assert (clicks.id, clicks.time, clicks.value, clicks.time_unit) == ("id", None, "v", "s")
    assert impressions.max_skew_ms == 120_000
    features = config.feature_spec()
    assert features.of("slot").kind == "category"
    assert features.of("age").kind == "log"
    assert features.of("age").missing == "indicator"
    assert features.crosses == (("slot", "age"),)
    assert config.optimizer().to_dict() == {
        "name": "ftrl_proximal",
        "alpha": 0.05,
        "beta": 1.0,
        "l1": 0.0,
        "l2": 1.0,
    }


def test_a_field_of_times_has_the_unit_of_the_events_time_if_it_is_that() -> None:
    """Others are read as they look; a unit of their own counts more."""
    inputs = "input={impressions: {topic: i, time: t}, clicks: {topic: c}, time_unit: us}"
    kind = "kind: hour, zone: Asia/Kolkata"
    fields = f"features.fields={{t: {{{kind}}}, u: {{{kind}}}, v: {{{kind}, time_unit: s}}, w: {{kind: log}}}}"
    features = load(inputs, fields).feature_spec()
    units = {name: features.of(name).time_unit for name in "tuvw"}
    assert units == {"t": "us", "u": "auto", "v": "s", "w": "auto"}
    assert features.of("u").zone == "Asia/Kolkata"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ("{u: {kind: hour, zone: Europe/Berln}}", "field 'u': zone 'Europe/Berln' .* did you mean Europe/Berlin?"),
        ("{u: {kind: log, zone: Asia/Kolkata}}", "field 'u': zone and time_unit belong to the kinds hour"),
        ("{t: {kind: hour, time_unit: s}}", "field 't' is the event's time, in ms, and cannot have time_unit s"),
        ("{t: {kind: number}}", "field 't' is the event's .*; the time is one by the kinds hour, weekday"),
        ("{id: {kind: hour}}", "field 'id' is the event's id, time, weight or value, never a feature"),
    ],
)
def test_a_field_of_times_that_cannot_work_is_refused(fields: str, message: str) -> None:
    """By its name, with the nearest zone."""
    with pytest.raises(ConfigError, match=message):
        load("input={impressions: {topic: i, time: t}, clicks: {topic: c}}", f"features.fields={fields}")


def test_an_optimizer_has_its_own_defaults_and_another_begins_with_its_own() -> None:
    """What is not set is the chosen optimizer's; a variant with another one keeps nothing of the first."""
    config = load("learner.optimizer={name: fobos, l1: 0.01}", "learner.loss={name: quantile, tau: 0.3}")
    assert config.optimizer().to_dict() == make_optimizer({"name": "fobos", "l1": 0.01}).to_dict()
    assert (config.loss().name, config.loss().option) == ("quantile", 0.3)
    assert load().loss().name == "logistic"
    faster = config.with_values({("learner", "optimizer", "eta"): 0.7})
    assert faster.optimizer().to_dict() == {**config.optimizer().to_dict(), "eta": 0.7}
    other = config.with_values({("learner", "optimizer", "name"): "adagrad", ("learner", "optimizer", "eta"): 0.5})
    assert other.optimizer().to_dict() == make_optimizer({"name": "adagrad", "eta": 0.5}).to_dict()


def test_an_override_with_another_optimizer_begins_its_section_anew(tmp_path: Path) -> None:
    """The file's hyper-parameters are the old one's; the same name again keeps them."""
    file = tmp_path / "model.yaml"
    file.write_text("learner:\n  optimizer:\n    alpha: 0.05\n    l1: 2\n")
    other = load("learner.optimizer.name=adagrad", "learner.optimizer.eta=0.2", file=file).learner.optimizer
    assert other.given() == {"name": "adagrad", "eta": 0.2}
    same = load("learner.optimizer.name=ftrl_proximal", file=file).learner.optimizer
    assert (same.alpha, same.l1) == (0.05, 2.0)
    prefix = "STREAM_LEARNER__LEARNER__OPTIMIZER__"
    variables = {f"{prefix}ETA": "0.3", f"{prefix}NAME": "adagrad"}
    assert load(environ=variables, file=file).learner.optimizer.eta == 0.3


def test_a_wrong_optimizer_is_answered_with_what_was_meant_or_why_not() -> None:
    """The nearest hyper-parameter; why an optimizer cannot learn from a stream; which losses it is defined for."""
    assert "did you mean 'eta'" in problems("learner.optimizer={name: ogd, beta: 1}")[0]
    assert "beta belongs to ftrl_proximal" in problems("learner.optimizer={name: ogd, beta: 1}")[0]
    misspelt = problems("learner.optimizer={name: coin, bta: 1}")[0]
    assert misspelt.startswith("learner.optimizer.bta: unknown setting; did you mean learner.optimizer.beta?")
    assert "would not know it" in problems("learner.optimizer.name=entropic")[0]
    decaying = "learner.optimizer={name: l1_subgradient, l1: 0.1, schedule: root}"
    assert "can only be evaluated" in problems(decaying)[0]
    assert "hinge" in problems("learner.optimizer.name=confidence_weighted")[0]
    assert "needs radius" in problems("learner.optimizer.name=ogd_global")[0]


@pytest.mark.parametrize("file", sorted(CONFIGS.glob("*.yaml")), ids=lambda file: file.name)
def test_the_examples_load(file: Path) -> None:
    """Every file of configs/ is a configuration that can work, with a window that is longer than lateness."""
    config = load_config(file)
    assert config.model and "join.window" not in dict(doubtful(config))


def test_what_is_shown_loads_again(tmp_path: Path) -> None:
    """`config show` prints a file that means the same."""
    config = load_config(CONFIGS / "laptop.yaml")
    file = written(tmp_path, json.dumps(config.shown()))
    assert load_config(file) == config


def test_every_setting_is_described() -> None:
    """No setting is without a description, and each description is a sentence."""
    for path, info in leaves(Config):
        assert info.description, path
        assert info.description.rstrip("`").endswith((".", "]]`.")), (path, info.description)


def test_every_default_keeps_its_own_rule() -> None:
    """What the schema's defaults say can be written down and read back."""
    shown = load().shown()
    overrides = [
        f"{section}={json.dumps(shown[section])}"
        for section in ("join", "features", "learner", "snapshots", "topics", "scorer", "telemetry")
    ]
    assert load(*overrides) == load()


def test_the_schema_refuses_unknown_names() -> None:
    """The JSON schema is closed, speaks of settings by the names they are written with, and knows the units."""
    schema = Config.model_json_schema()
    join = schema["$defs"]["Join"]
    assert schema["additionalProperties"] is False
    assert join["additionalProperties"] is False
    assert "window" in join["properties"]
    assert "window_ms" not in join["properties"]
    assert sorted(schema["required"]) == ["input", "kafka", "model"]


@pytest.mark.parametrize(
    ("optimizer", "fits"),
    [
        ({"eta": 0.2}, True),
        ({"name": "ogd", "eta": 0.2, "alpha": None}, True),
        ({"name": "ogd", "alpha": 0.2}, False),
        ({"name": "vw", "normalized": False}, True),
        ({"name": "adam"}, False),
    ],
)
def test_the_schema_knows_which_settings_an_optimizer_has(optimizer: dict[str, object], fits: bool) -> None:
    """By the name, where it is given: a part of a file, as the chart takes it, need not name the optimizer."""
    schema = Config.model_json_schema()
    validator = Draft202012Validator({"$ref": "#/$defs/Optimizer", "$defs": schema["$defs"]})
    assert validator.is_valid(optimizer) is fits


@pytest.mark.parametrize(
    ("servers", "words"),
    [
        ("http://kafka:9092", "not a URL"),
        ("a:9092,https://b:9093", "not a URL"),
        ("ann:geheim@kafka:9092", "without user and password"),
        ("SASL_SSL://ann:geheim@kafka:9092", "without user and password"),
    ],
)
def test_addresses_that_are_none_are_refused_without_their_text(servers: str, words: str) -> None:
    """There may be a password in it."""
    with pytest.raises(ConfigError) as found:
        load_config(None, overrides=[*LEAST, f"kafka.bootstrap.servers={servers}"])
    assert words in str(found.value) and "geheim" not in str(found.value) and len(found.value.problems) == 1


@pytest.mark.parametrize("servers", ["a:9092, b:9093", "PLAINTEXT://a:9092", "[::1]:9092", "kafka"])
def test_addresses_as_librdkafka_takes_them(servers: str) -> None:
    """A protocol of Kafka may stand before one."""
    config = load_config(None, overrides=[*LEAST, f"kafka.bootstrap.servers={servers}"])
    assert config.kafka_options()["bootstrap.servers"] == servers


def test_the_page_of_features_has_a_configuration_that_loads(tmp_path: Path) -> None:
    """Its block is taken as it stands, and makes the features that it names; every kind has its row."""
    page = (CONFIGS.parent / "docs" / "features.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```yaml\n(.*?)^```", page, re.M | re.S)
    config = load("input.impressions.time=ts", file=written(tmp_path, block))
    spec = config.feature_spec()
    assert {name: spec.of(name).kind for name in ("ad.id", "price", "user.age", "ts", "user.last_visit")} == {
        "ad.id": "category", "price": "log", "user.age": "bucket", "ts": "hour_of_week", "user.last_visit": "hour"
    }  # fmt: skip
    assert not spec.takes("request_id") and spec.crosses[0] == ("site", "ad.id")
    rows = " ".join(re.findall(r"^\| (`[^|]+) \|", page, re.M))
    assert set(re.findall(r"`(\w+)`", rows)) == {*get_args(Kind), "categorical"}
