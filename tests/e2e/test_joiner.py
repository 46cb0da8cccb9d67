"""The joiner on a real Kafka against the oracle: same examples, same counts, whoever joins and however often."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.site import Site, expected_examples, logged_examples, running, wait_until
from tests.scenarios import NAMES, scenario


def assert_equal_to_oracle(site: Site) -> None:
    """Every example of the oracle is in the log, in order, and nothing else but what a sentinel closes."""
    for partition, joined in enumerate(site.scenario.expected()):
        got = list(logged_examples(site.accepted(partition)))
        want = list(expected_examples(joined))
        assert got == want[: len(got)]
        assert len(want) - len(got) <= 1


@pytest.mark.parametrize("name", NAMES)
def test_the_training_log_equals_the_oracle(name: str, kafka: str, tmp_path: Path) -> None:
    """For every scenario the accepted ticks hold the oracle's examples, to the last bit and in order."""
    site = Site(kafka, scenario(name), tmp_path)
    site.produce()
    with running(site.joiner()):
        wait_until(site.closed, "every partition closed")
    assert_equal_to_oracle(site)
