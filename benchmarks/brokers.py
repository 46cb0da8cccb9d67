"""The brokers that a benchmark uses, and the processor time that they take meanwhile.

`KAFKA_BOOTSTRAP` is used if set; its brokers may be anywhere, so nobody asks for their time. Else brokers are started
as the tests do.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.kafka_broker.broker import Broker

TIME = "brokers_cpu_seconds"
"""The figure of their processor time."""
Figures = dict[str, float]


@dataclass(frozen=True)
class Brokers:
    """Where the brokers are, and their processes if they are this machine's."""

    bootstrap: str
    processes: tuple[int, ...] = ()

    def beside(self, measured: Callable[[], Figures]) -> Figures:
        """The figures of what is measured, with the time of the brokers' processes meanwhile if there are any."""
        before_s = self._processor_s()
        figures = measured()
        return {**figures, TIME: self._processor_s() - before_s} if self.processes else figures

    def _processor_s(self) -> float:
        return sum(map(processor_s, self.processes))


@contextmanager
def brokers(nodes: int = 1, properties: Mapping[str, str] | None = None) -> Iterator[Brokers]:
    """The brokers given, or so many of our own with these properties, for as long as the block."""
    if given := os.environ.get("KAFKA_BOOTSTRAP"):
        yield Brokers(given)
        return
    with Broker(nodes, properties=properties) as own:
        yield Brokers(own.bootstrap, tuple(node.process for node in own.nodes))


def processor_s(process: int) -> float:
    """Seconds of processor time that a process has used, all threads, user and system."""
    fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
