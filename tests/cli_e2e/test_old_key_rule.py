"""A model that was begun by an earlier key rule goes on under a configuration that names none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stream_learner.evaluate.model_file import read_model
from stream_learner.roles.common.last_publication import read_last_publication
from tests.cli_e2e.commands import answer_of, started
from tests.cli_e2e.conftest import Learned, MakeWorld, learn
from tests.cli_e2e.world import World
from tests.waiting import wait_until


def published(world: World) -> dict[str, Any]:
    """The newest model record."""
    topic, shards = world.config.snapshots_topic, world.config.snapshots.shards
    last = read_last_publication(world.settings, world.admin.offsets, topic, shards)
    assert last.model is not None
    return dict(last.model.content)


@pytest.mark.thorough
def test_a_model_of_an_earlier_rule_goes_on(make_world: MakeWorld, learned: Learned, tmp_path: Path) -> None:
    """`run`, `audit` and `evaluate --log` take the rule of its log; a new model has the newest."""
    world = make_world(features={"key_rule": 2})
    learn(world)
    del world.tree["features"]["key_rule"]
    world.file.write_text(json.dumps(world.tree), encoding="utf-8")
    before = published(world)["metrics"]["examples"]
    world.produce(500)
    with started("run", "-c", world.file) as command:
        command.wait_for("learner_started")
        wait_until(lambda: published(world)["metrics"]["examples"] > before, "it learns on")
        assert command.stop().code == 0
    for model, rule in ((world, 2), (learned.world, 3)):
        assert published(model)["features"]["key_rule"] == rule
        audited = answer_of("audit", "-c", model.file, "--replay")
        assert audited.code == 0, audited.out
        saved = answer_of("evaluate", "--log", "-c", model.file, "--save", str(tmp_path / model.model))
        assert saved.code == 0, saved.err
        assert read_model(tmp_path / model.model / "1-ftrl_proximal.slm")[0]["key_rule"] == rule
