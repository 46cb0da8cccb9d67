"""A model of topics that do not fit is learned and not published, on a real Kafka; one of topics that fit is."""

from __future__ import annotations

import json
import uuid
from dataclasses import replace

from stream_learner.adapters.kafka import TopicPlan
from stream_learner.adapters.telemetry.metrics import Metrics
from stream_learner.operations import gate
from stream_learner.operations.doctor.watch import TopicsLook
from stream_learner.roles.learner.role import LearnerRole
from tests.e2e.conftest import MakeSite
from tests.e2e.site import Site, running, wait_until
from tests.scenarios import Message, Scenario, scenario

FIRST = {"examples": 100, "positives": 5, "matched": 0.5}


def elsewhere(fits: Scenario) -> Scenario:
    """The same clicks, each in the partition after that of its impression: as with another key, or partitioner."""
    parts = [fits.before_sentinels(part) for part in fits.clicks]
    moved = [[*parts[i - 1], *fits.sentinels(part)] for i, part in enumerate(fits.clicks)]
    return replace(fits, clicks=moved)


def made(make_site: MakeSite, given: Scenario) -> Site:
    """A site with a control topic of its own and everything produced."""
    control = f"control-{uuid.uuid4().hex[:8]}"
    site = make_site(given, topics={"control": control}, snapshots={"first": FIRST})
    site.admin.create([TopicPlan(control, 1, configs={"cleanup.policy": "compact"})])
    site.topics.append(control)
    site.produce()
    return site


def version_of(site: Site) -> int | None:
    published = gate.status(site.config)["published"]
    return None if published is None else int(published)


def test_clicks_in_other_partitions_are_told_and_nothing_is_published(make_site: MakeSite) -> None:
    """It says which share of the clicks matched, where an operator looks; an operator's word publishes it."""
    site = made(make_site, elsewhere(scenario("traffic")))
    joiner, learner = site.joiner(), site.learner()
    with running(joiner, learner):
        wait_until(lambda: site.closed() and site.folded(learner), "all is folded")
        wait_until(lambda: gate.status(site.config)["publication"] == "held", "the model is held")
        found = gate.status(site.config)
        assert (found["published"], found["publication_bound"]) == (None, "matched")
        assert "0.0% of the last" in found["publication_reason"]
        assert "clicks found their impression" in learner.why_not_ready
        gate.accept_publication(site.config, "it is meant", "ann@host")
        wait_until(lambda: version_of(site) is not None, "a version")
        wait_until(lambda: learner.why_not_ready == "", "nothing is held")


def id_of(one: Message) -> str | None:
    """The id of an event, None where it is none."""
    try:
        return str(json.loads(one.value or b"")["id"])
    except (ValueError, KeyError, TypeError):
        return None


def leaking(fits: Scenario) -> Scenario:
    """The same impressions, each with a field that says whether it has a click."""
    clicked = {id_of(one) for part in fits.clicks for one in part} - {None}

    def told(one: Message) -> Message:
        landed = json.dumps(id_of(one) in clicked).encode()
        return one if id_of(one) is None else one._replace(value=one.value[:-1] + b', "landed": %s}' % landed)

    return replace(fits, impressions=[[told(one) for one in part] for part in fits.impressions])


def test_what_doctor_stops_is_not_published(make_site: MakeSite) -> None:
    """Examples, positives and matches are enough, and a field of the impressions is the label: `run` looks, too."""
    site = made(make_site, leaking(scenario("traffic")))
    joiner, learner = site.joiner(), LearnerRole(site.config, Metrics(site.model), look=TopicsLook)
    with running(joiner, learner):
        wait_until(lambda: site.closed() and site.folded(learner), "all is folded")
        wait_until(lambda: "`landed` tells the impressions with a click" in learner.why_not_ready, "the look is over")
        wait_until(lambda: gate.status(site.config)["publication_bound"] == "topics", "told in the control topic")
        assert "features.exclude: [landed]" in learner.why_not_ready
        assert version_of(site) is None
        gate.accept_publication(site.config, "it is known before", "ann@host")
        wait_until(lambda: version_of(site) is not None, "a version")
