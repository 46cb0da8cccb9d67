"""How `learner.memory` is shared out, and which settings are refused before anything starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from stream_learner.config import Config
from stream_learner.core.log.dictionary import MAX_KEYS
from stream_learner.core.model.table.bounded import MIB, PROCESS_BYTES, MemoryBudget, least_bytes
from stream_learner.core.model.table.eviction import rows_within
from stream_learner.errors import ConfigError
from stream_learner.roles.learner.row_index import check_memory
from tests.e2e.configuration import tree_of
from tests.scenarios import scenario


def config_of(folder: Path, **learner: Any) -> Config:
    settings = scenario("plain", 1).settings
    return Config.model_validate(tree_of("m", "localhost:1", settings, folder, {"learner": learner}))


@given(st.integers(1, 1 << 42), st.integers(1, 8))
def test_a_budget_adds_up_and_holds_a_record(total_bytes: int, ncols: int) -> None:
    """The parts make up the whole. The table holds three large records, and twice the rows that may have to stay."""
    if total_bytes < least_bytes(ncols) - MIB:
        with pytest.raises(ValueError, match=f"it takes {least_bytes(ncols) // MIB} MiB or more"):
            MemoryBudget.of(total_bytes, ncols)
        return
    if total_bytes < least_bytes(ncols):
        return
    budget = MemoryBudget.of(total_bytes, ncols)
    assert budget.table_bytes + budget.copies_bytes + budget.rocksdb_bytes == total_bytes
    rows = rows_within(budget.table_bytes, ncols)
    assert rows >= 3 * MAX_KEYS and rows >= 2 * budget.most_changed > 0


def test_a_setting_too_small_for_one_record_is_refused_with_what_is_needed(tmp_path: Path) -> None:
    """How much that is depends on the optimizer's columns."""
    with pytest.raises(ValueError, match=r"learner\.memory.*it takes 17 MiB or more"):
        config_of(tmp_path, memory="16MiB")
    assert config_of(tmp_path, memory="17MiB").learner.memory_bytes == 17 * MIB
    with pytest.raises(ValueError, match=r"learner\.memory.*MiB or more"):
        config_of(tmp_path, memory="17MiB", optimizer={"name": "coin"})


def test_what_does_not_fit_in_the_container_is_refused_with_the_sum(tmp_path: Path) -> None:
    """The sum includes the log read ahead and the process, which the models share."""
    one, other = config_of(tmp_path, memory="100MiB", buffer="64MiB"), config_of(tmp_path, memory="60MiB")
    needed = 160 * MIB + 256 * MIB + PROCESS_BYTES
    with capture_logs() as logged:
        check_memory([one, other], needed)
    assert [entry["sum_mib"] for entry in logged if entry["event"] == "memory"] == [needed // MIB]
    with pytest.raises(ConfigError, match=f"{needed // MIB} MiB together") as refused:
        check_memory([one, other], needed - 1)
    assert f"raise the limit to {needed // MIB} MiB" in refused.value.action
    check_memory([config_of(tmp_path)], 1)
