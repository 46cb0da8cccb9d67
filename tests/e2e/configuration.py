"""The configuration that the settings of the oracle stand for.

It must never set what the settings already decide to anything else.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.oracles.loop import Settings

Tree = dict[str, Any]


def tree_of(model: str, bootstrap: str, s: Settings, state_dir: Path, changes: Tree) -> Tree:
    """The whole tree; `changes` are sections whose entries are added or replaced.

    `close_idle` is off unless asked for, so that the training log depends on the inputs alone. Two shards are enough
    to differ, and each costs a reader. The first version is published whatever it has shown.
    """
    tree: Tree = {
        "model": model,
        "kafka": {"bootstrap.servers": bootstrap, "session.timeout.ms": 3000},
        "input": _input(model, s),
        "join": _join(s),
        "features": _features(s),
        "learner": {
            "state_dir": str(state_dir),
            "optimizer": {name: s[name] for name in ("alpha", "beta", "l1", "l2")},
            "checkpoint_interval": "1s",
        },
        "snapshots": {"interval": "100ms", "shards": 2, "first": {"examples": 0}},
    }
    for section, values in changes.items():
        tree[section] = {**tree.get(section, {}), **values}
    return tree


def _input(model: str, s: Settings) -> Tree:
    return {
        "impressions": {
            "topic": f"{model}-impressions",
            "id": s["id"],
            "time": s["time"],
            "weight": s["weight"],
        },
        "clicks": {
            "topic": f"{model}-clicks",
            "id": s["click_id"],
            "time": s["click_time"],
            "value": s["value"],
        },
        "time_unit": s["time_unit"],
    }


def _join(s: Settings) -> Tree:
    join = {
        "window": f"{s['window_ms']}ms",
        "skew": f"{s['skew_ms']}ms",
        "tick": f"{s['tick_ms']}ms",
        "dedupe": f"{s['dedupe_ms']}ms",
        "max_skew": f"{s['max_skew_ms']}ms",
        "lateness": f"{s['lateness_ms']}ms",
        "agree": s["agree"],
        "keep_negatives": s["keep_negatives"],
        "close_idle": False,
        "max_bad_share": 1.0,
    }
    if s["limit_bytes"] is not None:
        join["max_event_bytes"] = s["limit_bytes"]
    return join


def _features(s: Settings) -> Tree:
    # Missing indicators come in the order in which the fields are named here.
    fields: dict[str, Tree] = {name: {"missing": "indicator"} for name in s["missing"]}
    for kind in ("number", "log"):
        for name in s[kind]:
            fields.setdefault(name, {})["kind"] = kind
    for name, edges in s["buckets"].items():
        fields.setdefault(name, {}).update(kind="bucket", edges=list(edges))
    for name, (kind, zone) in s["clocks"].items():
        fields.setdefault(name, {}).update(kind=kind, zone=zone)
    return {
        "include": list(s["include"] or ()),
        "exclude": list(s["exclude"]),
        "categorical": list(s["categorical"]),
        "fields": fields,
        "crosses": [list(cross) for cross in s["crosses"]],
    }
