"""A rendered container as a process of this machine: its arguments, its variables, its probes.

It must never change anything of what was rendered but the paths of mounts, the ports, and the address of the brokers,
which a pod has for itself.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any

import yaml

from tests.chart.rendered import Identity, Object, own_container
from tests.cli_e2e.commands import environment
from tests.cli_e2e.world import free_port
from tests.waiting import patience, wait_until


class Container:
    """The container of a workload's role. A context manager: started, and killed at the end if it still runs."""

    def __init__(self, document: Object, found: dict[Identity, Object], folder: Path, bootstrap: str) -> None:
        self._pod = document["spec"]["template"]["spec"]
        self._container = own_container(document)
        self._name = f"{document['metadata']['name']}-0"
        self._folder = folder / self._name
        self._found = found
        self._bootstrap = bootstrap
        self._ports = {port["name"]: free_port() for port in self._container.get("ports", [])}
        self._mounts = {mount["mountPath"]: mount["name"] for mount in self._container["volumeMounts"]}
        self._log = self._folder / "log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> str:
        """The container's output so far."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    def port(self, name: str) -> int:
        """The port of this machine that leads to a port of the container."""
        return self._ports[name]

    def memory_bytes(self) -> int:
        """The container's memory in use."""
        assert self._process is not None
        pages = int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def __enter__(self) -> Container:
        for path in self._mounts:
            self._here(path).mkdir(parents=True)
        self._write_config()
        arguments = [self._moved(argument) for argument in self._container["args"]]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "stream_learner", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**environment(), **self._variables()},
                cwd=self._folder,
                start_new_session=True,
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def ended(self) -> int:
        """Wait for its end; the exit code."""
        assert self._process is not None
        return self._process.wait(patience())

    def told_to_stop(self) -> int:
        """SIGTERM, as the kubelet does; its exit code: 0 if it ended within `shutdown_timeout`, by its own clock. The
        grace period is longer."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        return self.ended()

    def probe(self, name: str) -> int:
        """The HTTP status that a probe gets now, 0 if nobody answers."""
        get = self._container[f"{name}Probe"]["httpGet"]
        try:
            url = f"http://127.0.0.1:{self._ports[get['port']]}{get['path']}"
            with urllib.request.urlopen(url, timeout=self._container[f"{name}Probe"]["timeoutSeconds"]) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 0

    def wait_for(self, name: str, status: int = 200) -> None:
        """Wait until a probe is answered so. Raises AssertionError with the log."""
        found: list[int] = []

        def answered() -> bool:
            assert self._process is not None
            assert self._process.poll() is None, f"ended with {self._process.returncode}:\n{self.log}"
            found.append(self.probe(name))
            return found[-1] == status

        wait_until(answered, lambda: f"{name} is answered {status}, but {found[-1]}:\n{self.log}", look_s=0.05)

    def _write_config(self) -> None:
        (volume,) = (volume for volume in self._pod["volumes"] if "configMap" in volume)
        config_map = self._found["ConfigMap", volume["configMap"]["name"]]
        (mount,) = (path for path, name in self._mounts.items() if name == volume["name"])
        for name, text in config_map["data"].items():
            tree: dict[str, Any] = yaml.safe_load(text)
            tree["kafka"]["bootstrap.servers"] = self._bootstrap
            tree["learner"]["state_dir"] = self._moved(tree["learner"]["state_dir"])
            if "scorer" in tree:
                tree["scorer"]["state_dir"] = self._moved(tree["scorer"]["state_dir"])
            rendered = {"telemetry": tree["telemetry"]["http_port"], "http": tree["serve"]["port"]}
            rendered |= {"grpc": tree["serve"]["grpc_port"]} if "grpc_port" in tree["serve"] else {}
            declared = {port["name"]: port["containerPort"] for port in self._container.get("ports", [])}
            assert declared.items() <= rendered.items()
            tree["telemetry"]["http_port"] = self._ports.get("telemetry", 0)
            tree["serve"]["port"] = self._ports.get("http", rendered["http"])
            (self._here(mount) / name).write_text(yaml.safe_dump(tree), encoding="utf-8")

    def _variables(self) -> dict[str, str]:
        fields = {"metadata.name": self._name}
        return {
            variable["name"]: variable["value"]
            if "value" in variable
            else fields[variable["valueFrom"]["fieldRef"]["fieldPath"]]
            for variable in self._container.get("env", [])
        }

    def _here(self, path: str) -> Path:
        return self._folder / path.lstrip("/")

    def _moved(self, text: str) -> str:
        """A text whose path is a mount, or below one, leads to where the mount is here."""
        mount = next((path for path in self._mounts if text == path or text.startswith(f"{path}/")), None)
        return text if mount is None else str(self._here(mount)) + text.removeprefix(mount)
