"""`doctor` beside a learner that has published nothing, or whose clicks match no more: what stands in the way there
holds the model here.

A thread looks at a small sample, at once and again while the learner asks, each time after twice as long. A look that
fails, as without the rights of a joiner, holds nothing. Nor do rights that it finds missing: the joiner may be another
user, and a role that lacks one says so itself. A joiner without a learner in its process looks in its first minute
only: it has nothing to hold, and its log tells what was found.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from stream_learner.adapters.telemetry.logs import get_logger
from stream_learner.config import Config
from stream_learner.core.gate.first_version import Unearned
from stream_learner.errors import StreamLearnerError
from stream_learner.operations.doctor.findings import Finding
from stream_learner.operations.doctor.run import doctor
from stream_learner.operations.doctor.sample import Limits

LIMITS: Final = Limits(records=4_000, size_bytes=4 << 20, seconds=20.0)
AGAIN_S, LONGEST_S = 15.0, 600.0
FIRST_S: Final = 60.0
UNSEEN: Final = (
    "Ask `stream-learner doctor` where the inputs may be read. Until a look succeeds this role does not tell whether "
    "the topics fit, and a first version goes by the other bounds (docs/gate.md)."
)
NOT_YET: Final = Unearned("topics", 0, 1, "it looks at the input topics first", is_wrong=False)


class TopicsLook:
    """What the last look found that stands in the way; None for nothing. Asked by the thread of its role."""

    def __init__(
        self,
        config: Config,
        find: Callable[[Config], list[Finding]] | None = None,
        *,
        role: str = "learner",
        for_s: float = float("inf"),
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """find: what a look finds; None for that of `doctor`. role: whose log it is told in. for_s: no look begins
        later.
        """
        self._config, self._find, self._clock_s = config, find or _found, clock_s
        self._log = get_logger(role).bind(model=config.model)
        self._found: Unearned | None = NOT_YET
        self._told: set[str] = set()
        self._wait_s, self._at_s, self._until_s = AGAIN_S, float("-inf"), clock_s() + for_s
        self._thread: threading.Thread | None = None
        self._is_last = self._counts = False
        """Whether the look that runs, and one that is over, was begun when nothing else was missing."""

    def __call__(self, *, earned: bool) -> Unearned | None:
        """The verdict of the last look; begins another one when it is time, or when nothing else is missing.

        earned: whether nothing else holds the first version. Then what a look found counts only if it was begun since:
        there may have been hardly any event before.
        """
        if self._thread is not None and not self._thread.is_alive():
            self._thread, self._at_s = None, self._clock_s() + self._wait_s
            self._wait_s = min(2 * self._wait_s, LONGEST_S)
            self._counts = self._is_last
        now_s, again = self._clock_s(), earned and not self._counts
        if self._thread is None and now_s < self._until_s and (now_s >= self._at_s or again):
            self._is_last = earned
            self._thread = threading.Thread(target=self._look, name="topics-look", daemon=True)
            self._thread.start()
        return NOT_YET if again and self._found is None else self._found

    def _look(self) -> None:
        try:
            found = self._find(self._config)
        except Exception as error:  # noqa: BLE001 -- no mistake of a look may hold a model
            if self._found is not None:
                reason = error.message if isinstance(error, StreamLearnerError) else repr(error)
                self._log.warning("topics_not_looked_at", reason=reason, action=UNSEEN)
            self._found = None
            return
        for one in found:
            if one.name not in self._told:
                say = self._log.error if one.severity == "stops" else self._log.warning
                say("topics_do_not_fit", finding=one.name, seen=one.seen, means=one.means, change=one.change)
        self._told = {one.name for one in found}
        stops = [one for one in found if one.severity == "stops"]
        words = "; ".join(f"{one.seen} (change: {one.change})" for one in stops)
        self._found = Unearned("topics", len(stops), 0, words, is_wrong=True) if stops else None


def _found(config: Config) -> list[Finding]:
    found = doctor(config, LIMITS, lambda text: None, advises=False).findings
    return [one for one in found if one.severity != "tells" and one.name != "rights"]
