"""`promote`, `rollback`, `alias`, `pause`, `pin` as a person or a script calls them."""

from __future__ import annotations

import getpass
import socket
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from stream_learner import errors
from stream_learner.core.machine.hashing import BIAS_KEY
from stream_learner.operations.topics import control_plan
from tests.cli_e2e.commands import Ended, answer_of, answers_of
from tests.cli_e2e.conftest import MakeWorld
from tests.cli_e2e.published import Published
from tests.cli_e2e.world import World

LATE = ("--max-lag", "100000d")
"""The versions of these models are of 1970."""


@dataclass
class Pair:
    """Two published models that share a control topic."""

    world: World
    one: Published
    two: Published

    def command(self, *words: str) -> tuple[str, ...]:
        """A command with the configuration of the first, as JSON."""
        return (*words, "-c", str(self.world.file), "--json")

    def run(self, *words: str) -> Ended:
        return answer_of(*self.command(*words))

    @property
    def names(self) -> tuple[str, str]:
        return self.one.world.model, self.two.world.model


@pytest.fixture
def pair(make_world: MakeWorld) -> Iterator[Pair]:
    """The first at version 10,000, the second far behind it at 20."""
    world = make_world(scorer={"alias": "ctr"})
    world.admin.create([control_plan(world.config)])
    one, two = Published(world), Published(make_world(topics={"control": world.config.control_topic}))
    one.publish(10_000, {BIAS_KEY: 1.0})
    two.publish(20, {BIAS_KEY: 2.0})
    yield Pair(world, one, two)
    one.close()
    two.close()


def test_an_alias_from_its_first_promotion_to_its_end(pair: Pair) -> None:
    """Promote, refuse, force, score by the alias, list, show, roll back, delete: JSON on stdout, exit codes, who."""
    one, two = pair.names
    first = pair.run("promote", one, *LATE, "--note", "the first")
    assert first.code == 0 and first.json["done"] is True and first.json["from"] is None
    assert [check["result"] for check in first.json["checks"]] == ["ok"] * len(first.json["checks"])

    stale, unlike = answers_of(
        pair.command("promote", two, "--alias", "ctr"), pair.command("promote", two, "--dry-run", *LATE)
    )
    assert stale.code == unlike.code == errors.PromotionRefused.exit_code
    assert stale.json["done"] is False
    assert "fresh: " in stale.error["message"] and "not worse: " in stale.error["message"]
    assert "--force" in stale.error["action"]
    assert "fresh: " not in unlike.error["message"]

    forced = pair.run("promote", two, "--force", "--who", "eve")
    assert forced.code == 0 and forced.json["done"] is True and forced.json["forced"] is True
    events = pair.world.folder / "events.jsonl"
    events.write_text("{}\nnonsense\n")
    listed, shown, scored = answers_of(
        pair.command("alias", "list"),
        pair.command("alias", "show", "ctr"),
        ("score", "-c", str(pair.world.file), str(events)),
    )
    (row,) = listed.json
    assert (row["alias"], row["model"], row["who"], row["forced"], row["pinned"]) == ("ctr", two, "eve", True, None)
    changes = [(c["what"], c["from"], c["to"], c["note"]) for c in shown.json["history"]]
    assert changes == [("promote", one, two, ""), ("promote", None, one, "the first")]
    assert shown.json["history"][1]["who"] == f"{getpass.getuser()}@{socket.gethostname()}"
    assert f'"version":20,"model":"{two}"}}' in scored.out and '{"error":"not JSON"}' in scored.out

    back = pair.run("rollback")
    assert back.code == 0 and (back.json["from"], back.json["to"]) == (two, one)
    deleted = pair.run("alias", "delete", "ctr")
    assert deleted.code == 0 and deleted.json["from"] == one
    listed, again, unknown = answers_of(
        pair.command("alias", "list"), pair.command("rollback"), pair.command("alias", "show", "ctx")
    )
    assert (listed.code, listed.json) == (0, [])
    assert again.code == unknown.code == errors.NotFound.exit_code
    assert "alias list" in again.error["action"]


def test_pause_and_pin(pair: Pair) -> None:
    """They say what they did; a model or a pin that is not there is refused; a version that is gone has a hint."""
    one, two = pair.names
    assert pair.run("promote", one, *LATE).code == 0
    paused, pinned, hinted, ghost, unpinned, twice = answers_of(
        pair.command("pause", "--model", two),
        pair.command("pin", "ctr"),
        pair.command("pin", two, "--version", "5"),
        pair.command("pause", "--model", "ghost"),
        pair.command("unpin", "nobody"),
        pair.command("pin", "ghost"),
    )
    assert paused.code == 0 and (paused.json["model"], paused.json["paused"]) == (two, True)
    assert pinned.code == 0 and (pinned.json["model"], pinned.json["version"]) == (one, None)
    assert hinted.code == 0 and "holds version 20 by now" in hinted.json["hint"]
    assert {e.code for e in (ghost, unpinned, twice)} == {errors.NotFound.exit_code}
    refused, listed = answers_of(pair.command("promote", two, *LATE), pair.command("alias", "list"))
    assert "publishing: publication was paused by" in refused.error["message"]
    assert "followed: " in refused.error["message"] and "stream-learner unpin" in refused.error["message"]
    assert listed.json[0]["pinned"] == f"{one} as served"
    resumed, free = answers_of(pair.command("resume", "-m", two), pair.command("unpin", "ctr"))
    assert resumed.code == free.code == 0 and resumed.json["paused"] is False
    assert "publishing" not in pair.run("promote", two, "--dry-run", *LATE).error["message"]


def test_what_is_printed_for_people(pair: Pair) -> None:
    """A table of the checks, and what came of them; names that no model has are refused before anything is done."""
    file = str(pair.world.file)
    shown, bad, nameless = answers_of(
        ("promote", pair.names[0], "-c", file, *LATE, "--dry-run"),
        ("promote", "no name", "-c", file),
        ("promote", "m", "-c", file, "--set", "scorer.alias=null"),
    )
    assert shown.code == 0 and shown.err == ""
    for words in ("complete", "version 10000, 1 weight", "nothing to compare with", "this was a dry run"):
        assert words in shown.out
    assert bad.code == nameless.code == errors.ConfigError.exit_code
    assert "no name of a model" in bad.error["message"] and "--alias" in nameless.error["action"]


def test_without_a_control_topic(make_world: MakeWorld) -> None:
    """Every command says that it is missing, and what makes it."""
    world = make_world()
    words = (
        ("promote", "m", "--alias", "a"),
        ("alias", "list"),
        ("pause",),
        ("pin", "m"),
        ("rollback", "--alias", "a"),
    )
    for ended in answers_of(*((*each, "-c", str(world.file)) for each in words)):
        assert ended.code == errors.TopicMissing.exit_code
        assert world.config.control_topic in ended.error["message"] and "topics ensure" in ended.error["action"]
