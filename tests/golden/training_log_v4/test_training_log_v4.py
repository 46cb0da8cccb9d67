"""Version 4 in the training log, which has examples that say which field each key is of: these bytes are read for ever,
and written as long as it is written.

The files beside this one hold a record each. A change that makes this test fail needs a new version of the layout, with
golden files of its own, and a reader that still passes this test.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from stream_learner.core.log.examples import ExampleRecord, decode, encode_examples, to_batch
from stream_learner.core.log.field_bound import FieldBound
from tests.core.log.record_layouts import same
from tests.golden.training_log_v1.test_training_log_v1 import ATTEMPT
from tests.golden.training_log_v1.test_training_log_v1 import BATCHES as FIRST_BATCHES

FOLDER = Path(__file__).parent
BOUND = FieldBound(1_000_000, (0xEF46DB3751D8E999, 0x0123456789ABCDEF, 2**64 - 1))
COUNTED = np.array([1, 3, 2, 0, 3, 0], np.uint8)
"""Of the features of version 1's examples: keys 11, 22, 2^64 - 2 and the bias, then 22 and the bias again."""
BATCHES = {name: replace(batch, counted=COUNTED) for name, batch in FIRST_BATCHES.items()}


@pytest.mark.parametrize("name", BATCHES)
def test_golden_examples_are_read_and_written_the_same(name: str) -> None:
    """The columns, the bound and the numbers from the bytes; the bytes from them."""
    golden = (FOLDER / name).read_bytes()
    assert encode_examples(5, 7, ATTEMPT, BATCHES[name], bound=BOUND) == [golden]
    record = decode(golden)
    assert isinstance(record, ExampleRecord)
    assert (record.partition, record.tick, record.attempt, record.sequence) == (5, 7, ATTEMPT, 0)
    assert record.bound == BOUND and record.counted.tolist() == [1, 3, 2, 0]
    again = to_batch(record)
    assert same(again, BATCHES[name]) and again.counted.tolist() == COUNTED.tolist()
