"""The section `gate`: what a tick is held against before it is learned."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StrictBool, StrictInt, StrictStr

from stream_learner.config.section import Section
from stream_learner.config.values import HOUR_MS, DurationMs, counting, lasting
from stream_learner.core.gate.names import BoundName

FieldName = Annotated[str, Field(min_length=1, max_length=1000)]


class Slice(Section):
    """Examples that have one value in one field."""

    field: FieldName = Field(description="Name of the field, a nested one as `a.b`.")
    value: StrictBool | StrictInt | StrictStr = Field(
        description="Value that the examples have in it; the field must be a category, or have buckets."
    )

    @property
    def name(self) -> str:
        """The text in which it is shown."""
        value = str(self.value).lower() if isinstance(self.value, bool) else self.value
        return f"{self.field}={value}"


class Gate(Section):
    """The bounds of the gate; `learner.gate` says what is done about a tick that is out of them."""

    false_alarms: Annotated[float, Field(gt=0, le=1)] = Field(
        0.01,
        description=(
            "How often in a year chance alone may take a bound for broken. Ten times fewer need about 2.3 more missing "
            "clicks to tell dead clicks."
        ),
    )
    warm_up_ms: Annotated[DurationMs, lasting("1m", "30d")] = Field(
        HOUR_MS,
        alias="warm_up",
        description="Event time for which a bound is learned before it judges; it needs 50 positives besides.",
    )
    sample: Annotated[int, counting(0, 65_536)] = Field(
        128,
        description=(
            "About how many examples of a tick are predicted, to hold predictions against labels; 0 predicts none."
        ),
    )
    slices: Annotated[list[Slice], Field(max_length=64)] = Field(
        [],
        description=(
            "Slices of the examples that are judged by themselves, such as `[{field: campaign, value: summer}]`: what "
            "is wrong in one of them may be too little to show in the whole."
        ),
    )
    ignore: list[BoundName] = Field([], description="Bounds that are not judged, by name (docs/gate.md).")
