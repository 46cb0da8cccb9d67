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
from tests.core.model.test_field_rows import NAME_HASHES, Counts, assert_counts, bounded_record
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


@pytest.mark.parametrize("before", [None, 9])
def test_a_bound_below_the_rows_that_are_there_is_refused(before: int | None, tmp_path: Path) -> None:
    """From the log alone nobody could make that state again: it depends on when the bound came."""
    examples = [Example(((1, 1.0), (2, 1.0), (3, 1.0)), 1.0)]
    fold_and_keep(bounded(tmp_path, before), examples)
    with pytest.raises(StateOfAnotherModel, match=r"a model of 3 rows; learner.max_rows is 2") as raised:
        opened(bounded(tmp_path, 2))
    assert "learner.max_rows to 3 or more" in str(raised.value.action) and "rewind" in str(raised.value.action)
    opened(bounded(tmp_path, 3)).close()


@pytest.mark.parametrize("more", [{}, {"memory": "17MiB"}])
def test_the_counts_of_fields_go_through_the_disk_at_every_tick(more: dict[str, Any], tmp_path: Path) -> None:
    """All in memory, and as an index of rows: the rows, counts and digest of the oracle, and of a learner that never
    stopped, also where the bound of the log changes at every checkpoint."""
    config = bounded(tmp_path, None, **more)
    counts, straight = Counts(), Learner(config.optimizer(), loss=config.loss())
    for tick in range(TICKS):
        examples, most_rows = random_examples(25, 11 + tick, keys=70, longest=8), 3 + 2 * (tick % 3)
        for example in examples:
            counts.learn(example, most_rows, None)
        straight.fold(bounded_record(examples, most_rows, tick), tick)
        checkpoints = opened(config)
        checkpoints.learner.fold(bounded_record(examples, most_rows, 7 + tick), tick)
        checkpoints.begin(tick, {0: LOG_BEGINNING})
        checkpoints.finish()
        checkpoints.close()
    again = opened(config)
    assert_counts(again.learner, counts)
    assert min(counts.lost.values()) > 0
    assert again.learner.state_scalars() == straight.state_scalars()
    assert again.learner.digest_full() == straight.digest()
    again.close()


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
    """First that the bound is near; without a bound there is nothing to say."""
    said, learner = Said(), Learner(config_of(Path(), OPTIMIZER).optimizer(), max_rows=5)
    brake = BrakeLog(said, {})  # type: ignore[arg-type]
    for key in range(1, 9):
        learner.fold(as_record([Example(((key, 1.0),), 1.0)]), key)
        brake.look(learner, key)
    (near, there), (event, fields) = said.events
    assert (near, there["tick"], there["max_rows"], there["rows"]) == ("rows_near_bound", 5, 5, 5)
    assert (event, fields["tick"], fields["max_rows"], fields["features"]) == ("rows_held_back", 6, 5, 1)
    assert rows_content(learner, {}) == {"rows": {"count": 5, "most": 5, "held_back": 3}}
    free = Learner(config_of(Path(), OPTIMIZER).optimizer())
    BrakeLog(said, {}).look(free, 1)  # type: ignore[arg-type]
    assert rows_content(free, {}) == {} and len(said.events) == 2


def test_a_full_field_is_said_once_and_the_largest_stand_in_the_model_record() -> None:
    """By their names; one that the configuration does not name by its hash."""
    said, learner = Said(), Learner(config_of(Path(), OPTIMIZER).optimizer())
    names = {NAME_HASHES["site"]: "site", NAME_HASHES["ad"]: "ad"}
    brake = BrakeLog(said, names)  # type: ignore[arg-type]
    for tick, keys in enumerate([(4, 5), (8, 9, 13), (12, 17, 6), (16,)]):
        learner.fold(bounded_record([Example(tuple((key, 1.0) for key in keys), 1.0)], 2, tick), tick)
        brake.look(learner, tick)
    assert [(event, fields["tick"], fields["field"], fields["features"]) for event, fields in said.events] == [
        ("field_rows_held_back", 1, f"0x{NAME_HASHES['user']:016x}", 1),
        ("field_rows_held_back", 2, "site", 1),
    ]
    assert said.events[0][1]["max_rows_per_field"] == said.events[0][1]["rows"] == 2
    assert rows_content(learner, names) == {
        "rows": {
            "count": 5,
            "most_per_field": 2,
            "fields": [
                {"field": "site", "rows": 2, "held_back": 2},
                {"field": f"0x{NAME_HASHES['user']:016x}", "rows": 2, "held_back": 2},
                {"field": "ad", "rows": 1, "held_back": 0},
            ],
        }
    }
