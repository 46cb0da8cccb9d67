"""The settings that decide which examples are made, as the joiner of partition 0 keeps them in the group.

A resume point has only fingerprints of its settings: they tell that some differ, not which. So the settings themselves
are kept as the metadata of the committed offset of the clicks of partition 0, beside those fingerprints. Nothing
depends on them but the words of an error, and they may be missing; they count only where their fingerprint is that of
the resume point.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from stream_learner.adapters.kafka import KafkaSettings
from stream_learner.adapters.kafka.ends import committed_offsets
from stream_learner.core.machine.hashing import xxh64
from stream_learner.errors import StreamLearnerError

if TYPE_CHECKING:
    from stream_learner.config import Config

PARTITION = 0
"""The partition whose owner keeps them."""
MOST_CHARACTERS = 3_500
"""Brokers take 4,096 bytes of metadata unless set otherwise."""
SHOWN_CHARACTERS = 200
RECORDS = ("format", "framed")
READING = ("input.time_unit", "join.max_event_bytes", "join.max_skew")
SECTIONS: Mapping[str, Sequence[str]] = {
    "join": tuple(
        f"join.{name}" for name in ("window", "skew", "tick", "dedupe", "keep_negatives", "lateness", "agree")
    ),
    "input.impressions": (
        *(f"input.impressions.{name}" for name in ("id", "time", "time_unit", "weight", "max_weight", *RECORDS)),
        *READING,
    ),
    "input.clicks": (*(f"input.clicks.{name}" for name in ("id", "time", "time_unit", "value", *RECORDS)), *READING),
    "features": tuple(
        f"features.{name}"
        for name in (
            "include",
            "exclude",
            "categorical",
            "fields",
            "crosses",
            "max_features",
            "max_value_bytes",
            "key_rule",
        )
    ),
}
"""The settings whose fingerprint each section of a resume point is."""


class MadeWith:
    """The settings of this joiner, and what the group keeps of those before; used by one thread."""

    def __init__(self, config: Config, settings: KafkaSettings) -> None:
        """settings: with the joiners' group."""
        self._settings, self._clicks_topic = settings, config.input.clicks.topic
        impressions, clicks = config.event_specs()
        of = (config.join_spec().fingerprint, impressions.fingerprint, clicks.fingerprint)
        prints = zip(SECTIONS, (*of, config.feature_spec().fingerprint), strict=True)
        shown = config.shown()
        self._values = {path: _text_of(_at(shown, path)) for paths in SECTIONS.values() for path in paths}
        kept = {"fingerprints": {section: f"{one:016x}" for section, one in prints}, "settings": self._values}
        text = json.dumps(kept, separators=(",", ":"))
        self.text = text if len(text) <= MOST_CHARACTERS else ""
        """The metadata to keep, "" where it would be too long."""
        self._before: Mapping[str, Any] | None = None

    def differences(self, fingerprints: Mapping[str, int]) -> list[str]:
        """Which settings differ in some sections, with both values, as far as the group tells.

        fingerprints: by section, that of the settings then.
        """
        kept = self._before = self._kept() if self._before is None else self._before
        values = kept.get("settings", {})
        known = [s for s, one in fingerprints.items() if kept.get("fingerprints", {}).get(s) == f"{one:016x}"]
        paths = dict.fromkeys(path for section in known for path in SECTIONS[section])
        return [
            f"{path}: there {values[path]}, here {self._values[path]}"
            for path in paths
            if path in values and values[path] != self._values[path]
        ]

    def _kept(self) -> Mapping[str, Any]:
        """What the group keeps; asked for once, since this joiner may itself be the next to keep something."""
        place = (self._clicks_topic, PARTITION)
        try:
            found = committed_offsets(self._settings, [place]).get(place)
            kept = json.loads(found.metadata) if found is not None else {}
        except (StreamLearnerError, ValueError):
            return {}
        return kept if isinstance(kept, dict) else {}


def _at(tree: Mapping[str, Any], path: str) -> Any:
    found: Any = tree
    for name in path.split("."):
        found = found[name]
    return found


def _text_of(value: Any) -> str:
    """A value as a person reads it; of a long one the beginning, and a digest by which it differs from another."""
    text = value if isinstance(value, str) else json.dumps(value)
    if len(text) <= SHOWN_CHARACTERS:
        return text
    return f"{text[:80]}... ({len(text):,} characters, digest {xxh64(text.encode()):016x})"
