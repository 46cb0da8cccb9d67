"""What a seeded fault is.

It must never write into the tree.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


class BadFault(Exception):
    """The table of faults does not fit the tree, or the tree cannot be used; the message says what to mend."""


@dataclass(frozen=True)
class Fault:
    """A mistake in one place.

    area: what part of the program it is in. harm: what goes wrong for a user, in a sentence. file: below the tree.
    old: text that stands there exactly once; new: what is written in its place. tests: files, or patterns of files,
    below the tree, in which a test should fail; the quick ones first. Those that there are not are left out, so that
    one table fits a tree before and after its tests were moved. moved_from: where the file was before, "" if it was not
    moved.
    """

    name: str
    area: str
    harm: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    moved_from: str = ""

    def file_in(self, tree: Path) -> str:
        """The file's name below a tree, which may be an older one."""
        is_old = self.moved_from and not (tree / self.file).is_file()
        return self.moved_from if is_old else self.file

    def text_in(self, tree: Path) -> str:
        """The file with the mistake in it. Raises BadFault where the old text does not stand there exactly once."""
        file = self.file_in(tree)
        path = tree / file
        if not path.is_file():
            raise BadFault(f"{self.name}: there is no file {file} in {tree}; name the file that it is in now")
        text = path.read_text(encoding="utf-8")
        times = text.count(self.old)
        if times != 1:
            where = "is not" if not times else f"stands {times} times"
            raise BadFault(f"{self.name}: its old text {where} in {file}; write it so that it stands there once")
        return text.replace(self.old, self.new)

    def tests_in(self, tree: Path) -> list[str]:
        """The test files that there are, in order. Raises BadFault where there is none."""
        found: dict[str, None] = {}
        for pattern in self.tests:
            found.update(dict.fromkeys(str(path.relative_to(tree)) for path in sorted(tree.glob(pattern))))
        if not found:
            raise BadFault(f"{self.name}: {tree} has none of {', '.join(self.tests)}; name the files that it has")
        return list(found)
