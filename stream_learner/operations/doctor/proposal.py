"""A first configuration, from what a sample shows."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from stream_learner.config import Config
from stream_learner.config.kafka import is_secret
from stream_learner.config.values import DAY_MS, MINUTE_MS, SECOND_MS, format_duration_ms
from stream_learner.operations.doctor.crosses import Cross, crosses_in_words
from stream_learner.operations.doctor.delays import ROUND_MS, in_words, quantiles_of, rounded_up
from stream_learner.operations.doctor.events import can_be_named
from stream_learner.operations.doctor.fields import Field
from stream_learner.operations.doctor.findings import ENOUGH, quantile
from stream_learner.operations.doctor.hours import Hours
from stream_learner.operations.doctor.ids import IdPaths
from stream_learner.operations.doctor.leaks import Leak
from stream_learner.operations.doctor.times import YEAR_MS, Clock, span
from stream_learner.wording import count_of

SKEW_MS, LATENESS_MS, TOPIC_MS = 5 * SECOND_MS, 10 * MINUTE_MS, 7 * DAY_MS
"""The defaults of join.skew, join.lateness and topics.retention."""


@dataclass
class Proposal:
    """settings: by their paths; what is not there stays at its default. notes: why, a line each."""

    settings: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def overrides(self) -> list[str]:
        """The settings as `--set` takes them."""
        return [f"{path}={of if isinstance(of, str) else json.dumps(of)}" for path, of in self.settings.items()]

    def add_inputs(self, ids: IdPaths | None, times: Iterable[Sequence[Clock]]) -> None:
        """Ids and times of both topics. times: the fields that look like times, the likeliest first."""
        for name, clocks in zip(("impressions", "clicks"), times, strict=True):
            if ids is not None:
                self.settings[f"input.{name}.id"] = getattr(ids, name)
            if clocks and abs(clocks[0].lag_ms) < YEAR_MS:
                self.settings |= {f"input.{name}.time": clocks[0].path, f"input.{name}.time_unit": clocks[0].unit}
        if ids is not None:
            self.notes.append(f"id: {count_of(ids.shared, 'click')} of the sample share it with an impression")

    def add_join(self, delays: Sequence[float], disorder_ms: float) -> None:
        """A window that covers 99 % of delays. disorder_ms: how far events lie behind others, or ahead of records."""
        if len(delays) < ENOUGH:
            self.notes.append("window: too few clicks find their impression to propose one; 30m is the default")
            return
        p1, p99 = (quantile(delays, share) for share in (0.01, 0.99))
        window_ms = max(rounded_up(p99), SKEW_MS)
        self.settings["join.window"] = format_duration_ms(window_ms)
        self.notes.append(f"window: {in_words(quantiles_of(delays))}")
        if -p1 > SKEW_MS:
            self.settings["join.skew"] = format_duration_ms(min(rounded_up(-p1), window_ms))
            self.notes.append(f"skew: clicks come up to {span(-p1)} before their impressions: see to the clocks")
        if window_ms <= LATENESS_MS:
            half_ms = max(one for one in ROUND_MS if 2 * one <= window_ms)
            lateness_ms = min(max(half_ms, rounded_up(2 * disorder_ms)), LATENESS_MS)
            self.settings |= dict.fromkeys(("join.max_skew", "join.lateness"), format_duration_ms(lateness_ms))
            note = "lateness: shorter than the window, as it should be"
            if lateness_ms >= window_ms:
                window_ms = next(one for one in ROUND_MS if one > lateness_ms)
                self.settings["join.window"] = format_duration_ms(window_ms)
                note = f"lateness: events come up to {span(disorder_ms)} later than others; the window is longer for it"
            self.notes.append(note)
        if 2 * window_ms > TOPIC_MS:
            self.settings["topics.retention"] = format_duration_ms(2 * window_ms)
            self.notes.append("retention: of the training log, twice the window at the least")

    def add_features(
        self, fields: Iterable[Field], times: set[str], leaks: Iterable[Leak], hours: Hours | None = None
    ) -> None:
        """What to leave out, and what fields are. fields: of the features. times: their paths. leaks: what tells the
        label. hours: where clicks go by them."""
        leaking = {leak.path: leak for leak in leaks}
        exclude: list[str] = []
        categorical: list[str] = []
        for one in fields:
            if one.path in leaking or one.path in times or (one.is_id and one.median is None):
                exclude.append(one.path)
            elif one.is_name:
                categorical.append(one.path)
            if one.path in leaking and one.path not in times:
                self.notes.append(f"{one.path} is left out: it tells the label ({leaking[one.path].in_words()})")
        exclude, categorical = ([path for path in paths if can_be_named(path)] for paths in (exclude, categorical))
        self.settings |= {"features.exclude": exclude} if exclude else {}
        self.settings |= {"features.categorical": categorical} if categorical else {}
        self.notes.append("features: ids and times are left out; whole numbers of few values are categories")
        if hours is not None:
            self.settings["features.fields"] = {hours.path: {"kind": "hour"}}
            self.notes.append(f"{hours}; requests must have it, too; zone: UTC unless set (docs/features.md)")

    def add_crosses(self, crosses: Sequence[Cross]) -> None:
        """As a note only: whether they are worth their weights shows in `evaluate`, or beside a model without them."""
        self.notes += [crosses_in_words(crosses)] if crosses else []

    def text(self, config: Config) -> str:
        """The file: every setting of `config` that is not left at its default. Values of secrets are left out."""
        options = {name: getattr(of, "model_dump", lambda of=of: of)() for name, of in config.kafka_options().items()}
        secrets = [name for name, of in options.items() if is_secret(name) and isinstance(of, str)]
        tree = config.model_dump(mode="json", by_alias=True, exclude_unset=True)
        tree["kafka"] = {name: of for name, of in options.items() if name not in secrets}
        notes = ["Made by `stream-learner doctor`; docs/configuration.md has all settings.", *self.notes]
        notes += [f"kafka.{name} is a secret: give it as {{file: PATH}} or {{env: NAME}}" for name in secrets]
        head = "".join(f"# {note}\n" for note in notes)
        return head + "\n" + yaml.safe_dump(tree, sort_keys=False, allow_unicode=True)
