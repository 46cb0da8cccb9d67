"""The release of docs/deploy.md: what its parts make, on a broker with TLS, SCRAM and an authorizer.

It must never give a user a right that a command of the page has not printed.
"""

from __future__ import annotations

import json
import random
import re
import time
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from stream_learner.adapters.kafka import Admin, KafkaSettings, TopicPlan
from stream_learner.config.yaml import read_yaml
from tests.chart.rendered import Identity, Object, by_identity, role_of
from tests.deploy import page
from tests.deploy.pods import BROKERS, Pod
from tests.deploy.shell import Shell
from tests.security.broker import Secured
from tests.security.test_rights import parsed
from tests.waiting import patience
from tools.chart import CHART, KUBE_VERSION, run_helm

SPAN_MS, IMPRESSIONS = 20_000, 6_000
USERS = ("joiner", "learner", "scorer", "admin", "backfill")
SITES, ADS = ("news", "mail", "shop"), ("a41", "a42")


class Release:
    """Namespace and release `ads`, in a folder that has the page's files."""

    def __init__(self, secured: Secured, folder: Path) -> None:
        self.secured, self.folder = secured, folder
        self.shell = Shell(folder)
        self.began_ms = (int(time.time()) - 60) * 1000
        self.brokers = secured.broker.address("SASL")
        self.texts: dict[str, str] = {name: self._moments(text) for name, text in page.files().items()}
        for name, text in self.texts.items():
            self.shell.write(name, text)

    def _moments(self, text: str) -> str:
        """The page's first and last moment become the beginning and the middle of the traffic."""
        moments = sorted(set(re.findall(r"\d{4}-\d\d-\d\dT[\d:]+Z", text)))
        here = (_iso(self.began_ms), _iso(self.began_ms + SPAN_MS // 2))
        assert len(moments) in (0, len(here))
        for moment, other in zip(moments, here, strict=False):
            text = text.replace(moment, other)
        return text

    def make_users(self) -> None:
        """Part 3: the page's command for the first user, the same by the API for the others."""
        self.shell.write("admin.properties", "")
        for user in USERS:
            self.shell.write(f"{user}.password", f"{password_of(user)}\n")
            if user != "joiner":
                self.secured.set_scram_password(f"ctr-{user}", password_of(user))
        plain = self.secured.super_client["bootstrap.servers"]
        self.shell.run(page.command("3.", "kafka-configs.sh").replace(BROKERS, plain))

    def allow(self, commands: str) -> None:
        """Give what each `stream-learner rights …` prints."""
        printed = [line for command in commands.splitlines() for line in self.shell.printed(command).splitlines()]
        lines = [line for line in printed if line.startswith("kafka-acls.sh")]
        assert lines
        for line in lines:
            (user,) = re.findall(r"--allow-principal User:(\S+)", line)
            rights = parsed(line.replace(f"User:{user}", "User:somebody"))
            self.secured.allow_all(user, [(kind, name, operation) for operation, kind, name in rights])

    def make_secrets(self, commands: str) -> None:
        """Make the Secrets of some commands, beside the authority's certificate."""
        self.shell.write("ca.crt", self.secured.authority.pem)
        self.shell.run(commands)

    def render(self, *names: str) -> dict[Identity, Object]:
        """The manifests that Helm renders from values files of the page."""
        values = [word for name in names for word in ("--values", self.folder / name)]
        run = run_helm("template", "ads", CHART, "--namespace", "ads", "--kube-version", KUBE_VERSION, *values)
        assert run.returncode == 0, run.stderr
        return by_identity(run.stdout)

    def pod(self, found: dict[Identity, Object], role: str, model: str = "ctr") -> Pod:
        """The pod of a role of a model."""
        (document,) = (
            document
            for document in found.values()
            if "template" in document.get("spec", {})
            and role_of(document) == role
            and document["metadata"]["labels"]["stream-learner/model"] == model
        )
        return Pod(
            document, found, self.folder / "pods", self.brokers, self.folder / "secrets", self.folder / "volumes"
        )

    def make_inputs(self, partitions: int) -> None:
        """The two topics that must be there, with their traffic: an impression at every moment, all windows closed."""
        inputs = page.read("ctr.yaml")["input"]
        topics = [inputs[side]["topic"] for side in ("impressions", "clicks")]
        admin = Admin(KafkaSettings(self.secured.super_client, group="inputs"))
        admin.ensure([TopicPlan(topic, partitions) for topic in topics], create=True)
        # In order also where the leader of a new partition is not known yet.
        producer = Producer({**self.secured.super_client, "linger.ms": 5, "enable.idempotence": True})
        draw = random.Random(1)
        for number in range(IMPRESSIONS):
            at_ms = self.began_ms + number * SPAN_MS // IMPRESSIONS
            site, ad = draw.choice(SITES), draw.choice(ADS)
            event = {"id": f"i{number}", "ts": at_ms, "site": site, "ad": ad}
            producer.produce(topics[0], json.dumps(event), event["id"], timestamp=at_ms)
            if draw.random() < (0.55 if ad == "a42" else 0.45):
                click = {"id": event["id"], "ts": at_ms + 100}
                producer.produce(topics[1], json.dumps(click), event["id"], timestamp=at_ms + 100)
            producer.poll(0)
        assert producer.flush(patience()) == 0

    def make_admin(self) -> None:
        """Part 7: the configuration for one's own machine."""
        self.shell.run(page.command("7.", "echo ctr-admin") + page.command("7.", "sed "))
        file = self.folder / "admin.yaml"
        file.write_text(file.read_text().replace(BROKERS, self.brokers), encoding="utf-8")


def password_of(user: str) -> str:
    """A password that is nowhere else in the tests."""
    return f"{user}-Walnut4Comet"


def config_of(found: dict[Identity, Object], name: str) -> dict[str, Any]:
    """The configuration in a ConfigMap."""
    return dict(read_yaml(found["ConfigMap", name]["data"]["config.yaml"]).data)


def _iso(time_ms: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time_ms // 1000))
