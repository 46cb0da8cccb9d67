"""Mistakes in `roles`: what joiner, learner, copier, scorer and server do next."""

from __future__ import annotations

from tools.seeded_faults.fault import Fault

FAULTS = (
    Fault(
        name="cut-letter-says-its-cut-length",
        area="dead letters",
        harm="Of a dead record that was cut, the header says how long the rest is, not how long it was.",
        file="stream_learner/roles/partition.py",
        old='            headers.append(("value_bytes", str(len(value))))\n'
        "            value = value[: self._plan.letter_bytes]\n",
        new="            value = value[: self._plan.letter_bytes]\n"
        '            headers.append(("value_bytes", str(len(value))))\n',
        tests=("tests/e2e/test_bad_input.py",),
    ),
    Fault(
        name="letters-on-their-way-without-bound",
        area="dead letters",
        harm="While the dead-letter topic is slow, a joiner holds all the dead records that it reads.",
        file="stream_learner/roles/dead_letters.py",
        old="        if not self._read or self._bytes_on_their_way >= self._limit_bytes:\n",
        new="        if not self._read:\n",
        tests=("tests/roles/test_dead_letters.py",),
    ),
    Fault(
        name="newest-records-are-always-right",
        area="bad share",
        harm="A broken producer drains a topic into the dead letters.",
        file="stream_learner/roles/newest_records.py",
        old=" if plan.bad_share.allows(bad, read) else None",
        new=" if read else None",
        tests=("tests/e2e/test_bad_input.py",),
    ),
    Fault(
        name="period-of-bad-records-in-ms",
        area="bad share",
        harm="Bad records of hours ago still count, so a joiner stops long after a mishap.",
        file="stream_learner/roles/inputs.py",
        old="        self._period_s = period_ms / 1000\n",
        new="        self._period_s = period_ms\n",
        tests=("tests/roles/test_hints_and_shares.py", "tests/e2e/test_bad_input.py"),
    ),
    Fault(
        name="idle-metrics-of-a-partition-given-away",
        area="metrics",
        harm="A joiner that gave a partition away goes on reporting its lag, and an alert fires for nothing.",
        file="stream_learner/roles/joiner_report.py",
        old="            metrics.forget(metric, partition=str(partition), **labels)\n",
        new='            metrics.forget(metric, partition=f"{partition:02}", **labels)\n',
        tests=("tests/roles/test_reports.py", "tests/e2e/test_joiners.py"),
    ),
    Fault(
        name="version-of-the-shard-that-is-ahead",
        area="publication",
        harm="Where one shard has lost a publication, the rows that changed in it are not published again.",
        file="stream_learner/roles/publication.py",
        old="        self.version = last.complete_up_to\n",
        new="        self.version = last.latest\n",
        tests=(
            "tests/roles/test_shard_behind.py",
            "tests/roles/test_torn_publications.py",
            "tests/simulation/test_simulation.py",
            "tests/e2e/test_publication.py",
        ),
    ),
    Fault(
        name="torn-publication-is-not-seen",
        area="publication: version record",
        harm="What a torn publication has left is not seen, and its number is used again.",
        file="stream_learner/roles/last_published.py",
        old="torn = 0 if key == VERSION_KEY else max(torn, _number(value))",
        new="torn = max(torn, _number(value)) if key == VERSION_KEY else 0",
        tests=("tests/roles/test_torn_publications.py", "tests/simulation/test_simulation.py"),
    ),
    Fault(
        name="restored-without-all-pieces",
        area="copies of checkpoints",
        harm="A copy that lacks pieces is restored all the same, and the learner finds its state damaged.",
        file="stream_learner/roles/copied_checkpoint.py",
        old="    if len(found) == len(wanted):\n        into.commit(copy)\n",
        new="    if len(found) <= len(wanted):\n        into.commit(copy)\n",
        tests=("tests/roles/test_lost_state.py", "tests/e2e/test_lost_disk.py"),
    ),
    Fault(
        name="paused-model-is-stale",
        area="scorer: staleness",
        harm="Scorers of a model whose publication is paused on purpose become unready one after the other.",
        file="stream_learner/roles/model_replica.py",
        old="        if self._max_staleness_ms is not None and quiet_ms > self._max_staleness_ms:\n",
        new="        if self._max_staleness_ms is not None and since_ms > self._max_staleness_ms:\n",
        tests=("tests/cli_e2e/test_alias.py",),
    ),
    Fault(
        name="never-stale",
        area="scorer: staleness",
        harm="A scorer whose learner is gone says that it is ready for ever.",
        file="stream_learner/roles/model_replica.py",
        old="        quiet_ms = (time.monotonic() - max(reader.applied_at_s, self._excused_at_s)) * 1000\n",
        new="        quiet_ms = time.monotonic() - max(reader.applied_at_s, self._excused_at_s)\n",
        tests=("tests/cli_e2e/test_scorer.py",),
    ),
    Fault(
        name="dead-loop-is-alive",
        area="probes",
        harm="A role whose loop hangs goes on answering that it is alive, and is never restarted.",
        file="stream_learner/roles/lifecycle.py",
        old="    alive = all(heartbeat.alive() for heartbeat in heartbeats)\n",
        new="    alive = any(heartbeat.alive() for heartbeat in heartbeats)\n",
        tests=("tests/roles/test_lifecycle.py", "tests/roles/test_liveness.py", "tests/edges/test_http.py"),
    ),
    Fault(
        name="learner-waits-for-the-lease",
        area="leadership",
        harm="A plain `learn` publishes nothing while a standby holds the lease, instead of taking its place.",
        file="stream_learner/roles/leadership.py",
        old="        return self._lease.held or not self.standby\n",
        new="        return self._lease.held\n",
        tests=("tests/roles/test_leader*.py", "tests/e2e/test_standby.py"),
    ),
    Fault(
        name="woken-standby-goes-on",
        area="leadership",
        harm="A learner that slept through the end of its lease follows silently, and nobody learns of the take-over.",
        file="stream_learner/roles/leadership.py",
        old="        if self.standby and self._woke_after_s and lease.elsewhere:\n",
        new="        if self.standby and self._woke_after_s and lease.held:\n",
        tests=("tests/roles/test_leader*.py", "tests/e2e/test_standby.py", "tests/faults/test_pauses.py"),
    ),
    Fault(
        name="note-after-the-head",
        area="copies of checkpoints",
        harm="A crash between the head of a copy and the note of it makes the next copy send everything again.",
        file="stream_learner/roles/copier.py",
        old="""            self._note(copy)
            self._publisher.publish(
                [*self._superseded(copy), Record(self.topic, HEAD_SHARD, HEAD_KEY, encode_copy(copy))]
            )
""",
        new="""            self._publisher.publish(
                [*self._superseded(copy), Record(self.topic, HEAD_SHARD, HEAD_KEY, encode_copy(copy))]
            )
            self._note(copy)
""",
        tests=(
            "tests/roles/test_copier_*.py",
            "tests/roles/test_checkpoint_copies.py",
            "tests/roles/test_lost_state.py",
        ),
    ),
    Fault(
        name="room-before-there-is",
        area="disk room",
        harm="After RocksDB has refused a write, the learner says that there is room again before it has written.",
        file="stream_learner/roles/disk_room.py",
        old="            elif not self._refused:\n                self.wrote()\n",
        new="            else:\n                self.wrote()\n",
        tests=("tests/roles/test_disk_room.py", "tests/faults/test_disk_full.py"),
    ),
    Fault(
        name="records-as-large-as-the-settings-say",
        area="record sizes",
        harm="Where a topic takes less than join.record_bytes, its brokers refuse the joiner's records.",
        file="stream_learner/roles/record_sizes.py",
        old="wanted=wanted_bytes)\n        return limit_bytes\n",
        new="wanted=wanted_bytes)\n        return wanted_bytes\n",
        tests=("tests/faults/test_record_sizes.py",),
    ),
    Fault(
        name="ready-when-one-worker-is",
        area="serving: workers",
        harm="A server with several workers says that it is ready when the first one is, and others refuse requests.",
        file="stream_learner/roles/serving/workers.py",
        old='        return not missing, "; ".join(missing) or "ok"\n',
        new='        return len(missing) < len(self._workers), "; ".join(missing) or "ok"\n',
        tests=("tests/serving/test_processes.py",),
    ),
)
