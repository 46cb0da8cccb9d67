"""The models that the protocols serve, as the routes see them. The role scorer provides them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from stream_learner.adapters.http.refused import RETRY_SOON, Refused


class Predictions(Protocol):
    """Predictions of n events by one version of one model: p_click f64[n], status u8[n] (a `Reason`, 0 for OK).

    known_features i64[n]: how many features of each event have a weight in the version, the bias apart. why_bad: why
    the first event that cannot be scored cannot be.
    """

    @property
    def p_click(self) -> NDArray[np.float64]: ...
    @property
    def status(self) -> NDArray[np.uint8]: ...
    @property
    def version(self) -> int: ...
    @property
    def model(self) -> str: ...
    @property
    def known_features(self) -> NDArray[np.int64]: ...
    @property
    def freshness_ms(self) -> float | None: ...
    @property
    def version_age_s(self) -> float | None: ...
    @property
    def why_bad(self) -> str: ...


class ServedModel(Protocol):
    """A model served under one name. Everything may be called from any thread."""

    @property
    def model(self) -> str:
        """The name of the model served now."""

    @property
    def version(self) -> int:
        """The version served, a tick; -1 before the first."""

    @property
    def freshness_ms(self) -> float | None:
        """How long ago the version's tick ended; None before the first version."""

    @property
    def version_age_s(self) -> float | None:
        """How long ago the version was published, in seconds; None before the first."""

    @property
    def why_not_ready(self) -> str:
        """The reason why there is no complete version yet, "" if there is one."""

    @property
    def why_refused(self) -> str:
        """The reason why requests are refused now, "" if they are not."""

    @property
    def description(self) -> dict[str, Any]:
        """The published description: features, optimizer, metrics, digest; empty before the first version."""

    def predict_json(self, data: NDArray[np.uint8], bounds: NDArray[np.int64]) -> Predictions:
        """Predict the events data[bounds[i]:bounds[i+1]], each as JSON."""

    def predict_many(self, events: Sequence[bytes | str]) -> Predictions:
        """Predict events, each as JSON."""


class ServedModels:
    """The models by the names they are served under. `draining` is set once the server has been told to stop."""

    def __init__(self, served: Mapping[str, ServedModel]) -> None:
        self._served = dict(served)
        self.draining = False

    @property
    def names(self) -> list[str]:
        """The names, in the order given."""
        return list(self._served)

    def find(self, name: str) -> ServedModel:
        """The model of a name. Raises Refused (404)."""
        served = self._served.get(name)
        if served is None:
            raise Refused(404, f"no model {name!r} is served here")
        return served

    def ready(self, name: str) -> ServedModel:
        """The model of a name, if it accepts requests. Raises Refused (404, 503)."""
        served = self.find(name)
        reason = served.why_refused
        if reason:
            raise Refused(503, f"model {name!r} is not ready: {reason}", RETRY_SOON)
        return served

    def has(self, name: str) -> bool:
        """Whether a model is served under the name."""
        return name in self._served

    @property
    def why_not_ready(self) -> str:
        """The reason why this server should get no requests now, "" if it may get them."""
        if self.draining:
            return "the server is stopping"
        missing = [f"{name}: {reason}" for name, served in self._served.items() if (reason := served.why_not_ready)]
        return "; ".join(missing)
