"""Real data, if it is there: beside the project's folder, never in it."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np

from proofs.figures.play import SparseExamples, Vector
from stream_learner.evaluate.formats.libsvm import LibsvmText

FOLDER = Path(__file__).resolve().parents[2].parent / "shared" / "data"
SENTIMENT = ("books", "dvd", "electronics", "kitchen")


class DataMissing(Exception):
    """A figure needs a file that is not there."""


def libsvm(*names: str) -> tuple[SparseExamples, Vector]:
    """The examples of files in LIBSVM text, and their labels. Columns are numbered by first appearance."""
    starts, keys, values, labels, before = [np.zeros(1, np.int64)], [], [], [], 0
    for name in names:
        path = FOLDER / name
        if not path.exists():
            raise DataMissing(f"needs {name} in ../shared/data")
        parsed = LibsvmText(bias=False).parse(gzip.decompress(path.read_bytes()), 1)
        if parsed.faults:
            raise ValueError(f"{name}: {parsed.faults[0]}")
        starts.append(parsed.batch.row_start[1:] + before)
        before = int(starts[-1][-1])
        keys.append(parsed.batch.keys.copy())
        values.append(parsed.batch.values.copy())
        labels.append(parsed.batch.label.copy())
    _, columns = np.unique(np.concatenate(keys), return_inverse=True)
    return SparseExamples(np.concatenate(starts), columns, np.concatenate(values)), np.concatenate(labels)


def sentiment(domain: str) -> tuple[SparseExamples, Vector]:
    """All reviews of one domain."""
    return libsvm(*(f"sentiment/{domain}_{part}.svmlight.gz" for part in ("train", "test")))


def of_unit_length(rows: SparseExamples) -> SparseExamples:
    """The examples divided by their Euclidean length."""
    lengths = np.sqrt(np.add.reduceat(rows.values**2, rows.start[:-1]))
    lengths[np.diff(rows.start) == 0] = 1.0
    return SparseExamples(rows.start, rows.columns, rows.values / np.repeat(lengths, np.diff(rows.start)))
