"""The traffic of a schedule as a `Scenario`, in the order to send it: a known scenario with stretches sent twice, or
one of the present time."""

from __future__ import annotations

from dataclasses import replace

from proofs.chaos.plan import Plan
from tests.oracles.loop import settings
from tests.scenario_events import START_MS, Mix, history, value_of
from tests.scenarios import Message, Scenario, by_hash, scenario

NOW = Mix(impressions=2_400, gap_ms=60, click_share=0.5, late_share=0.05, orphan_share=0.1, repeat_share=0.05)
"""Traffic of about two and a half minutes; a schedule by the clock sends the events up to its end."""

LEAD_MS = 30_000
"""The time from the start of a history to its first event."""


def traffic_of(plan: Plan, now_ms: int) -> Scenario:
    """Both topics, partition by partition. By log time they end with sentinels; by the clock they begin at `now_ms`."""
    if plan.by_clock:
        return _happening(plan, now_ms)
    made = scenario(plan.scenario, plan.partitions, seed=plan.traffic_seed)
    impressions, clicks = (
        [_repeated(made.before_sentinels(part), plan.repeats) + made.sentinels(part) for part in topic]
        for topic in (made.impressions, made.clicks)
    )
    return replace(made, impressions=impressions, clicks=clicks)


def _repeated(body: list[Message], repeats: tuple[tuple[float, float, float], ...]) -> list[Message]:
    """The messages, with some stretches repeated later."""
    size = len(body)
    again = sorted(((int(at * size), body[int(a * size) : int(b * size)]) for a, b, at in repeats), key=lambda r: r[0])
    out: list[Message] = []
    done = 0
    for at, stretch in again:
        out += [*body[done:at], *stretch]
        done = at
    return [*out, *body[done:]]


def _happening(plan: Plan, now_ms: int) -> Scenario:
    s = settings(
        window_ms=3_000,
        skew_ms=200,
        tick_ms=250,
        dedupe_ms=5_000,
        lateness_ms=5_000,
        max_skew_ms=5_000,
        agree=4,
        categorical=("slot",),
    )
    impressions, clicks = history(NOW, s, plan.traffic_seed)
    shift_ms = now_ms - START_MS - LEAD_MS
    topics = []
    for events, id_field in ((impressions, s["id"]), (clicks, s["click_id"])):
        parts: list[list[Message]] = [[] for _ in range(plan.partitions)]
        for event in events:
            message = Message(event.time_ms + shift_ms, str(event.id).encode(), value_of(event, id_field, None, s))
            parts[by_hash(message.key, plan.partitions)].append(message)
        topics.append(parts)
    return Scenario(plan.scenario, s, *topics)
