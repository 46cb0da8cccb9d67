"""pip's settings of the building machine, as the build of an image gets them."""

from __future__ import annotations

import configparser
import stat
import sys
from pathlib import Path

import pytest

from tools.pip_settings import CERTIFICATES, main, write

LISTED = """:env:.index-url='https://user:word@mirror.invalid/simple'
:env:.find-links='/home/somebody/wheels'
global.index-url='https://other.invalid/simple'
global.extra-index-url='\\nhttps://a.invalid/simple\\nhttps://b.invalid/simple'
:env:.default-timeout='60'
user.name='nobody'
"""


def settings_in(folder: Path) -> dict[str, str]:
    """The settings that pip would read."""
    parser = configparser.RawConfigParser()
    parser.read(folder / "pip.conf")
    return dict(parser["global"])


def test_index_proxy_and_time_out_are_handed_over_and_local_folders_are_not(tmp_path: Path) -> None:
    """The environment wins over files, as with pip; a folder of this machine means nothing elsewhere."""
    write(tmp_path, LISTED, {})
    assert settings_in(tmp_path) == {
        "index-url": "https://user:word@mirror.invalid/simple",
        "extra-index-url": "https://a.invalid/simple https://b.invalid/simple",
        "timeout": "60",
    }
    assert (tmp_path / "ca.crt").read_bytes() == b""


@pytest.mark.parametrize("by", ["setting", "variable"])
def test_certificates_come_along(tmp_path: Path, by: str) -> None:
    """The bundle that pip uses here, under the name that it has there."""
    bundle = tmp_path / "company.pem"
    bundle.write_bytes(b"certificates")
    listed, variables = (
        (f"global.cert='{bundle}'", {}) if by == "setting" else ("", {"REQUESTS_CA_BUNDLE": str(bundle)})
    )
    write(tmp_path, listed, variables)
    assert settings_in(tmp_path) == {"cert": CERTIFICATES}
    assert (tmp_path / "ca.crt").read_bytes() == b"certificates"


def test_only_the_owner_can_read_the_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An index's address may hold a password: it is in the file, and is not printed."""
    monkeypatch.setenv("PIP_INDEX_URL", "https://user:word@mirror.invalid/simple")
    monkeypatch.setattr(sys, "argv", ["pip_settings", str(tmp_path)])
    main()
    assert settings_in(tmp_path)["index-url"] == "https://user:word@mirror.invalid/simple"
    assert {stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("pip.conf", "ca.crt")} == {0o600}
    assert capsys.readouterr() == ("", "")
