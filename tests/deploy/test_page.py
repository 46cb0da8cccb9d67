"""What docs/deploy.md shows fits together: its configuration, its values, the names of what the chart makes of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.chart.rendered import WORKLOADS, Identity, Object, by_identity, role_of
from tests.chart.schemas import problems
from tests.chart.test_manifests import VERSIONS
from tests.deploy import page
from tests.deploy.release import config_of
from tests.deploy.shell import Shell
from tools.chart import CHART, run_helm

SET_BY_THE_CHART = {
    ("join", "buffer"),
    ("learner", "buffer"),
    ("learner", "state_dir"),
    ("scorer", "state_dir"),
    ("serve", "port"),
    ("telemetry", "http_port"),
    ("telemetry", "log_format"),
}
"""Settings of the rendered configuration that `ctr.yaml` does not have."""

STAGES = {
    "install": ["values.yaml"],
    "backfill": ["values.yaml", "backfills.yaml"],
    "model": ["values.yaml", "ctr-v2.yaml"],
}
"""The values files of each of the page's three Helm commands."""


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """A folder with the page's files."""
    made = Shell(tmp_path_factory.mktemp("page"))
    for name, text in page.files().items():
        made.write(name, text)
    return made


def render(folder: Path, stage: str, version: str = VERSIONS[-1]) -> dict[Identity, Object]:
    """The objects of a stage."""
    values = [word for name in STAGES[stage] for word in ("--values", folder / name)]
    run = run_helm("template", "ads", CHART, "--namespace", "ads", "--kube-version", version, *values)
    assert run.returncode == 0, run.stderr
    return by_identity(run.stdout)


def test_the_rendered_configuration_is_that_of_the_page(shell: Shell) -> None:
    """Equal but for what the chart sets itself; the hook's copy is the same text."""
    found = render(shell.folder, "install")
    rendered = config_of(found, "ads-stream-learner-ctr")
    added = {(section, name) for section, name in SET_BY_THE_CHART if name in rendered[section]}
    assert added == SET_BY_THE_CHART
    for section, name in SET_BY_THE_CHART:
        del rendered[section][name]
    left = {section: values for section, values in rendered.items() if values != {}}
    assert left == page.read("ctr.yaml")
    assert config_of(found, "ads-stream-learner-ctr-topics") == config_of(found, "ads-stream-learner-ctr")


def test_the_second_model_is_configured_as_its_backfill_was(shell: Shell) -> None:
    """What `set` of the backfill says is the only difference from the first model, beside name, state and alias."""
    found = render(shell.folder, "model")
    first, second = (config_of(found, f"ads-stream-learner-{name}") for name in ("ctr", "ctr-v2"))
    (backfill,) = page.read("backfills.yaml")["backfills"]
    assert backfill["as"] == second.pop("model") != first.pop("model")
    for dotted, value in backfill["set"].items():
        section, *middle, last = dotted.split(".")
        place = second[section]
        for name in middle:
            place = place[name]
        assert place.pop(last) == value
    second["learner"].pop("optimizer")
    assert {first["learner"].pop("state_dir"), second["learner"].pop("state_dir")} == {
        f"/var/lib/stream-learner/{name}" for name in ("ctr", "ctr-v2")
    }
    del first["scorer"]["alias"]
    assert first == second


def test_the_second_model_takes_over_the_volume_of_its_backfill(shell: Shell) -> None:
    """The claim that the Job's pod mounts is the one that the learner mounts, and is kept when the Job goes."""
    found = render(shell.folder, "backfill")
    (claim,) = (d for (kind, _), d in found.items() if kind == "PersistentVolumeClaim")
    assert claim["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    mounted = {d["metadata"]["labels"]["app.kubernetes.io/component"]: claims(d) for d in workloads(found)}
    assert mounted["backfill"] == [claim["metadata"]["name"]]
    (learner,) = (
        d for d in workloads(render(shell.folder, "model")) if d["metadata"]["name"].endswith("-ctr-v2-learner")
    )
    assert claims(learner) == [claim["metadata"]["name"]]
    assert not any(
        d["kind"] == "Job" and "backfill" in d["metadata"]["name"] for d in workloads(render(shell.folder, "model"))
    )


def workloads(found: dict[Identity, Object]) -> list[Object]:
    """The workloads: objects that run pods."""
    return [document for (kind, _), document in found.items() if kind in WORKLOADS]


def claims(document: Object) -> list[str]:
    """The claims by name that a workload's pods mount."""
    volumes = document["spec"]["template"]["spec"]["volumes"]
    return [v["persistentVolumeClaim"]["claimName"] for v in volumes if "persistentVolumeClaim" in v]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("stage", STAGES)
def test_every_object_is_one_that_kubernetes_takes(stage: str, version: str, shell: Shell) -> None:
    """Strict, on each version that the chart is checked on."""
    found = render(shell.folder, stage, version)
    assert [problem for document in found.values() for problem in problems(document, version)] == []


def test_the_helm_commands_of_the_page_name_the_stages() -> None:
    """Each installs or upgrades release and namespace `ads` from the files of a stage; lint takes the first of them."""
    lines = re.findall(r"^helm (lint|install ads|upgrade ads) helm/stream-learner (.*)$", page.text(), re.M)
    given = [(verb, re.findall(r"--values (\S+)", rest)) for verb, rest in lines]
    verbs = ["lint", "install ads", "upgrade ads", "upgrade ads"]
    assert given == list(zip(verbs, [STAGES["install"], *STAGES.values()], strict=True))
    assert all("--namespace ads" in rest for verb, rest in lines if verb != "lint")


def test_helm_lint_finds_nothing(shell: Shell) -> None:
    """The page's values, as its command says."""
    run = run_helm("lint", "--strict", CHART, "--values", shell.folder / "values.yaml")
    assert run.returncode == 0, run.stdout


def test_the_names_on_the_page_are_those_of_what_is_rendered(shell: Shell) -> None:
    """Pods, the Service and the claim that the page names."""
    found = {name for stage in STAGES for _, name in render(shell.folder, stage)}
    named = set(re.findall(r"\bads-stream-learner-[a-z0-9-]*[a-z0-9]", page.text()))
    assert len(named) == 4
    for name in named:
        # A pod of a StatefulSet has its number behind.
        assert name in found or re.sub(r"-\d$", "", name) in found, name


def test_secrets_that_pods_mount_are_made_on_the_page(shell: Shell) -> None:
    """Each Secret of a workload is one that a command of the page makes, with the keys that the configuration reads."""
    for name in ("joiner", "learner", "scorer", "admin", "backfill"):
        shell.write(f"{name}.password", "word\n")
    shell.write("ca.crt", "certificate")
    shell.run(page.commands("4.") + page.command("8.", "kubectl -n ads create secret"))
    config = config_of(render(shell.folder, "install"), "ads-stream-learner-ctr")["kafka"]
    files = [value["file"] if isinstance(value, dict) else value for value in config.values()]
    files = [file for file in files if str(file).startswith("/run/secrets/")]
    assert len(files) == 3
    for stage in STAGES:
        for document in workloads(render(shell.folder, stage)):
            if role_of(document) == "test":  # it asks scorers, and no broker
                continue
            spec = document["spec"]["template"]["spec"]
            secrets = {v["name"]: v["secret"]["secretName"] for v in spec["volumes"] if "secret" in v}
            mounts = {m["mountPath"]: secrets.get(m["name"], "") for m in spec["containers"][0]["volumeMounts"]}
            for file in files:
                path, _, key = file.rpartition("/")
                assert (shell.folder / "secrets" / mounts[path] / key).is_file(), (document["metadata"]["name"], file)


def test_config_check_takes_the_page_without_its_secrets(shell: Shell) -> None:
    """As part 2 says, on a machine that has none of the files."""
    shell.run(page.commands("2."))
