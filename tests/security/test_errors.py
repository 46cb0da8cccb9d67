"""What is said when a broker and a role do not understand each other: who, what, where; soon, and without a secret."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from stream_learner.adapters.kafka import Admin, KafkaSettings
from stream_learner.errors import AuthenticationFailed, BrokerUnreachable, StreamLearnerError
from tests.e2e.conftest import MakeSite
from tests.e2e.site import failure_of
from tests.scenarios import scenario
from tests.security.broker import Secured, password_of
from tests.security.certificates import Authority, Certificate
from tests.security.roles import Roles
from tests.waiting import patience

WRONG = "Wrong6Okapi"
TIMEOUT_S = 3.0

Options = Mapping[str, Any]


def with_certificate(secured: Secured, made: Certificate) -> Options:
    """Mutual TLS with another certificate."""
    files = {"ssl.certificate.location": str(made.certificate), "ssl.key.location": str(made.key)}
    return secured.options("MUTUAL", "joiner", **files)


def expired(s: Secured) -> Options:
    """A client certificate that was good until yesterday."""
    return with_certificate(s, s.authority.issue("joiner", file="expired-joiner", days=-1))


def stranger(s: Secured) -> Options:
    """A client certificate of an authority that the broker does not know."""
    return with_certificate(s, Authority(s.folder, "other").issue("joiner", file="strange-joiner"))


def of_listener(s: Secured, mechanism: str, listener: str) -> Options:
    """Options for one listener, used on another."""
    return s.options(mechanism, "joiner", **{"bootstrap.servers": s.broker.address(listener)})


REFUSED: dict[str, tuple[Callable[[Secured], Options], list[str]]] = {
    "a wrong password": (lambda s: s.options("PLAIN", "joiner", **{"sasl.password": WRONG}), ["joiner"]),
    "a wrong password for SCRAM": (
        lambda s: s.options("SCRAM-SHA-256", "joiner", **{"sasl.password": WRONG}),
        ["joiner", "invalid credentials"],
    ),
    "an unknown user": (lambda s: s.options("SCRAM-SHA-512", "nobody"), ["nobody"]),
    "a wrong client secret": (
        lambda s: s.options("OAUTHBEARER", "joiner", **{"sasl.oauthbearer.client.secret": WRONG}),
        ["joiner", "invalid_client"],
    ),
    "an expired client certificate": (expired, ["CN=joiner,O=Ads", "has expired on"]),
    "a client certificate of an unknown authority": (stranger, ["CN=joiner,O=Ads", "does not accept"]),
    "no client certificate": (
        lambda s: of_listener(s, "TLS", "MUTUAL"),
        ["ssl.certificate.location names none"],
    ),
    "an unknown authority": (
        lambda s: s.options("TLS", "joiner", **{"ssl.ca.location": str(Authority(s.folder, "unknown").file)}),
        ["unable to get local issuer certificate"],
    ),
    "a broker's expired certificate": (lambda s: s.options("EXPIRED", "joiner"), ["certificate has expired"]),
    "a wrong host name": (lambda s: s.options("ELSEWHERE", "joiner"), ["Hostname mismatch", "localhost"]),
    "SASL on a listener without": (lambda s: of_listener(s, "PLAIN", "TLS"), ["mechanism handshake failed"]),
}
UNREACHABLE: dict[str, tuple[Callable[[Secured], Options], list[str]]] = {
    "a plain client on a TLS port": (
        lambda s: {"bootstrap.servers": s.broker.address("TLS")},
        ["speaks TLS, and kafka.security.protocol does not ask for it"],
    ),
    "a TLS client on a plain port": (
        lambda s: of_listener(s, "TLS", "PLAINTEXT"),
        ["does not speak TLS, and kafka.security.protocol asks for it"],
    ),
    "a plain client on a port that wants SASL": (
        lambda s: {"bootstrap.servers": s.broker.address("OPEN")},
        ["wants SASL: kafka.security.protocol sasl_plaintext"],
    ),
    "a client without SASL where it is wanted": (lambda s: of_listener(s, "TLS", "SASL"), ["may want SASL"]),
    "a provider of tokens that is not there": (
        lambda s: s.options("OAUTHBEARER", "joiner", **{"sasl.oauthbearer.token.endpoint.url": "http://127.0.0.1:9/"}),
        ["no token for joiner", "127.0.0.1"],
    ),
}


@pytest.fixture(scope="module")
def answers(secured: Secured) -> dict[str, Future[object]]:
    """The results of the first call to the brokers, for all options side by side: they differ in duration."""
    pool = ThreadPoolExecutor(len(REFUSED) + len(UNREACHABLE))
    cases = [(REFUSED, 2 * patience()), (UNREACHABLE, TIMEOUT_S)]
    made = {what: (options(secured), limit_s) for of, limit_s in cases for what, (options, _) in of.items()}
    found = {what: pool.submit(asked, *given) for what, given in made.items()}
    pool.shutdown(wait=False)
    return found


def asked(options: Options, timeout_s: float) -> object:
    """The answer to one question, or the error."""
    try:
        return Admin(KafkaSettings(options), request_timeout_s=timeout_s).describe(["topic"])
    except StreamLearnerError as error:
        return error


@pytest.mark.parametrize("listener", ["TLS", "OPEN"])
def test_a_listener_that_wants_more_is_told_long_before_the_time_out(listener: str, secured: Secured) -> None:
    """Nothing will mend it, so a command does not wait."""
    settings = KafkaSettings({"bootstrap.servers": secured.broker.address(listener)})
    found = [str(asked({"bootstrap.servers": settings.bootstrap}, 10 * patience())), settings.why_not_understood()]
    assert all("speaks TLS" in one or "wants SASL" in one for one in found), found
    assert KafkaSettings({"bootstrap.servers": secured.broker.bootstrap}).why_not_understood() == ""


def assert_says(answer: object, kind: type[StreamLearnerError], words: list[str]) -> None:
    """An error of this kind with these words, and without a secret."""
    assert isinstance(answer, kind), answer
    assert [word for word in words if word not in str(answer)] == [], str(answer)
    assert WRONG not in str(answer)
    assert password_of("joiner") not in str(answer)


@pytest.mark.parametrize("what", REFUSED)
def test_refused_credentials_are_said_at_once(what: str, answers: dict[str, Future[object]]) -> None:
    """AuthenticationFailed, exit code 24, with who was refused or whose certificate it is about, long before the
    time-out.
    """
    assert_says(answers[what].result(patience()), AuthenticationFailed, REFUSED[what][1])


@pytest.mark.parametrize("what", UNREACHABLE)
def test_protocols_that_do_not_fit_are_told_apart(what: str, answers: dict[str, Future[object]]) -> None:
    """BrokerUnreachable, exit code 20, with what one connection found out."""
    assert_says(answers[what].result(patience()), BrokerUnreachable, UNREACHABLE[what][1])


@pytest.mark.parametrize("role", ["joiner", "learner"])
def test_a_role_with_a_wrong_password_ends(role: str, secured: Secured, make_site: MakeSite) -> None:
    """At the start, with AuthenticationFailed."""
    site = make_site(scenario("plain", 1))
    roles = Roles(site, lambda user: secured.options("PLAIN", user, **{"sasl.password": WRONG}))
    error = failure_of(getattr(roles, role)(), AuthenticationFailed)
    assert role in str(error)
    assert WRONG not in str(error)
