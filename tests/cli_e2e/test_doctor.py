"""`doctor` as a command: the first configuration that it makes is learned with; what is in the way has an exit code."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from stream_learner import errors
from stream_learner.config import load_config
from tests.cli_e2e.commands import answer_of, answers_of, started
from tests.cli_e2e.conftest import MakeWorld
from tests.cli_e2e.scraped import answer, values_of
from tests.cli_e2e.world import free_port
from tests.conftest import MakeTopic
from tests.operations.doctor.site import CLICK_SHARE, IMPRESSIONS, Site, produce
from tests.waiting import wait_until


@pytest.fixture(scope="module")
def names(kafka: str, topics: MakeTopic) -> tuple[str, str]:
    """The topics of a healthy site."""
    made = topics("impressions", 4), topics("clicks", 4)
    produce(kafka, made, Site(), int(time.time() * 1000))
    return made


def look(kafka: str, names: tuple[str, str], *options: str | Path) -> tuple[str, ...]:
    """The command line without a configuration."""
    model = f"model=m{names[0][-12:]}"
    given = ("doctor", "--impressions", names[0], "--clicks", names[1], "--bootstrap", kafka, "--set", model, *options)
    return tuple(map(str, given))


def test_the_first_configuration_is_checked_and_learned_with(
    kafka: str, names: tuple[str, str], tmp_path: Path
) -> None:
    """As it was written: nothing is found with it, the topics are made, and `run` learns all events and publishes."""
    file, model = tmp_path / "model.yaml", f"m{names[0][-12:]}"
    made = answer_of(*look(kafka, names, "--write", file))
    assert (made.code, made.err) == (0, "")
    assert str(file) in made.out and file.read_text(encoding="utf-8") in made.out
    config = load_config(file, environ={})
    assert (config.model, config.input.impressions.topic, config.input.clicks.topic) == (model, *names)
    assert (config.input.impressions.id, config.input.clicks.id) == ("imp.id", "ref.impression_id")
    assert [spec.time_unit for spec in config.event_specs()] == ["iso", "s"]
    assert config.join.window_ms == 15_000 and config.features.categorical == ["imp.slot", "device.w", "ad.id"]
    checked, ensured = answers_of(("config", "check", "-c", file), ("topics", "ensure", "-c", file))
    looked = answer_of("doctor", "-c", file, "--fields")
    assert (checked.code, checked.out, checked.err) == (0, "ok\n", "")
    assert (looked.code, looked.err) == (0, "") and "nothing found" in looked.out
    assert re.search(r"\ndevice\.w +whole number +100 % +3 +360 +768 +1440 +\d+\n", looked.out)
    assert re.search(r"\nwhat a model takes at [45]\.?\d* impressions a second", looked.out)
    assert re.search(r"\n  joiners: cores +< 0\.01 +< 0\.01 +1,699 ns an impression\n", looked.out)
    assert ensured.code == 0
    port = free_port()
    settings = (f"telemetry.http_port={port}", f"learner.state_dir={tmp_path / 'state'}", "telemetry.log_format=json")
    with started("run", "-c", file, *(word for one in settings for word in ("--set", one))) as command:
        command.wait_for("learner_started")

        def learned() -> bool:
            values = values_of(answer(port, "/metrics")[1])
            examples, positives = (values.get((f"{name}_total", ""), 0) for name in _LEARNED)
            return examples == IMPRESSIONS and positives > CLICK_SHARE * IMPRESSIONS / 2

        wait_until(learned, lambda: answer(port, "/metrics")[1], look_s=0.2)
        assert command.stop().code == 0


_LEARNED = ("learner_examples", "joiner_positives")


def test_a_file_that_exists_is_left_as_it_is(kafka: str, names: tuple[str, str], tmp_path: Path) -> None:
    """It is refused before anything is read."""
    file = tmp_path / "model.yaml"
    file.write_text("mine", encoding="utf-8")
    refused = answer_of(*look("localhost:1", names, "--write", file))
    assert refused.code == errors.ConfigError.exit_code
    assert f"{file} exists" in refused.err and file.read_text(encoding="utf-8") == "mine"


def test_what_is_in_the_way_has_an_exit_code(kafka: str, names: tuple[str, str]) -> None:
    """Text for a person; one JSON object for a script, with the same findings. A warning alone is no error."""
    wrong = ("--set", "input.clicks.id=event")
    text, parsed = answers_of(look(kafka, names, *wrong), look(kafka, names, *wrong, "--json"))
    assert text.code == parsed.code == errors.InputsUnfit.exit_code
    assert parsed.error["message"] == "1 finding in the way: id fields"
    assert text.err.startswith("error: 1 finding in the way: id fields\nwhat to do: ")
    (finding,) = parsed.json["findings"]
    assert (finding["severity"], finding["name"]) == ("stops", "id_fields")
    assert finding["change"] == "input.clicks.id: ref.impression_id"
    assert all(finding[part] in text.out for part in ("seen", "means", "change"))
    assert [topic["topic"] for topic in parsed.json["topics"]] == [*names]
    assert parsed.json["crosses"] == [] and "brokers: training log" in {
        one["what"] for one in parsed.json["sizing"]["needs"]
    }
    assert "id: event" in parsed.json["configuration"]
    by_value = ("--set", "features.categorical=[imp.slot, ad.id]", "--set", "features.key_rule=2")
    warned = answer_of(*look(kafka, names, *by_value))
    assert (warned.code, warned.err) == (0, "")
    assert "warns: number without scale" in warned.out and "1 finding, none in the way" in warned.out


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--impressions", "a"), "one topic alone"),
        (("--impressions", "a", "--clicks", "b", "-c", "model.yaml"), "-c names the topics"),
        (("-c", "model.yaml", "--write", "other.yaml"), "--write makes a first"),
    ],
)
def test_options_that_contradict_each_other(options: tuple[str, ...], words: str) -> None:
    """They are refused, each with what to give."""
    refused = answer_of("doctor", *options)
    assert refused.code == errors.ConfigError.exit_code and words in refused.err


def test_secrets_are_not_written(kafka: str, names: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A reference is written as one."""
    monkeypatch.setenv("KEY_WORD", "geheim")
    shown = answer_of(*look(kafka, names, "--set", "kafka.ssl.key.password={env: KEY_WORD}", "--json"))
    assert shown.code == 0
    assert "env: KEY_WORD" in shown.json["configuration"] and "geheim" not in shown.out


def test_the_traffic_of_the_demo_fits(make_world: MakeWorld) -> None:
    """Other fields, other delays, some bad records and duplicates."""
    world = make_world()
    assert answer_of("topics", "ensure", "-c", world.file, "--partitions", "2").code == 0
    world.produce(2_000)
    looked = answer_of("doctor", "-c", world.file, "--json")
    assert looked.code == 0
    assert [finding["name"] for finding in looked.json["findings"] if finding["severity"] != "tells"] == []
