"""The default learner beside ten that somebody would make by hand, on real data: normalized entropy, progressive.

In: the data sets beside the project (`../shared/data`), each in an order of its own: that of time, or shuffled with a
fixed seed where a file is grouped by label. Out: for each set the default's, and that of the best of the ten.
"""

from __future__ import annotations

import gzip
import json
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks.rows import Incomplete, Row

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
DEFAULT = "ftrl_proximal"
BY_HAND = (
    "ftrl_proximal alpha=0.02 l1=0",
    "ftrl_proximal alpha=0.05",
    "ftrl_proximal alpha=0.1 l1=0",
    "ftrl_proximal alpha=0.5 l1=0",
    "adagrad eta=0.1",
    "adagrad eta=0.5",
    "normalized eta=0.1",
    "vw",
    "ogd eta=0.5 schedule=root",
    "coin",
)
TALKINGDATA = ("ip", "app", "device", "os", "channel")


def lines(name: str) -> list[str]:
    """The lines of a file."""
    with gzip.open(DATA / name, "rt", encoding="utf-8", errors="replace") as file:
        return file.read().splitlines()


def shuffled(found: list[str]) -> list[str]:
    """The same lines in an order that is always the same."""
    random.Random(1).shuffle(found)
    return found


def sms() -> list[str]:
    """Messages as VW text, a feature for each word; a line without a label goes on the one before."""
    messages: list[str] = []
    for line in lines("sms/SMSSpamCollection.gz"):
        label, tab, text = line.partition("\t")
        words = " ".join(re.findall(r"[a-z0-9]+", (text if tab else line).lower()))
        if tab:
            messages.append(f"{1 if label == 'spam' else -1} |w {words}")
        else:
            messages[-1] += f" {words}"
    return messages


def talkingdata() -> list[str]:
    """By the time of the click."""
    header, *rows = lines("talkingdata/train_sample.csv.gz")
    return [header.replace("..ip", "ip"), *sorted(rows, key=lambda row: row.split(",")[5])]


def phishing() -> list[str]:
    """With its header."""
    header, *rows = lines("phishing/phishing.csv.gz")
    return [header, *shuffled(rows)]


def reviews(of: str) -> list[str]:
    """Both parts of a shop's."""
    return shuffled([*lines(f"sentiment/{of}_train.svmlight.gz"), *lines(f"sentiment/{of}_test.svmlight.gz")])


_CLICKS = ["--label", "is_attributed", "--drop", "click_time,attributed_time"]
SETS: dict[str, tuple[str, Callable[[], list[str]], list[str]]] = {
    "a9a": ("libsvm", lambda: shuffled(lines("a9a/a9a.gz")), []),
    "a9a, its test set": ("libsvm", lambda: shuffled(lines("a9a/a9a.t.gz")), []),
    "phishing": ("csv", phishing, ["--label", "is_phishing"]),
    "reviews of books": ("libsvm", lambda: reviews("books"), []),
    "reviews of DVDs": ("libsvm", lambda: reviews("dvd"), []),
    "reviews of electronics": ("libsvm", lambda: reviews("electronics"), []),
    "reviews of kitchen": ("libsvm", lambda: reviews("kitchen"), []),
    "SMS spam": ("vw", sms, []),
    "TalkingData": ("csv", talkingdata, _CLICKS),
    "TalkingData, ids as categories": ("csv", talkingdata, [*_CLICKS, "--categorical", ",".join(TALKINGDATA)]),
    "VW's test 1, 200 lines": ("vw", lambda: lines("vw/0001.dat.gz"), []),
    "RCV1, 1,000 lines": ("vw", lambda: lines("vw/rcv1_small.dat.gz"), []),
}
"""Each set with its format, its lines, and the options of `evaluate`."""


def run(quick: bool) -> list[Row]:
    """Rows of name, value (normalized entropy; 1 is a constant), unit and note."""
    if not DATA.is_dir():
        raise Incomplete([], "needs the data sets of ../shared/data")
    rows: list[Row] = []
    learners = [word for learner in (DEFAULT, *BY_HAND) for word in ("--learn", learner)]
    with tempfile.TemporaryDirectory() as directory:
        for name, (form, made, wanted) in list(SETS.items())[: 2 if quick else None]:
            file = Path(directory, "examples")
            file.write_text("\n".join(made()) + "\n", encoding="utf-8")
            command = [sys.executable, "-m", "stream_learner", "evaluate", str(file), "--format", form, "--json"]
            answer = subprocess.run([*command, *wanted, *learners], stdout=subprocess.PIPE, check=True).stdout
            default, *others = json.loads(answer)
            best = min(others, key=lambda one: one["normalized_entropy"])
            for who, one in (("default", default), ("best of ten", best)):
                note = f"{one['examples']:,} examples, {one['config']}"
                rows.append({"name": f"{name}: {who}", "value": one["normalized_entropy"], "unit": "NE", "note": note})
    return rows
