"""A member of a consumer group as a process of its own, to be killed: prints the partitions it has, one line a change.

In: bootstrap, group, the two topics, the instance id ("" for a dynamic member). Out: lines of partition numbers.
"""

from __future__ import annotations

import sys

from stream_learner.adapters.kafka import KafkaSettings, Membership

QUICK = {"session.timeout.ms": "2000", "heartbeat.interval.ms": "200"}


def main(bootstrap: str, group: str, impressions: str, clicks: str, instance_id: str) -> None:
    """Stay a member until killed."""
    settings = KafkaSettings({"bootstrap.servers": bootstrap, **QUICK}, group=group)
    member = Membership(settings, impressions, clicks, instance_id=instance_id or None)
    while True:
        if member.poll(0.1):
            sys.stdout.write(" ".join(map(str, sorted(member.partitions))) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
