"""Numbers of fields, under which a training log says which field each feature is of.

A feature counts under the field that the specification names, in `include`, `fields`, `categorical` or a cross, and
that covers its own; if several do, under the one with the longest name. A missing indicator counts under its field, a
cross by itself. All fields that the specification does not name count together. The bias, number 0, is not counted.

In the log a number stands beside the hash of the name, so the same field may have another number in another record.
"""

from __future__ import annotations

from typing import Final

from stream_learner.core.events.feature_spec import FeatureSpec
from stream_learner.core.machine.hashing import xxh64

Origin = str | tuple[str, ...] | None
"""The source of a feature: the name of a field, the names of a cross, None for the bias."""

NOT_COUNTED: Final = 0
OTHERS: Final = "(others)"
MOST_FIELDS: Final = 255
"""A number is a byte in the log."""
_OTHERS_NUMBER = 1


def counted_names(spec: FeatureSpec) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names that count by themselves: of fields, in the order of the specification, and of crosses, as `a x b`."""
    crossed = (name for cross in spec.crosses for name in cross)
    named = dict.fromkeys((*spec.include, *spec.fields, *spec.categorical, *crossed))
    return tuple(name for name in named if spec.takes(name)), tuple(" x ".join(cross) for cross in spec.crosses)


def names_by_hash(spec: FeatureSpec) -> dict[int, str]:
    """The names of what is counted by the hashes under which a log knows them."""
    fields, crosses = counted_names(spec)
    return {name_hash(name): name for name in (OTHERS, *fields, *crosses)}


def name_hash(name: str) -> int:
    """The hash (u64) under which a training log knows what is counted under a name."""
    return xxh64(b"" if name == OTHERS else name.encode())


class FieldNumbers:
    """The numbers by one specification. `names[i]` has the number i + 1; `hashes[i]` is the hash of that name."""

    def __init__(self, spec: FeatureSpec) -> None:
        """Raises ValueError if the specification names no field, or more than can be numbered."""
        fields, crosses = counted_names(spec)
        if not fields:
            raise ValueError(
                "no field is named that could be counted: name those that may grow in include, fields or categorical"
            )
        # A field may be called as a cross is: then they count together.
        named = {name_hash(name): name for name in reversed((OTHERS, *fields, *crosses))}
        if len(named) > MOST_FIELDS:
            raise ValueError(
                f"{len(fields)} fields and {len(crosses)} crosses are named; {MOST_FIELDS - 1} can be counted"
            )
        self.hashes = tuple(reversed(named))
        self.names = tuple(reversed(named.values()))
        number_of = {found: number for number, found in enumerate(self.hashes, 1)}
        self._of_field = {name: number_of[name_hash(name)] for name in fields}
        self.crosses = tuple(number_of[name_hash(name)] for name in crosses)
        """The numbers of the crosses, in the order of the specification."""
        self._of_cross = dict(zip(spec.crosses, self.crosses, strict=True))

    def of(self, origin: Origin) -> int:
        """The number under which a feature counts."""
        if origin is None:
            return NOT_COUNTED
        if isinstance(origin, tuple):
            return self._of_cross[origin]
        name = origin
        while name not in self._of_field:
            if "." not in name:
                return _OTHERS_NUMBER
            name = name.rpartition(".")[0]
        return self._of_field[name]
