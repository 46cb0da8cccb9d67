"""The settings of a demo: the configuration of its model, and traffic that suits it.

The configuration is an ordinary file, without any setting that production could not have.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from stream_learner.config import ENVIRONMENT_PREFIX, Config, load_config
from stream_learner.errors import ConfigError
from stream_learner.traffic import DEMO, Field, TrafficModel, TrafficShape
from stream_learner.wording import count_of

TICK_MS = 200
GRACE_MS = 1_000
DEDUPE_MS = 10_000
LATENESS_MS = 3_000
"""Clicks wait this long before their outcome counts, so it is short; the traffic is far less out of order."""
MOST_PARTITIONS = 64
CONFIG_FILE = "demo.yaml"
CLUSTER_ONLY_ENVIRONMENT = f"{ENVIRONMENT_PREFIX}KAFKA__"

FIELDS = (
    Field("site", 200, zipf=1.5, spread=0.7),
    Field("ad", 300, zipf=1.5, spread=0.9),
    Field("segment", 40, zipf=1.1, spread=0.7),
    Field("device", 5, zipf=1.0, spread=0.5),
    Field("country", 30, zipf=1.5, spread=0.5),
    Field("slot", 6, zipf=0.7, spread=0.4, integer=True),
)
"""A few frequent values make most impressions, so that a few thousand examples teach most of the weights."""
OPTIMIZER = {"alpha": 0.25, "beta": 0.1, "l1": 0.1, "l2": 0.0}
"""With these the log-loss is within 3 % of the best possible after 100,000 examples of these fields."""

IMPRESSION_BYTES = 240
"""The most bytes that the broker needs for a generated impression, key and overhead included."""
EMBEDDED_PARTITION_BYTES = 4 << 20
"""The bytes of a partition that the embedded broker keeps at least; it drops older records silently."""


@dataclass(frozen=True, slots=True)
class DemoPlan:
    """The options of the command line. `bootstrap_servers` None means the embedded broker."""

    duration_s: float = 60.0
    rate_per_s: float = 2_000.0
    window_s: float = 5.0
    partitions: int = 4
    seed: int = 1
    bootstrap_servers: str | None = None
    overrides: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for option in ("duration_s", "rate_per_s", "window_s", "partitions"):
            value = getattr(self, option)
            if not (math.isfinite(value) and value > 0):
                raise ConfigError(f"{option.removesuffix('_s').removesuffix('_per')} must be above 0, not {value}")


def make_config(plan: DemoPlan, model: str, bootstrap: str, directory: Path) -> Config:
    """The model's configuration, written to `directory` as a file like any other and loaded from there.

    On a cluster `STREAM_LEARNER__KAFKA__…` of the environment counts too, for credentials. Raises ConfigError.
    """
    file = directory / CONFIG_FILE
    file.write_text(yaml.safe_dump(_tree(plan, model, bootstrap, directory), sort_keys=False), encoding="utf-8")
    config = load_config(file, environ=_environment(plan), overrides=plan.overrides)
    if plan.bootstrap_servers is None:
        _check_room(plan, config)
    return config


def make_traffic(plan: DemoPlan, window_ms: int) -> TrafficModel:
    """The traffic for a join window: most clicks come within it, some after it, some late."""
    return TrafficModel(plan.seed, traffic_shape(window_ms))


def traffic_shape(window_ms: int) -> TrafficShape:
    """The demo's traffic with click delays in proportion to the window."""
    return replace(
        DEMO, fields=FIELDS, window_ms=window_ms, delay_median_ms=0.3 * window_ms, late_after_ms=3 * GRACE_MS
    )


def _environment(plan: DemoPlan) -> dict[str, str]:
    if plan.bootstrap_servers is None:
        return {}
    return {name: value for name, value in os.environ.items() if name.startswith(CLUSTER_ONLY_ENVIRONMENT)}


def _tree(plan: DemoPlan, model: str, bootstrap: str, directory: Path) -> Mapping[str, Any]:
    window_ms = int(plan.window_s * 1000)
    return {
        "model": model,
        "kafka": {
            "bootstrap.servers": bootstrap,
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 1000,
        },
        "input": {
            "impressions": {"topic": f"{model}.impressions", "id": "id", "time": "time"},
            "clicks": {"topic": f"{model}.clicks", "id": "id", "time": "time"},
        },
        "join": {
            "window": f"{window_ms}ms",
            "skew": "0",
            "tick": f"{TICK_MS}ms",
            "dedupe": f"{DEDUPE_MS}ms",
            "grace": f"{GRACE_MS}ms",
            "idle_after": "2s",
            "lateness": f"{LATENESS_MS}ms",
            "max_skew": f"{LATENESS_MS}ms",
        },
        "features": {"categorical": list(make_traffic(plan, window_ms).categorical)},
        "learner": {
            "state_dir": str(directory / "state"),
            "optimizer": OPTIMIZER,
            "checkpoint_interval": "5s",
            "copies": False,
        },
        "snapshots": {"interval": "250ms", "first": {"examples": 0}},
        "topics": {"retention": "1h", "dead_letters_retention": "1h"},
        "telemetry": {"log_level": "warning"},
    }


def _check_room(plan: DemoPlan, config: Config) -> None:
    """Raise ConfigError if the embedded broker cannot hold the impressions until their window has passed."""
    join = config.join
    held_s = (join.window_ms + join.dedupe_ms + join.grace_ms) / 1000
    needed = math.ceil(plan.rate_per_s * held_s * IMPRESSION_BYTES / EMBEDDED_PARTITION_BYTES)
    if needed <= plan.partitions:
        return
    most = math.floor(EMBEDDED_PARTITION_BYTES * plan.partitions / (held_s * IMPRESSION_BYTES))
    more = f"--partitions {needed}, " if needed <= MOST_PARTITIONS else ""
    raise ConfigError(
        f"the embedded broker holds too little for {plan.rate_per_s:g} impressions a second over {held_s:g} s "
        f"on {count_of(plan.partitions, 'partition')}",
        action=f"Give {more}--rate {most} or less, a shorter --window, or --bootstrap-servers.",
    )
