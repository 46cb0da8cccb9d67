"""Rules between settings that no setting's own bounds catch before them."""

from __future__ import annotations

import re

import pytest

from stream_learner.config import load_config
from stream_learner.config.rules import doubtful
from stream_learner.errors import ConfigError

LEAST = (
    "model=ctr",
    "kafka.bootstrap.servers=localhost:9092",
    "input.impressions.topic=impressions",
    "input.clicks.topic=clicks",
)

COUNTED = ("features.include=[a]", "features.max_features=3000")


def problems(*settings: str) -> list[str]:
    """The problems that the rules find in these settings."""
    try:
        load_config(None, overrides=[*LEAST, *settings])
    except ConfigError as error:
        return list(error.problems)
    return []


def doubts(*settings: str) -> list[str]:
    """What `config check` warns of."""
    return [": ".join(problem) for problem in doubtful(load_config(None, overrides=[*LEAST, *settings]))]


@pytest.mark.parametrize(
    ("settings", "almost", "said"),
    [
        (
            ("join.window=2h", "topics.retention=239m"),
            ("join.window=2h", "topics.retention=4h"),
            "topics.retention: must be at least twice join.window (2h)",
        ),
        (
            ("join.max_skew=20m", "join.lateness=1199s"),
            ("join.max_skew=20m", "join.lateness=20m"),
            "join.lateness: must be at least join.max_skew (20m)",
        ),
        (("learner.memory=16MiB",), ("learner.memory=17MiB",), "learner.memory: 16.0 MiB cannot hold"),
        (
            ("features.max_rows_per_field=1000", "features.exclude=[a]"),
            ("features.max_rows_per_field=1000", "features.categorical=[a]"),
            "features.max_rows_per_field: no field is named that could be counted",
        ),
        (
            ("features.max_rows_per_field=1000", f"features.include=[{', '.join(f'f{i}' for i in range(255))}]"),
            ("features.max_rows_per_field=1000", f"features.include=[{', '.join(f'f{i}' for i in range(254))}]"),
            "features.max_rows_per_field: 255 fields and 0 crosses are named; 254 can be counted",
        ),
        (
            (
                "features.max_rows_per_field=1",
                "features.include=[a]",
                "features.max_features=3000",
                "join.record_bytes=71172",
            ),
            ("features.include=[a]", "features.max_features=3000", "join.record_bytes=71172"),
            "join.record_bytes: must hold an example of features.max_features",
        ),
        (
            ("scorer.stale_after=10m", "scorer.refuse_after=599s"),
            ("scorer.stale_after=10m", "scorer.refuse_after=10m"),
            "scorer.refuse_after: must be at least scorer.stale_after (10m)",
        ),
        (
            ("learner.state_dir=there/ctr", "scorer.state_dir=there/./ctr"),
            ("learner.state_dir=there/ctr", "scorer.state_dir=there/copy"),
            "scorer.state_dir: is the directory of the learner's state (there/ctr)",
        ),
        (
            ("serve.tls_certificate=c.pem",),
            ("serve.tls_certificate=c.pem", "serve.tls_key=k.pem"),
            "serve.tls_key: is missing, though serve.tls_certificate is given",
        ),
        (
            ("serve.tls_key=k.pem",),
            ("serve.tls_certificate=c.pem", "serve.tls_key=k.pem"),
            "serve.tls_certificate: is missing, though serve.tls_key is given",
        ),
        (
            ("serve.port=9000", "telemetry.http_port=9000"),
            ("serve.port=9000", "telemetry.http_port=9001"),
            "telemetry.http_port: is the same as serve.port (9000)",
        ),
        (
            ("serve.max_body=1MiB", "serve.body_memory=1000KiB"),
            ("serve.max_body=1MiB", "serve.body_memory=1MiB"),
            "serve.body_memory: must be at least serve.max_body (1MiB)",
        ),
        (
            ("serve.models=[a, b]", "serve.aliases=[b]"),
            ("serve.models=[a, b]", "serve.aliases=[c]"),
            "serve.aliases: b is among serve.models too",
        ),
        (
            ("gate.slices=[{field: site, value: a}, {field: ad, value: x}, {field: site, value: a}]",),
            ("gate.slices=[{field: site, value: a}, {field: ad, value: x}, {field: site, value: b}]",),
            "gate.slices: site=a has the same examples as site=a",
        ),
        (
            ("gate.slices=[{field: id, value: a}]", "input.impressions.id=id"),
            ("gate.slices=[{field: id, value: a}]", "input.impressions.id=other"),
            "gate.slices: id is no feature",
        ),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_settings_that_do_not_go_together_are_refused(
    settings: tuple[str, ...], almost: tuple[str, ...], said: str
) -> None:
    """One problem, at the setting to change; what is just within the rule is taken."""
    found = problems(*settings)
    assert len(found) == 1 and found[0].startswith(said), found
    assert problems(*almost) == []


@pytest.mark.parametrize(
    ("settings", "almost", "said"),
    [
        (("join.window=10m",), ("join.window=601s",), "join.window: is not longer than join.lateness (10m)"),
        (
            ("join.window=30m", "join.lateness=30m"),
            ("join.window=30m", "join.lateness=29m"),
            "join.window: is not longer than join.lateness (30m)",
        ),
        (("join.lateness=30m",), ("join.lateness=29m",), "join.window: is not longer than join.lateness (30m)"),
        (("join.dedupe=29m", "join.window=30m"), ("join.dedupe=30m",), "join.dedupe: is shorter than join.window"),
        (
            ("topics.retention=1h", "join.window=20m"),
            ("topics.retention=61m", "join.window=20m"),
            "topics.retention: is 1h: a role that is away",
        ),
        (("join.agree=1",), ("join.agree=2",), "join.agree: is 1: a single event with a wrong clock"),
        (
            ("features={include: [a, b], exclude: [b]}",),
            ("features={include: [a, b], exclude: [b.c]}",),
            "features.include: names b, which features.exclude leaves out",
        ),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_a_setting_that_was_hardly_meant_is_doubted(
    settings: tuple[str, ...], almost: tuple[str, ...], said: str
) -> None:
    """One doubt, at the setting to change; none where the settings are just within."""
    found = doubts(*settings)
    assert len(found) == 1 and found[0].startswith(said), found
    assert doubts(*almost) == doubts() == []


@pytest.mark.parametrize("settings", [("join.lateness=7d",), ("join.window=5s",), ("join.window=2s", "join.skew=1s")])
def test_a_window_that_is_not_longer_than_lateness_is_told_what_fits(settings: tuple[str, ...]) -> None:
    """With what it names there is no doubt."""
    told = re.search(r"; (join.lateness( and join.max_skew)?): (\S+) fits$", "\n".join(doubts(*settings)))
    assert told is not None
    names, _, value = told.groups()
    named = [f"join.lateness={value}", *([f"join.max_skew={value}"] if "max_skew" in names else [])]
    assert doubts(*settings, *named) == []
