"""For each alert what must raise it, and what is close to it and must not."""

from __future__ import annotations

from dataclasses import dataclass

from stream_learner.adapters.telemetry import metric_names as names
from tests.chart.recorded import Step, adds, once, sets, takes, together


@dataclass(frozen=True)
class Case:
    """What the metrics of processes do, one in each pod, for so many minutes; looked at every so many minutes."""

    alert: str
    fires: tuple[Step, ...]
    quiet: tuple[Step, ...]
    minutes: int = 20
    every: int = 1


def _impressions(**outcomes: float) -> Step:
    return together(*(adds(names.JOINER_IMPRESSIONS, count, outcome=name) for name, count in outcomes.items()))


def _clicks(**outcomes: float) -> Step:
    return together(*(adds(names.JOINER_CLICKS, count, outcome=name) for name, count in outcomes.items()))


def _requests(good: int, failed: int) -> Step:
    return together(
        adds(names.SERVE_REQUESTS, good, protocol="v1", name="ctr", code="200"),
        adds(names.SERVE_REQUESTS, failed, protocol="v1", name="ctr", code="503"),
    )


def _fit(events: int = 0, unknown: int = 0, fields: int = 0, without: int = 0) -> Step:
    return together(
        adds(names.SCORER_EVENTS, events),
        adds(names.SCORER_EVENTS_UNKNOWN, unknown),
        adds(names.SCORER_FIELDS, fields),
        adds(names.SCORER_FIELDS_UNKNOWN, without),
    )


def _restarts(role: str, every: int) -> Step:
    return sets(names.START_TIME, lambda minute: 1e9 + 60 * (minute - minute % every), role=role)


def _lag(seconds: float, *, stream: float = 0, click: float | None = None, wait: float = 0) -> Step:
    """A partition whose windows are so far behind; how much of it the stream explains."""
    known = {names.JOINER_STREAM_LAG: stream, names.JOINER_CLICK_DELAY: click, names.JOINER_WINDOWS_WAIT: wait}
    gauges = {names.JOINER_LAG: seconds, **{metric: value for metric, value in known.items() if value is not None}}
    return together(*(sets(metric, value, partition="0") for metric, value in gauges.items()))


def _day(positives_today: int) -> Step:
    """A day and two hours of 1,000 examples in ten minutes, 50 of them clicked; so many in the last hours."""
    return together(
        adds(names.JOINER_IMPRESSIONS, 1_000, outcome="example"),
        adds(names.JOINER_POSITIVES, lambda minute: positives_today if minute > 24 * 60 else 50),
    )


_SILENT = sets(names.JOINER_PARTITIONS, 0)
JOINER = (
    Case(
        "StreamLearnerLagBeyondWindow",
        (_lag(3_661, stream=1_800, wait=1_800),),
        (_lag(59), _lag(3_659, stream=1_800, click=60, wait=1_740)),
    ),
    Case("StreamLearnerNothingJoined", (_SILENT,), (sets(names.JOINER_LAG, 3, partition="0"),)),
    Case(
        "StreamLearnerAttemptsLost",
        (adds(names.JOINER_ATTEMPTS_LOST, 1, reason="other_writer"),),
        (adds(names.JOINER_ATTEMPTS_LOST, lambda minute: float(minute % 6 == 0), reason="other_writer"),),
        minutes=90,
    ),
    Case(
        "StreamLearnerBadShare",
        (sets(names.JOINER_BAD_SHARE, 0.006, input="clicks"),),
        (sets(names.JOINER_BAD_SHARE, 0.004, input="clicks"),),
    ),
    Case("StreamLearnerPartitionsUnread", (sets(names.JOINER_UNREAD, 1),), (sets(names.JOINER_UNREAD, 0),)),
    Case("StreamLearnerOrphans", (_clicks(matched=70, orphan=30),), (_clicks(matched=90, orphan=10),), minutes=60),
    Case(
        "StreamLearnerClicksSilent",
        (sets(names.JOINER_HELD, 3),),
        (sets(names.JOINER_HELD, lambda minute: float(minute % 4 == 0)),),
    ),
    Case(
        "StreamLearnerWindowsWait",
        (sets(names.JOINER_WINDOWS_WAIT, lambda minute: 60.0 * minute, partition="0"),),
        (sets(names.JOINER_WINDOWS_WAIT, lambda minute: 60.0 * (minute % 15), partition="0"),),
    ),
    Case(
        "StreamLearnerGuessedExamples",
        (adds(names.JOINER_GUESSED, lambda minute: float(minute == 12), partition="0"),),
        (adds(names.JOINER_GUESSED, 0, partition="0"),),
    ),
    Case(
        "StreamLearnerEarly",
        (together(_impressions(example=97), adds(names.JOINER_EARLY_EXAMPLES, 3)),),
        (together(_impressions(example=99), adds(names.JOINER_EARLY_EXAMPLES, 1)),),
        minutes=60,
    ),
    Case(
        "StreamLearnerClockDiffers",
        (sets(names.JOINER_CLOCK_AHEAD, -31),),
        (sets(names.JOINER_CLOCK_AHEAD, lambda minute: 60.0 * (minute % 12 > 0)), sets(names.JOINER_CLOCK_AHEAD, -29)),
    ),
    Case(
        "StreamLearnerLogTimeAhead",
        (sets(names.JOINER_LOG_TIME_AHEAD, 11, input="clicks"),),
        (sets(names.JOINER_LOG_TIME_AHEAD, 9, input="clicks"),),
    ),
    Case(
        "StreamLearnerLateImpressions",
        (_impressions(example=98, late=2),),
        (_impressions(example=995, late=5),),
        minutes=60,
    ),
    Case("StreamLearnerLateClicks", (_clicks(matched=90, late=10),), (_clicks(matched=96, late=4),), minutes=60),
    Case(
        "StreamLearnerDeadLetters",
        (together(_impressions(example=90), _clicks(matched=98, dead_lettered=2)),),
        (together(_impressions(example=995, dead_lettered=5), _clicks(matched=9)),),
        minutes=40,
    ),
    Case(
        "StreamLearnerDuplicates",
        (together(_impressions(example=50, duplicate=50), _clicks(matched=9)),),
        (together(_impressions(example=92, duplicate=8), _clicks(matched=9)),),
        minutes=60,
    ),
    Case(
        "StreamLearnerNoPositives",
        (_impressions(example=100),),
        (together(_impressions(example=100), adds(names.JOINER_POSITIVES, lambda minute: float(minute % 20 == 0))),),
        minutes=90,
    ),
    Case("StreamLearnerPositivesFall", (_day(5),), (_day(40),), minutes=26 * 60, every=10),
    Case(
        "StreamLearnerJoinerNotReady",
        (sets(names.READY, 0, role="joiner"),),
        (sets(names.READY, lambda minute: float(minute > 8), role="joiner"),),
    ),
    Case(
        "StreamLearnerInputsExpire",
        (sets(names.JOINER_HEADROOM, 3_599, of="clicks", partition="0"),),
        (sets(names.JOINER_HEADROOM, 3_601, of="clicks", partition="0"),),
    ),
    Case(
        "StreamLearnerFieldGrows",
        (sets(names.JOINER_FIELD_FEATURES, lambda minute: 2_000.0 * minute, field="session"),),
        (sets(names.JOINER_FIELD_FEATURES, lambda minute: 1_500.0 * minute, field="session"),),
        minutes=90,
    ),
    Case("StreamLearnerJoinerEnds", (_restarts("joiner", 5),), (_restarts("joiner", 25),), minutes=40),
)
LEARNER = (
    Case("StreamLearnerNothingLearned", (_SILENT,), (sets(names.LEARNER_TICK_TIME, 1e9),)),
    Case(
        "StreamLearnerNobodyLeads",
        (sets(names.LEARNER_LEADS, 0),) * 2,
        (sets(names.LEARNER_LEADS, 0), sets(names.LEARNER_LEADS, 1)),
    ),
    Case(
        "StreamLearnerNoStandby",
        (sets(names.LEARNER_LEADS, 1),),
        (sets(names.LEARNER_LEADS, 1), sets(names.LEARNER_LEADS, 0)),
    ),
    Case("StreamLearnerForeignRecords", (once(adds(names.LEARNER_FOREIGN, 1), 12),), (adds(names.LEARNER_FOREIGN, 0),)),
    Case("StreamLearnerHeld", (sets(names.LEARNER_GATE_STATE, 1),), (sets(names.LEARNER_GATE_STATE, 0),)),
    Case(
        "StreamLearnerGateWarns",
        (once(adds(names.LEARNER_GATE_WARNINGS, 1), 12),),
        (adds(names.LEARNER_GATE_WARNINGS, 0),),
    ),
    Case(
        "StreamLearnerPublicationHeld",
        (sets(names.LEARNER_PUBLICATION_HELD, 1),),
        (sets(names.LEARNER_PUBLICATION_HELD, 0),),
    ),
    Case(
        "StreamLearnerNoFirstVersion",
        (sets(names.LEARNER_FIRST_WAITS, 86_460),),
        (sets(names.LEARNER_FIRST_WAITS, 3_600),),
    ),
    Case(
        "StreamLearnerDecisionLate",
        (once(adds(names.LEARNER_GATE_DECISIONS, 1, outcome="late"), 12),),
        (once(adds(names.LEARNER_GATE_DECISIONS, 1, outcome="skip"), 12),),
    ),
    Case(
        "StreamLearnerRefusedExamples",
        (once(adds(names.LEARNER_REFUSED, 1), 12),),
        (adds(names.LEARNER_EXAMPLES, 100),),
    ),
    Case(
        "StreamLearnerPredictsBadly",
        (sets(names.LEARNER_ENTROPY, 1.02),),
        (together(sets(names.LEARNER_ENTROPY, 0.9), sets(names.LEARNER_CALIBRATION, 1.1)),),
        minutes=90,
    ),
    Case("StreamLearnerModelGrows", (sets(names.LEARNER_TABLE_BYTES, 5.2e9),), (sets(names.LEARNER_TABLE_BYTES, 5e9),)),
    Case(
        "StreamLearnerRowsNearBound",
        (together(sets(names.LEARNER_FEATURES, 81), sets(names.LEARNER_ROWS_LIMIT, 100)),),
        (
            together(sets(names.LEARNER_FEATURES, 79), sets(names.LEARNER_ROWS_LIMIT, 100)),
            together(sets(names.LEARNER_FEATURES, 1e9), sets(names.LEARNER_ROWS_LIMIT, 0)),
        ),
    ),
    Case(
        "StreamLearnerRowsHeldBack",
        (once(adds(names.LEARNER_HELD_BACK, 5), 12),),
        (adds(names.LEARNER_HELD_BACK, 0),),
    ),
    Case(
        "StreamLearnerFieldNearBound",
        (together(sets(names.LEARNER_FIELD_ROWS, 81, field="user"), sets(names.LEARNER_FIELD_LIMIT, 100)),),
        (
            together(sets(names.LEARNER_FIELD_ROWS, 79, field="user"), sets(names.LEARNER_FIELD_LIMIT, 100)),
            together(sets(names.LEARNER_FIELD_ROWS, 1e9, field="user"), sets(names.LEARNER_FIELD_LIMIT, 0)),
        ),
    ),
    Case(
        "StreamLearnerFieldHeldBack",
        (once(adds(names.LEARNER_FIELD_HELD_BACK, 5), 12),),
        (adds(names.LEARNER_FIELD_HELD_BACK, 0),),
    ),
    Case("StreamLearnerDiskFills", (sets(names.LEARNER_FREE_BYTES, 5e8),), (sets(names.LEARNER_FREE_BYTES, 6e8),)),
    Case(
        "StreamLearnerLogExpires",
        (sets(names.LEARNER_HEADROOM, 3_599, partition="0"),),
        (sets(names.LEARNER_HEADROOM, 3_601, partition="0"),),
    ),
    Case(
        "StreamLearnerCopiesStop",
        (together(sets(names.LEARNER_COPY_AGE, 9_999), adds(names.LEARNER_CHECKPOINTS, 2)),),
        (together(sets(names.LEARNER_COPY_AGE, 3_000), adds(names.LEARNER_CHECKPOINTS, 2)),),
        minutes=40,
    ),
    Case(
        "StreamLearnerPublicationFails",
        (once(adds(names.LEARNER_PUBLISH_FAILED, 1), 12),),
        (adds(names.LEARNER_PUBLISH_FAILED, 0),),
    ),
    Case(
        "StreamLearnerPublicationPaused",
        (sets(names.LEARNER_PAUSED_SECONDS, 3_601),),
        (sets(names.LEARNER_PAUSED_SECONDS, 3_599),),
    ),
    Case(
        "StreamLearnerLearnerNotReady",
        (sets(names.READY, 0, role="learner"),),
        (sets(names.READY, lambda minute: float(minute > 8), role="learner"),),
    ),
    Case("StreamLearnerLearnerEnds", (_restarts("learner", 5),), (_restarts("learner", 25),), minutes=40),
)
SCORER = (
    Case("StreamLearnerStale", (sets(names.SCORER_FRESHNESS, 301),), (sets(names.SCORER_FRESHNESS, 299),)),
    Case("StreamLearnerVersionStale", (sets(names.SCORER_STALE, 1),), (sets(names.SCORER_STALE, 0),)),
    Case(
        "StreamLearnerRefusesSoon",
        (
            together(
                sets(names.SCORER_VERSION_AGE, lambda minute: 60.0 * minute),
                sets(names.SCORER_STALE, lambda minute: float(minute > 2)),
            ),
        ),
        (together(sets(names.SCORER_VERSION_AGE, lambda minute: 60.0 * minute), sets(names.SCORER_STALE, 0)),),
        minutes=40,
    ),
    Case("StreamLearnerUnusableRecords", (once(adds(names.SCORER_UNUSABLE, 1), 12),), (adds(names.SCORER_APPLIED, 1),)),
    Case(
        "StreamLearnerServesCopy",
        (sets(names.SCORER_FROM_COPY, 1),),
        (sets(names.SCORER_FROM_COPY, lambda minute: float(minute < 8)),),
    ),
    Case(
        "StreamLearnerCopyFails",
        (once(adds(names.SCORER_COPIES, 1, outcome="failed"), 12),),
        (adds(names.SCORER_COPIES, 1, outcome="kept"),),
    ),
    Case("StreamLearnerScorerDiskFills", (sets(names.SCORER_FREE_BYTES, 5e8),), (sets(names.SCORER_FREE_BYTES, 6e8),)),
    Case(
        "StreamLearnerScorerNotReady",
        (sets(names.SCORER_READY, 0),),
        (sets(names.SCORER_READY, lambda minute: float(minute > 12)),),
    ),
    Case(
        "StreamLearnerRequestsDoNotFit",
        (_fit(events=1_000, unknown=60), _fit(fields=120, without=70)),
        (_fit(events=1_000, unknown=40, fields=120, without=50), _fit()),
        minutes=30,
    ),
    Case("StreamLearnerRequestsFail", (_requests(95, 5),), (_requests(1_000, 5),)),
    Case(
        "StreamLearnerConnectionsCut",
        (adds(names.SERVE_CUT, 1, reason="too_many"),),
        (adds(names.SERVE_CUT, 1, reason="too_slow"),),
    ),
    Case(
        "StreamLearnerSlow",
        (takes(names.SERVE_SECONDS, *[0.002] * 97, 0.4, 0.4, 0.4, protocol="v1"),),
        (takes(names.SERVE_SECONDS, *[0.002] * 999, 0.4, protocol="v1"),),
    ),
    Case("StreamLearnerScorerEnds", (_restarts("serve", 5),), (_restarts("serve", 25),), minutes=40),
)
CASES = (*JOINER, *LEARNER, *SCORER)
