"""A model that has learned, for backfills to be compared with.

It must never change what the model has.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stream_learner.operations.backfill.plan import BackfillPlan
from stream_learner.operations.backfill.result import Result
from stream_learner.operations.backfill.run import Backfill
from stream_learner.roles.common.lifecycle import Stopping
from tests.e2e.checks import expected_fold
from tests.e2e.site import Site, running, wait_until
from tests.kafka_broker.broker import delete_topics
from tests.oracles import loop
from tests.scenarios import scenario

PARTITIONS = 8


@dataclass
class Live:
    """A model that has learned a scenario by log time alone, and where its backfills end to have come as far."""

    site: Site
    file: Path
    joined: list[loop.Joined]
    digest: str
    until_ms: int

    @property
    def model(self) -> str:
        return self.site.model

    @property
    def tick_ms(self) -> int:
        return self.site.config.join.tick_ms

    @property
    def window_ms(self) -> int:
        return self.site.config.join.window_ms

    def name(self, label: str) -> str:
        """A model of this test's, whose topics are deleted with the site's."""
        name = f"{self.model}-{label}"
        self.site.topics += [f"{name}.{what}" for what in ("examples", "snapshots", "dead-letters")]
        return name

    def fold(self, tick: int, **changes: Any) -> loop.Fold:
        """The oracle's model of the examples up to a tick, under other settings of the optimizer."""
        examples = [example for part in self.joined for example in part.examples if example.tick <= tick]
        return loop.fold(examples, loop.settings(**{**self.site.scenario.settings, **changes}))


@contextmanager
def live_model(kafka: str, folder: Path) -> Iterator[Live]:
    """All that goes wrong in the field, joined and learned once."""
    site = Site(kafka, scenario("everything", PARTITIONS), folder)
    site.produce()
    learner = site.learner()
    with running(site.joiner(), learner):
        wait_until(site.closed, "every partition closed")
        wait_until(lambda: site.folded(learner), "every tick folded")
    joined = site.scenario.expected()
    digest = f"{learner.learner.digest():016x}"
    assert digest == expected_fold(joined, site.scenario.settings).digest
    until_ms = (site.end_tick + 1) * site.config.join.tick_ms - site.config.join.window_ms
    file = site.write_config(telemetry={"log_format": "json"})
    yield Live(site, file, joined, digest, until_ms)
    site.close()
    delete_topics(kafka, site.topics)


def backfilled(plan: BackfillPlan) -> Result:
    """Run a plan to its end, in this process."""
    with Backfill(plan) as work:
        result = work.run(Stopping(), lambda moment: None)
    assert result is not None
    return result
