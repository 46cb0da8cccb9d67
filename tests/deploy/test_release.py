"""docs/deploy.md from its third part to its eighth, as written, against a real Kafka with TLS, SCRAM and rights."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.cli_e2e.scraped import answer, values_of
from tests.deploy import page
from tests.deploy.load import Requests
from tests.deploy.pods import Pod
from tests.deploy.release import IMPRESSIONS, USERS, Release, password_of
from tests.kafka_broker.broker import NoKafka
from tests.security.broker import secured_broker
from tests.waiting import wait_until


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Release]:
    """Users with the rights of part 3, and the Secrets of part 4; the two topics that must be there, with traffic."""
    try:
        with secured_broker(tmp_path_factory.mktemp("secured")) as secured:
            made = Release(secured, tmp_path_factory.mktemp("ads"))
            made.make_users()
            made.allow(page.commands_with("3.", "stream-learner rights"))
            made.make_secrets(page.commands("4."))
            made.make_inputs(page.read("values.yaml")["models"]["ctr"]["partitions"])
            yield made
    except NoKafka as error:
        pytest.fail(str(error), pytrace=False)


@pytest.mark.nightly
def test_the_page_works_from_users_to_a_promotion_and_back(release: Release) -> None:
    """Topics are made, the roles become ready, the alias is promoted and asked; a second model is trained, taken over,
    promoted and rolled back while requests go on and none fails; every role ends with 0 within its grace period, and
    no log holds a password."""
    with ExitStack() as stack:
        scorer, *others = install(release, stack)
        first_predictions(release, scorer)
        with Requests(
            page.command("7.", "curl localhost:8080/v1/models/ctr-live:predict"), scorer.port("http")
        ) as sent:
            backfill(release)
            others += take_over(release, stack)
            change_models(release, sent)
        assert sent.failures == [] and set(sent.models) == {"ctr", "ctr-v2"}
        for pod in (scorer, *others):
            assert pod.told_to_stop() == 0, pod.log
            assert not [user for user in USERS if password_of(user) in pod.log]


def install(release: Release, stack: ExitStack) -> list[Pod]:
    """Parts 5 and 6: the Job, then scorer, joiner and learner; all but the scorer become ready by their probes."""
    found = release.render("values.yaml")
    with release.pod(found, "topics") as job:
        assert job.ended() == 0, job.log
    pods = [stack.enter_context(release.pod(found, role)) for role in ("scorer", "joiner", "learner")]
    for pod in pods[1:]:
        for probe in ("startup", "readiness", "liveness"):
            pod.wait_for(probe)
    pods[0].wait_for("liveness")
    wait_until_learned(pods[2])
    assert pods[0].probe("readiness") == 503
    assert "alias ctr-live" in answer(pods[0].port("telemetry"), "/readyz")[1]
    # What part 6 says, in the learner's pod.
    inspected = page.command("6.", "kubectl -n ads exec").split(" -- ")[1]
    printed = release.shell.run(f"export STREAM_LEARNER_CONFIG='{pods[2].config}'\n{inspected}")
    assert "version" in printed
    return pods


def first_predictions(release: Release, scorer: Pod) -> None:
    """Part 7."""
    release.make_admin()
    release.shell.run(page.commands_with("7.", "stream-learner promote"))
    assert "first model" in release.shell.run(page.commands_with("7.", "stream-learner alias"))
    for probe in ("startup", "readiness", "liveness"):
        scorer.wait_for(probe)
    asked = page.commands_with("7.", "curl").replace("localhost:8080", f"localhost:{scorer.port('http')}")
    state, predicted = (json.loads(release.shell.run(command)) for command in asked.splitlines())
    assert state["ready"] is True and state["model_name"] == "ctr"
    assert predicted["model_name"] == "ctr"
    assert 0.5 < predicted["predictions"][0] < 0.7


def backfill(release: Release) -> None:
    """Part 8, to the end of the Job."""
    release.allow(page.command("8.", "stream-learner rights -c ctr.yaml --role backfill"))
    release.make_secrets(page.command("8.", "kubectl -n ads create secret"))
    with release.pod(release.render("values.yaml", "backfills.yaml"), "backfill") as job:
        assert job.ended() == 0, job.log
        result = json.loads(job.log.splitlines()[-1])
    assert result["model"]["name"] == "ctr-v2"
    assert result["impressions"]["examples"] == IMPRESSIONS // 2, result


def take_over(release: Release, stack: ExitStack) -> list[Pod]:
    """Part 8, to a second model with a joiner and a learner of its own, on the Job's volume."""
    release.allow(page.commands_with("8.", "stream-learner rights"))
    found = release.render("values.yaml", "ctr-v2.yaml")
    with release.pod(found, "topics", "ctr-v2") as job:
        assert job.ended() == 0, job.log
    pods = [stack.enter_context(release.pod(found, role, "ctr-v2")) for role in ("joiner", "learner")]
    for pod in pods:
        for probe in ("startup", "readiness", "liveness"):
            pod.wait_for(probe)
    wait_until_learned(pods[1])
    return pods


def change_models(release: Release, sent: Requests) -> None:
    """Part 8, to its end."""
    compared = release.shell.ended(page.commands_with("8.", "stream-learner diff"))
    # Not one example may differ; digests do, where both happen to have published the same version.
    by_digests = "ctr and ctr-v2 differ: digests of version" in compared.stderr
    assert compared.returncode == (57 if by_digests else 0), compared.stdout + compared.stderr
    assert "compared the ticks" in compared.stdout
    sent.wait_for("ctr")
    release.shell.run(page.commands_with("8.", "stream-learner promote"))
    sent.wait_for("ctr-v2")
    release.shell.run(page.commands_with("8.", "stream-learner rollback"))
    sent.wait_for("ctr")


def wait_until_learned(learner: Pod) -> None:
    """Wait until a learner has folded all that was sent."""

    def lag_s() -> float:
        return values_of(answer(learner.port("telemetry"), "/metrics")[1]).get(("learner_lag_seconds", ""), 1e9)

    wait_until(lambda: lag_s() < 5, lambda: learner.log, look_s=0.1)
