"""An online learner for click-through rates that lives on Kafka.

`Scorer` is the library for those who serve: `from stream_learner import Scorer`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stream_learner.version import __version__

__all__ = ["BadEvent", "Prediction", "Predictions", "Scorer", "__version__"]

if TYPE_CHECKING:
    from stream_learner.roles.scorer.scorer import BadEvent, Prediction, Predictions, Scorer


def __getattr__(name: str) -> Any:
    """The scorer's names, imported when they are first asked for: the commands start faster without them."""
    if name in __all__:
        from stream_learner.roles.scorer import scorer

        return getattr(scorer, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
