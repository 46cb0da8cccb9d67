"""Every alert fires on what it is for and not on what is close to it, by Prometheus's own evaluation of the rules."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from stream_learner.adapters.telemetry import metric_names as names
from stream_learner.adapters.telemetry.metric_names import FROM_ZERO
from tests.chart.alert_cases import CASES
from tests.chart.recorded import Step, recorded, sets, together
from tests.chart.rendered import objects
from tools.get_promtool import NoPromtool, promtool

REFUSE_MINUTES = 60
GIVEN = ("--set", f"models.ctr.config.scorer.refuse_after={REFUSE_MINUTES}m")


def rules() -> dict[str, Any]:
    """The groups of the production shape, with every alert that a setting brings."""
    found: dict[str, Any] = objects("production", *GIVEN)["PrometheusRule", "stream-learner"]["spec"]
    return found


def alerts() -> dict[str, dict[str, Any]]:
    """The alerts by name."""
    return {rule["alert"]: rule for group in rules()["groups"] for rule in group["rules"]}


def written(
    folder: Path, pods: tuple[Step, ...], asked: list[tuple[str, int, bool]], minutes: int, every: int, alert: str = ""
) -> Path:
    """A test of the rules, as promtool reads it, in a new folder. asked: queries, when, and whether they find anything.
    alert: the only one that is evaluated, "" for all of them, which takes ten times as long.
    """
    folder.mkdir()
    groups = [{**g, "rules": [r for r in g["rules"] if alert in ("", r["alert"])]} for g in rules()["groups"]]
    (folder / "rules.yaml").write_text(json.dumps({"groups": groups}), encoding="utf-8")
    expected = [
        {"expr": query, "eval_time": f"{at}m", "exp_samples": [{"labels": "{}", "value": 1}] if found else []}
        for query, at, found in asked
    ]
    test = {
        "rule_files": ["rules.yaml"],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": f"{every}m",
                "input_series": recorded(pods, minutes, every),
                "promql_expr_test": expected,
            }
        ],
    }
    file = folder / "test.yaml"
    file.write_text(json.dumps(test), encoding="utf-8")
    return file


def failures(*files: Path) -> list[str]:
    """What promtool finds wrong in these tests, each with the name of its file."""
    try:
        command = promtool()
    except NoPromtool as error:
        pytest.fail(str(error), pytrace=False)
    run = subprocess.run(
        [command, "test", "rules", *files], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    told = run.stdout.split("Unit Testing:")[1:]
    found = [text for text in told if "SUCCESS" not in text]
    assert (len(told), bool(found)) == (len(files), run.returncode != 0), run.stdout
    return found


def ever_fired(alert: str, minutes: int) -> str:
    """A query that gives 1 where the alert was firing at any minute up to now, else nothing."""
    return f'max(max_over_time(ALERTS{{alertname="{alert}",alertstate="firing"}}[{minutes + 1}m]))'


def test_every_alert_has_its_case() -> None:
    """And no case is of an alert that is not there."""
    assert sorted(case.alert for case in CASES) == sorted(alerts())


def test_an_alert_fires_on_what_it_is_for_and_is_quiet_on_what_is_close(tmp_path: Path) -> None:
    """At the end of the one, and at every minute of the other. In one process: to start promtool takes longer than most
    cases do.
    """
    files = []
    for case in CASES:
        firing = (f'max(ALERTS{{alertname="{case.alert}",alertstate="firing"}})', case.minutes, True)
        fired = (ever_fired(case.alert, case.minutes), case.minutes, False)
        for name, pods, asked in (("fires", case.fires, firing), ("quiet", case.quiet, fired)):
            folder = tmp_path / f"{case.alert}-{name}"
            files.append(written(folder, pods, [asked], case.minutes, case.every, case.alert))
    assert failures(*files) == []


def test_freshness_is_told_before_anything_is_refused(tmp_path: Path) -> None:
    """When the learner goes away: the version that is served is old, it is stale, requests will be refused; each of
    them is critical, and the last comes while there is time."""
    learner_gone = together(
        sets(names.SCORER_FRESHNESS, lambda minute: 60.0 * minute),
        sets(names.SCORER_VERSION_AGE, lambda minute: 60.0 * minute),
        sets(names.SCORER_STALE, lambda minute: float(minute >= 5)),
        sets(names.SCORER_READY, 1),
    )
    order = {"StreamLearnerVersionStale": 6, "StreamLearnerStale": 11, "StreamLearnerRefusesSoon": 32}
    asked = [
        (ever_fired(alert, at + shift), at + shift, shift >= 0) for alert, at in order.items() for shift in (-1, 0)
    ]
    assert max(order.values()) < REFUSE_MINUTES
    assert {alerts()[name]["labels"]["severity"] for name in order} == {"critical"}
    assert failures(written(tmp_path / "gone", (learner_gone,), asked, 40, 1)) == []


def test_a_refusal_is_announced_where_nothing_is_called_stale() -> None:
    """With `stale_after: null` no gauge says so, and the age alone is looked at."""
    found = objects("models", "--set", "monitoring.rules.enabled=true")["PrometheusRule", "stream-learner"]
    named = [r for g in found["spec"]["groups"] for r in g["rules"] if r["alert"] == "StreamLearnerRefusesSoon"]
    assert named and not any("scorer_stale{" in rule["expr"] for rule in named)
    assert "scorer_stale{" in alerts()["StreamLearnerRefusesSoon"]["expr"]


def test_a_crash_before_the_first_scrape_is_seen(tmp_path: Path) -> None:
    """A joiner of which nothing was ever scraped: nobody joins, and that is told."""
    nothing = sets(names.BUILD_INFO, 1, version="1", role="serve")
    asked = [(ever_fired("StreamLearnerNothingJoined", 15), 15, True)]
    assert failures(written(tmp_path / "nothing", (nothing,), asked, 15, 1)) == []


def test_counters_whose_first_count_is_an_alert_begin_at_0() -> None:
    """A series that begins at 1 has no increase."""
    first = re.compile(r"increase\(stream_learner_(\w+)\{([^}]*)\}\[\d+[mh]\]\)\) > 0(?![.\d])")
    found = {
        (metric, tuple(re.findall(r'(\w+)="([^"]*)"', selector)))
        for rule in alerts().values()
        if "unless" not in rule["expr"]
        for metric, selector in first.findall(rule["expr"])
    }
    wanted = {
        (metric, tuple(pair for pair in labels if pair[0] not in ("namespace", "model"))) for metric, labels in found
    }
    assert wanted == {(metric.name, tuple(labels.items())) for metric, labels in FROM_ZERO}
