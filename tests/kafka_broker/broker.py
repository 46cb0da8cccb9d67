"""Starts a real Kafka (KRaft, combined nodes) for the tests and takes it down again.

It needs Java 17 and Maven, or Docker. The cluster has one or three nodes on free loopback ports. It must never leave a
node behind, not even when pytest itself is killed, and never write outside the project's cache and a temporary folder.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from types import TracebackType

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from tests.kafka_broker.jars import (
    HERE,
    cached_jars,
    class_archive,
    jars,
    java_found,
    kafka_version,
    making_class_archive,
)
from tests.waiting import patience, wait_until

HEAP_MB = 384
READY_S = 90.0
ATTEMPTS = 3
WHAT_TO_INSTALL = (
    "no Kafka to test against: install Java 17 and Maven (apt-get install openjdk-17-jre-headless maven),"
    " or start Docker, or set KAFKA_BOOTSTRAP to a running cluster"
)

FAST = {
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "log.cleaner.backoff.ms": "1000",
    "log.cleaner.dedupe.buffer.size": "8388608",
    "log.retention.check.interval.ms": "10000",
    "log.segment.delete.delay.ms": "1000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "message.max.bytes": "16777216",
    "replica.fetch.max.bytes": "16777216",
    "num.network.threads": "2",
    "num.io.threads": "4",
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "3000",
    "controller.quorum.election.timeout.ms": "300",
    "controller.quorum.fetch.timeout.ms": "2000",
}
PATIENT = {"broker.session.timeout.ms": "60000"}
"""For a node that no test stops: on a busy machine it must not take itself for dead, which would move its leaders."""

FOLDER = "stream-learner-kafka-"
PLACE = "TEST_KAFKA_PLACE"
"""The variable that names the folder for the data of nodes; that of temporary files where it is not set."""
IN_MEMORY = Path("/dev/shm")
ROOM_BYTES = 4 << 30
HOST = "127.0.0.1"
NAME = "localhost"


class NoKafka(RuntimeError):
    """This machine has no way to run a broker; the message is one line that says what to install."""


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def place_for_tests() -> Path:
    """Memory where there is much room: tests make thousands of topics, whose files a node forces to disk one by one."""
    has_room = IN_MEMORY.is_dir() and shutil.disk_usage(IN_MEMORY).free >= ROOM_BYTES
    return IN_MEMORY if has_room else Path(tempfile.gettempdir())


def _place() -> Path:
    return Path(os.environ.get(PLACE, tempfile.gettempdir()))


def _sweep() -> None:
    """Delete the data of brokers whose process was killed before it could."""
    for folder in _place().glob(f"{FOLDER}*-*"):
        owner = folder.name[len(FOLDER) :].split("-")[0]
        if owner.isdigit() and not Path(f"/proc/{owner}").exists() and Path("/proc/self").exists():
            shutil.rmtree(folder, ignore_errors=True)


def die_with_parent() -> Callable[[], None] | None:
    """Ask the kernel to kill this child when its parent dies; a child runs it first. It does nothing but on Linux."""
    if not sys.platform.startswith("linux"):
        return None
    prctl = ctypes.CDLL(None).prctl
    pr_set_pdeathsig = 1

    def run_in_child() -> None:
        prctl(pr_set_pdeathsig, signal.SIGKILL)

    return run_in_child


def delete_topics(bootstrap: str, names: Iterable[str]) -> None:
    """Delete topics and wait until brokers tell of none; those that do not exist are no matter.

    A broker says that a topic is deleted, and tells of it for a moment more: whoever makes it anew would find it there.
    """
    admin, deleted = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0}), {*names}
    for answer in admin.delete_topics([*deleted]).values() if deleted else ():
        try:
            answer.result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise
    wait_until(lambda: not deleted & admin.list_topics(timeout=patience(10)).topics.keys(), "the topics are gone")


class JavaNode:
    """One node as a child process. Its log is `node.log` in its folder."""

    def __init__(self, folder: Path, cluster_id: str, heap_mb: int, jvm: Sequence[str] = ()) -> None:
        self.folder = folder
        self._cluster_id = cluster_id
        self._heap_mb = heap_mb
        self._jvm = list(jvm)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Format the folder unless it is, then start the node; returns before it is ready."""
        if not (self.folder / "data" / "meta.properties").exists():
            args = ["format", "--ignore-formatted", "-t", self._cluster_id, "-c", str(self._properties())]
            with nullcontext([]) if class_archive().exists() else making_class_archive() as flags:
                self._java("kafka.tools.StorageTool", args, flags).wait()
        self._process = self._java("kafka.Kafka", [str(self._properties())])

    def _properties(self) -> Path:
        return self.folder / "server.properties"

    def tool(self, main: str, args: Sequence[str]) -> int:
        """Run one of Kafka's own tools to its end; its exit code. What it says goes to the node's log."""
        return self._java(main, list(args)).wait()

    def _java(self, main: str, args: list[str], more: Sequence[str] = ()) -> subprocess.Popen[bytes]:
        flags = [
            *more,
            *([f"-XX:SharedArchiveFile={class_archive()}"] if class_archive().exists() else []),
            f"-Xmx{self._heap_mb}m",
            "-Xms128m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-Xshare:auto",
        ]
        logging = f"-Dlog4j2.configurationFile={HERE / 'log4j2.properties'}"
        command = ["java", *flags, *self._jvm, logging, "-cp", f"{cached_jars()}/*", main, *args]
        with (self.folder / "node.log").open("ab") as log:
            return subprocess.Popen(
                command,
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                preexec_fn=die_with_parent(),
            )

    @property
    def process(self) -> int:
        """The number of the process that was started last."""
        assert self._process is not None
        return self._process.pid

    def running(self) -> bool:
        """Whether the process lives."""
        return self._process is not None and self._process.poll() is None

    def log(self) -> str:
        """The end of the node's log."""
        return (self.folder / "node.log").read_text(errors="replace")[-2000:]

    def signal(self, number: int) -> None:
        """Send the node a signal: SIGSTOP and SIGCONT to hang it and wake it."""
        if self._process is not None and self.running():
            os.killpg(self._process.pid, number)

    def kill(self) -> None:
        """End the node at once; its data stay."""
        self.signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait()


class DockerNode:
    """One node as a container on the host's network, from the official image and the same settings."""

    def __init__(self, folder: Path, cluster_id: str, heap_mb: int, jvm: Sequence[str] = ()) -> None:
        self.folder = folder
        self._cluster_id = cluster_id
        self._heap_mb = heap_mb
        self._jvm = list(jvm)
        self._name = f"stream-learner-test-{uuid.uuid4().hex[:12]}"
        self._made = False

    def start(self) -> None:
        """Run the container, or start the one that was killed; returns before the node is ready."""
        if self._made:
            self._docker("start", self._name)
            return
        self.folder.chmod(0o755)
        config = "/stream-learner/server.properties"
        format_ = f"/opt/kafka/bin/kafka-storage.sh format --ignore-formatted -t {self._cluster_id} -c {config}"
        script = f"{format_} && exec /opt/kafka/bin/kafka-server-start.sh {config}"
        options = [
            "--detach",
            "--name",
            self._name,
            "--network",
            "host",
            "--volume",
            f"{self.folder}:/stream-learner:ro",
        ]
        heap = ["--env", f"KAFKA_HEAP_OPTS=-Xmx{self._heap_mb}m -Xms128m", "--entrypoint", "sh"]
        heap += ["--env", f"KAFKA_OPTS={' '.join(self._jvm)}"]
        self._docker("run", *options, *heap, f"apache/kafka:{kafka_version()}", "-c", script)
        self._made = True

    def tool(self, main: str, args: Sequence[str]) -> int:
        """Run one of Kafka's own tools to its end; raises RuntimeError with what it says where it fails."""
        self._docker("exec", self._name, "/opt/kafka/bin/kafka-run-class.sh", main, *args)
        return 0

    def _docker(self, *args: str) -> str:
        run = subprocess.run(["docker", *args], capture_output=True, text=True, check=False)
        if run.returncode != 0:
            raise RuntimeError(f"docker {args[0]}: {run.stderr.strip()}")
        return run.stdout + run.stderr

    @property
    def process(self) -> int:
        """The number of the container's first process on its host."""
        return int(self._docker("inspect", "--format", "{{.State.Pid}}", self._name))

    def running(self) -> bool:
        """Whether the container runs."""
        return self._made and self._docker("inspect", "--format", "{{.State.Running}}", self._name).strip() == "true"

    def log(self) -> str:
        """The end of the container's log."""
        return self._docker("logs", "--tail", "20", self._name)

    def signal(self, number: int) -> None:
        """SIGSTOP and SIGCONT pause and unpause the container; any other signal is passed on."""
        known = {signal.SIGSTOP: ["pause"], signal.SIGCONT: ["unpause"]}
        self._docker(*known.get(signal.Signals(number), ["kill", "--signal", str(number)]), self._name)

    def kill(self) -> None:
        """End the node at once; its data stay until `remove`."""
        if self.running():
            self._docker("kill", self._name)

    def remove(self) -> None:
        """Delete the container."""
        if self._made:
            self._docker("rm", "--force", "--volumes", self._name)
            self._made = False


def _docker_found() -> bool:
    if shutil.which("docker") is None:
        return False
    return subprocess.run(["docker", "info"], capture_output=True, check=False).returncode == 0


def find_nodes() -> type[JavaNode] | type[DockerNode]:
    """Find a way for this machine to run nodes, and fetch what they need. Raises NoKafka if it cannot run any."""
    if java_found() is not None and (shutil.which("mvn") is not None or cached_jars().is_dir()):
        jars()
        return JavaNode
    if _docker_found():
        return DockerNode
    raise NoKafka(WHAT_TO_INSTALL)


class Broker:
    """A cluster for as long as the `with` block, or until `stop`.

    `nodes` is 1, or 3 with replication 3 and a minimum of 2 in sync. `properties` override broker settings,
    `node_properties` are those of the node with this number, from 1 on; values may have several lines. `client` is
    what a client needs besides the address. `listeners` are further ones, by name, each with its protocol: `address`
    tells where they are; `advertise(node, listener, port)` is the port that clients of a further one are told. `jvm`
    are flags for Java. Start it from a thread that lives as long as the broker
    must: on Linux the nodes die with the thread that started them.
    Raises NoKafka when the machine has neither Java with Maven nor Docker.
    """

    def __init__(
        self,
        nodes: int = 1,
        *,
        heap_mb: int = HEAP_MB,
        properties: Mapping[str, str] | None = None,
        node_properties: Callable[[int], Mapping[str, str]] = lambda node: {},
        client: Mapping[str, str] | None = None,
        listeners: Mapping[str, str] | None = None,
        advertise: Callable[[int, str, int], int] = lambda node, listener, port: port,
        jvm: Sequence[str] = (),
    ) -> None:
        self.node_count = nodes
        self.nodes: list[JavaNode | DockerNode] = []
        self.bootstrap = ""
        self._heap_mb = heap_mb
        self._properties = dict(properties or {})
        self._node_properties = node_properties
        self._client = dict(client or {})
        self._listeners = dict(listeners or {})
        self._advertise = advertise
        self._ports: list[dict[str, int]] = []
        self._jvm = list(jvm)
        self._folder: Path | None = None

    def __enter__(self) -> Broker:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def address(self, listener: str) -> str:
        """Bootstrap address of one of the listeners; the further ones go by a name, as certificates do."""
        return ",".join(f"{self._host(listener)}:{ports[listener]}" for ports in self._ports)

    def _host(self, listener: str) -> str:
        return NAME if listener in self._listeners else HOST

    def start(self) -> Broker:
        """Start all nodes and wait until they serve; ports that were taken meanwhile are tried anew."""
        node_class = find_nodes()
        atexit.register(self.stop)
        for attempt in range(ATTEMPTS):
            self._prepare(node_class)
            for node in self.nodes:
                node.start()
            try:
                self.wait_ready()
                return self
            except RuntimeError:
                self._remove()
                if attempt == ATTEMPTS - 1:
                    raise
        raise AssertionError("unreachable")

    def _prepare(self, node_class: type[JavaNode] | type[DockerNode]) -> None:
        _sweep()
        self._folder = Path(tempfile.mkdtemp(prefix=f"{FOLDER}{os.getpid()}-", dir=_place()))
        cluster_id = uuid.uuid4().hex[:22]
        names = ["PLAINTEXT", "CONTROLLER", *self._listeners]
        self._ports = [{name: _free_port() for name in names} for _ in range(self.node_count)]
        voters = ",".join(f"{i + 1}@{HOST}:{ports['CONTROLLER']}" for i, ports in enumerate(self._ports))
        self.bootstrap = self.address("PLAINTEXT")
        self.nodes = []
        for i, ports in enumerate(self._ports):
            folder = self._folder / f"node{i + 1}"
            folder.mkdir()
            data = folder / "data" if node_class is JavaNode else Path("/tmp/kafka-data")
            settings = {**self._settings(i + 1, ports, voters), "log.dirs": str(data)}
            lines = {name: value.replace("\n", "\\n") for name, value in settings.items()}
            text = "".join(f"{name}={value}\n" for name, value in lines.items())
            (folder / "server.properties").write_text(text)
            self.nodes.append(node_class(folder, cluster_id, self._heap_mb, self._jvm))

    def _settings(self, node_id: int, ports: Mapping[str, int], voters: str) -> dict[str, str]:
        protocols = {"PLAINTEXT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT", **self._listeners}
        places = {name: f"{name}://{HOST}:{port}" for name, port in ports.items()}
        told = {"PLAINTEXT": places["PLAINTEXT"]}
        for name in self._listeners:
            told[name] = f"{name}://{self._host(name)}:{self._advertise(node_id, name, ports[name])}"
        replicas, in_sync = ("3", "2") if self.node_count >= 3 else ("1", "1")
        return {
            "process.roles": "broker,controller",
            "node.id": str(node_id),
            "controller.quorum.voters": voters,
            "listeners": ",".join(places.values()),
            "advertised.listeners": ",".join(told.values()),
            "listener.security.protocol.map": ",".join(f"{name}:{kind}" for name, kind in protocols.items()),
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "default.replication.factor": replicas,
            "min.insync.replicas": in_sync,
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": in_sync,
            **FAST,
            **self._properties,
            **self._node_properties(node_id),
        }

    def wait_ready(self, timeout_s: float = READY_S) -> None:
        """Wait until every node that runs is in the cluster's metadata, for so long on an idle machine.

        Raises RuntimeError, with the end of a node's log, when one dies or the time is up.
        """
        wanted = sum(node.running() for node in self.nodes)
        deadline = time.monotonic() + patience(timeout_s)
        quick = {"log_level": 0, "reconnect.backoff.max.ms": 200}
        admin = AdminClient({"bootstrap.servers": self.bootstrap, **quick, **self._client})
        while time.monotonic() < deadline:
            dead = [node for node in self.nodes if not node.running()]
            if len(dead) > self.node_count - wanted:
                raise RuntimeError(f"a Kafka node ended by itself:\n{dead[0].log()}")
            try:
                if len(admin.list_topics(timeout=1.0).brokers) >= wanted:
                    return
            except KafkaException:
                time.sleep(0.1)
        raise RuntimeError(f"Kafka was not ready within {timeout_s:.0f} s:\n{self.nodes[0].log()}")

    def tool(self, main: str, *args: str) -> None:
        """Run one of Kafka's own tools, by its class, as a client of the plain listener."""
        code = self.nodes[0].tool(main, ["--bootstrap-server", self.bootstrap, *args])
        if code != 0:
            raise RuntimeError(f"{main} ended with {code}:\n{self.nodes[0].log()}")

    def stop(self) -> None:
        """Kill every node and delete its data. May be called twice."""
        self._remove()
        atexit.unregister(self.stop)

    def _remove(self) -> None:
        for node in self.nodes:
            node.kill()
            if isinstance(node, DockerNode):
                node.remove()
        self.nodes = []
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None
