"""The generated pages of docs/ are what the code says now, and say everything."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from typing import get_args

from stream_learner.adapters.http import openapi
from stream_learner.adapters.telemetry.metric_names import CATALOGUE
from stream_learner.config import Config
from stream_learner.config.paths import leaves
from stream_learner.core.model.fold import Learner
from stream_learner.errors import ConfigError, Stop, TopicMissing, all_errors, meaning, operator_action
from stream_learner.roles.joiner.made_with import SECTIONS
from stream_learner.roles.learner.checkpoints import state_identity
from tools.docs import DOCS, FIRST, LATER, NOTE, later, pages

SIDES = ("impressions", "clicks")
BASE = {
    "model": "ctr",
    "kafka": {"bootstrap.servers": "kafka:9092"},
    "input": {"impressions": {"topic": "i", "time": "t", "weight": "w"}, "clicks": {"topic": "c", "time": "t"}},
    "registry": {"url": "http://registry"},
    "features": {"fields": {"<name>": {"kind": "hour"}}},
}
"""A configuration in which nearly every setting counts."""
VALUES = (
    *("other", 2, 3, 0.5, 300, "64MiB", True, False, "2h", "1m", "256KiB", "2MiB", "us", "avro", "latest"),
    *("Europe/Berlin", ["other"], ["<name>"], [["x", "y"]], {"k": {"kind": "log"}}),
)
"""Of which a setting takes one."""
AT_FIRST = Config.model_validate(BASE)
UNTRIED = {"features.fields.<name>.edges"} | {
    f"input.{side}.{name}" for side in SIDES for name in ("schema", "message")
}


def changed(path: tuple[str, ...], values: Iterable[object]) -> Config | None:
    """A configuration with another value of a setting, None if it takes none of the values."""
    for value in values:
        with suppress(ConfigError):
            made = AT_FIRST.with_values({path: value})
            if made.shown() != AT_FIRST.shown():
                return made
    return None


def kept(config: Config) -> tuple[dict[str, int], dict[str, object]]:
    """What the training log keeps of a configuration, by the section of the settings, and what a state does."""
    impressions, clicks = config.event_specs()
    specs = (config.join_spec(), impressions, clicks, config.feature_spec())
    learner = Learner(config.optimizer(), loss=config.loss())
    state = {**state_identity(config, learner, 1), "shards": config.snapshots.shards}
    return dict(zip(SECTIONS, (spec.fingerprint for spec in specs), strict=True)), state


def test_the_generated_pages_are_current() -> None:
    """The pages in docs/ are what `make docs` would write."""
    for name, text in pages().items():
        assert (DOCS / name).read_text(encoding="utf-8") == NOTE + text, f"{name}: run `make docs`"


def test_every_setting_is_on_its_page() -> None:
    """Each setting has a row in the table of its section."""
    text = pages()["configuration.md"]
    for path, _ in leaves(Config):
        section = text.split(f"## `{'.'.join(path[:-1])}`\n" if len(path) > 1 else "## Top level\n")[1]
        assert f"| `{path[-1]}` |" in section.split("\n## ")[0], path


def test_a_setting_says_what_a_change_means_later() -> None:
    """Whatever a joiner or a learner compares with what was made before says so, and a joiner's error can name it; of
    the topics of the inputs it compares the ids."""
    before, found, untried = kept(AT_FIRST), {}, set()
    for path, info in leaves(Config):
        name, made = ".".join(path), changed(path, (*get_args(info.annotation), *VALUES))
        if made is None:
            untried.add(name)
            continue
        sections, state = (
            {key for key in now if one.get(key) != now[key]} for one, now in zip(before, kept(made), strict=True)
        )
        assert all(f"{name}.".startswith(tuple(f"{one}." for one in SECTIONS[key])) for key in sections), name
        found[name] = later(path), "another name" if state else "begin anew" if sections else "any time"
    assert {name for name in untried if name.startswith(("input", "join", "features"))} == UNTRIED
    unlike = {name: says for name, (says, does) in found.items() if says != does}
    assert unlike == {
        **dict.fromkeys((f"input.{side}.topic" for side in SIDES), "begin anew"),
        **dict.fromkeys((f"topics.{name}" for name in ("snapshots", "checkpoints", "control")), "another name"),
        **dict.fromkeys(("join.start", "topics.replication"), "once"),
        "learner.max_rows": "as its meaning says",
    }


def test_what_is_said_of_settings_is_said_of_settings_that_are() -> None:
    """Each path is there, and stands once; a dozen settings are marked."""
    paths = [path for paths in LATER.values() for path in paths]
    assert len(set(paths)) == len(paths)
    names = {".".join(path[:end]) for path, _ in leaves(Config) for end in range(len(path) + 1)}
    assert {*paths, *FIRST} <= names
    assert len(FIRST) == pages()["configuration.md"].count(" | ★ ") == 12


def test_every_metric_is_on_its_page() -> None:
    """Each metric has a row."""
    for metric in CATALOGUE:
        assert f"| `{metric.full_name}` | {metric.kind} |" in pages()["metrics.md"]


def test_every_error_is_on_its_page() -> None:
    """Each error has a row with its exit code, its meaning and something to do."""
    for kind in set(all_errors()) - {Stop}:
        row = f"| {kind.exit_code} | `{kind.__name__}` |"
        assert row in pages()["errors.md"]
        assert meaning(kind)
        assert operator_action(kind)


def test_every_request_is_on_its_page() -> None:
    """Each path and method has a row with its statuses, each body the server takes or gives a table."""
    document, text = openapi.document("", [], 1, with_token=True), pages()["http.md"]
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            (row,) = re.findall(rf"^\| `{method.upper()} {re.escape(path)}` \| .*$", text, re.M)
            assert sorted(operation["responses"]) == re.findall(r"\b\d{3}\b", row.rpartition(" | ")[2])
    for name, schema in document["components"]["schemas"].items():
        table = text.split(f"### `{name}`\n")[1].split("\n#")[0]
        assert all(f"| `{member}` |" in table for member in schema["properties"]), name


def test_exit_codes_tell_errors_apart() -> None:
    """No two errors share an exit code, and none has one of success, usage or a shell."""
    kinds = [kind for kind in all_errors() if kind is not Stop]
    codes = [kind.exit_code for kind in kinds]
    assert len(set(codes)) == len(codes)
    assert all(3 <= code < 126 for code in codes)


def test_an_error_keeps_what_it_was_given() -> None:
    """An action of its own wins over the class's; the text of an error is its message."""

    assert TopicMissing("found x").action == operator_action(TopicMissing) != ""
    assert TopicMissing("found x", action="look at x").action == "look at x"
    assert str(TopicMissing("found x")) == "found x"
