"""The parameters of synthetic traffic: its fields, how often and when it is clicked, and how much of it is
irregular."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Field:
    """A categorical field of an impression.

    `values` is the number of its values; the k-th most frequent has a share proportional to k**-zipf. `spread` is the
    standard deviation of their true weights (log-odds). An `integer` field is written as a JSON
    number, to be listed as categorical; any other as a string.
    """

    name: str
    values: int
    zipf: float
    spread: float
    integer: bool = False


FIELDS = (
    Field("site", 200, 1.1, 0.6),
    Field("ad", 300, 1.05, 0.8),
    Field("segment", 40, 0.8, 0.6),
    Field("device", 5, 1.0, 0.4),
    Field("country", 30, 1.3, 0.4),
    Field("slot", 6, 0.7, 0.4, integer=True),
)


@dataclass(frozen=True, slots=True)
class TrafficShape:
    """The traffic that `TrafficModel` generates. Shares are of impressions, or of clicks if the name says so.

    label_share: share of impressions with a click that counts, on average over the true model.
    window_ms: the join's window; a click later than this after its impression does not count.
    delay_median_ms, delay_sigma: the click's delay is lognormal, so some come after the window.
    jitter_ms: mean time from an event to its arrival, exponential; events of a few ms arrive out of order.
    duplicate_share, click_duplicate_share: repeats of an impression, of a click, up to two seconds later.
    orphan_share: clicks without an impression, as a share of all clicks.
    late_share: clicks that arrive `late_after_ms` to twice that after their impression's window closed;
    more than a tick and the grace of the join, or they count all the same.
    bad_share: records of either topic that are no events.
    """

    fields: tuple[Field, ...] = FIELDS
    label_share: float = 0.15
    window_ms: int = 10_000
    delay_median_ms: float = 1_500.0
    delay_sigma: float = 1.0
    jitter_ms: float = 15.0
    duplicate_share: float = 0.005
    click_duplicate_share: float = 0.02
    orphan_share: float = 0.02
    late_share: float = 0.01
    late_after_ms: int = 5_000
    bad_share: float = 0.0005

    def __post_init__(self) -> None:
        shares = {
            "label_share": self.label_share,
            "duplicate_share": self.duplicate_share,
            "click_duplicate_share": self.click_duplicate_share,
            "orphan_share": self.orphan_share,
            "late_share": self.late_share,
            "bad_share": self.bad_share,
        }
        for name, share in shares.items():
            if not 0.0 <= share < 1.0:
                raise ValueError(f"{name} must be in [0, 1), not {share}")
        if not 0.0 < self.label_share <= 0.5:
            raise ValueError(f"label_share must be in (0, 0.5], not {self.label_share}")
        if self.window_ms <= 0 or self.delay_median_ms <= 0 or self.delay_sigma <= 0:
            raise ValueError("window_ms, delay_median_ms and delay_sigma must be above 0")


DEMO = TrafficShape()
"""Clicks are so frequent that a model visibly learns within a minute."""

REALISTIC = replace(DEMO, label_share=0.02, orphan_share=0.01, bad_share=0.0001)
"""The click rate of two per cent that is usual in display advertising."""
