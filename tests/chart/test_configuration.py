"""The configuration that the chart renders is one that the program takes, and fits what is rendered around it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import certifi
import pytest
import typer
import yaml

from stream_learner.cli import app, main
from stream_learner.config import Config
from stream_learner.config.rules import doubtful
from stream_learner.errors import BrokenInvariant, Stop, all_errors
from tests.chart.rendered import (
    SHAPES,
    WORKLOADS,
    Identity,
    Object,
    containers,
    from_values,
    objects,
    own_container,
    role_of,
)
from tests.chart.test_refusals import MINIMAL, changed
from tools.chart import CHART

SECRETS = "/run/secrets"


@cache
def config_of(shape: str, name: str) -> Config:
    """The configuration in a ConfigMap."""
    return Config.model_validate(tree_of(shape, name))


def tree_of(shape: str, name: str) -> dict[str, Any]:
    """The configuration in a ConfigMap, as it is written."""
    found: dict[str, Any] = yaml.safe_load(objects(shape)["ConfigMap", name]["data"]["config.yaml"])
    return found


def config_maps() -> Iterator[tuple[str, str]]:
    """Every shape with each of its configurations."""
    for shape in SHAPES:
        for (kind, name), document in objects(shape).items():
            if kind == "ConfigMap" and "config.yaml" in document["data"]:
                yield shape, name


def workloads(shape: str) -> Iterator[tuple[Identity, Object, Config]]:
    """Every workload with the configuration that it mounts."""
    for identity, document in objects(shape).items():
        if identity[0] in WORKLOADS:
            volumes = document["spec"]["template"]["spec"]["volumes"]
            (name,) = (volume["configMap"]["name"] for volume in volumes if "configMap" in volume)
            yield identity, document, config_of(shape, name)


@pytest.mark.parametrize(("shape", "name"), list(config_maps()))
def test_config_check_takes_it(
    shape: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`stream-learner config check`, with Secrets mounted; and windows are longer than lateness."""
    assert "join.window" not in dict(doubtful(config_of(shape, name)))
    text = objects(shape)["ConfigMap", name]["data"]["config.yaml"].replace(SECRETS, str(tmp_path))
    for option, value in tree_of(shape, name)["kafka"].items():
        if isinstance(value, dict) and "env" in value:
            monkeypatch.setenv(value["env"], "value")
        path = (
            value["file"]
            if isinstance(value, dict) and "file" in value
            else value
            if option.endswith("location")
            else ""
        )
        if path:
            file = tmp_path / path.removeprefix(f"{SECRETS}/")
            file.parent.mkdir(exist_ok=True)
            file.write_text(Path(certifi.where()).read_text() if option == "ssl.ca.location" else "value")
    config = tmp_path / "config.yaml"
    config.write_text(text)
    with pytest.raises(SystemExit) as ended:
        main(["config", "check", "--config", str(config)])
    assert ended.value.code == 0, capsys.readouterr().err


@pytest.mark.parametrize("shape", SHAPES)
def test_what_the_configuration_refers_to_is_mounted(shape: str) -> None:
    """Every file below a mount of a Secret, every variable one of the container's."""
    for identity, document, config in workloads(shape):
        if role_of(document) == "test":
            continue
        container = own_container(document)
        mounts = [mount["mountPath"] for mount in container["volumeMounts"]]
        variables = {variable["name"] for variable in container.get("env", [])}
        serve = config.serve if role_of(document) == "scorer" else None
        files = [value for option, value in config.kafka.root.items() if option.endswith(".location")]
        files += [value.file for value in config.kafka.root.values() if hasattr(value, "file")]
        if serve is not None and serve.token is not None:
            files += [serve.token.file, serve.tls_certificate, serve.tls_key]  # type: ignore[union-attr]
        token = config.telemetry.token
        assert (token is not None) == (shape == "production")
        if token is not None and "ports" in container:
            files.append(token.file)  # type: ignore[union-attr]
        for file in files:
            assert any(str(file).startswith(f"{mount}/") for mount in mounts), (identity, file)
        assert {value.env for value in config.kafka.root.values() if hasattr(value, "env")} <= variables, identity


@pytest.mark.parametrize("shape", SHAPES)
def test_commands_are_those_of_the_program(shape: str) -> None:
    """Each container's arguments are parsed as the program parses them."""
    for _, document, _ in workloads(shape):
        if role_of(document) == "test":
            continue
        container = own_container(document)
        command: Any = typer.main.get_command(app)
        arguments = list(container["args"])
        while hasattr(command, "commands"):
            command = command.commands[arguments.pop(0)]
        found = command.make_context(command.name, arguments).params
        assert str(found["config"]) == "/etc/stream-learner/config.yaml"


def test_a_backfill_gets_what_its_entry_says() -> None:
    """Moments as text, numbers as numbers, settings by name."""
    jobs = [c["args"] for (k, _), c in containers(objects("backfill")) if k == "Job" and c["name"] == "backfill"]
    command: Any = typer.main.get_command(app)
    found = [command.commands["backfill"].make_context("backfill", args[1:]).params for args in jobs]
    assert [(f["name"], f["joiners"], f["max_rate"], f["from_log"]) for f in found] == [
        ("ctr-november", 4, 200_000, None),
        ("ctr-slow", 1, None, "ctr"),
    ]
    assert (found[0]["start"], found[0]["until"]) == ("2026-11-01T00:00Z", "2026-12-01T00:00:00Z")
    assert list(found[1]["overrides"]) == ["learner.optimizer.alpha=0.02"]
    assert list(found[1]["variant"]) == ["ctr-slower:learner.optimizer.alpha=0.01"]


@pytest.mark.parametrize("shape", SHAPES)
def test_a_scorer_is_given_the_time_that_its_shutdown_takes(shape: str) -> None:
    """The sleep before SIGTERM, `serve.drain`, a request that has just begun, and some seconds."""
    for _, document, config in workloads(shape):
        if role_of(document) != "scorer":
            continue
        spec = document["spec"]["template"]["spec"]
        container = own_container(document)
        before_s = float(container["lifecycle"]["preStop"]["exec"]["command"][1]) if "lifecycle" in container else 0
        serve = config.serve
        assert (
            spec["terminationGracePeriodSeconds"] == before_s + (serve.drain_ms + serve.request_timeout_ms) / 1000 + 15
        )
        assert document["spec"]["progressDeadlineSeconds"] >= config.join.window_ms / 1000 + 900


def test_buffers_are_shares_of_the_memory_limits() -> None:
    """25 % of it for joiners, 15 % for the learner; what the configuration says wins; joiners of a backfill share."""
    assert config_of("minimal", "stream-learner-ctr").join.buffer_bytes == (1 << 30) // 4
    production = config_of("production", "stream-learner-ctr")
    assert production.join.buffer_bytes == (2 << 30) // 4
    assert production.learner.buffer_bytes >> 20 == (8 << 30) * 15 // 100 >> 20
    (args,) = (
        {variable["name"]: variable["value"] for variable in c["env"]}
        for (k, name), c in containers(objects("backfill"))
        if "ctr-november" in name and k == "Job"
    )
    assert args == {"STREAM_LEARNER__JOIN__BUFFER": "256MiB", "STREAM_LEARNER__LEARNER__BUFFER": "409MiB"}


@pytest.mark.parametrize(
    ("limit", "mebibytes"),
    [("1.5Gi", 384), ("2000M", 476), (2_147_483_648, 512), ("1Ti", 262_144), ("2147483648", 512), ("1048576Ki", 256)],
)
def test_quantities_are_read_as_kubernetes_reads_them(limit: str | int, mebibytes: int, tmp_path: Path) -> None:
    """A quarter of the limit, in whole MiB."""
    text = from_values(
        tmp_path, changed("joiner.resources", {"limits": {"memory": limit}, "requests": {"memory": "512Mi"}})
    )
    assert f"buffer: {mebibytes}MiB\n" in text


def test_a_buffer_that_is_given_wins(tmp_path: Path) -> None:
    """Over what the chart would derive."""
    assert "buffer: 77MiB\n" in from_values(tmp_path, changed("models.ctr.config.join", {"buffer": "77MiB"}))


@pytest.mark.parametrize(("duration", "seconds"), [("1h30m", 5400), ("1500ms", 2), ("0", 0), ("1.5m", 90), (0, 0)])
def test_durations_are_read_as_the_program_reads_them(duration: str | int, seconds: int, tmp_path: Path) -> None:
    """Rounded up to whole seconds."""
    text = from_values(tmp_path, changed("models.ctr.config.serve", {"drain": duration, "request_timeout": "1s"}))
    assert f"terminationGracePeriodSeconds: {seconds + 16}\n" in text


def test_a_models_own_settings_win_over_the_shared_ones() -> None:
    """A model's value wins even if it is false or null; settings that it does not have are the shared ones."""
    first, second, serving = (config_of("models", f"stream-learner-{name}") for name in ("ctr-v1", "ctr-v2", "serving"))
    assert (first.join.window_ms, second.join.window_ms) == (3_600_000, 600_000)
    assert (first.join.close_idle, second.join.close_idle) == (True, False)
    assert serving.scorer.stale_after_ms is None and first.scorer.stale_after_ms is not None
    assert second.model == "ctr.v2" and second.input == first.input
    assert serving.serve.aliases == ["ctr"]


def test_scorers_keep_copies_on_the_volume_that_they_have(tmp_path: Path) -> None:
    """One of the pod, or the claim that is named, or none; a directory that is given wins."""
    for given, volume, folder in (
        ({}, {"emptyDir": {}}, "/var/lib/stream-learner"),
        ({"existingClaim": "c"}, {"persistentVolumeClaim": {"claimName": "c"}}, "/var/lib/stream-learner"),
        ({"enabled": False}, None, None),
    ):
        found = list(yaml.safe_load_all(from_values(tmp_path, changed("scorer.copies", given))))
        (pod,) = (
            one["spec"]["template"]["spec"]
            for one in found
            if one and one["metadata"]["name"].endswith("-scorer") and one["kind"] == "Deployment"
        )
        assert {v["name"]: v for v in pod["volumes"]}.get("state") == (volume and {"name": "state", **volume})
        texts = {one["data"]["config.yaml"] for one in found if one and one["kind"] == "ConfigMap"}
        assert {yaml.safe_load(text).get("scorer", {}).get("state_dir") for text in texts} == {folder}
        mounts = {mount["name"]: mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]}
        assert mounts.get("state") == folder
    given = from_values(tmp_path, changed("models.ctr.config.scorer", {"state_dir": "/data"}))
    assert "state_dir: /data\n" in given


def test_large_numbers_stay_whole() -> None:
    """Not 8.388608e+06."""
    assert tree_of("production", "stream-learner-ctr")["serve"]["max_body"] == 8_388_608


def test_state_of_every_model_is_below_the_volume() -> None:
    """In a folder of the model's name, as a backfill of that name leaves it."""
    for shape, name in config_maps():
        config = config_of(shape, name)
        assert str(config.state_dir) == f"/var/lib/stream-learner/{config.model}"
        assert config.renamed("other").state_dir == Path("/var/lib/stream-learner/other")


def test_a_backfill_is_not_tried_again_where_only_a_person_can_help() -> None:
    """The exit codes of errors that stay; none of those that pass, such as a volume that is still in use."""
    document = next(d for (k, n), d in objects("backfill").items() if k == "Job" and "backfill" in n)
    (codes,) = (rule["onExitCodes"]["values"] for rule in document["spec"]["podFailurePolicy"]["rules"][1:])
    stops = {kind.exit_code: kind.__name__ for kind in all_errors() if issubclass(kind, (Stop, BrokenInvariant))}
    named = {stops[code] for code in codes if code != 2}
    passing = {"TopicMissing", "NotAuthorised", "AuthenticationFailed", "Fenced", "DiskFull", "StateInUse", "PortInUse"}
    asked = {"TopicsDiffer", "NotReady", "NotFound", "PromotionRefused", "ModelsDiffer"}
    assert named & (passing | asked) == set()
    assert {"ConfigError", "LogTrimmed", "StateDamaged", "TooManyBadRecords", "BrokenInvariant"} <= named


def test_the_notes_name_what_is_there(tmp_path: Path) -> None:
    """What is printed after an installation: where to ask for predictions; the least values where there is no model."""
    assert "http://stream-learner-ctr-scorer.default.svc:80/v1/models/ctr:predict" in notes(tmp_path / "a", MINIMAL)
    empty = notes(tmp_path / "b", {})
    least = yaml.safe_load(empty[empty.index("\n") :])
    assert "kind: StatefulSet" in from_values(tmp_path, least)


def test_the_notes_say_what_a_new_model_waits_for(tmp_path: Path) -> None:
    """Its first window, by its length; a promotion, where scorers follow an alias; another entry's learner."""
    waits = notes(tmp_path / "a", changed("models.ctr.config.join", {"window": "45m"}))
    assert "its first window (45m) has closed" in waits and "promote" not in waits
    assert "helm test" in waits
    followed = notes(tmp_path / "b", changed("models.ctr.config.scorer", {"alias": "live"}))
    assert "serve what live leads to" in followed and "stream-learner promote" in followed
    followed = notes(tmp_path / "c", changed("models.ctr.config.serve", {"aliases": ["live", "new"]}))
    assert "serve what live, new leads to" in followed
    alone = notes(tmp_path / "d", changed("learner.enabled", False))
    assert "wait for a first version of ctr, which no learner of this entry publishes" in alone
    assert "Nothing is made" in notes(tmp_path / "e", changed("enabled", False))


def notes(folder: Path, values: dict[str, Any]) -> str:
    """The notes, which `helm template` leaves out: rendered as an object of a copy of the chart."""
    shutil.copytree(CHART, folder)
    (folder / "templates" / "NOTES.txt").rename(folder / "notes.tpl")
    template = 'kind: Notes\nmetadata: {name: notes}\ntext: {{ tpl (.Files.Get "notes.tpl") . | toJson }}\n'
    (folder / "templates" / "notes.yaml").write_text(template)
    documents = yaml.safe_load_all(from_values(folder.parent, values, folder))
    return str(next(d["text"] for d in documents if d and d["kind"] == "Notes")).lstrip()
