"""The bound on rows across checkpoints on disk, and what a learner says of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stream_learner.adapters.kafka import TopicInfo
from stream_learner.config import Config
from stream_learner.core.model.fold import Learner
from stream_learner.errors import StateOfAnotherModel
from stream_learner.roles.learner.checkpoints import Checkpoints
from stream_learner.roles.learner.log_follower import LOG_BEGINNING
from stream_learner.roles.learner.row_brake import BrakeLog, rows_content
from tests.core.model.example_records import Example, as_record, random_examples
from tests.core.model.test_row_bound import let_through
from tests.roles.learner.test_optimizers_kept import config_of

OPTIMIZER = {"name": "ftrl_proximal"}
TICKS = 6


def bounded(folder: Path, max_rows: int | None, **more: Any) -> Config:
    """A configuration with its state in a folder."""
    tree = config_of(folder, OPTIMIZER).model_dump(mode="json", by_alias=True)
    tree["learner"] |= {"max_rows": max_rows, **more}
    return Config.model_validate(tree)


def opened(config: Config) -> Checkpoints:
    """The state of a configuration, loaded."""
    learner = Learner(config.optimizer(), loss=config.loss(), max_rows=config.learner.max_rows)
    checkpoints = Checkpoints(config, learner, TopicInfo(config.examples_topic, b"x" * 16, 1, 1))
    try:
        checkpoints.load()
    except BaseException:
        checkpoints.close()
        raise
    return checkpoints


def fold_and_keep(config: Config, examples: list[Example]) -> Learner:
    """One tick and its checkpoint, in a process of its own as it were."""
    checkpoints = opened(config)
    tick = checkpoints.tick + 1
    checkpoints.learner.fold(as_record(examples, shuffle=tick), tick)
    checkpoints.begin(tick, {0: LOG_BEGINNING})
    checkpoints.finish()
    checkpoints.close()
    return checkpoints.learner


@pytest.mark.parametrize("more", [{}, {"memory": "17MiB"}])
def test_a_state_that_goes_through_the_disk_at_every_tick_is_that_of_the_oracle(
    more: dict[str, Any], tmp_path: Path
) -> None:
    """All in memory, and as an index of rows: the examples that the oracle lets through, folded at once."""
    config = bounded(tmp_path, 30, **more)
    ticks = [random_examples(25, 11 + tick, keys=70, longest=8) for tick in range(TICKS)]
    for examples in ticks:
        learner = fold_and_keep(config, examples)
    wanted, rows, lost = let_through([e for examples in ticks for e in examples], 30)
    free = Learner(config.optimizer(), loss=config.loss())
    free.fold(as_record(wanted), 0)
    assert learner.row_bound is not None and learner.row_bound.held_back == lost > 0
    assert (learner.digest(), learner.table.count) == (free.digest(), len(rows))
    again = opened(config)
    assert again.learner.digest_full() == free.digest()
    assert again.learner.state_scalars() == learner.state_scalars()
    again.close()


@pytest.mark.parametrize("other", [None, 2, 9])
def test_a_bound_can_change_until_something_was_held_back(other: int | None, tmp_path: Path) -> None:
    """Raised, lowered or taken away; after that the state is refused, and taken under the old bound."""
    few, more = [Example(((1, 1.0), (2, 1.0)), 1.0)], [Example(((3, 1.0), (4, 1.0)), 0.0)]
    fold_and_keep(bounded(tmp_path, 3), few)
    opened(bounded(tmp_path, other)).close()
    fold_and_keep(bounded(tmp_path, 3), more)
    with pytest.raises(StateOfAnotherModel, match="since it had 3 rows") as raised:
        opened(bounded(tmp_path, other))
    assert "Set learner.max_rows back to 3" in str(raised.value.action)
    opened(bounded(tmp_path, 3)).close()


def test_positions_are_those_of_the_last_checkpoint_that_counts(tmp_path: Path) -> None:
    """What retention must not trim: the log's beginning at first, and not what is being written."""
    config = bounded(tmp_path, None)
    checkpoints = opened(config)
    assert checkpoints.positions == {0: LOG_BEGINNING}
    checkpoints.learner.fold(as_record([Example(((1, 1.0),), 1.0)]), 0)
    later = LOG_BEGINNING._replace(offset=17)
    checkpoints.begin(0, {0: later})
    assert checkpoints.positions == {0: LOG_BEGINNING}
    checkpoints.finish()
    assert checkpoints.positions == {0: later}
    checkpoints.close()
    again = opened(config)
    assert again.positions == {0: later}
    again.close()


class Said:
    """A log that remembers."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []

    def warning(self, event: str, **fields: Any) -> None:
        self.events.append((event, fields))


def test_the_brake_is_said_once_and_stands_in_the_model_record() -> None:
    """Not before something was held back; without a bound there is nothing to say."""
    said, learner = Said(), Learner(config_of(Path(), OPTIMIZER).optimizer(), max_rows=2)
    brake = BrakeLog(said)  # type: ignore[arg-type]
    for key in range(1, 6):
        learner.fold(as_record([Example(((key, 1.0),), 1.0)]), key)
        brake.look(learner, key)
    ((event, fields),) = said.events
    assert (event, fields["tick"], fields["max_rows"], fields["features"]) == ("rows_held_back", 3, 2, 1)
    assert rows_content(learner) == {"rows": {"count": 2, "most": 2, "held_back": 3}}
    free = Learner(config_of(Path(), OPTIMIZER).optimizer())
    BrakeLog(said).look(free, 1)  # type: ignore[arg-type]
    assert rows_content(free) == {} and len(said.events) == 1
