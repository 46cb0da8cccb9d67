"""Puts another database in the place of the one in a state directory: the last step of a rewind.

1. The other database is made in `rewound-making`, checked, and closed.
2. Renaming it to `rewound` decides: from here on the swap is finished, by whoever comes next.
3. The files of the database that was are deleted; then `rewound` is renamed to `rewound-moving`.
4. Its files are moved up, CURRENT last, and the empty directory is removed.

| a crash after | leaves                                        | the next `finish_swap`                  |
|---------------|-----------------------------------------------|-----------------------------------------|
| step 1        | the state as it was, and `rewound-making`     | deletes that                            |
| step 2        | the state as it was, and `rewound`            | goes on with step 3                     |
| step 3, 4     | some of the files, `rewound` or the other one | goes on there; the directory's name says|
|               |                                               | whether the files at the top are old    |

The lock is that of RocksDB, which also holds back a learner that starts meanwhile.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stream_learner.adapters.rocksdb.history import sync_directory
from stream_learner.errors import StateInUse
from stream_learner.roles.learner.state_dir import database_files, is_open_here

MAKING, DECIDED, MOVING = "rewound-making", "rewound", "rewound-moving"


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of a state directory. Raises StateInUse."""
    if is_open_here(path):
        raise StateInUse(f"this process has the state directory {path} open")
    number = os.open(path / "LOCK", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.lockf(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise StateInUse(f"another process has the state directory {path} open") from error
        yield
    finally:
        os.close(number)


def new_database(path: Path) -> Path:
    """Step 1: where the other database is to be made. What is left there of an earlier attempt is deleted."""
    shutil.rmtree(path / MAKING, ignore_errors=True)
    return path / MAKING


def swap(path: Path) -> None:
    """Steps 2 to 4, for a database in `new_database` that is closed. Raises StateInUse."""
    with locked(path):
        # Step 2: decide.
        sync_directory(path / MAKING)
        (path / MAKING).rename(path / DECIDED)
        sync_directory(path)
        _finish(path)


def finish_swap(path: Path) -> None:
    """Finish a swap that was decided, and delete what is left of one that was not; nothing to do as a rule.

    To be called before a state directory is looked at. Raises StateInUse.
    """
    if any((path / name).exists() for name in (MAKING, DECIDED, MOVING)):
        with locked(path):
            _finish(path)
            shutil.rmtree(path / MAKING, ignore_errors=True)


def _finish(path: Path) -> None:
    if (path / DECIDED).exists():
        # Step 3: what is at the top is of the state that was.
        for file in database_files(path):
            file.unlink()
        sync_directory(path)
        (path / DECIDED).rename(path / MOVING)
        sync_directory(path)
    if (path / MOVING).exists():
        # Step 4: what is at the top has come from below.
        for file in sorted((path / MOVING).iterdir(), key=lambda file: file.name == "CURRENT"):
            if file.is_file() and file.name != "LOCK":
                file.rename(path / file.name)
        sync_directory(path)
        shutil.rmtree(path / MOVING)
        sync_directory(path)
