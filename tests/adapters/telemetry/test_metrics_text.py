"""Metrics of several processes as one text."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from stream_learner.adapters.telemetry import metric_names as names
from stream_learner.adapters.telemetry.metrics import Metrics, merged


def samples(text: bytes) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Values by name and labels, as Prometheus's own parser reads them."""
    families = list(text_string_to_metric_families(text.decode()))
    assert len({family.name for family in families}) == len(families)
    found = [sample for family in families for sample in family.samples]
    assert len({(sample.name, tuple(sample.labels.items())) for sample in found}) == len(found)
    return {(sample.name, tuple(sorted(sample.labels.items()))): sample.value for sample in found}


def test_every_sample_is_there_with_the_labels_of_its_text() -> None:
    """Counters, histograms and samples without labels, each family once, whatever the order of the texts."""
    first, second = Metrics("a"), Metrics("b")
    first.inc(names.SERVE_INSTANCES, 3, name="a")
    second.inc(names.SERVE_INSTANCES, 4, name='odd "name" {x} y')
    second.observe(names.SERVE_SECONDS, 0.3, protocol="v1")
    texts = {"0": first.text(), "1": second.text()}
    expected = {
        (name, tuple(sorted([*labels, ("worker", worker)]))): value
        for worker, text in texts.items()
        for (name, labels), value in samples(text).items()
    }
    assert samples(merged([({"worker": worker}, text) for worker, text in texts.items()])) == expected
    assert any(name == "process_resident_memory_bytes" for name, _ in expected)


def test_what_several_texts_say_alike_is_said_once() -> None:
    """Texts of one process, without further labels: the process's own metrics are in all of them."""
    metrics = [Metrics("a"), Metrics("b")]
    for one in metrics:
        one.set(names.SCORER_VERSION, 7)
    found = samples(merged([({}, one.text()) for one in metrics]))
    assert sum(name == "process_open_fds" for name, _ in found) == 1
    assert {labels for name, labels in found if name == "stream_learner_scorer_version"} == {
        (("model", "a"),),
        (("model", "b"),),
    }
    assert merged([]) == b"\n"
