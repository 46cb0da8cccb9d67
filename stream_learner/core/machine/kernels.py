"""Compiles kernels, and keeps their machine code. The page of the package explains the stamp.

This file must never switch on fast-math or fused multiply-add: the bits of the fold depend on it.

Machine code is kept in the folder that NUMBA_CACHE_DIR names, which need not be writable (that of an image is not);
without the variable, in the folder that numba chooses. What the wheel carries (`carried`) is looked for first.
`one_compiler` lets processes that start together compile once.
"""

from __future__ import annotations

import fcntl
import gc
import hashlib
import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import llvmlite.binding
import numba
from numba.core import caching
from numba.core.runtime import rtsys

from stream_learner.core.machine.carried import carried_folder, processor_for, processors

F = TypeVar("F", bound=Callable[..., Any])


PACKAGE = Path(__file__).parents[2]
KERNEL_FOLDERS = ("core", "evaluate/formats")
"""Every folder of the package that has kernels in it or below it. `test_kernels` looks for others."""


def sources_stamp(package: Path) -> bytes:
    """Checksum of the names and contents of all files in `KERNEL_FOLDERS`."""
    checksum = hashlib.sha256()
    for folder in KERNEL_FOLDERS:
        for file in sorted((package / folder).rglob("*.py")):
            checksum.update(f"{file.relative_to(package)} {file.stat().st_size}\n".encode())
            checksum.update(file.read_bytes())
    return checksum.digest()


_STAMP = sources_stamp(PACKAGE)

_CARRIED = carried_folder(PACKAGE, _STAMP) if {numba.config.CPU_NAME, numba.config.CPU_FEATURES} == {None} else None
_INSTRUCTIONS = llvmlite.binding.get_host_cpu_features()
_CARRIED_FOR = processor_for(processors()[0], _INSTRUCTIONS)
"""The processor whose machine code is taken from what the wheel carries; numba compiles for this machine as always."""
if (_runnable := processor_for(numba.config.CPU_NAME, _INSTRUCTIONS)) != numba.config.CPU_NAME:
    numba.config.CPU_NAME = _runnable


class _Folder(caching._CacheLocator):
    """A folder of machine code that may be read-only. Numba's own locators skip such a folder."""

    def __init__(self, folder: Path, line: int) -> None:
        self._folder = folder
        self._line = line

    def get_cache_path(self) -> str:
        return str(self._folder)

    def get_source_stamp(self) -> bytes:
        return _STAMP

    def get_disambiguator(self) -> str:
        return str(self._line)


class _GivenFolder(_Folder):
    """The folder of a source file below NUMBA_CACHE_DIR, writable or not."""

    @classmethod
    def from_function(cls, function: Callable[..., Any], file: str) -> _Folder | None:
        if not numba.config.CACHE_DIR:
            return None
        return cls(Path(numba.config.CACHE_DIR, cls.get_suitable_cache_subpath(file)), function.__code__.co_firstlineno)


class _BesideTheSource(_Folder):
    """The last choice, if no folder can be written: the kernels are compiled, and not kept."""

    @classmethod
    def from_function(cls, function: Callable[..., Any], file: str) -> _Folder:
        return cls(Path(file).parent / "__pycache__", function.__code__.co_firstlineno)


class _Files(caching.CompileResultCacheImpl):
    _locator_classes = (_GivenFolder, *caching.CompileResultCacheImpl._locator_classes, _BesideTheSource)


_MISSING: list[str] = []


def missing() -> int:
    """How many versions of kernels this process has not found in the cache so far, and so has to compile."""
    return len(_MISSING)


class MachineCode:
    """The folder of machine code, and the lock on it by which processes take turns to compile.

    folder: where machine code is kept. unkept: why machine code cannot be kept there, "" while it can.
    waits: whether this process waits for another one that compiles.
    """

    def __init__(self) -> None:
        self._locator = _Files(sources_stamp).locator
        self.folder = Path(self._locator.get_cache_path())
        self.unkept = ""
        self.waits = False
        self._blocks = 0
        self._lock_fd: int | None = None

    def begin(self) -> None:
        """From now on, this process waits at its first missing kernel until no other process compiles."""
        self._blocks += 1

    def end(self) -> None:
        """Let another process compile, once this was called as often as `begin`."""
        self._blocks -= 1
        if not self._blocks and self._lock_fd is not None:
            os.close(self._lock_fd)
            self._lock_fd = None

    def take_turn(self) -> bool:
        """Take the lock if this process lacks it. True if another process may have compiled meanwhile.

        The lock is on the folder itself, so it leaves no file behind and ends with the process that holds it. If the
        folder cannot be written or the file system has no locks, each process compiles for itself.
        """
        if not self._blocks or self._lock_fd is not None or self.unkept or not self.is_writable():
            return False
        folder_fd = os.open(self.folder, os.O_RDONLY)
        try:
            self._lock(folder_fd)
        except OSError:
            os.close(folder_fd)
            return False
        self._lock_fd = folder_fd
        return True

    def _lock(self, folder_fd: int) -> None:
        try:
            fcntl.flock(folder_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.waits = True
            fcntl.flock(folder_fd, fcntl.LOCK_EX)
        finally:
            self.waits = False

    def is_writable(self) -> bool:
        """Whether the folder can be written; if not, `unkept` says why."""
        try:
            self._locator.ensure_cache_path()
        except OSError as error:
            self.unkept = error.strerror or str(error)
        return not self.unkept


MACHINE_CODE = MachineCode()


@contextmanager
def one_compiler() -> Iterator[None]:
    """Inside this block, only one of several processes that miss kernels compiles them. The others wait until its block
    ends, and load what it has compiled. A process that misses nothing waits for nobody.

    The compiler makes a great many objects and few cycles, so Python's collector waits until the block ends.
    """
    collects = gc.isenabled()
    gc.disable()
    MACHINE_CODE.begin()
    try:
        yield
    finally:
        MACHINE_CODE.end()
        if collects:
            gc.enable()


class _CheckedFile(caching.IndexDataCacheFile):
    """Numba's files of one function. Each file of machine code ends with its CRC32; a damaged one counts as absent."""

    def _load_index(self) -> Any:
        try:
            return super()._load_index()
        except OSError:
            raise
        except Exception:  # noqa: BLE001 -- damaged bytes raise almost anything
            return {}

    def _load_data(self, name: str) -> Any:
        content = Path(self._data_path(name)).read_bytes()
        if content[-4:] != _crc(content[:-4]):
            raise FileNotFoundError(name)
        return super()._load_data(name)

    def _save_data(self, name: str, data: Any) -> None:
        content = self._dump(data)
        with self._open_for_write(self._data_path(name)) as file:
            file.write(content + _crc(content))


def _crc(content: bytes) -> bytes:
    return zlib.crc32(content).to_bytes(4, "little")


class _Cache(caching.FunctionCache):
    """Numba's cache of one function, which is valid while the stamp is the same. I/O errors of the cache are no errors.

    Before it loads machine code, numba loads all its typing and lowering rules, which takes most of the time. Finished
    machine code needs only the addresses of numba's runtime; a compilation loads the rules itself.
    """

    _impl_class = _Files

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        self._cache_file = _CheckedFile(self._cache_path, self._impl.filename_base, _STAMP)
        self._carried_file = None
        if _CARRIED is not None:
            source = Path(function.__code__.co_filename)
            folder = _CARRIED / source.parent.relative_to(PACKAGE)
            self._carried_file = _CheckedFile(str(folder), self._impl.filename_base, _STAMP)

    def load_overload(self, signature: Any, target: Any) -> Any:
        rtsys.initialize(target)
        found = self._found(signature, target)
        if found is None and MACHINE_CODE.take_turn():
            found = self._found(signature, target)
        if found is None:
            _MISSING.append(self._name)
        return found

    def _found(self, signature: Any, target: Any) -> Any:
        try:
            return self._carried(signature, target) or self._load_overload(signature, target)
        except OSError:
            return None

    def _carried(self, signature: Any, target: Any) -> Any:
        if self._carried_file is None:
            return None
        types, (triple, *_), code = self._index_key(signature, target.codegen())
        data = self._carried_file.load((types, (triple, _CARRIED_FOR, ""), code))
        return None if data is None else self._impl.rebuild(target, data)

    def save_overload(self, signature: Any, compiled: Any) -> None:
        try:
            super().save_overload(signature, compiled)
        except OSError as error:
            MACHINE_CODE.unkept = error.strerror or str(error)


def kernel(function: F, **options: bool | str) -> F:
    """Compile a function on first use, keep the machine code on disk, release the GIL while it runs: numba's `njit`.

    Division by zero gives IEEE infinities and NaN, as in NumPy, and never raises. `options` are numba's. If no folder
    can be written, every process compiles what it needs, and `MACHINE_CODE.unkept` says why. The wrapper by which C
    would call a kernel is left out.
    """
    compiled: Any = numba.njit(nogil=True, error_model="numpy", no_cfunc_wrapper=True, **options)(function)
    compiled._cache = _Cache(function)
    result: F = compiled
    return result


inlined = partial(kernel, forceinline=True, no_cpython_wrapper=True)
"""Like `kernel`, but compiled into each caller and not callable from Python: for the steps of hot loops."""

copied = partial(kernel, inline="always")
"""Like `kernel`, but its source is copied into its callers before they are compiled: for a step that calls much and has
one caller or two. It would be compiled once for itself, and what it calls with it, to no use.
"""
