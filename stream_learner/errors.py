"""Errors, sorted by what happens next.

Each has a message that says what was found, an action for the operator, and an exit code. No message may hold a secret.

=================================  =================
next                               class
=================================  =================
wait and try the same thing again  `RetryLater`
stop; a person must act            `Stop`
stop; the program is wrong         `BrokenInvariant`
=================================  =================

Input bytes that make no sense are not errors: they become dead letters and are counted.
Exit codes: 0 done, 2 wrong command line, 10–19 configuration, 20–39 Kafka, 40–49 state on disk,
50–59 contents of topics, 60–69 this machine, 70 a bug, 75 try again, 130 and 143 stopped by a signal.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from typing import ClassVar

_ACTION_MARK = "Operator action:"


class StreamLearnerError(Exception):
    """Base of everything this package raises on purpose.

    `message` says what was found and where; `action` what to do about it (by default the class's own
    "Operator action"). Neither may contain a secret.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, action: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.action = action or operator_action(type(self))

    def __str__(self) -> str:
        return self.message


class RetryLater(StreamLearnerError):
    """Something outside is not available now; the same call may succeed later, and nothing was changed.

    Operator action: none at first, the role waits and tries again by itself; if it lasts, look at the
    brokers and the network.
    """

    exit_code = 75


class BrokerUnreachable(RetryLater):
    """No broker of `kafka.bootstrap.servers` answered in time. Roles wait for one at their start, unless they were told
    `--fail-without-brokers`; other commands end.

    Operator action: check `kafka.bootstrap.servers`, the network and the listener's protocol
    (`kafka.security.protocol`).
    """

    exit_code = 20


class SchemaNotKnown(RetryLater):
    """A schema of records is not known, because the schema registry does not answer or refuses. Joiners wait with the
    partition, and go on by themselves; commands end.

    Operator action: look at the registry and at the settings of `registry`; the message has what it answered.
    """

    exit_code = 32


class Stop(StreamLearnerError):
    """The role cannot go on until a person has acted; the subclass says on what."""


class ConfigError(Stop):
    """The configuration cannot work; nothing was started and no topic was touched.

    `problems` holds one line per finding, each with the path of the setting.

    Operator action: correct the settings named; `stream-learner config check` lists all findings and
    `docs/configuration.md` describes every setting.
    """

    exit_code = 10

    def __init__(self, message: str, *, action: str = "", problems: Sequence[str] = ()) -> None:
        super().__init__(message, action=action)
        self.problems = tuple(problems)


class TopicMissing(Stop):
    """A topic that the role reads or writes does not exist, or lacks a partition.

    Operator action: create the input topics; create the model's own with `stream-learner topics ensure`. Where only a
    partition is missing, give the topics that belong together the same number.
    """

    exit_code = 21


class PartitionCountsDiffer(Stop):
    """Topics that belong together have different numbers of partitions, so equal ids do not meet.

    Operator action: give impressions, clicks and the training log the same number of partitions and the
    same partitioner; re-key one of the inputs where its count cannot be changed. Where partitions were added, all three
    need as many, and the log then begins anew: `stream-learner begin-anew --from MOMENT`.
    """

    exit_code = 22


class NotAuthorised(Stop):
    """Kafka refused: the principal lacks a right on a topic, a group or a transactional id.

    Operator action: grant the right that the message names, to the principal that it names.
    """

    exit_code = 23


class AuthenticationFailed(Stop):
    """Kafka did not accept the credentials or the certificate, or we did not accept the broker's.

    Operator action: check the `kafka.sasl.*` and `kafka.ssl.*` settings and the files they name; look for
    an expired certificate.
    """

    exit_code = 24


class TopicsDiffer(Stop):
    """Existing topics have other settings than the configuration asks for; nothing was changed.

    Operator action: look at the differences; `stream-learner topics ensure --apply` sets what can be set.
    """

    exit_code = 25


class TopicRecreated(Stop):
    """A topic was deleted and made again: its id differs from the one that positions were recorded for.

    Operator action: if the new topic is not meant, restore the old one. If it is an input, the joiner goes on with it
    under the same name after `stream-learner begin-anew --from earliest`, which first shows what is lost. Else train a
    model under another name (`stream-learner backfill`) and promote it; it knows only what the topics hold now. If what
    was learned is not needed any more, `stream-learner delete` removes it, and the name can be used again. A model that
    has learned nothing begins again by itself.
    """

    exit_code = 26


class LogTrimmed(Stop):
    """A position that is needed lies before the earliest record that a topic still holds.

    Operator action: raise the topic's retention. Where it is an input, the joiner goes on behind the gap under the same
    name after `stream-learner begin-anew`, which first shows what is lost. A learner cannot go on behind a gap in the
    training log: train a model under another name from what the inputs still hold (`stream-learner backfill`) and
    promote it. What was deleted before it was joined is lost to every model.
    """

    exit_code = 27


class Fenced(Stop):
    """Another process has taken this one's place: the same publisher, or the same `join.instance_id`.

    Operator action: leave only one of them running, or give each joiner its own `join.instance_id`.
    """

    exit_code = 28


class AssignmentRefused(Stop):
    """The consumer group gave out partitions in a way that parts the pairs of impressions and clicks.

    Operator action: make sure that every member of the group runs this program with the same input
    topics; nothing else may join the group.
    """

    exit_code = 29


class JoinersRun(Stop):
    """The joiners' group has members, or one of them was faster, where the log can only be begun anew without them.

    Operator action: stop the joiners of the model, and say it again. One with `join.instance_id` that was stopped
    without `--leave` is a member until its session time-out has passed.
    """

    exit_code = 30


class ModelInUse(Stop):
    """Something uses the model that was to be deleted: a joiner or a learner runs, a transaction of its publisher is
    open, an alias points at it, or another model learns from its training log.

    Operator action: stop what the message names, and say it again. A role that was killed, or one with
    `join.instance_id` that was stopped without `--leave`, is a member until its session time-out has passed, and a
    transaction is open until a minute has. An alias is pointed elsewhere by `stream-learner promote`, or let go by
    `--force`.
    """

    exit_code = 31


class DiskFull(Stop):
    """There is no room left for the learner's state; what is on disk is whole.

    Operator action: make room in `learner.state_dir` or move it to a larger volume, then start again.
    """

    exit_code = 40


class StateInUse(Stop):
    """Another process has the state directory open.

    Operator action: stop the other process, or give this one its own `learner.state_dir`.
    """

    exit_code = 41


class StateOfAnotherModel(Stop):
    """The state directory, or a topic of the model, holds a model of another name, optimizer, loss or number of shards
    than the one configured.

    Operator action: set back what was changed. Or train a model with the new settings under another name, from the same
    training log: `stream-learner backfill --as NAME --from-log MODEL` (`--from earliest` in place of `--from-log` where
    the log has lost its beginning), and promote it: docs/backfill.md, docs/promotion.md. Or, if what was learned is not
    needed any more, remove it with `stream-learner delete`, and use the name again. A state without an example makes
    room by itself.
    """

    exit_code = 42


class StateDamaged(Stop):
    """The state directory does not hold a whole checkpoint: a checksum or the digest is wrong.

    Operator action: check the disk and start again: the learner moves what is damaged aside and restores its state
    from the copy, or folds the training log again.
    """

    exit_code = 43


class ModelRewound(Stop):
    """The model was taken back to an earlier tick, and this state holds what was learned after it: it must not be
    published any more.

    Operator action: take this state back too, with `stream-learner rewind --to` and a tick that is no later; or, where
    another learner has gone back and copies its checkpoints, empty `learner.state_dir` and start again.
    """

    exit_code = 44


class OtherDecisions(Stop):
    """The last version was learned with other decisions of operators than this state: they are two models, and this
    one must not be published.

    Operator action: empty `learner.state_dir` and start again: the state comes from the copies of the checkpoints, or
    from the training log. Decide while the gate holds, or about ticks to come: docs/gate.md.
    """

    exit_code = 45


class StateUnusable(Stop):
    """The state directory cannot be made, read or written.

    Operator action: check that `learner.state_dir` is a directory, or can be made, that this user may read and write
    it, and that its disk works.
    """

    exit_code = 46


class DamagedLog(Stop):
    """A record of the training log that counts is damaged, or one of another topic of the model is not ours.

    Operator action: find out who writes to the topic; nothing but this program may. `stream-learner log skip` passes a
    damaged record of the training log over.
    """

    exit_code = 50


class NewerFormat(Stop):
    """A record or a state directory was written by a newer version of this program.

    Operator action: run the version that wrote it, or a later one.
    """

    exit_code = 51


class InputsChanged(Stop):
    """The training log holds examples that were made from other inputs, another number of partitions, or with other
    settings; the message names them.

    Operator action: set back what was changed. If it is meant, go on under the same name: `stream-learner begin-anew`
    shows what is lost by it, and with `--write` begins the log anew. Or train a model under another name from what the
    topics still hold (`stream-learner backfill --as NAME`) and promote it; scorers serve the last version until then.
    Or, if what was learned is not needed any more, remove it with `stream-learner delete`, and use the name again.
    """

    exit_code = 52


class TooManyBadRecords(Stop):
    """More than `join.max_bad_share` of the records of an input topic within `join.bad_share_period` cannot be used,
    and `join.on_bad_share` is stop, or the joiner is that of a backfill.

    Operator action: the message names the reasons and one such record; those read so far are in the dead letters. Mend
    the producer and start again: the joiner passes the bad records by itself once the newest ones are right. If they
    are to be dropped before that, run it with `--set join.on_bad_share=drop` until it has passed them.
    """

    exit_code = 53


class NotReady(Stop):
    """No complete and fresh version of the model could be loaded in the time given.

    Operator action: check that the learner runs and publishes (`stream-learner inspect snapshot`), and that
    the model's name is right.
    """

    exit_code = 54


class NotFound(Stop):
    """Something that was asked for is not there: a tick, a record, a feature, a published version.

    Operator action: check the number, the partition and the model's name; older records may have passed
    their retention.
    """

    exit_code = 55


class PromotionRefused(Stop):
    """The model that an alias was to point at is not fit for it: not complete, not fresh, or worse than the other.

    Operator action: look at the checks in the message; let the model catch up, or promote it all the same with
    `--force`.
    """

    exit_code = 56


class ModelsDiffer(Stop):
    """Two models that were compared are not the same; what was printed says where they part.

    Operator action: none, if they are meant to differ; else look at the records that are named.
    """

    exit_code = 57


class AuditFailed(Stop):
    """An audit has found something that does not hold; what was printed says what, and at which record.

    Operator action: look up the finding in `docs/audit.md`; keep the topics as they are until it is understood.
    """

    exit_code = 58


class AuditIncomplete(Stop):
    """All that an audit could check holds, but not everything that was asked for could be checked.

    Operator action: look at what was not checked, and why; audit a later range, or sooner, while the topics still hold
    what is needed.
    """

    exit_code = 59


class PortInUse(Stop):
    """The address that requests are to be answered on cannot be listened on.

    Operator action: set `telemetry.http_port`, `serve.port` or `serve.grpc_port` to a free port;
    `telemetry.http_port` 0 switches `/metrics`, `/healthz` and `/readyz` off.
    """

    exit_code = 60


class BadInput(Stop):
    """A file of examples, or standard input, cannot be read: missing, damaged, of another format, or with bad lines.

    Operator action: look at the place that the message names; mend or exchange the file, or say of which format
    it is.
    """

    exit_code = 61


class DecisionRefused(Stop):
    """A decision on what the gate holds that must not be made: of ticks that are published, of no ticks, without a
    reason.

    Operator action: look at `stream-learner gate status`; give ticks that no model of the log has folded, and a reason.
    """

    exit_code = 62


class SkipRefused(Stop):
    """A record of the training log cannot be passed over by `log skip`: no reader stops at it, or more than its own
    examples would be lost.

    Operator action: name the record that the roles stop at; the message says if it is another one.
    """

    exit_code = 64


class InputsUnfit(Stop):
    """The input topics do not fit the configuration: with what `doctor` has found, a model would be wrong, or none.

    Operator action: change what each finding names, and run `stream-learner doctor` again.
    """

    exit_code = 67


class BrokenInvariant(StreamLearnerError):
    """Something that cannot be is: the program is wrong, the input is not to blame.

    Operator action: keep the log and the topics as they are and report it, with the message and the
    version.
    """

    exit_code = 70


def operator_action(kind: type[StreamLearnerError]) -> str:
    """The "Operator action" of an error class as one line, "" where its docstring has none."""
    text = inspect.cleandoc(kind.__doc__ or "")
    _, mark, action = text.partition(_ACTION_MARK)
    return " ".join(action.split()) if mark else ""


def meaning(kind: type[StreamLearnerError]) -> str:
    """The first paragraph of an error class's docstring as one line."""
    return " ".join(inspect.cleandoc(kind.__doc__ or "").split("\n\n")[0].split())


def all_errors(base: type[StreamLearnerError] = StreamLearnerError) -> Iterator[type[StreamLearnerError]]:
    """Every error class below `base`, in the order of this file, families before their members."""
    for kind in base.__subclasses__():
        yield kind
        yield from all_errors(kind)
