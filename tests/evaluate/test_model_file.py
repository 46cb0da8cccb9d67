"""A model that was saved goes on to the same bits; a damaged or foreign file is refused."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from stream_learner.core.model.fold import Learner
from stream_learner.core.model.losses import make_loss
from stream_learner.core.model.optimizers import make_optimizer
from stream_learner.errors import BadInput, NewerFormat
from stream_learner.evaluate.model_file import load_learner, read_model, save_learner, write_model
from tests.evaluate.evaluation_help import example_blocks_of, generated

SETTINGS: list[tuple[str, str, dict[str, Any]]] = [
    ("ftrl_proximal", "logistic", {"alpha": 0.3, "l1": 0.1}),
    ("normalized", "squared", {"eta": 0.2}),
    ("averaged", "quantile", {"eta": 0.2, "schedule": "power"}),
]


def learned(learner: Learner, start: int, end: int) -> Learner:
    """The learner after some of the examples."""
    for block in example_blocks_of(generated(90)[start:end], 11):
        for record in block.records:
            learner.fold(record, 0)
    return learner


def fresh(name: str, loss: str, hyper: dict[str, Any]) -> Learner:
    """A learner without examples."""
    option = {"tau": 0.3} if loss == "quantile" else {}
    return Learner(make_optimizer({"name": name, **hyper}), loss=make_loss(loss, **option))


@pytest.mark.parametrize(("name", "loss", "hyper"), SETTINGS, ids=[name for name, _, _ in SETTINGS])
def test_a_loaded_model_goes_on_to_the_same_bits(tmp_path: Path, name: str, loss: str, hyper: dict[str, Any]) -> None:
    """Saved in the middle, the digest at the end is that of a run that was not interrupted."""
    file = tmp_path / "model.slm"
    save_learner(learned(fresh(name, loss, hyper), 0, 40), file)
    loaded = load_learner(file, *read_model(file))
    assert loaded.digest() == learned(fresh(name, loss, hyper), 0, 40).digest()
    whole = learned(learned(fresh(name, loss, hyper), 0, 40), 40, 90)
    assert learned(loaded, 40, 90).digest() == whole.digest()
    assert (loaded.loss, loaded.optimizer) == (whole.loss, whole.optimizer)
    assert loaded.count_nonzero() == whole.count_nonzero()
    assert list(tmp_path.iterdir()) == [file]


def test_a_model_without_examples_can_be_saved(tmp_path: Path) -> None:
    """No rows at all."""
    file = tmp_path / "empty.slm"
    save_learner(fresh(*SETTINGS[0]), file)
    assert load_learner(file, *read_model(file)).digest() == fresh(*SETTINGS[0]).digest()


def test_damage_anywhere_is_found(tmp_path: Path) -> None:
    """A byte changed, or some missing: refused with the file's name."""
    whole, file = tmp_path / "model.slm", tmp_path / "damaged.slm"
    save_learner(learned(fresh(*SETTINGS[0]), 0, 40), whole)
    content = whole.read_bytes()
    for place in range(0, len(content), 5):
        file.write_bytes(content[:place] + bytes([content[place] ^ 0x41]) + content[place + 1 :])
        with pytest.raises(BadInput, match=r"damaged\.slm"):
            read_model(file)
    for length in (0, 1, len(content) // 2, len(content) - 1):
        file.write_bytes(content[:length])
        with pytest.raises(BadInput, match=r"damaged\.slm"):
            read_model(file)


def test_rows_that_do_not_belong_to_the_state_are_refused(tmp_path: Path) -> None:
    """The digest of the rows must be the one that was written beside them."""
    file = tmp_path / "model.slm"
    save_learner(learned(fresh(*SETTINGS[0]), 0, 40), file)
    about, arrays = read_model(file)
    arrays["columns"] = arrays["columns"] + 1.0
    with pytest.raises(BadInput, match="digest"):
        load_learner(file, about, arrays)


def test_what_is_no_model_or_of_a_later_program_is_refused(tmp_path: Path) -> None:
    """Missing, text, JSON, a newer version."""
    file = tmp_path / "model.slm"
    with pytest.raises(BadInput, match="No such file"):
        read_model(file)
    for content in (b"", b"1 |n a b\n", json.dumps({}).encode()):
        file.write_bytes(content)
        with pytest.raises(BadInput, match=r"model\.slm"):
            read_model(file)
    write_model(file, {"kind": "learner"}, {})
    content = bytearray(file.read_bytes())
    content[8] = 2
    file.write_bytes(content[:-32] + hashlib.sha256(content[:-32]).digest())
    with pytest.raises(NewerFormat, match="version 2"):
        read_model(file)
