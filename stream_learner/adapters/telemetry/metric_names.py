"""Declares every metric of every role: name, kind, labels, meaning. `docs/metrics.md` is made from this file.

Names end in their unit (`_seconds`, `_bytes`, `_ratio`), those of counters in `_total`. Each metric also has the label
`model`. `CATALOGUE` lists all metrics.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

PREFIX = "stream_learner_"

FAST_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
SLOW_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)


@dataclass(frozen=True)
class Metric:
    """A declared metric. `name` is without the prefix; `buckets` are a histogram's upper bounds in seconds."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    meaning: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()

    @property
    def full_name(self) -> str:
        """The name as it is scraped."""
        return PREFIX + self.name

    @property
    def role(self) -> str:
        """The role it belongs to: joiner, learner, scorer, serve, or process for all of them."""
        first = self.name.split("_")[0]
        return first if first in ("joiner", "learner", "scorer", "serve") else "process"


def _counter(name: str, meaning: str, *labels: str) -> Metric:
    return Metric(name, "counter", meaning, labels)


def _gauge(name: str, meaning: str, *labels: str) -> Metric:
    return Metric(name, "gauge", meaning, labels)


def _histogram(name: str, buckets: tuple[float, ...], meaning: str, *labels: str) -> Metric:
    return Metric(name, "histogram", meaning, labels, buckets)


BUILD_INFO = _gauge("build_info", "Always 1; the labels say which version runs as which role.", "version", "role")
START_TIME = _gauge(
    "start_time_seconds",
    "When the process began, in seconds since 1970. A value that changes again and again is of a role that ends again "
    "and again.",
    "role",
)
READY = _gauge("ready", "1 while the role is ready, as /readyz says, else 0. Of scorers see scorer_ready.", "role")
RETRIES = _counter("retries_total", "Times a role waited and tried again, by the class of the error.", "role", "error")

JOINER_PARTITIONS = _gauge("joiner_partitions", "Partitions this joiner writes.")
JOINER_READ = _counter("joiner_read_total", "Records read; input is impressions or clicks.", "input")
JOINER_IMPRESSIONS = _counter(
    "joiner_impressions_total",
    "Impressions whose outcome is final: example, duplicate, late, sampled_out or dead_lettered.",
    "outcome",
)
JOINER_CLICKS = _counter(
    "joiner_clicks_total",
    "Clicks whose outcome is final: matched, duplicate, orphan, late or dead_lettered.",
    "outcome",
)
JOINER_CLICKS_WAITING = _gauge("joiner_clicks_waiting", "Clicks read whose outcome is not final yet.")
JOINER_POSITIVES = _counter("joiner_positives_total", "Examples written whose label is above 0.")
JOINER_TICKS = _counter("joiner_ticks_total", "Ticks closed, empty ones included.")
JOINER_MARKS = _counter("joiner_marks_total", "Marks appended to the training log.")
JOINER_RESUME_POINTS = _counter("joiner_resume_points_total", "Marks that were also resume points.")
JOINER_LOG_BYTES = _counter("joiner_log_bytes_total", "Bytes appended to the training log.")
JOINER_LOG_TIME = _gauge(
    "joiner_log_time_seconds",
    "Log time of an input at the position read, in seconds since 1970.",
    "input",
    "partition",
)
JOINER_LOG_TIME_AHEAD = _gauge(
    "joiner_log_time_ahead_seconds",
    "How far the log time of an input is ahead of the clock, in the partition where it is furthest; 0 where it is not. "
    "Clocks that are ahead have agreed, and windows close too early.",
    "input",
)
JOINER_LAG = _gauge(
    "joiner_lag_beyond_window_seconds",
    "How far the windows that a partition has closed lie behind the brokers' clock. Impressions wait in Kafka for "
    "their window, so consumer lag is no sign of trouble; this is.",
    "partition",
)
JOINER_STREAM_LAG = _gauge(
    "joiner_stream_lag_seconds",
    "How long after they happened impressions of a partition come, as their last arrivals tell it.",
    "partition",
)
JOINER_CLICK_DELAY = _gauge(
    "joiner_click_delay_seconds",
    "How much later than impressions clicks of a partition come, beyond the time after which people click.",
    "partition",
)
JOINER_WINDOWS_WAIT = _gauge(
    "joiner_windows_wait_seconds",
    "For how long windows of a partition have waited because an input is silent, or clicks are; 0 while none waits.",
    "partition",
)
JOINER_GUESSED = _counter(
    "joiner_guessed_examples_total",
    "Examples of a partition that were made before it was known that all their clicks were there, as it turned out.",
    "partition",
)
JOINER_EARLY_EXAMPLES = _counter(
    "joiner_early_examples_total",
    "Examples made before their own windows ended by their own times: most events behind them are older.",
)
JOINER_EARLY_CLICKS = _counter(
    "joiner_early_clicks_total",
    "Orphans that went although their own times would have kept them: most clicks behind them are older.",
)
JOINER_CLOCK_AHEAD = _gauge(
    "joiner_clock_ahead_seconds",
    "How far the wall clock of this process is ahead of the brokers' clock. Windows do not go by it.",
)
JOINER_BUFFER_BYTES = _gauge("joiner_buffer_bytes", "Input read ahead and not emitted yet.")
JOINER_LETTER_BYTES = _gauge(
    "joiner_dead_letter_bytes",
    "Memory of dead letters, from the reading of the record until the letter is in its topic.",
)
JOINER_BAD_SHARE = _gauge(
    "joiner_bad_share_ratio",
    "Share of an input's records in the current period that cannot be used; see join.max_bad_share.",
    "input",
)
JOINER_UNREAD = _gauge(
    "joiner_partitions_unread",
    "Partitions held here that are not read: too many of their records cannot be used, or their schema is not known.",
)
JOINER_HELD = _gauge(
    "joiner_held",
    "Partitions in which no click comes although impressions go on, and the clock closes no window; see "
    "join.hold_on_silence.",
)
JOINER_HEADROOM = _gauge(
    "joiner_retention_headroom_seconds",
    "Time until retention may trim what a joiner that begins anew has to read of a partition: of is impressions, "
    "clicks, or log. Missing where nothing is trimmed, and where the retention may not be asked for.",
    "of",
    "partition",
)
JOINER_FEATURES = _gauge(
    "joiner_distinct_features", "About how many different features impressions had since this joiner began."
)
JOINER_FIELD_FEATURES = _gauge(
    "joiner_field_distinct_features",
    "About how many different features a field gave since this joiner began, for the 20 fields that gave most: an "
    "estimate from a sample, by a factor of two near where many fields grow at once. A cross is named by its fields. "
    "Every joiner counts for itself.",
    "field",
)
JOINER_ATTEMPTS = _counter("joiner_attempts_total", "Attempts begun: one for each assignment or recovery.")
JOINER_ATTEMPTS_LOST = _counter(
    "joiner_attempts_lost_total",
    "Attempts dropped: other_writer where another joiner took over, append_failed for errors.",
    "reason",
)
JOINER_FOREIGN = _counter(
    "joiner_log_records_foreign_total",
    "Records of the training log passed over because they carry no valid header of it: somebody else writes there.",
)
JOINER_APPEND = _histogram(
    "joiner_append_seconds", FAST_SECONDS, "From handing a tick to the producer to its acknowledgement."
)
JOINER_RECOVERY = _histogram(
    "joiner_recovery_seconds", SLOW_SECONDS, "From finding the last accepted mark to beginning an attempt after it."
)

LEARNER_EXAMPLES = _counter("learner_examples_total", "Examples folded.")
LEARNER_REFUSED = _counter(
    "learner_examples_refused_total", "Examples refused because a value would not have been finite."
)
LEARNER_TICKS = _counter("learner_ticks_total", "Ticks folded.")
LEARNER_LOG_BYTES = _counter("learner_log_bytes_total", "Bytes of the training log read.")
LEARNER_IGNORED = _counter(
    "learner_log_records_ignored_total", "Records of the training log that rule R ignored: lost attempts."
)
LEARNER_FOREIGN = _counter(
    "learner_log_records_foreign_total",
    "Records of the training log passed over because they carry no valid header of it: somebody else writes there.",
)
LEARNER_LEFT_OUT = _counter(
    "learner_log_records_left_out_total",
    "Damaged records of the training log passed over because `stream-learner log skip` has named them.",
)
LEARNER_FOLD = _histogram("learner_fold_seconds", FAST_SECONDS, "Time to fold one tick of all partitions.")
LEARNER_TICK_TIME = _gauge("learner_tick_time_seconds", "End of the last tick folded, in seconds since 1970.")
LEARNER_LAG = _gauge(
    "learner_lag_seconds", "How far the last tick folded lies behind the wall clock, the window not counted."
)
LEARNER_BUFFER_BYTES = _gauge("learner_buffer_bytes", "Training log read ahead and not folded yet.")
LEARNER_FEATURES = _gauge("learner_features", "Features with state.")
LEARNER_ROWS_LIMIT = _gauge("learner_rows_limit", "`learner.max_rows`; 0 where the rows are not bounded.")
LEARNER_HELD_BACK = _counter(
    "learner_features_held_back_total",
    "Features left out of their examples, because their key has no row and learner.max_rows is reached.",
)
LEARNER_FIELD_LIMIT = _gauge(
    "learner_field_rows_limit", "`features.max_rows_per_field`, as the training log says it; 0 where it says none."
)
LEARNER_FIELD_ROWS = _gauge(
    "learner_field_rows", "State rows of a field since the log bounds them; the ten fields with most.", "field"
)
LEARNER_FIELD_HELD_BACK = _counter(
    "learner_field_features_held_back_total",
    "Features left out of their examples, because their key has no row and their field has all it may have.",
)
LEARNER_NONZERO = _gauge("learner_features_nonzero", "Features with a weight other than 0.")
LEARNER_TABLE_BYTES = _gauge("learner_table_bytes", "Memory of the table of states.")
LEARNER_MEMORY_BYTES = _gauge("learner_memory_limit_bytes", "`learner.memory`; 0 where the whole model is in memory.")
LEARNER_MEMORY_ROWS = _gauge("learner_memory_rows", "Rows of the table that are in memory, of a model larger than it.")
LEARNER_ROWS_MISSED = _counter("learner_rows_missed_total", "Features of records whose row was not in memory.")
LEARNER_ROWS_FETCHED = _counter("learner_rows_fetched_total", "Rows fetched from disk; those missed besides were new.")
LEARNER_ROWS_EVICTED = _counter("learner_rows_evicted_total", "Rows that left memory, to be fetched when needed.")
LEARNER_ROCKSDB_BYTES = _gauge(
    "learner_rocksdb_bytes",
    "Memory of RocksDB; part is cache (memtables count in it), memtables, or readers of open files.",
    "part",
)
LEARNER_INDEX_TICK = _gauge("learner_row_index_tick", "Tick that the index of rows on disk stands for.")
LEARNER_LOG_LOSS = _gauge("learner_log_loss", "Progressive log-loss (nats, before the update) of the last whole slice.")
LEARNER_ENTROPY = _gauge(
    "learner_normalized_entropy",
    "Log-loss of the last whole slice over that of its own mean label; NaN where that is 0, as without positives.",
)
LEARNER_CALIBRATION = _gauge(
    "learner_calibration_ratio",
    "Sum of predictions over sum of labels of the last whole slice; 1 is right, NaN where the labels sum to 0.",
)
LEARNER_AUC = _gauge("learner_auc", "Area under the ROC curve of the last whole slice; NaN with one label only.")
LEARNER_FREE_BYTES = _gauge("learner_state_free_bytes", "Free bytes of the disk of learner.state_dir.")
LEARNER_HEADROOM = _gauge(
    "learner_retention_headroom_seconds",
    "Time until retention may trim what the last checkpoint has not folded of a partition of the training log. Missing "
    "where nothing is trimmed, and where the retention may not be asked for.",
    "partition",
)
LEARNER_CHECKPOINTS = _counter("learner_checkpoints_total", "Checkpoints that became durable.")
LEARNER_CHECKPOINT = _histogram(
    "learner_checkpoint_seconds", SLOW_SECONDS, "From beginning a checkpoint until it counts."
)
LEARNER_PUBLICATION_HELD = _gauge(
    "learner_publication_held",
    "1 while the model is out of the bounds of a publication; see snapshots.gate.",
)
LEARNER_FIRST_WAITS = _gauge(
    "learner_first_version_waits_seconds",
    "Time for which this learner has seen a first version wait for examples, or for a tick of the log; 0 where it does "
    "not. See snapshots.first.",
)
LEARNER_HISTORY = _gauge("learner_history_checkpoints", "Checkpoints kept to go back to; see learner.history.")
LEARNER_HISTORY_AGE = _gauge(
    "learner_history_age_seconds", "Age of the oldest kept checkpoint, in log time; 0 without one."
)
LEARNER_COPIES = _counter("learner_copies_total", "Copies of checkpoints that became complete.")
LEARNER_COPY = _histogram(
    "learner_copy_seconds", SLOW_SECONDS, "From beginning a copy of a checkpoint until it counts."
)
LEARNER_COPIED_BYTES = _counter("learner_copied_bytes_total", "Bytes of checkpoints copied.")
LEARNER_COPIED_VERSION = _gauge("learner_copied_version", "Version, a tick, of the last complete copy; -1 without one.")
LEARNER_COPY_AGE = _gauge(
    "learner_copy_age_seconds",
    "Since the checkpoint of the last complete copy was committed, or since the start where that was before it.",
)
LEARNER_RESTORED = _counter("learner_restores_total", "State directories restored from a copy.")
LEARNER_PUBLISH = _histogram("learner_publish_seconds", SLOW_SECONDS, "Time of one publication's transaction.")
LEARNER_PUBLISH_BYTES = _counter("learner_publish_bytes_total", "Bytes published.")
LEARNER_PUBLISHED_SEQUENCE = _gauge("learner_published_sequence", "Number of the last publication.")
LEARNER_PUBLISHED_VERSION = _gauge("learner_published_version", "Version, a tick, of the last publication.")
LEARNER_PAUSED = _gauge("learner_publication_paused", "1 while publication is paused (`stream-learner pause`), else 0.")
LEARNER_PAUSED_SECONDS = _gauge(
    "learner_publication_paused_seconds", "How long publication has been paused, 0 while it is not."
)
LEARNER_PUBLISH_FAILED = _counter(
    "learner_publication_failures_total", "Publications that failed; each is tried again a second later."
)
LEARNER_GATE_STATE = _gauge("learner_gate_state", "1 while the gate holds the model at a tick, else 0.")
LEARNER_GATE_HELD = _gauge("learner_gate_held_seconds", "How long the gate has held the model, 0 while it does not.")
LEARNER_GATE_DECISIONS = _counter(
    "learner_gate_decisions_total",
    "Decisions of operators that took effect (accept, skip), or came too late (late).",
    "outcome",
)
LEARNER_GATE_SKIPPED = _counter("learner_gate_skipped_total", "Examples left out by decisions of operators.")
LEARNER_GATE_WARNINGS = _counter(
    "learner_gate_warnings_total", "Ticks out of bounds that were learned from, with `learner.gate: warn`."
)
LEARNER_LEADS = _gauge("learner_leads", "1 while this learner is the one that publishes, 0 while it only follows.")
LEARNER_TAKEOVERS = _counter("learner_takeovers_total", "How often a standby got the lease and led from then on.")
LEARNER_TAKEOVER = _histogram(
    "learner_takeover_seconds", SLOW_SECONDS, "From having the lease to the first publication of a standby."
)

SCORER_VERSION = _gauge("scorer_version", "Version, a tick, that predictions are made with.")
SCORER_READY = _gauge("scorer_ready", "1 from the first whole version on, else 0.")
SCORER_FRESHNESS = _gauge("scorer_freshness_seconds", "Age of the version: wall clock minus the end of its tick.")
SCORER_VERSION_AGE = _gauge("scorer_version_age_seconds", "How long ago the version was published.")
SCORER_STALE = _gauge("scorer_stale", "1 where the version was published longer than scorer.stale_after ago, else 0.")
SCORER_UNUSABLE = _counter(
    "scorer_records_unusable_total", "Records of the snapshot topic passed over: not of this program, or damaged."
)
SCORER_FROM_COPY = _gauge("scorer_from_copy", "1 while the version of scorer.state_dir is served, else 0.")
SCORER_COPIES = _counter("scorer_copies_total", "Copies of versions in scorer.state_dir: kept or failed.", "outcome")
SCORER_COPY_VERSION = _gauge("scorer_copy_version", "Version of the copy in scorer.state_dir written last.")
SCORER_FREE_BYTES = _gauge("scorer_state_free_bytes", "Free bytes of the disk of scorer.state_dir.")
SCORER_APPLIED = _counter("scorer_versions_applied_total", "Versions applied.")
SCORER_LOAD = _histogram("scorer_load_seconds", SLOW_SECONDS, "From start to a complete replica.")
SCORER_WEIGHTS = _gauge("scorer_weights", "Weights in the replica.")
SCORER_MODEL_INFO = _gauge("scorer_model_info", "Always 1; the label says which model is served.", "served_model")
SCORER_SWITCHES = _counter("scorer_switches_total", "Times another model was put in the place of the one served.")
SCORER_EVENTS = _counter("scorer_events_total", "Events predicted.")
SCORER_EVENTS_UNKNOWN = _counter(
    "scorer_events_unknown_total",
    "Events predicted of which no feature has a weight in the version served, the bias apart: what is predicted says "
    "nothing of them.",
)
SCORER_FIELDS = _counter("scorer_fields_total", "Fields of the events that were looked at, about one a second.")
SCORER_FIELDS_UNKNOWN = _counter(
    "scorer_fields_unknown_total",
    "Of these fields those of which no feature has had a weight, in at least 30 events: misspelt, new to the model, of "
    "no use to it, or with other values in every event; and those that the configuration names and none of 30 had.",
)

SERVE_REQUESTS = _counter(
    "serve_requests_total",
    "Requests answered: protocol is v1, v2, grpc, or other for what is no prediction; name is the model or alias asked "
    "for, empty where none of that name is served; code is the HTTP status, or the one that means what "
    "the status of gRPC does, 499 where the client went away.",
    "protocol",
    "name",
    "code",
)
SERVE_SECONDS = _histogram(
    "serve_request_seconds",
    FAST_SECONDS,
    "Time of a prediction request, from its head to the last byte of the answer handed to the system.",
    "protocol",
)
SERVE_INSTANCES = _counter("serve_instances_total", "Events predicted for requests.", "name")
SERVE_IN_FLIGHT = _gauge("serve_in_flight", "Requests being worked on, whose body is complete.")
SERVE_RECEIVING = _gauge("serve_receiving", "Requests whose body is not complete.")
SERVE_BODY_BYTES = _gauge("serve_body_bytes", "Memory of the bodies of all requests; see serve.body_memory.")
SERVE_CONNECTIONS = _gauge("serve_connections", "Connections open.")
SERVE_CUT = _counter(
    "serve_connections_cut_total",
    "Connections cut off: too_many where more were open than allowed, too_slow where a client did not send or read in "
    "time.",
    "reason",
)
SERVE_LOOP_SILENT = _gauge(
    "serve_loop_silent_seconds", "Since the event loop last turned; it turns at least once a second."
)
SERVE_WORKERS = _gauge("serve_workers", "Worker processes running, where serve.workers is above 1.")
SERVE_WORKER_STARTS = _counter("serve_worker_starts_total", "Worker processes started, the first ones included.")

FROM_ZERO: tuple[tuple[Metric, dict[str, str]], ...] = (
    (LEARNER_FOREIGN, {}),
    (JOINER_FOREIGN, {}),
    (LEARNER_GATE_DECISIONS, {"outcome": "late"}),
    (LEARNER_GATE_WARNINGS, {}),
    (LEARNER_REFUSED, {}),
    (LEARNER_HELD_BACK, {}),
    (LEARNER_FIELD_HELD_BACK, {}),
    (LEARNER_PUBLISH_FAILED, {}),
    (SCORER_UNUSABLE, {}),
    (SCORER_COPIES, {"outcome": "failed"}),
    (SERVE_CUT, {"reason": "too_many"}),
)
"""Counters, with labels, whose first count raises an alert. They are shown as 0 from the start: Prometheus sees no
increase in a series that begins at 1."""

CATALOGUE = tuple(value for value in list(globals().values()) if isinstance(value, Metric))
"""Every metric declared above, in order."""
