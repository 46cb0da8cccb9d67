"""Runs commands of the image the way a cluster does: as any user, without rights, on a read-only root.

It must never give a container more than the image's settings, a folder for the state, `/tmp`, and the files that the
test names.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.cli_e2e.commands import Command, Ended
from tests.image.builder import Image
from tests.waiting import wait_for

ENTER = Path(__file__).with_name("enter.sh")
STATE = "/var/lib/stream-learner"
CONFIG = "/etc/stream-learner/config.yaml"
HOSTS = ("/etc/hosts", "/etc/resolv.conf")
ANY_USER = "12345:0"
"""A user as a cluster makes one for every pod: any number, in group 0."""


class Container(Command):
    """The image's entry point with arguments, or another program of the image, running. Use `Image`'s `started`."""

    @property
    def first(self) -> int:
        """The process that is number 1 inside, by its number out here. Waits until there is one."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")

        def started() -> list[str] | None:
            assert self.process.poll() is None, self.err
            return children.read_text().split() or None

        return int(wait_for(started, "the first process inside", look_s=0.005)[0])

    def program(self) -> str:
        """The program that the first process runs now."""
        return Path(f"/proc/{self.first}/cmdline").read_bytes().replace(b"\0", b" ").decode()

    def stop(self, number: int = signal.SIGTERM) -> Ended:
        """Send the first process a signal, as a cluster does, and wait for the end; `seconds` is how long that took."""
        self._begin_to_count()
        os.kill(self.first, number)
        return self.ended()


class Containers:
    """Starts containers of an image, with one folder for the state and one configuration file."""

    def __init__(self, image: Image, folder: Path, *, user: str = ANY_USER, config: Path | None = None) -> None:
        self.image = image
        self.user = user
        self.state = folder / "volume"
        self._folder = folder
        self._config = config
        self._count = 0
        _copy_of_the_volume(image, self.state)

    @contextmanager
    def started(
        self,
        *arguments: str | Path,
        program: str | None = None,
        env: Mapping[str, str] | None = None,
        piped: bool = False,
    ) -> Iterator[Container]:
        """The entry point with arguments, or another program, gone when the block ends."""
        self._count += 1
        folder = self._folder / f"container-{self._count}"
        root, mounts = folder / "root", folder / "mounts"
        root.mkdir(parents=True)
        mounts.write_text("".join(f"{source} {target}\n" for source, target in self._mounts()))
        words = [program] if program else self.image.config["Entrypoint"]
        settings = {**self.image.environment, "HOME": "/", **(env or {})}
        inside = ["/usr/bin/env", "-i", f"--chdir={self.image.config['WorkingDir']}"]
        inside += [f"{name}={value}" for name, value in settings.items()]
        inside += [*words, *map(str, arguments)]
        command = ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--fork", "--kill-child"]
        command += ["sh", str(ENTER), str(self.image.root), str(root), self.user, str(self.state), str(mounts), *inside]
        container = Container(command, piped=piped)
        try:
            yield container
        except BaseException:
            sys.stderr.write(f"--- {' '.join(map(str, arguments))}\n{container.err}\n")
            raise
        finally:
            container.close()

    def run(self, *arguments: str | Path, program: str | None = None, env: Mapping[str, str] | None = None) -> Ended:
        """Run a container to its end."""
        with self.started(*arguments, program=program, env=env) as container:
            return container.ended()

    def _mounts(self) -> list[tuple[Path, str]]:
        mounts = [(Path(file), file) for file in HOSTS if (self.image.root / file[1:]).exists()]
        return [*mounts, (self._config, CONFIG)] if self._config else mounts


def _copy_of_the_volume(image: Image, folder: Path) -> None:
    """A new volume, as an engine makes it: empty, with owner and mode as in the image."""
    folder.mkdir(parents=True)
    like = (image.root / STATE[1:]).stat()
    os.chown(folder, like.st_uid, like.st_gid)
    folder.chmod(like.st_mode & 0o7777)
