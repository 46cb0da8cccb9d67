"""The mark with which a partition of the training log begins anew: by `begin-anew`, or by a joiner where no example was
made (`first_examples`).
"""

from __future__ import annotations

from stream_learner.core.join.spec import JoinSpec
from stream_learner.core.join.state import resume_anew
from stream_learner.core.log.marks import InputIdentity, Mark, MarkId


def mark_anew(
    partition: int,
    attempt: int,
    after: MarkId,
    *,
    last_tick: int,
    stream_tick: int,
    impressions_from: int,
    clicks_from: int,
    spec: JoinSpec,
    inputs: InputIdentity,
    features: int,
) -> Mark:
    """The mark of the ticks after the mark `after` up to `last_tick`, of an attempt that has no other.

    stream_tick: the last tick of stream time that is closed from now on; with -1 none is, as in a new log, and no
    impression is late. impressions_from, clicks_from: where both inputs go on (offsets). features: their fingerprint.
    """
    return Mark(
        partition=partition,
        attempt=attempt,
        first_tick=after.last_tick + 1,
        last_tick=last_tick,
        next_impression=impressions_from,
        first_click=clicks_from,
        click_cursor=clicks_from,
        records=0,
        pred_attempt=after.attempt,
        pred_tick=after.last_tick,
        resume=resume_anew(spec, stream_tick, inputs, dedupe_from=impressions_from),
        features=features,
        begins_anew=True,
        stream_tick=stream_tick,
    )
