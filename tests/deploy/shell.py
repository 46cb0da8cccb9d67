"""The commands of the page in a shell, with stand-ins for what a test has not.

It must never change a command but the addresses in it; the program is the real one.
"""

from __future__ import annotations

import io
import shlex
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path

from stream_learner.cli import app
from tests.cli_e2e.commands import environment
from tests.kafka_broker.jars import cached_jars
from tests.waiting import patience

KUBECTL = '''#!{python}
"""`kubectl … create secret generic NAME --from-file= --from-literal=`: a folder with a file for each key, as Kubernetes
mounts it. Everything else says nothing."""
import pathlib, sys

arguments = [word for word in sys.argv[1:] if word not in ("-n", "ads")]
if arguments[:3] == ["create", "secret", "generic"]:
    folder = pathlib.Path("secrets", arguments[3])
    folder.mkdir(parents=True)
    for option in arguments[4:]:
        kind, _, what = option.partition("=")
        key, equals, value = what.rpartition("=")
        if kind == "--from-file":
            (folder / (key or pathlib.Path(value).name)).write_bytes(pathlib.Path(value).read_bytes())
        elif kind == "--from-literal":
            (folder / key).write_text(value)
        else:
            sys.exit(f"unknown: {option}")
'''
JAVA_TOOL = "#!/bin/sh\nexec java -Xmx128m -XX:TieredStopAtLevel=1 -cp '{jars}/*' {main} \"$@\"\n"
PROGRAM = '#!/bin/sh\nexec {python} -m stream_learner "$@"\n'


class Shell:
    """A shell in a folder of its own, where the page's files are."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._tools = folder / ".tools"
        self._tools.mkdir()
        self._tool("stream-learner", PROGRAM.replace("{python}", sys.executable))
        self._tool("kubectl", KUBECTL.replace("{python}", sys.executable))
        configs = JAVA_TOOL.replace("{jars}", str(cached_jars())).replace("{main}", "kafka.admin.ConfigCommand")
        self._tool("kafka-configs.sh", configs)

    def _tool(self, name: str, text: str) -> None:
        (self._tools / name).write_text(text, encoding="utf-8")
        (self._tools / name).chmod(0o755)

    def write(self, name: str, text: str) -> Path:
        """A file beside the commands."""
        (self.folder / name).write_text(text, encoding="utf-8")
        return self.folder / name

    def ended(self, commands: str) -> subprocess.CompletedProcess[str]:
        """Run commands to their end, one after the other, until one fails."""
        known = environment()
        return subprocess.run(
            ["bash", "-euc", commands],
            cwd=self.folder,
            env={**known, "PATH": f"{self._tools}:{known['PATH']}"},
            capture_output=True,
            text=True,
            timeout=patience(),
            check=False,
        )

    def printed(self, command: str) -> str:
        """The program's output for a command that only reads a file of this folder; it runs in this process."""
        words = [str(self.folder / word) if (self.folder / word).is_file() else word for word in shlex.split(command)]
        assert words.pop(0) == "stream-learner"
        out = io.StringIO()
        with redirect_stdout(out):
            app(words, standalone_mode=False)
        return out.getvalue()

    def run(self, commands: str) -> str:
        """Run commands that must not fail, and return their output."""
        run = self.ended(commands)
        assert run.returncode == 0, f"{commands}\n{run.stdout}\n{run.stderr}"
        return run.stdout
