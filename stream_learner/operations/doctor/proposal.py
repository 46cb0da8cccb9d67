"""A first configuration, from what a sample shows."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stream_learner.config import Config
from stream_learner.config.kafka import is_secret
from stream_learner.config.values import MINUTE_MS, SECOND_MS, format_duration_ms
from stream_learner.core.events.plan import Plan
from stream_learner.operations.doctor.delays import ROUND_MS, rounded_up
from stream_learner.operations.doctor.fields import FEW, Field
from stream_learner.operations.doctor.findings import ENOUGH, quantile
from stream_learner.operations.doctor.ids import IdPaths
from stream_learner.operations.doctor.times import TimeField, span

WINDOW_MS = 30 * MINUTE_MS
LATENESS_MS = 10 * MINUTE_MS
"""The defaults of join.window and join.lateness."""

_PLAIN = re.compile(r"[A-Za-z_][\w./-]*|\d+(ms|s|m|h|d)", re.ASCII)


@dataclass(frozen=True)
class Proposal:
    """Settings by their paths, and a comment for some of them; both go into a file by `text_of`."""

    settings: Mapping[str, Any]
    comments: Mapping[str, str]

    def overrides(self) -> list[str]:
        """The settings as `--set` takes them."""
        return [f"{path}={value if isinstance(value, str) else json.dumps(value)}" for path, value in self.settings.items()]


def propose_inputs(ids: IdPaths | None, times: tuple[TimeField | None, TimeField | None]) -> Proposal:
    """Ids and times of both topics. Where nothing was found, the defaults stand."""
    settings: dict[str, Any] = {}
    comments = {}
    units = {time.unit for time in times if time is not None}
    for name, time in zip(("impressions", "clicks"), times, strict=True):
        if ids is not None:
            settings[f"input.{name}.id"] = getattr(ids, name)
        if time is not None:
            settings[f"input.{name}.time"] = time.path
            if len(units) > 1:
                settings[f"input.{name}.time_unit"] = time.unit
            comments[f"input.{name}.time"] = f"{span(time.lag_ms)} before the records' timestamps, in the median"
    if len(units) == 1:
        settings["input.time_unit"] = units.pop()
    if ids is not None:
        comments["input.clicks.id"] = f"{ids.shared:,} clicks of the sample share it with an impression"
    return Proposal(settings, comments)


def propose_join(delays: Sequence[float], behind_ms: float) -> Proposal:
    """A window that covers 99 % of delays. behind_ms: how far impressions lie behind those before them, or ahead."""
    if len(delays) < ENOUGH:
        return Proposal({}, {})
    ordered = [*delays]
    window_ms = max(rounded_up(quantile(ordered, 0.99)), 5 * SECOND_MS)
    settings = {"join.window": format_duration_ms(window_ms)}
    comments = {
        "join.window": f"median {span(quantile(ordered, 0.5))}, 95 % {span(quantile(ordered, 0.95))}, "
        f"99 % {span(quantile(ordered, 0.99))} of {len(ordered):,} clicks"
    }
    early_ms = -quantile(ordered, 0.01)
    if early_ms > 5 * SECOND_MS:
        settings["join.skew"] = format_duration_ms(min(rounded_up(early_ms), window_ms))
        comments["join.skew"] = "clicks come before their impressions: the clocks of the producers disagree"
    lateness_ms = max(one for one in ROUND_MS if 2 * one <= window_ms)
    if window_ms <= LATENESS_MS and behind_ms <= lateness_ms / 2:
        settings |= {"join.max_skew": format_duration_ms(lateness_ms), "join.lateness": format_duration_ms(lateness_ms)}
        comments["join.lateness"] = "shorter than the window, as it should be"
    return Proposal(settings, comments)


def propose_features(fields: Sequence[Field], plan: Plan, not_features: set[str]) -> Proposal:
    """What to leave out, and what whole numbers and large numbers are. not_features: times and labels that leak."""
    features = [one for one in fields if plan.of(one.path).feature]
    exclude = [
        one.path for one in features if one.path in not_features or (one.is_unique and one.kind in ("text", "mixed"))
    ]
    numbers = [one for one in features if one.path not in exclude and one.median is not None]
    categorical = [
        one.path for one in numbers if one.kind == "whole number" and one.distinct <= FEW and not one.is_unique
    ]
    large = [one.path for one in numbers if one.path not in categorical and one.is_large]
    settings: dict[str, Any] = {}
    if exclude:
        settings["features.exclude"] = exclude
    if categorical:
        settings["features.categorical"] = categorical
    if large:
        settings["features.fields"] = {path: {"kind": "log"} for path in large}
    return Proposal(
        settings,
        {
            "features.exclude": "ids and times: their values never come again",
            "features.categorical": "whole numbers of few values: names, not quantities",
            "features.fields": "numbers with a wide range",
        },
    )


def together(proposals: Sequence[Proposal]) -> Proposal:
    """All of them as one."""
    return Proposal(
        {path: value for one in proposals for path, value in one.settings.items()},
        {path: text for one in proposals for path, text in one.comments.items()},
    )


def text_of(config: Config, proposal: Proposal) -> str:
    """The file: what it needs, and what was found. Values of secrets are left out."""
    options = config.kafka_options()
    secret = [name for name, value in options.items() if is_secret(name) and isinstance(value, str)]
    kafka = {name: _plain(value) for name, value in options.items() if name not in secret}
    tree: dict[str, Any] = {"model": config.model, "kafka": kafka}
    for name in ("impressions", "clicks"):
        tree.setdefault("input", {})[name] = {"topic": getattr(config.input, name).topic}
    for path, value in proposal.settings.items():
        place = tree
        *above, last = path.split(".")
        for part in above:
            place = place.setdefault(part, {})
        place[last] = value
    lines = ["# Made by `stream-learner doctor` from a look at the topics. docs/configuration.md has all settings."]
    lines += [f"# kafka.{name} is a secret: give it as {{file: PATH}} or {{env: NAME}}." for name in secret]
    for name, value in tree.items():
        lines += ["", *_lines({name: value}, proposal.comments, (), 0)]
    return "\n".join(lines) + "\n"


def _plain(value: Any) -> Any:
    """A value of the kafka section; a reference to a file or a variable stays one."""
    return value.model_dump() if hasattr(value, "model_dump") else value


def _lines(tree: Mapping[str, Any], comments: Mapping[str, str], above: tuple[str, ...], depth: int) -> Iterator[str]:
    for name, value in tree.items():
        path = (*above, name)
        comment = comments.get(".".join(path))
        end = f"   # {comment}" if comment else ""
        if isinstance(value, Mapping) and depth < 2 and path[0] != "kafka" and path != ("features", "fields"):
            yield f"{'  ' * depth}{name}:{end}"
            yield from _lines(value, comments, path, depth + 1)
        elif isinstance(value, Mapping) and depth == 0:
            yield f"{name}:"
            yield from (f"  {option}: {json.dumps(of)}" for option, of in value.items())
        else:
            yield f"{'  ' * depth}{name}: {_yaml(value)}{end}"


def _yaml(value: Any) -> str:
    """A value in YAML's flow style. JSON is YAML; names and durations go without quotes."""
    is_plain = isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in ("true", "false", "null")
    return str(value) if is_plain else json.dumps(value, ensure_ascii=False)
