"""Three brokers, each reached by every kind of role through a proxy of its own, so that each can be cut off alone.

Traffic among the brokers passes no proxy: only roles are cut off.
"""

from __future__ import annotations

import json
import signal
from types import TracebackType

from confluent_kafka import ElectionType, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from proofs.chaos.proxy import HOST, Mode, Network, Proxy
from stream_learner.roles.scorer.scorer import CONTROL_TOPIC
from tests.kafka_broker.broker import Broker, JavaNode

NODES = 3
LISTENERS = ("JOINER0", "JOINER1", "LEARNER", "STANDBY", "SCORER")
"""The listeners whose connections can be cut separately."""


class Cluster:
    """Apache Kafka with replication 3 and a minimum of 2 in sync, for as long as the `with` block lasts.

    With nodes=1 it is one broker, for a schedule that kills none.
    """

    def __init__(self, nodes: int = NODES) -> None:
        self._numbers = range(1, nodes + 1)
        self._network = Network()
        self._proxies: dict[tuple[str, int], Proxy] = {}
        self._broker = Broker(
            nodes, listeners=dict.fromkeys(LISTENERS, "PLAINTEXT"), advertise=self._advertise, heap_mb=320
        )

    def _advertise(self, node: int, listener: str, port: int) -> int:
        proxy = self._network.proxy(port)
        self._proxies[listener, node] = proxy
        return proxy.port

    def __enter__(self) -> Cluster:
        self._broker.start()
        try:
            topic = NewTopic(CONTROL_TOPIC, 1, config={"cleanup.policy": "compact"})
            admin = self._admin()
            for made in admin.create_topics([topic]).values():
                made.result()
        except BaseException:
            self._broker.stop()
            raise
        return self

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._broker.stop()
        self._network.close()

    @property
    def bootstrap(self) -> str:
        """The addresses of the brokers without proxies, for observers."""
        return self._broker.bootstrap

    def address(self, listener: str) -> str:
        """The addresses of the proxies of a listener."""
        return ",".join(f"{HOST}:{self._proxies[listener, node].port}" for node in self._numbers)

    def set_network(self, listener: str, mode: Mode, nodes: tuple[int, ...] = (1, 2, 3)) -> None:
        """Set the mode of a listener's proxies to some brokers."""
        for node in nodes:
            self._proxies[listener, node].set_mode(mode)

    def running(self, node: int) -> bool:
        """Whether a broker runs."""
        return self._broker.nodes[node - 1].running()

    def kill(self, node: int) -> None:
        """Kill a broker with kill -9; its data stay."""
        self._broker.nodes[node - 1].kill()

    def restart(self, node: int) -> None:
        """Start a broker that was killed; returns before it is ready. To be called from the main thread."""
        if not self.running(node):
            self._broker.nodes[node - 1].start()

    def hang(self, node: int) -> None:
        """Stop a broker with SIGSTOP."""
        self._broker.nodes[node - 1].signal(signal.SIGSTOP)

    def wake(self, node: int) -> None:
        """Continue a broker with SIGCONT."""
        self._broker.nodes[node - 1].signal(signal.SIGCONT)

    def lead_as_preferred(self) -> None:
        """Have each partition led by the first of its replicas, where that one is in sync; without waiting."""
        self._electing = self._admin()
        self._electing.elect_leaders(ElectionType.PREFERRED)

    def heal(self) -> None:
        """Open every proxy, wake and restart every broker."""
        for proxy in self._proxies.values():
            if proxy.mode is not Mode.OPEN:
                proxy.set_mode(Mode.OPEN)
        for node in self._numbers:
            self.wake(node)
            self.restart(node)

    def whole(self) -> bool:
        """Whether all brokers are in the cluster, and all replicas of all partitions in sync."""
        if not all(map(self.running, self._numbers)):
            return False
        try:
            admin = self._admin()
            found = admin.list_topics(timeout=2.0)
        except KafkaException:
            return False
        partitions = [p for topic in found.topics.values() for p in topic.partitions.values()]
        return len(found.brokers) == len(self._numbers) and all(len(p.isrs) == len(p.replicas) for p in partitions)

    def controller(self) -> tuple[int, int]:
        """The number of the broker that is the active controller, and its term; (0, 0) if that cannot be told.

        Read from the disks of the brokers: a client cannot ask for it.
        """
        votes = [vote for node in self._broker.nodes if isinstance(node, JavaNode) and (vote := _vote(node))]
        return max(votes, key=lambda vote: vote[1], default=(0, 0))

    def log(self) -> str:
        """The ends of the brokers' logs."""
        return "\n".join(f"-- broker {number}\n{node.log()}" for number, node in enumerate(self._broker.nodes, 1))


def _vote(node: JavaNode) -> tuple[int, int] | None:
    """The leader and the term, as a node has them on disk."""
    file = node.folder / "data" / "__cluster_metadata-0" / "quorum-state"
    try:
        state = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return max(int(state["leaderId"]), 0), int(state["leaderEpoch"])
