"""Words for messages. It imports nothing of ours, so that all layers may use it."""

from __future__ import annotations


def count_of(count: int, noun: str, plural: str = "") -> str:
    """A count with its noun: "1 partition", "2 partitions", "1,200 partitions". plural: where it is not noun + "s"."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"
