"""`doctor`: looks at both topics, and says what does not fit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from stream_learner.adapters.kafka import KafkaSettings
from stream_learner.config import Config
from stream_learner.core.events.reasons import Reason
from stream_learner.core.events.reference import PlainRow
from stream_learner.operations.doctor.allowed import check_rights
from stream_learner.operations.doctor.clicks import check_begin, check_share, check_unique, with_clicks_read
from stream_learner.operations.doctor.cluster import Cluster, check_cluster, look_at
from stream_learner.operations.doctor.crosses import Cross, crosses_of
from stream_learner.operations.doctor.delays import (
    check_clocks,
    check_delays,
    check_disorder,
    check_some_clocks,
    clock_gap_ms,
    delays_ms,
    disorder_ms,
)
from stream_learner.operations.doctor.events import Side, check_forms, check_usable, read_some, side_of
from stream_learner.operations.doctor.fields import check_fields, check_names, fields_of
from stream_learner.operations.doctor.findings import SEVERITIES, Finding, quantile
from stream_learner.operations.doctor.ids import best_pair, check_ids, check_matches
from stream_learner.operations.doctor.keys import check_keys, keys_of
from stream_learner.operations.doctor.leaks import leaks
from stream_learner.operations.doctor.proposal import Proposal
from stream_learner.operations.doctor.retention import check_retention
from stream_learner.operations.doctor.sample import Limits, Show, read_samples
from stream_learner.operations.doctor.sizing import Traffic
from stream_learner.operations.doctor.times import OF_RECORDS, Clock, check_times, moment, time_fields
from stream_learner.operations.doctor.traffic import features_of, sizing_of
from stream_learner.roles.common.event_decoders import EventForms
from stream_learner.roles.common.key_rule import with_key_rule

Configured = Callable[[Sequence[str]], Config]
"""Makes a configuration with further settings, as `--set` takes them."""
_OF_TIMES = {f"{side}_time_{what}" for side in ("impressions", "clicks") for what in ("ahead", "far", "unreadable")}
"""Where these are found the times of the topics tell nothing of each other."""
QUANTILES = (0.5, 0.9, 0.95, 0.99)


@dataclass(frozen=True)
class Report:
    """findings: those that stop first. topics, fields, delays: what was seen, as `--json` prints it. crosses: those
    worth a try. sizing: what a model takes at the rate of the sample, None where the sample does not tell.
    configuration: the text of the first one, where one was made; else None.
    """

    findings: list[Finding]
    topics: list[dict[str, Any]]
    fields: list[dict[str, Any]]
    delays: dict[str, float]
    crosses: list[Cross]
    sizing: dict[str, Any] | None = None
    configuration: str | None = None

    @property
    def in_the_way(self) -> list[str]:
        """The names of the findings that stop."""
        return [finding.name for finding in self.findings if finding.severity == "stops"]


def doctor(config: Config, limits: Limits, show: Show, *, advises: bool = True) -> Report:
    """Look at the topics of a configuration. Raises what `read_samples` raises, and ConfigError or SchemaNotKnown if it
    cannot have their schemas. advises: as of `examine`.
    """
    known, sides = with_key_rule(config), _sides(config, limits, show)
    return examine(known, *sides, look_at(_settings(config), config), advises=advises)


def first_look(configured: Configured, limits: Limits, show: Show) -> Report:
    """Make a configuration from a look at the topics, and judge them by it. Raises what `doctor` raises."""
    sides = _sides(configured(()), limits, show)
    proposal = propose(configured, *sides)
    config = configured(proposal.overrides())
    report = examine(config, *sides, look_at(_settings(config), config))
    proposal.add_crosses(report.crosses)
    return replace(report, configuration=proposal.text(config))


def _settings(config: Config) -> KafkaSettings:
    return KafkaSettings(config.kafka_options(), group=f"{config.model}.doctor")


def _sides(config: Config, limits: Limits, show: Show) -> tuple[Side, Side]:
    forms, topics = EventForms(config), (config.input.impressions.topic, config.input.clicks.topic)
    readers = forms.impressions_as_json(config.feature_spec()), forms.clicks_as_json()
    impressions, clicks = read_samples(_settings(config), *topics, limits, show)
    show("looking at what was read")
    return side_of("impressions", impressions, readers[0]), side_of("clicks", clicks, readers[1])


def examine(
    config: Config,
    impressions: Side,
    clicks: Side,
    cluster: Cluster = Cluster(),  # noqa: B008 -- it is frozen
    *,
    advises: bool = True,
) -> Report:
    """Judge two samples, and what the brokers tell, by a configuration. advises: whether crosses and sizing are wanted,
    which no role has a use for.
    """
    sides = impressions, clicks
    specs, spec, most_bad = config.event_specs(), config.join_spec(), config.join.max_bad_share
    of_forms = [[*check_forms(side, most_bad)] for side in sides]
    timed = [check_times(side, of, most_bad) for side, of in zip(sides, specs, strict=True)]
    clocks = timed[0][0], timed[1][0]
    times = [time_fields(side) for side in sides]
    best = best_pair(impressions, clicks, (time.path for found in times for time in found))
    ids, of_ids = check_ids(impressions, clicks, specs, best, most_bad)
    findings = [*of_forms[0], *of_forms[1], *timed[0][1], *timed[1][1], *of_ids]

    pairs = ids.pairs(impressions.events, clicks.events)
    delays = delays_ms(pairs, clocks)
    unread = any(one.severity == "stops" or one.name.endswith("empty") for found in of_forms for one in found)
    if not unread and (not of_ids or best is not None):
        findings += check_matches(impressions, clicks, ids, pairs, clocks, spec.window_ms)
    keys = keys_of(impressions), keys_of(clicks)
    findings += check_keys(impressions, clicks, pairs, keys)
    if not any(finding.name.endswith("time_ahead") for finding in findings):
        gap = clock_gap_ms(pairs, clocks)
        of_clocks = [*check_some_clocks(pairs, (impressions.sample.topic, clicks.sample.topic), clocks, spec)]
        if gap is not None:
            of_clocks = [*check_clocks(gap, *sides, clocks, delays, spec)]
        findings += of_clocks or check_delays(delays, spec)
    findings += check_disorder(impressions, clocks[0], spec)
    findings += check_unique(impressions, ids)
    judged = with_clicks_read(impressions, pairs, clocks[0])
    findings += check_share(judged, pairs, clicks.sample.topic)
    if not {finding.name for finding in findings} & {"clocks_differ", *_OF_TIMES}:
        findings += check_begin(*sides, clocks, delays, config)

    plan = specs[0].impression_plan(config.feature_spec())
    fields = fields_of(impressions)
    no_features = ids.impressions, clocks[0].path
    features = [one for one in fields if plan.of(one.path).feature and one.path not in no_features]
    findings += check_names(fields, config.feature_spec(), features)
    found = leaks(judged, pairs, {*no_features})
    findings += check_fields(features, plan, times[0], found, config.learner.optimizer.name)
    rows: list[list[PlainRow]] = []
    for side, of_side, (_, of_times) in zip(sides, (plan, specs[1].click_plan()), timed, strict=True):
        told = {Reason.NO_ID, Reason.BAD_ID} if of_ids else set()
        told |= {Reason.BAD_TIME, Reason.TIME_AHEAD} if of_times else set()
        read, reasons = read_some(side, of_side)
        rows.append(read)
        findings += check_usable(side, reasons, most_bad, told)
        findings += check_retention(side, config.must_keep_ms()[side.sample.topic])
    by_id = [
        side.sample.topic
        for side, of, path in zip(sides, keys, (ids.impressions, ids.clicks), strict=True)
        if of.field == path
    ]
    findings += [*check_cluster(cluster, config, by_id), *check_rights(cluster, config)]
    report = Report(
        sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity)),
        [_topic(side, clock, key) for side, clock, key in zip(sides, clocks, keys, strict=True)],
        [asdict(field) for field in fields],
        {f"p{100 * q:g}_ms": quantile(delays, q) for q in QUANTILES if delays} | {"clicks": len(delays)},
        crosses=[],
    )
    if not advises:
        return report
    share = len({id(pair.impression) for pair in pairs}) / len(judged) if judged else Traffic.click_share
    replication = max((info.replication for info in cluster.known([impressions.sample.topic])), default=0)
    return replace(
        report,
        crosses=crosses_of(judged, pairs, features, plan, (leak.path for leak in found)),
        sizing=sizing_of(config, impressions, clocks[0], features_of(rows[0]), share, replication),
    )


def _topic(side: Side, clock: Clock, keys: object) -> dict[str, Any]:
    """What was seen of a topic. lag_ms: the median of record timestamp - time."""
    times = sorted(time for event in side.events if (time := clock.of(event)) is not None)
    return {
        "topic": side.sample.topic,
        "partitions": side.sample.partitions,
        "records": side.forms.total(),
        "held": side.sample.held,
        "forms": dict(side.forms.most_common()),
        "times": f"{moment(times[0])} to {moment(times[-1])}" if times else "none",
        "lag_ms": -quantile(clock.ahead_ms(side.events) or [0], 0.5),
        "keys": str(keys),
    }


def propose(configured: Configured, impressions: Side, clicks: Side) -> Proposal:
    """A first configuration: ids and times, then what needs them."""
    times, proposal = (time_fields(impressions), time_fields(clicks)), Proposal()
    ids = best_pair(impressions, clicks, (time.path for found in times for time in found))
    proposal.add_inputs(ids, times)

    specs = configured(proposal.overrides()).event_specs()
    clocks = Clock(specs[0].time, specs[0].time_unit), Clock(specs[1].time, specs[1].time_unit)
    pairs = [] if ids is None else ids.pairs(impressions.events, clicks.events)
    both = zip((impressions, clicks), clocks, strict=True)
    right = clocks if clock_gap_ms(pairs, clocks) is None else (OF_RECORDS, OF_RECORDS)
    proposal.add_join(delays_ms(pairs, right), max(disorder_ms(side, clock) for side, clock in both))

    plan = specs[0].impression_plan(configured(()).feature_spec())
    features = [one for one in fields_of(impressions) if plan.of(one.path).feature]
    found = leaks(with_clicks_read(impressions, pairs, right[0]), pairs, {specs[0].id, right[0].path})
    proposal.add_features(features, {str(time.path) for time in times[0]}, found)
    return proposal
