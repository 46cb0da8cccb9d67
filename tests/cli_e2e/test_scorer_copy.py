"""The copy of the last version on disk: a scorer that starts without brokers begins with it."""

from __future__ import annotations

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from stream_learner import Scorer
from stream_learner.adapters.telemetry.logs import get_logger
from stream_learner.adapters.telemetry.metrics import Metrics
from stream_learner.errors import ConfigError, NotReady
from stream_learner.roles.scorer.kept_copy import KeptCopy
from tests.cli_e2e.conftest import MakeWorld
from tests.cli_e2e.published import Published
from tests.cli_e2e.scraped import values_of
from tests.cli_e2e.test_scorer import WEIGHTS, A, B
from tests.cli_e2e.world import free_port
from tests.waiting import patience, wait_until

EVENTS = [{"site": "a", "x": 1}, {"site": "b"}, {"x": 3}]


def kept(model: Published, folder: Path, bootstrap: str = "", **options: object) -> Scorer:
    """A scorer that keeps copies, often."""
    address = bootstrap or model.world.settings.bootstrap
    return Scorer(address, model.world.model, state_dir=folder, copy_every_ms=1_000, **options)  # type: ignore[arg-type]


def file_of(model: Published, folder: Path) -> Path:
    """The path of the copy."""
    return folder / f"model-{model.world.model}.copy"


@pytest.fixture(scope="module")
def copied(make_world: MakeWorld, tmp_path_factory: pytest.TempPathFactory) -> tuple[Published, Path, list[float]]:
    """A model, a directory with a copy of its version 5, and what that version predicts."""
    model, folder = Published(make_world()), tmp_path_factory.mktemp("state")
    model.publish(5, WEIGHTS)
    with kept(model, folder) as scorer:
        scorer.wait_ready(patience())
        expected = scorer.predict_many(EVENTS).p_click.tolist()
        wait_until(file_of(model, folder).exists)
    model.close()
    return model, folder, expected


def test_without_brokers_the_copy_is_served_at_once_and_said(copied: tuple[Published, Path, list[float]]) -> None:
    """The same predictions to the bit, by a scorer that is ready when `start` returns; its age counts on."""
    model, folder, expected = copied
    metrics = Metrics("m")
    with (
        capture_logs() as logs,
        kept(model, folder, f"127.0.0.1:{free_port()}", metrics=metrics, stale_after_ms=1) as scorer,
    ):
        assert scorer.ready and scorer.is_from_copy
        found = scorer.predict_many(EVENTS)
        assert (found.p_click.tolist(), found.version, found.model) == (expected, 5, model.world.model)
        assert scorer.description["name"] == model.world.model and scorer.weight(A) == WEIGHTS[A]
        (said,) = [line for line in logs if line["event"] == "serving_copy"]
        assert (said["version"], said["served_model"]) == (5, model.world.model)
        shown = values_of(metrics.text().decode())
        assert shown["scorer_from_copy", ""] == 1 and shown["scorer_state_free_bytes", ""] > 0
        wait_until(lambda: bool(scorer.why_stale) and scorer.version_age_s is not None)
        assert scorer.pending == "" and scorer.trouble


def test_a_scorer_that_starts_anew_is_as_old_as_its_version(make_world: MakeWorld, tmp_path: Path) -> None:
    """Read from the topic or from a copy: the age goes on from the publication, and what was stale is stale at once."""
    model = Published(make_world())
    model.publish(5, WEIGHTS)
    with kept(model, tmp_path) as scorer:
        scorer.wait_ready(patience())
        wait_until(file_of(model, tmp_path).exists)
        wait_until(lambda: (scorer.version_age_s or 0) > 5)
    limits = {"stale_after_ms": 1_000, "refuse_after_ms": 5_000}
    with capture_logs() as logs, kept(model, tmp_path, **limits) as scorer:
        wait_until(lambda: not scorer.is_from_copy, "the topic is read")
        assert scorer.version_age_s is not None and scorer.version_age_s > 5
        assert scorer.why_stale and scorer.why_refused
        assert not [line for line in logs if line["event"] == "version_fresh"]
    with Scorer(model.world.settings.bootstrap, model.world.model, **limits) as scorer:
        scorer.wait_ready(patience())
        assert scorer.version_age_s is not None and scorer.version_age_s > 5
        assert scorer.why_stale and scorer.why_refused
    model.close()


def test_a_pin_holds_the_version_of_the_copy(make_world: MakeWorld, tmp_path: Path) -> None:
    """Until it is taken back the topic is read and not served."""
    model = Published(make_world())
    model.publish(5, WEIGHTS)
    with kept(model, tmp_path) as scorer:
        scorer.wait_ready(patience())
        wait_until(file_of(model, tmp_path).exists)
    model.publish(6, {A: 6.0})
    with kept(model, tmp_path) as scorer:
        scorer.pin()
        wait_until(lambda: "no longer in the topic" in scorer.trouble)
        assert (scorer.version, scorer.is_from_copy) == (5, True)
        scorer.unpin()
        wait_until(lambda: scorer.version == 6)
    model.close()


def test_the_topic_takes_the_place_of_the_copy_and_the_copy_follows(make_world: MakeWorld, tmp_path: Path) -> None:
    """What was published meanwhile is served as soon as it is read, and kept."""
    model, metrics = Published(make_world()), Metrics("m")
    model.publish(5, WEIGHTS)
    with kept(model, tmp_path) as scorer:
        scorer.wait_ready(patience())
        wait_until(file_of(model, tmp_path).exists)
    model.publish(6, {A: 6.0})
    with kept(model, tmp_path, metrics=metrics) as scorer:
        assert scorer.version == 5
        wait_until(lambda: scorer.version == 6)
        assert not scorer.is_from_copy and scorer.weight(A) == 6.0 and scorer.weight(B) == WEIGHTS[B]
        wait_until(lambda: values_of(metrics.text().decode()).get(("scorer_copy_version", "")) == 6)
        model.publish(7, {A: 7.0})
        wait_until(lambda: scorer.version == 7 and scorer.trouble == "")
        wait_until(lambda: values_of(metrics.text().decode()).get(("scorer_copy_version", "")) == 7)
    model.close()
    assert {file.suffix for file in tmp_path.iterdir()} == {".copy", ".lock"}


def copy_of(model: Published, folder: Path, name: str = "") -> KeptCopy:
    """The copy of a model, as a scorer of that name would load it."""
    return KeptCopy(folder, name or model.world.model, get_logger("t"), Metrics("m"), is_alias=False, every_ms=1_000)


def test_a_damaged_copy_is_set_aside_and_never_served(
    copied: tuple[Published, Path, list[float]], tmp_path: Path
) -> None:
    """The log names the copy, and the scorer starts as if there were none."""
    model, folder, _ = copied
    data = file_of(model, folder).read_bytes()
    file = file_of(model, tmp_path)
    for bad in (data[:-9], data[:100] + bytes([data[100] ^ 1]) + data[101:], b"", b"junk"):
        file.write_bytes(bad)
        with capture_logs() as logs:
            assert copy_of(model, tmp_path).load() is None
        (said,) = [line for line in logs if line["event"] == "copy_damaged"]
        assert said["log_level"] == "error" and said["reason"]
        assert not file.exists() and file.with_suffix(".damaged").read_bytes() == bad


def test_a_copy_of_another_model_or_of_a_later_program_is_not_served(
    copied: tuple[Published, Path, list[float]], tmp_path: Path
) -> None:
    """Such a copy stays where it is: it may be meant for another program."""
    model, folder, _ = copied
    data = file_of(model, folder).read_bytes()
    for name, content in (("other", data), ("later", data[:4] + b"\2\0" + data[6:])):
        file = tmp_path / f"model-{name}.copy"
        file.write_bytes(content)
        with capture_logs() as logs:
            assert copy_of(model, tmp_path, name).load() is None
        assert [line["event"] for line in logs] == ["copy_not_served"] and file.exists()
    assert copy_of(model, tmp_path, "nothing").load() is None


def test_a_copy_of_features_that_are_not_known_is_not_served(make_world: MakeWorld, tmp_path: Path) -> None:
    """Its events cannot be encoded; the topic is read as without a copy."""
    world = make_world()
    odd = Published(world, {"key_rule": 4})
    odd.publish(5, WEIGHTS)
    with Scorer(world.settings.bootstrap, world.model) as scorer:
        wait_until(lambda: scorer._served.current is not None and scorer._served.current.replica.served is not None)
        reader = scorer._served.current._reader  # type: ignore[union-attr]
        version = reader.whole_version()  # type: ignore[union-attr]
        assert version is not None
        copy_of(odd, tmp_path)._write(version, 0)
    odd.close()
    with capture_logs() as logs, kept(odd, tmp_path) as scorer:
        assert not scorer.ready
        with pytest.raises(NotReady):
            scorer.predict({"site": "a"})
    assert "copy_not_served" in [line["event"] for line in logs]


def test_a_directory_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    """When the scorer is made."""
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="state_dir"):
        Scorer("localhost:1", "m", state_dir=tmp_path / "file" / "below")


def test_a_copy_that_cannot_be_written_ends_nothing(make_world: MakeWorld, tmp_path: Path) -> None:
    """It is said once and counted; the copy before stays; it is tried again."""
    model, metrics = Published(make_world()), Metrics("m")
    model.publish(5, WEIGHTS)
    temporary = file_of(model, tmp_path).with_suffix(".tmp")
    temporary.mkdir()
    with capture_logs() as logs, kept(model, tmp_path, metrics=metrics) as scorer:
        scorer.wait_ready(patience())
        wait_until(lambda: _count(metrics, "failed") >= 2)
        assert scorer.predict({"site": "a"}).version == 5
        assert [line["event"] for line in logs].count("copy_failed") == 1
        temporary.rmdir()
        wait_until(file_of(model, tmp_path).exists)
    model.close()


def _count(metrics: Metrics, outcome: str) -> float:
    lines = metrics.text().decode().splitlines()
    found = [line for line in lines if line.startswith("stream_learner_scorer_copies_total") and f'"{outcome}"' in line]
    return float(found[0].split()[-1]) if found else 0.0
