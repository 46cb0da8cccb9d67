"""`doctor`: looks at both topics, and says what does not fit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

from stream_learner.adapters.kafka import LIBRDKAFKA, KafkaSettings
from stream_learner.config import Config
from stream_learner.core.events.plan import Plan
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
    check_late_clicks,
    check_some_clocks,
    clock_gap_ms,
    delays_ms,
    disorder_ms,
    quantiles_of,
)
from stream_learner.operations.doctor.events import Event, Side, check_forms, check_usable, read_some, side_of
from stream_learner.operations.doctor.fields import Field, check_fields, check_names, fields_of
from stream_learner.operations.doctor.findings import SEVERITIES, Finding, quantile
from stream_learner.operations.doctor.hours import hours_of
from stream_learner.operations.doctor.ids import (
    IdPaths,
    Pair,
    best_pair,
    check_ids,
    check_listed,
    check_matches,
    check_several,
    pairs_of_paths,
)
from stream_learner.operations.doctor.keys import Keys, check_keys, keys_of
from stream_learner.operations.doctor.leaks import Leak, leaks
from stream_learner.operations.doctor.outages import check_outages, check_partitions, outages_of
from stream_learner.operations.doctor.proposal import Proposal
from stream_learner.operations.doctor.retention import check_retention
from stream_learner.operations.doctor.sample import Limits, Show, read_samples
from stream_learner.operations.doctor.sizing import Traffic
from stream_learner.operations.doctor.swapped import swapped
from stream_learner.operations.doctor.times import OF_RECORDS, Clock, check_times, moment, time_fields, unread_times
from stream_learner.operations.doctor.traffic import features_of, sizing_of
from stream_learner.roles.common.event_decoders import EventForms
from stream_learner.roles.common.key_rule import with_key_rule
from stream_learner.version import __version__

Configured = Callable[[Sequence[str]], Config]
"""Makes a configuration with further settings, as `--set` takes them."""
_OF_TIMES = {f"{side}_time_{what}" for side in ("impressions", "clicks") for what in ("ahead", "far", "unreadable")}
"""Where these are found the times of the topics tell nothing of each other."""
MOST_PAIRS = 5


@dataclass(frozen=True)
class Report:
    """findings: those that stop first. topics, fields, delays: what was seen, as `--json` prints it. crosses: those
    worth a try. sizing: what a model takes at the rate of the sample, None where the sample does not tell.
    configuration: the text of the first one, where one was made; else None. ids: the pairs of fields that share values,
    the one that fits best first, and with how many of how many clicks. versions: of what has looked, and the model's
    key rule.
    """

    findings: list[Finding]
    topics: list[dict[str, Any]]
    fields: list[dict[str, Any]]
    delays: dict[str, float]
    crosses: list[Cross]
    sizing: dict[str, Any] | None = None
    configuration: str | None = None
    ids: list[dict[str, Any]] = field(default_factory=list)
    versions: dict[str, Any] = field(default_factory=dict)

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
    """Make a configuration from a look at the topics, and judge them by it; none of topics that are swapped.

    Raises what `doctor` raises.
    """
    sides = _sides(configured(()), limits, show)
    proposal, looked = propose(configured, *sides)
    config = configured(proposal.overrides())
    report = _report(replace(looked, config=config), look_at(_settings(config), config), advises=True)
    if looked.swapped is not None:
        return report
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


@dataclass(frozen=True)
class _Looked:
    """What the first steps have settled, by which the later ones judge.

    clocks, ids, keys: those that fit, configured or not. times: the fields that look like times. of_times, of_ids: what
    is wrong with those configured. repeats: of ids. id_pairs: as of `pairs_of_paths`. delays: as of `delays_ms`.
    judged: as of `with_clicks_read`. forms: of records. leaks: fields that tell the label. swapped: whether each topic
    holds what the other should.
    """

    config: Config
    sides: tuple[Side, Side]
    forms: list[Finding]
    clocks: tuple[Clock, Clock]
    of_times: tuple[list[Finding], list[Finding]]
    times: tuple[list[Clock], list[Clock]]
    ids: IdPaths
    id_pairs: list[IdPaths]
    of_ids: list[Finding]
    repeats: list[Finding]
    are_ids_known: bool
    pairs: list[Pair]
    delays: list[float]
    keys: tuple[Keys, Keys]
    judged: list[Event]
    fields: list[Field]
    leaks: list[Leak]
    swapped: Finding | None

    @property
    def share(self) -> float:
        """The share of impressions that have a click."""
        return len({id(pair.impression) for pair in self.pairs}) / len(self.judged) if self.judged else 0.0


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
    return _report(_look(config, (impressions, clicks)), cluster, advises=advises)


def _report(looked: _Looked, cluster: Cluster, *, advises: bool) -> Report:
    config, (impressions, clicks) = looked.config, looked.sides
    plan = config.event_specs()[0].impression_plan(config.feature_spec())
    fields, told = looked.fields, looked.leaks
    features = [one for one in fields if _is_feature(one, plan, looked)]
    rows, of_records = _check_records(looked, plan)
    findings = [*looked.forms, *_check_brokers(looked, cluster)]
    if looked.swapped is not None:
        findings.insert(0, looked.swapped)
    else:
        findings += [*looked.of_times[0], *looked.of_times[1], *looked.of_ids, *looked.repeats, *_check_pairs(looked)]
        findings += check_names(fields, config.feature_spec(), features)
        findings += check_fields(features, plan, looked.times[0], told, config.learner.optimizer.name)
        findings += of_records
    report = Report(
        sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity)),
        [_topic(*one) for one in zip(looked.sides, looked.clocks, looked.keys, strict=True)],
        [asdict(field) for field in fields],
        quantiles_of(looked.delays),
        crosses=[],
        ids=[{**asdict(pair), "of": len(clicks.events)} for pair in looked.id_pairs[:MOST_PAIRS]],
        versions={"stream_learner": __version__, "librdkafka": LIBRDKAFKA, "key_rule": config.feature_spec().key_rule},
    )
    if not advises or looked.swapped is not None:
        return report
    share = looked.share if looked.judged else Traffic.click_share
    replication = max((info.replication for info in cluster.known([impressions.sample.topic])), default=0)
    return replace(
        report,
        crosses=crosses_of(looked.judged, looked.pairs, features, plan, (leak.path for leak in told)),
        sizing=sizing_of(config, impressions, looked.clocks[0], features_of(rows), share, replication),
    )


class _Fits(NamedTuple):
    """Times and ids as the fields show them, whatever is configured."""

    times: tuple[list[Clock], list[Clock]]
    pairs: list[IdPaths]
    ids: IdPaths | None

    @classmethod
    def of(cls, sides: tuple[Side, Side]) -> _Fits:
        times = time_fields(sides[0]), time_fields(sides[1])
        pairs = pairs_of_paths(*sides, times)
        return cls(times, pairs, best_pair(pairs, sides[1]))


def _look(config: Config, sides: tuple[Side, Side], fits: _Fits | None = None) -> _Looked:
    """Forms, times and ids: each is told where it is wrong, and what fits is gone by."""
    (impressions, clicks), specs, most_bad = sides, config.event_specs(), config.join.max_bad_share
    timed = [check_times(side, of, most_bad) for side, of in zip(sides, specs, strict=True)]
    clocks, (times, id_pairs, best) = (timed[0][0], timed[1][0]), fits or _Fits.of(sides)
    ids, of_ids = check_ids(impressions, clicks, specs, best, most_bad, clocks)
    in_lists = [] if best else pairs_of_paths(impressions, clicks, times, in_lists=True)
    listed = best_pair(in_lists, clicks)
    if listed is not None:
        id_pairs = in_lists
        ids, of_ids, best = listed, [*check_listed(sides, listed)], listed
    pairs = ids.pairs(impressions.events, clicks.events)
    better = best if best is not None and best.shared >= len(pairs) / 2 else ids
    repeats = [*check_unique(impressions, ids, better)]
    if any(one.severity == "stops" for one in repeats):  # ids of users pair clicks with impressions of other times
        ids, pairs = better, better.pairs(impressions.events, clicks.events)
    judged = with_clicks_read(impressions, pairs, clocks[0])
    return _Looked(
        config,
        sides,
        [finding for side in sides for finding in check_forms(side, most_bad)],
        clocks,
        (timed[0][1], timed[1][1]),
        times,
        ids,
        id_pairs,
        of_ids,
        repeats,
        not of_ids or best is not None,
        pairs,
        delays_ms(pairs, clocks),
        (keys_of(impressions), keys_of(clicks)),
        judged,
        fields_of(impressions),
        leaks(judged, pairs, {ids.impressions, clocks[0].path}),
        swapped(sides, times),
    )


def _check_pairs(looked: _Looked) -> Iterable[Finding]:
    """Impressions and their clicks: matches, keys, clocks and delays, ids that are unique, where clicks begin."""
    spec, pairs, clocks = looked.config.join_spec(), looked.pairs, looked.clocks
    impressions, clicks = looked.sides
    unread = any(one.severity == "stops" or one.name.endswith("empty") for one in looked.forms)
    if not unread and looked.are_ids_known:
        yield from check_matches(*looked.sides, looked.ids, pairs, clocks, spec.window_ms)
    yield from check_keys(*looked.sides, pairs, looked.keys)
    of_clocks: list[Finding] = []
    of_times = {finding.name for found in looked.of_times for finding in found}
    if not any(name.endswith("time_ahead") for name in of_times):
        gap = clock_gap_ms(pairs, clocks)
        of_clocks = [*check_some_clocks(pairs, (impressions.sample.topic, clicks.sample.topic), clocks, spec)]
        if gap is not None:
            of_clocks = [*check_clocks(gap, *looked.sides, clocks, looked.delays, spec)]
        of_clocks = of_clocks or [*check_delays(looked.delays, spec)]
    yield from of_clocks
    yield from check_several(impressions, clicks, looked.id_pairs)
    yield from check_disorder(impressions, clocks[0], spec)
    yield from check_late_clicks(pairs, looked.sides, clocks, spec)
    yield from check_share(looked.judged, pairs, clicks.sample.topic)
    if not (of_times | {finding.name for finding in of_clocks}) & {"clocks_differ", *_OF_TIMES}:
        yield from check_begin(*looked.sides, clocks, looked.delays, looked.config)
        outages = outages_of(looked.sides, pairs, clocks, looked.delays, looked.config)
        yield from check_outages(outages, clicks.sample.topic)
        yield from check_partitions(looked.sides, pairs)


def _is_feature(field: Field, plan: Plan, looked: _Looked) -> bool:
    """Whether a field gives features: an event's own time does by its hour or weekday."""
    of = plan.of(field.path)
    is_other = field.path not in (looked.ids.impressions, looked.clocks[0].path)
    return of.feature and (is_other or of.settings.is_time)


def _check_records(looked: _Looked, plan: Plan) -> tuple[list[PlainRow], list[Finding]]:
    """What the joiner would refuse, and whether the topics keep what it reads; the impressions as it reads them."""
    most_bad, keep_ms = looked.config.join.max_bad_share, looked.config.must_keep_ms()
    plans = plan, looked.config.event_specs()[1].click_plan()
    rows: list[list[PlainRow]] = []
    findings: list[Finding] = []
    for side, of_side, of_times in zip(looked.sides, plans, looked.of_times, strict=True):
        told = {Reason.NO_ID, Reason.BAD_ID} if looked.of_ids else set()
        told |= {Reason.BAD_TIME, Reason.TIME_AHEAD} if of_times else set()
        read, reasons = read_some(side, of_side)
        rows.append(read)
        findings += check_usable(side, reasons, most_bad, told)
        findings += check_retention(side, keep_ms[side.sample.topic])
    return rows[0], findings


def _check_brokers(looked: _Looked, cluster: Cluster) -> Iterable[Finding]:
    """What the brokers tell: settings and replicas of topics, and rights."""
    paths = looked.ids.impressions, looked.ids.clicks
    by_id = [
        side.sample.topic for side, of, path in zip(looked.sides, looked.keys, paths, strict=True) if of.field == path
    ]
    yield from check_cluster(cluster, looked.config, by_id)
    yield from check_rights(cluster, looked.config)


def _topic(side: Side, clock: Clock, keys: object) -> dict[str, Any]:
    """What was seen of a topic. lag_ms: the median of record timestamp - time. newest_age_ms: how long before the look
    its newest record was written, None where that was not read."""
    newest_ms = max((one.time_ms for of in side.sample.blocks[0].values() for one in of), default=-1)
    read_at_ms = None if side.sample.cut_short or newest_ms < 0 else side.sample.read_at_ms
    times = sorted(clock.times(side.events))
    return {
        "topic": side.sample.topic,
        "partitions": side.sample.partitions,
        "records": side.forms.total(),
        "held": side.sample.held,
        "forms": dict(side.forms.most_common()),
        "times": f"{moment(times[0])} to {moment(times[-1])}" if times else "none",
        "lag_ms": -quantile(clock.ahead_ms(side.events) or [0], 0.5),
        "newest_age_ms": None if read_at_ms is None else read_at_ms - newest_ms,
        "keys": str(keys),
    }


def propose(configured: Configured, impressions: Side, clicks: Side) -> tuple[Proposal, _Looked]:
    """A first configuration: ids and times, then what needs them; and what was seen with these."""
    sides, proposal = (impressions, clicks), Proposal()
    fits = _Fits.of(sides)
    proposal.add_inputs(fits.ids, fits.times)

    looked = _look(configured(proposal.overrides()), sides, fits)
    specs, pairs = looked.config.event_specs(), [] if fits.ids is None else looked.pairs
    clocks = Clock(specs[0].time, specs[0].time_unit), Clock(specs[1].time, specs[1].time_unit)
    right = clocks if clock_gap_ms(pairs, clocks) is None else (OF_RECORDS, OF_RECORDS)
    delays = delays_ms(pairs, right)
    proposal.add_join(delays, max(disorder_ms(side, clock) for side, clock in zip(sides, clocks, strict=True)))

    plan = specs[0].impression_plan(configured(()).feature_spec())
    features = [one for one in looked.fields if plan.of(one.path).feature]
    outages = outages_of(sides, pairs, right, delays, configured(proposal.overrides()))
    judged = with_clicks_read(impressions, pairs, right[0])
    hours = None if outages.found else hours_of(judged, pairs, right[0])  # an outage is no habit
    proposal.add_features(
        features,
        {str(time.path) for time in fits.times[0]} | {path for path, _ in unread_times(impressions)},
        looked.leaks,
        hours,
    )
    return proposal, looked
