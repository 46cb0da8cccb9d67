"""Every way to speak to a secured Kafka, by every role, with the settings that docs/security.md shows."""

from __future__ import annotations

import pytest

from stream_learner.operations.topics import ensure_topics
from tests.e2e.conftest import MakeSite
from tests.kafka_broker.broker import delete_topics
from tests.scenarios import scenario
from tests.security.broker import Secured
from tests.security.page import USER_VARIABLE, blocks, options_for
from tests.security.roles import Roles, allow_role

MECHANISMS = ("TLS", "MUTUAL", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")


def test_the_page_shows_every_mechanism() -> None:
    """No more and no fewer than are tested here."""
    assert set(blocks()) == set(MECHANISMS)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_every_role_works_with_the_settings_of_the_page(
    mechanism: str, secured: Secured, make_site: MakeSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Topics made, all input joined, folded, published, and followed, each by a user with the rights of its role."""
    site = make_site(scenario("plain", 1))
    block = blocks()[mechanism]

    def options(user: str) -> dict[str, object]:
        variable = f"{USER_VARIABLE}_{user.upper()}"
        monkeypatch.setenv(variable, user)
        found = options_for(secured, block, mechanism, user)
        return {n: {"env": variable} if value == {"env": USER_VARIABLE} else value for n, value in found.items()}

    roles = Roles(site, options)
    operator = roles.config("operator")
    allow_role(secured, operator, "topics", "operator")
    delete_topics(site.settings.bootstrap, [operator.snapshots_topic])
    rows = ensure_topics(operator, apply=True)
    assert operator.snapshots_topic in {row["topic"] for row in rows if row["setting"] == "topic" and row["done"]}
    for role in ("joiner", "learner", "scorer"):
        allow_role(secured, site.config, role)
    site.produce()
    roles.run_through()
