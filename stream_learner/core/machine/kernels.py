"""How hot loops are compiled, and where their machine code is kept.

In: a Python function over integers, floats, addresses and arrays. Out: machine code without the GIL.
This file must never switch on fast-math or fused multiply-add: the bits of the fold depend on it.

Machine code is kept on disk: in the folder that NUMBA_CACHE_DIR names, which need not be writable (an image's is not);
else where numba keeps it. Numba takes it to be current while the file of the function itself is unchanged; but a
kernel contains what it calls from other files. So here it counts as current only while the content of every file in
`KERNEL_FOLDERS` is the same.

Several processes that start together with an empty folder compile once: see `one_compiler`.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import llvmlite.binding
import numba
from numba.core import caching
from numba.core.runtime import rtsys

F = TypeVar("F", bound=Callable[..., Any])


PACKAGE = Path(__file__).parents[2]
KERNEL_FOLDERS = ("core", "evaluate/formats", "evaluate/vw/float32")
"""Every folder of the package with kernels in it, or below it."""


def sources_stamp(package: Path) -> bytes:
    """Checksum of the source files that kernels are made of, by name and content."""
    checksum = hashlib.sha256()
    for folder in KERNEL_FOLDERS:
        for file in sorted((package / folder).rglob("*.py")):
            checksum.update(f"{file.relative_to(package)} {file.stat().st_size}\n".encode())
            checksum.update(file.read_bytes())
    return checksum.digest()


_STAMP = sources_stamp(PACKAGE)

V3_INSTRUCTIONS = ("avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe")
"""What x86-64-v3 has beyond x86-64-v2, in LLVM's words."""


def processor_for(named: str | None, instructions: Mapping[str, bool]) -> str | None:
    """The processor to compile for where NUMBA_CPU_NAME is `named` and the machine has `instructions`.

    That is the named one, but x86-64-v2 in place of x86-64-v3 on a machine that lacks some of it: an image holds
    machine code for both. The results are the same to the bit.
    """
    if named == "x86-64-v3" and not all(instructions.get(name) for name in V3_INSTRUCTIONS):
        return "x86-64-v2"
    return named


numba.config.CPU_NAME = processor_for(numba.config.CPU_NAME, llvmlite.binding.get_host_cpu_features())


class _Folder(caching._CacheLocator):
    """A folder of machine code that may be read-only. Numba's own locators pass such a folder over."""

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
    """Below NUMBA_CACHE_DIR, whether or not it can be written."""

    @classmethod
    def from_function(cls, function: Callable[..., Any], file: str) -> _Folder | None:
        if not numba.config.CACHE_DIR:
            return None
        return cls(Path(numba.config.CACHE_DIR, cls.get_suitable_cache_subpath(file)), function.__code__.co_firstlineno)


class _BesideTheSource(_Folder):
    """The last resort, where no folder can be written: the kernels are compiled, and not kept."""

    @classmethod
    def from_function(cls, function: Callable[..., Any], file: str) -> _Folder:
        return cls(Path(file).parent / "__pycache__", function.__code__.co_firstlineno)


class _Files(caching.CompileResultCacheImpl):
    _locator_classes = (_GivenFolder, *caching.CompileResultCacheImpl._locator_classes, _BesideTheSource)


_MISSING: list[str] = []


def missing() -> int:
    """How many versions of kernels this process has not found in the cache so far, and compiles or has compiled."""
    return len(_MISSING)


class MachineCode:
    """The folder of machine code, and whose turn it is to compile.

    folder: where machine code is kept. unkept: why what this process compiled cannot be kept there, "" while it can.
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
        """From now on the first kernel that is missing waits until no other process compiles."""
        self._blocks += 1

    def end(self) -> None:
        """Let another process compile, when this was called as often as `begin`."""
        self._blocks -= 1
        if not self._blocks and self._lock_fd is not None:
            os.close(self._lock_fd)
            self._lock_fd = None

    def take_turn(self) -> bool:
        """Wait for the right to compile, where it is not held yet; whether another process may have compiled meanwhile.

        The lock is on the folder itself. It leaves no file behind, and ends with the process that holds it. Where the
        folder cannot be written, or the file system has no locks, each process compiles for itself.
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
        """Whether the folder can be written; `unkept` says why where it cannot."""
        try:
            self._locator.ensure_cache_path()
        except OSError as error:
            self.unkept = error.strerror or str(error)
        return not self.unkept


MACHINE_CODE = MachineCode()


@contextmanager
def one_compiler() -> Iterator[None]:
    """While the block lasts, of several processes that find kernels missing only one compiles; the others wait until
    its block ends, and load what it has compiled. A process that finds everything waits for nobody.
    """
    MACHINE_CODE.begin()
    try:
        yield
    finally:
        MACHINE_CODE.end()


class _CheckedFile(caching.IndexDataCacheFile):
    """Numba's files of one function, each of machine code with a CRC32 of it at its end; a damaged one is not there."""

    def _load_index(self) -> Any:
        try:
            return super()._load_index()
        except OSError:
            raise
        except Exception:  # noqa: BLE001 -- whatever a reader makes of damaged bytes
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
    """Numba's cache of one function, current while all kernels are; one that cannot be read or written is no error.

    Numba reads every rule by which it could compile before it loads machine code, which takes most of the time of
    loading. Finished machine code needs none of them, only the addresses of numba's runtime; a compilation reads the
    rules itself, where there is one.
    """

    _impl_class = _Files

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        self._cache_file = _CheckedFile(self._cache_path, self._impl.filename_base, _STAMP)

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
            return self._load_overload(signature, target)
        except OSError:
            return None

    def save_overload(self, signature: Any, compiled: Any) -> None:
        try:
            super().save_overload(signature, compiled)
        except OSError as error:
            MACHINE_CODE.unkept = error.strerror or str(error)


def kernel(function: F, **options: bool) -> F:
    """Compile a function on first use, keep the machine code on disk, release the GIL while it runs.

    Division by zero gives IEEE infinities and NaN, as in NumPy, and never raises. `options` are numba's. Where no
    folder can be written, every process compiles what it needs, and `MACHINE_CODE.unkept` says why.
    """
    compiled = numba.njit(nogil=True, error_model="numpy", **options)(function)
    compiled._cache = _Cache(function)
    result: F = compiled
    return result


inlined = partial(kernel, forceinline=True, no_cpython_wrapper=True, no_cfunc_wrapper=True)
"""As `kernel`, but laid into its caller, and not to be called from Python: for the steps of hot loops."""
