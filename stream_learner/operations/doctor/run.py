"""`doctor`: looks at both topics, and says what does not fit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from stream_learner.adapters.kafka import KafkaSettings
from stream_learner.config import Config
from stream_learner.core.events.reasons import Reason
from stream_learner.errors import InputsUnfit
from stream_learner.operations.doctor.delays import check_delays, check_disorder, delays_ms, lateness_ms
from stream_learner.operations.doctor.events import Side, check_forms, check_usable, side_of
from stream_learner.operations.doctor.fields import check_fields, fields_of, leaks
from stream_learner.operations.doctor.findings import Finding, in_order, quantile
from stream_learner.operations.doctor.ids import best_pair, check_ids, check_matches, describe_times
from stream_learner.operations.doctor.keys import check_keys, keys_of
from stream_learner.operations.doctor.proposal import (
    Proposal,
    propose_features,
    propose_inputs,
    propose_join,
    text_of,
    together,
)
from stream_learner.operations.doctor.retention import check_retention
from stream_learner.operations.doctor.sample import Limits, Show, TopicSample, read_samples
from stream_learner.operations.doctor.times import YEAR_MS, Clock, TimeField, check_times, time_fields
from stream_learner.wording import count_of

Configured = Callable[[Sequence[str]], Config]
"""Makes a configuration with further settings, as `--set` takes them."""
QUANTILES = (0.5, 0.9, 0.95, 0.99)


@dataclass(frozen=True)
class Report:
    """findings: those that stop first. topics, fields, delays: what was seen, as `--json` prints it. configuration: the
    text of the first one, where one was made; else None.
    """

    findings: list[Finding]
    topics: list[dict[str, Any]]
    fields: list[dict[str, Any]]
    delays: dict[str, float]
    configuration: str | None = None

    @property
    def fits(self) -> bool:
        """Whether nothing stands in the way."""
        return not any(finding.severity == "stops" for finding in self.findings)

    def as_json(self) -> dict[str, Any]:
        """The report as one JSON object."""
        return {"fits": self.fits, **asdict(self)}


def doctor(config: Config, limits: Limits, show: Show) -> Report:
    """Look at the topics of a configuration. Raises what `read_samples` raises."""
    return examine(config, *_samples(config, limits, show))


def first_look(configured: Configured, limits: Limits, show: Show) -> Report:
    """Make a configuration from a look at the topics, and judge them by it. Raises what `read_samples` raises."""
    config = configured(())
    samples = _samples(config, limits, show)
    proposal = propose(configured, *samples)
    config = configured(proposal.overrides())
    found = examine(config, *samples)
    return Report(found.findings, found.topics, found.fields, found.delays, text_of(config, proposal))


def verdict(report: Report) -> InputsUnfit | None:
    """The error to end with; None if nothing stands in the way."""
    names = [finding.name.replace("_", " ") for finding in report.findings if finding.severity == "stops"]
    return InputsUnfit(f"{count_of(len(names), 'finding')} in the way: {', '.join(names)}") if names else None


def _samples(config: Config, limits: Limits, show: Show) -> tuple[TopicSample, TopicSample]:
    settings = KafkaSettings(config.kafka_options(), group=f"{config.model}.doctor")
    topics = config.input.impressions.topic, config.input.clicks.topic
    samples = read_samples(settings, *topics, limits, show)
    show("looking at what was read")
    return samples


def examine(config: Config, of_impressions: TopicSample, of_clicks: TopicSample) -> Report:
    """Judge two samples by a configuration."""
    sides = impressions, clicks = side_of("impressions", of_impressions), side_of("clicks", of_clicks)
    specs, spec, most_bad = config.event_specs(), config.join_spec(), config.join.max_bad_share
    of_forms = [[*check_forms(side, most_bad)] for side in sides]
    findings = of_forms[0] + of_forms[1]

    timed = [check_times(side, of, most_bad) for side, of in zip(sides, specs, strict=True)]
    clocks = timed[0][0], timed[1][0]
    findings += [finding for _, found in timed for finding in found]

    times = [time_fields(side) for side in sides]
    best = best_pair(impressions, clicks, {time.path for found in times for time in found})
    ids, of_ids = check_ids(impressions, clicks, specs, best, most_bad)
    findings += of_ids
    pairs = ids.pairs(impressions.events, clicks.events)

    delays = delays_ms(pairs, clocks)
    if not of_forms[0] and (not of_ids or best is not None):
        findings += check_matches(impressions, clicks, ids, pairs, clocks, delays)
    keys = keys_of(impressions), keys_of(clicks)
    findings += check_keys(impressions, clicks, pairs, keys)
    if not any(finding.name.endswith("time_ahead") for finding in findings):
        findings += check_delays(delays, spec)
    findings += check_disorder(impressions, clocks[0], spec)

    fields = fields_of(impressions)
    plan = specs[0].impression_plan(config.feature_spec())
    features = [
        one for one in fields if plan.of(one.path).feature and one.path not in (ids.impressions, clocks[0].path)
    ]
    findings += check_fields(features, plan, times[0], leaks(impressions, pairs))
    for side, of_side in zip(sides, (plan, specs[1].click_plan()), strict=True):
        findings += check_usable(side, of_side, most_bad, _told(side, findings))
        findings += check_retention(side, spec)
    return Report(
        in_order(findings),
        [_topic(side, clock, key) for side, clock, key in zip(sides, clocks, keys, strict=True)],
        [asdict(field) for field in fields],
        {f"p{100 * q:g}": quantile(delays, q) for q in QUANTILES if delays} | {"clicks": len(delays)},
    )


def _told(side: Side, findings: Iterable[Finding]) -> set[Reason]:
    """The reasons for dead letters that findings have told already."""
    names = [
        finding.name for finding in findings if finding.name.startswith(side.name) or finding.name.startswith("id")
    ]
    ids = {Reason.NO_ID, Reason.BAD_ID} if any("id" in name.split("_") for name in names) else set()
    return ids | ({Reason.BAD_TIME, Reason.TIME_AHEAD} if any("time" in name for name in names) else set())


def _topic(side: Side, clock: Clock, keys: object) -> dict[str, Any]:
    """What was seen of a topic."""
    return {
        "topic": side.sample.topic,
        "partitions": side.sample.partitions,
        "records": side.forms.total(),
        "held": side.sample.held,
        "forms": dict(side.forms.most_common()),
        "times": describe_times(side, clock),
        "keys": str(keys),
    }


def propose(configured: Configured, of_impressions: TopicSample, of_clicks: TopicSample) -> Proposal:
    """A first configuration: ids and times, then what needs them."""
    sides = impressions, clicks = side_of("impressions", of_impressions), side_of("clicks", of_clicks)
    times = [time_fields(side) for side in sides]
    ids = best_pair(impressions, clicks, {time.path for found in times for time in found})
    inputs = propose_inputs(ids, (_usable(times[0]), _usable(times[1])))

    specs = configured(inputs.overrides()).event_specs()
    clocks = Clock(specs[0].time, specs[0].time_unit), Clock(specs[1].time, specs[1].time_unit)
    pairs = [] if ids is None else ids.pairs(impressions.events, clicks.events)
    join = propose_join(
        delays_ms(pairs, clocks), max(_disorder_ms(side, clock) for side, clock in zip(sides, clocks, strict=True))
    )

    plan = specs[0].impression_plan(configured(()).feature_spec())
    no_features = {time.path for time in times[0]} | {*leaks(impressions, pairs)}
    return together([inputs, join, propose_features(fields_of(impressions), plan, no_features)])


def _usable(times: Sequence[TimeField]) -> TimeField | None:
    """The field to take the time of events from; None for the records' timestamps."""
    return times[0] if times and abs(times[0].lag_ms) < YEAR_MS else None


def _disorder_ms(side: Side, clock: Clock) -> float:
    """How far the events of a topic lie behind those before them, or ahead of their records; all but one in 100."""
    far: list[int] = []
    for block in side.blocks:
        for events in block.values():
            times = [(event, time) for event in events if (time := clock.of(event)) is not None]
            behind = lateness_ms([time for _, time in times], 1)
            far += [max(late, time - event.record.time_ms) for late, (event, time) in zip(behind, times, strict=True)]
    return quantile(sorted(far), 0.99) if far else 0.0
