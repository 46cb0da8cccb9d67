"""Rendered containers with mounted Secrets and volumes, as processes of this machine.

It must never change anything of what was rendered but what SUBSTITUTED lists.
"""

from __future__ import annotations

import copy
import shutil
from pathlib import Path
from typing import Any

import yaml

from tests.chart.containers import Container
from tests.chart.rendered import Identity, Object

BROKERS = "kafka.example.com:9093"
"""The page's name for the brokers."""

SUBSTITUTED: dict[tuple[str, ...], object] = {
    ("kafka", "bootstrap.servers"): "the address of the test's broker",
    ("telemetry", "http_port"): "a free port",
    ("serve", "port"): "a free port",
    # One broker instead of three.
    ("topics", "replication"): 1,
    ("topics", "min_insync_replicas"): 1,
    # Seconds instead of minutes.
    ("join", "window"): "1s",
    ("join", "skew"): "0s",
    ("join", "grace"): "300ms",
    ("learner", "metrics_slice"): "1s",
    # A few hundred events.
    ("snapshots", "first"): {"examples": 0},
    ("kafka", "session.timeout.ms"): 6000,
    ("serve", "drain"): "1s",
}
"""The settings of the rendered configuration that are others here. Beside them, paths below mounts lead to folders of
the test, and moments of a backfill to those of the test's traffic; nothing else differs."""


class Pod(Container):
    """A workload's container, its Secrets read from `secrets`, its volumes kept in `volumes`, folders by name."""

    def __init__(
        self,
        document: Object,
        found: dict[Identity, Object],
        folder: Path,
        bootstrap: str,
        secrets: Path,
        volumes: Path,
    ) -> None:
        super().__init__(document, found, folder, bootstrap)
        self._secrets, self._volumes = secrets, volumes

    def _write_config(self) -> None:
        """Mount everything; the configuration with what is substituted."""
        sources = {volume["name"]: volume for volume in self._pod["volumes"]}
        for path, name in self._mounts.items():
            self._mount(sources.get(name, {"name": name}), path)

    def _mount(self, source: dict[str, Any], path: str) -> None:
        here = self._here(path)
        if "secret" in source:
            shutil.copytree(self._secrets / source["secret"]["secretName"], here, dirs_exist_ok=True)
        elif "configMap" in source:
            for name, text in self._found["ConfigMap", source["configMap"]["name"]]["data"].items():
                (here / name).write_text(self._substituted(text), encoding="utf-8")
        elif "emptyDir" not in source:
            # A claim, or one that its StatefulSet makes.
            claim = source.get("persistentVolumeClaim", {}).get("claimName", f"{source['name']}-{self._name}")
            (self._volumes / claim).mkdir(parents=True, exist_ok=True)
            here.rmdir()
            here.symlink_to(self._volumes / claim)

    def _substituted(self, text: str) -> str:
        tree = self._with_paths(yaml.safe_load(text))
        assert tree["kafka"]["bootstrap.servers"] == BROKERS
        ports = {"telemetry": self._ports.get("telemetry", 0), "serve": self._ports.get("http", tree["serve"]["port"])}
        here = {
            ("kafka", "bootstrap.servers"): self._bootstrap,
            ("telemetry", "http_port"): ports["telemetry"],
            ("serve", "port"): ports["serve"],
        }
        return yaml.safe_dump(with_values(tree, {**SUBSTITUTED, **here}))

    def _with_paths(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {name: self._with_paths(inner) for name, inner in value.items()}
        if isinstance(value, list):
            return [self._with_paths(inner) for inner in value]
        return self._moved(value) if isinstance(value, str) else value

    @property
    def config(self) -> Path:
        """The configuration as it is mounted."""
        return self._here("/etc/stream-learner/config.yaml")


def with_values(tree: dict[str, Any], values: dict[tuple[str, ...], object]) -> dict[str, Any]:
    """A configuration with some settings changed, each by section and name."""
    changed = copy.deepcopy(tree)
    for (section, name), value in values.items():
        changed.setdefault(section, {})[name] = value
    return changed
