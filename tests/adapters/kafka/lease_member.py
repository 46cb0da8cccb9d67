"""A candidate for a lease as a process of its own, to be killed: prints who holds it, one line a change.

"held", "elsewhere" or "neither"; and "slept" where its silence has ended the lease.

In: bootstrap, group, topic, name, the time-out in ms. Out: lines.
"""

from __future__ import annotations

import sys
import time

from stream_learner.adapters.kafka import KafkaSettings, Lease


def main(bootstrap: str, group: str, topic: str, name: str, timeout_ms: str) -> None:
    """Be a candidate until killed."""
    settings = KafkaSettings({"bootstrap.servers": bootstrap}, group=group)
    lease = Lease(settings, topic, timeout_ms=int(timeout_ms), name=name)
    said = "neither"
    while True:
        lease.poll()
        state = "held" if lease.held else "elsewhere" if lease.elsewhere else "neither"
        state += " slept" if lease.silent_s else ""
        if state != said:
            said = state
            sys.stdout.write(f"{state}\n")
            sys.stdout.flush()
        time.sleep(0.01)


if __name__ == "__main__":
    main(*sys.argv[1:])
