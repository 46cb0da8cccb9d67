"""Mistakes in `adapters` and `config`: RocksDB, Kafka, HTTP, secrets, settings."""

from __future__ import annotations

from tools.seeded_faults.fault import Fault

FAULTS = (
    Fault(
        name="head-before-its-pieces",
        area="checkpoints",
        harm="A crash while a checkpoint ends leaves a head whose pieces are not there, and the learner cannot start.",
        file="stream_learner/adapters/rocksdb/store.py",
        old="""        while self.step():
            pass
        store = self._store
        durable = WriteOptions()
        durable.sync = True
        with explained(store._path):
            store._db.write(self._last_batch, durable)
""",
        new="""        store = self._store
        durable = WriteOptions()
        durable.sync = True
        with explained(store._path):
            store._db.write(self._last_batch, durable)
        while self.step():
            pass
""",
        tests=(
            "tests/adapters/rocksdb/test_store.py",
            "tests/adapters/rocksdb/test_store_*.py",
            "tests/faults/test_disk_full.py",
        ),
    ),
    Fault(
        name="torn-pieces-stay",
        area="checkpoints",
        harm="Pieces of checkpoints that were given up stay on disk for good, and fill it.",
        file="stream_learner/adapters/rocksdb/store.py",
        old="        sequence = u64(self._planners[0].state.sequence + 1)\n",
        new="        sequence = u64(self._planners[0].state.sequence + 2)\n",
        tests=(
            "tests/adapters/rocksdb/test_store.py",
            "tests/adapters/rocksdb/test_store_*.py",
            "tests/roles/learner/test_*_state.py",
        ),
    ),
    Fault(
        name="markers-are-not-passed",
        area="Kafka: position",
        harm="Behind the end of a transaction a joiner never believes that it has read all, and no idle tick closes.",
        file="stream_learner/adapters/kafka/shared_reader.py",
        old="            self._position = max(self._position, self._pieces[0])\n",
        new="",
        tests=("tests/adapters/kafka/test_kafka_reader.py", "tests/adapters/kafka/test_kafka_reader_pool.py"),
    ),
    Fault(
        name="set-aside-for-good",
        area="Kafka: many partitions",
        harm="A partition that was far ahead of the others is never read again, and its ticks never close.",
        file="stream_learner/adapters/kafka/reader_pool.py",
        old="        if not reader.assigned and reader.held_bytes <= self._limit_bytes // (4 * len(self._readers)):\n",
        new="        if not reader.assigned and reader.held_bytes < 0:\n",
        tests=("tests/adapters/kafka/test_kafka_reader_pool.py",),
    ),
    Fault(
        name="nobody-is-set-aside",
        area="Kafka: many partitions",
        harm="A partition that is not read for a while fills the memory of the process.",
        file="stream_learner/adapters/kafka/reader_pool.py",
        old="        if self.held_bytes > self._limit_bytes:\n",
        new="        if self.held_bytes < 0:\n",
        tests=("tests/adapters/kafka/test_kafka_reader_pool.py",),
    ),
    Fault(
        name="records-of-before-the-seek",
        area="Kafka: many partitions",
        harm="A partition that is begun again elsewhere first gives records of where it was.",
        file="stream_learner/adapters/kafka/shared_reader.py",
        old="        self._pieces.clear()\n",
        new="",
        tests=("tests/adapters/kafka/test_kafka_reader_pool.py", "tests/adapters/kafka/test_kafka_reader.py"),
    ),
    Fault(
        name="errors-of-another-partition",
        area="Kafka: many partitions",
        harm="One partition that is missing stops the reading of another that is there.",
        file="stream_learner/adapters/kafka/reader_pool.py",
        old="        if placed is not None:\n",
        new="        if placed is None and False:\n",
        tests=("tests/adapters/kafka/test_kafka_reader_pool.py",),
    ),
    Fault(
        name="end-behind-an-open-transaction",
        area="Kafka: read_committed",
        harm="A scorer that starts beside an open transaction waits for an end that committed reading does not reach.",
        file="stream_learner/adapters/kafka/ends.py",
        old="        return self._all(partitions, OffsetSpec.latest(), IsolationLevel.READ_COMMITTED)\n",
        new="        return self._all(partitions, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED)\n",
        tests=("tests/adapters/kafka/test_kafka_reader.py", "tests/adapters/kafka/test_kafka_topics.py"),
    ),
    Fault(
        name="batches-of-any-size",
        area="Kafka: batches",
        harm="The producer sends batches larger than a topic takes, and the joiner stops.",
        file="stream_learner/adapters/kafka/settings.py",
        old='str(min(self._batch_bytes, int(self.get("batch.size", BATCH_BYTES))))',
        new='str(max(self._batch_bytes, int(self.get("batch.size", BATCH_BYTES))))',
        tests=("tests/adapters/kafka/test_kafka_settings.py", "tests/faults/test_record_sizes.py"),
    ),
    Fault(
        name="fenced-is-not-known",
        area="Kafka: errors",
        harm="A publisher that another one has fenced ends as if for a reason unknown, with exit code 1 and not 28.",
        file="stream_learner/adapters/kafka/faults.py",
        old="    E.PRODUCER_FENCED,\n    E.INVALID_PRODUCER_EPOCH,\n",
        new="    E.INVALID_PRODUCER_EPOCH,\n",
        tests=(
            "tests/adapters/kafka/test_kafka_fault*.py",
            "tests/adapters/kafka/test_kafka_outage.py",
            "tests/adapters/kafka/test_kafka_publisher.py",
        ),
    ),
    Fault(
        name="half-a-new-secret",
        area="Kafka: credentials",
        harm="A password file that is being written is taken up half written, and the brokers refuse it.",
        file="stream_learner/adapters/kafka/credentials.py",
        old="        if found == self._known or not settled or found == self._rejected:\n",
        new="        if found == self._known or found == self._rejected:\n",
        tests=("tests/adapters/kafka/test_kafka_credentials.py",),
    ),
    Fault(
        name="key-password-is-shown",
        area="secrets",
        harm="`config show` prints the password of the client's private key.",
        file="stream_learner/config/kafka.py",
        old='    return name.startswith("sasl.") or has_secret_word(name)\n',
        new='    return name.startswith("sasl.") and has_secret_word(name)\n',
        tests=(
            "tests/config/test_config.py",
            "tests/adapters/kafka/test_kafka_settings.py",
            "tests/security/test_secrets.py",
        ),
    ),
    Fault(
        name="librdkafka-prints-a-secret",
        area="secrets",
        harm="Where librdkafka refuses a property, the message holds the secret.",
        file="stream_learner/adapters/kafka/settings.py",
        old='            if is_secret(name) and value:\n                text = text.replace(value, "***")\n',
        new='            if is_secret(name) and not value:\n                text = text.replace(value, "***")\n',
        tests=("tests/adapters/kafka/test_kafka_settings.py", "tests/config/test_config.py"),
    ),
    Fault(
        name="one-request-too-few",
        area="serving: limits",
        harm="A server that may answer one request at a time refuses every one.",
        file="stream_learner/adapters/http/gate.py",
        old="        if self._under_way > self._most:\n",
        new="        if self._under_way >= self._most:\n",
        tests=("tests/roles/scorer/serve/test_limits.py",),
    ),
    Fault(
        name="chunked-body-of-any-size",
        area="serving: limits",
        harm="A body that is sent in chunks is held whole in memory, however large it is.",
        file="stream_learner/adapters/http/bodies.py",
        old='        body += message.get("body", b"")\n'
        "        if len(body) > limit_bytes:\n            raise _too_large(limit_bytes)\n",
        new='        body += message.get("body", b"")\n',
        tests=("tests/roles/scorer/serve/test_limits.py", "tests/roles/scorer/serve/test_protocols.py"),
    ),
    Fault(
        name="token-without-bearer",
        area="serving: token",
        harm="A token is accepted under any scheme of authorization.",
        file="stream_learner/adapters/http/token.py",
        old='        return right and scheme.lower() == b"bearer"\n',
        new="        return right\n",
        tests=("tests/roles/scorer/serve/test_token_and_tls.py",),
    ),
    Fault(
        name="old-token-for-good",
        area="serving: token",
        harm="After the token's file has changed, the old token goes on being accepted and the new one is refused.",
        file="stream_learner/adapters/http/token.py",
        old="            self._digest = self._read()\n            self._log.info",
        new="            self._read()\n            self._log.info",
        tests=("tests/roles/scorer/serve/test_token_and_tls.py",),
    ),
    Fault(
        name="retention-of-one-window",
        area="configuration",
        harm="A retention shorter than twice the window is accepted, and the joiner finds the inputs trimmed.",
        file="stream_learner/config/rules.py",
        old="    if config.topics.retention_ms < 2 * join.window_ms:\n",
        new="    if config.topics.retention_ms < join.window_ms:\n",
        tests=("tests/config/test_config*.py",),
    ),
    Fault(
        name="half-of-a-duration",
        area="configuration",
        harm="Of a duration of several parts only the longest counts: `1h30m` is an hour.",
        file="stream_learner/config/values.py",
        old="    total_ms = sum(Decimal(count) * _MS_BY_UNIT[unit] for count, unit in re.findall(_PART, text))\n",
        new="    total_ms = max(Decimal(count) * _MS_BY_UNIT[unit] for count, unit in re.findall(_PART, text))\n",
        tests=("tests/config/test_config.py", "tests/test_doctests.py"),
    ),
    Fault(
        name="metric-that-no-page-has",
        area="metrics",
        harm="A dashboard asks for `scorer_switches_total` as the docs say, and the program calls it something else.",
        file="stream_learner/adapters/telemetry/metric_names.py",
        old='_counter("scorer_switches_total"',
        new='_counter("scorer_model_switches_total"',
        tests=("tests/test_docs.py", "tests/chart/test_monitoring.py"),
    ),
    Fault(
        name="recreated-topic-is-the-old-one",
        area="Kafka: topics",
        harm="A role goes on with positions of a topic that was deleted and made again, and skips records.",
        file="stream_learner/adapters/kafka/topic_watch.py",
        old="        if found is not None and found.id != known.id:\n",
        new="        if found is not None and found.partitions != known.partitions:\n",
        tests=("tests/adapters/kafka/test_kafka_topics.py", "tests/faults/test_replaced_topics.py"),
    ),
    Fault(
        name="committed-offsets-change-places",
        area="Kafka: group",
        harm="The lag of impressions is shown as that of clicks, and the other way round.",
        file="stream_learner/adapters/kafka/group.py",
        old="            TopicPartition(self.impressions, partition, impressions_offset, metadata),\n"
        "            TopicPartition(self.clicks, partition, clicks_offset),\n",
        new="            TopicPartition(self.impressions, partition, clicks_offset, metadata),\n"
        "            TopicPartition(self.clicks, partition, impressions_offset),\n",
        tests=("tests/adapters/kafka/test_kafka_group.py", "tests/e2e/test_audit.py"),
    ),
    Fault(
        name="outcome-is-not-looked-up",
        area="Kafka: transactions",
        harm="After an outage in the middle of a publication the publisher goes on as if that had never been visible.",
        file="stream_learner/adapters/kafka/publisher.py",
        old="        return self._was_open or self._settings.credentials_version() != self._credentials\n",
        new="        return self._settings.credentials_version() != self._credentials\n",
        tests=(
            "tests/adapters/kafka/test_kafka_outage.py",
            "tests/adapters/kafka/test_kafka_publisher.py",
            "tests/e2e/test_publication.py",
        ),
    ),
    Fault(
        name="lines-behind-a-long-one",
        area="example files",
        harm="Behind a line that is too long, messages name the wrong line.",
        file="stream_learner/evaluate/files/lines.py",
        old='        self._line += 1\n        return Block(b"", self._line - 1, self._path,',
        new='        return Block(b"", self._line, self._path,',
        tests=("tests/evaluate/files/test_files.py",),
    ),
)
