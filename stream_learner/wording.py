"""Words for messages.

In: a count and the name of what is counted. Out: text for people. This file must never import anything of ours.
"""

from __future__ import annotations


def count_of(count: int, noun: str, plural: str = "") -> str:
    """A count with its noun: "1 partition", "2 partitions", "1,200 partitions". plural: where it is not noun + "s"."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"
