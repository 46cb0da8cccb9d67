"""Old versions over HTTP: they are answered with, and their age is told; only `scorer.refuse_after` refuses."""

from __future__ import annotations

import httpx

from stream_learner.config import Config
from tests.cli_e2e.conftest import MakeWorld
from tests.cli_e2e.published import Published
from tests.cli_e2e.scraped import values_of
from tests.kafka_broker.broker import delete_topics
from tests.roles.scorer.serve.conftest import WEIGHTS
from tests.roles.scorer.serve.running import Server, config_of, serving
from tests.waiting import patience, wait_until

BODY = {"instances": [{"site": "a", "x": 1}]}


def asked(server: Server) -> httpx.Response:
    """A prediction by V1."""
    return httpx.post(f"{server.url}/v1/models/{server.model}:predict", json=BODY, timeout=patience())


def is_ready(server: Server) -> bool:
    """Whether the server is ready, as a balancer asks it."""
    return httpx.get(f"{server.url}/readyz", timeout=patience()).status_code == 200


def config_with(published: Published, **scorer: str) -> Config:
    """Its configuration with other settings of the scorer."""
    config = config_of(published.world)
    return config.model_copy(update={"scorer": type(config.scorer).model_validate(scorer)})


def test_an_old_version_is_answered_with_whatever_became_of_its_topic(make_world: MakeWorld) -> None:
    """The server is ready, the age in body and header grows, and the metric says that the version is stale."""
    published = Published(make_world())
    published.publish(1000, WEIGHTS)
    with serving(config_with(published, stale_after="1s")) as server:
        first = asked(server)
        delete_topics(published.world.settings.bootstrap, [published.topic])
        wait_until(lambda: values_of(server.metrics())["scorer_stale", ""] == 1)
        wait_until(lambda: int(asked(server).headers["stream-learner-version-age"]) >= 2)
        later = asked(server)
        assert (first.status_code, later.status_code) == (200, 200) and is_ready(server)
        assert later.json()["predictions"] == first.json()["predictions"]
        assert int(later.headers["stream-learner-version-age"]) == later.json()["version_age_s"] >= 2
        status = httpx.get(f"{server.url}/v1/models/{server.model}", timeout=patience()).json()
        assert status["ready"] and status["version_age_s"] >= 2
    published.close()


def test_refuse_after_refuses_and_says_so_until_a_new_version_comes(make_world: MakeWorld) -> None:
    """503 with the reason for each way to ask; the server itself stays ready."""
    published = Published(make_world())
    published.publish(1000, WEIGHTS)
    with serving(config_with(published, stale_after="1s", refuse_after="2s")) as server:
        wait_until(lambda: asked(server).status_code == 503)
        refused = asked(server)
        assert "scorer.refuse_after has passed" in refused.json()["error"] and refused.headers["retry-after"]
        status = httpx.get(f"{server.url}/v1/models/{server.model}", timeout=patience())
        assert status.status_code == 503 and "refuse_after" in status.json()["error"]
        assert is_ready(server)
        published.publish(1001, WEIGHTS)
        wait_until(lambda: asked(server).status_code == 200, look_s=0.05)
    published.close()
