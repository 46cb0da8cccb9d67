"""The bearer token and the certificate: asked for, and followed when their files change."""

from __future__ import annotations

import ssl
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from stream_learner.config import Config
from stream_learner.errors import ConfigError
from tests.cli_e2e.published import Published
from tests.roles.scorer.serve.running import Server, config_of, serving
from tests.waiting import patience, wait_until


def make_certificate(folder: Path, name: str) -> tuple[Path, Path]:
    """A certificate of its own for 127.0.0.1."""
    certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
    subprocess.run(
        f"openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN={name} "
        f"-addext subjectAltName=IP:127.0.0.1 -keyout {key} -out {certificate}".split(),
        check=True,
        capture_output=True,
    )
    return certificate, key


def replace(target: Path, text: str) -> None:
    """A file's new content, at once, as Kubernetes and certificate tools do it."""
    new = target.with_suffix(".new")
    new.write_text(text)
    new.replace(target)


def ask(server: Server, path: str, token: str | None) -> httpx.Response:
    """A request that carries an Authorization header, or none."""
    headers = {} if token is None else {"authorization": token.encode("latin-1")}
    return httpx.get(f"{server.url}{path}", headers=headers)  # type: ignore[arg-type]


def test_a_token_is_asked_for_everywhere_but_at_the_probes(
    published: Published, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """401 in the usual form without it; the file's new content counts soon, its absence never lets anyone in."""
    file = tmp_path / "token"
    file.write_text("first\n")
    with serving(config_of(published.world, token={"file": str(file)})) as server:
        for token in (None, "", "first", "Bearer", "Bearer wrong", "Bearer first2", "Basic first", "Bearer f\xefrst"):
            found = httpx.get(
                f"{server.url}/v1/models",
                headers=None if token is None else [(b"authorization", token.encode("latin-1"))],
            )  # type: ignore[arg-type]
            assert (found.status_code, found.headers.get("www-authenticate")) == (401, "Bearer")
            assert list(found.json()) == ["error"] and "first" not in found.text
        body = {"instances": [{}]}
        path = f"{server.url}/v1/models/{server.model}:predict"
        assert httpx.post(path, json=body).status_code == 401
        assert httpx.post(path, json=body, headers={"authorization": "bearer first"}).status_code == 200
        for path in ("/v2/health/live", "/v2/health/ready", "/healthz", "/readyz", "/openapi.json"):
            assert ask(server, path, None).status_code == 200
        assert ask(server, "/openapi.json", None).json()["components"]["securitySchemes"]
        replace(file, "first\r\nsecond\n")
        wait_until(lambda: ask(server, "/v1/models", "Bearer second").status_code == 200)
        assert ask(server, "/v1/models", "Bearer first").status_code == 200
        replace(file, "second")
        wait_until(lambda: ask(server, "/v1/models", "Bearer first").status_code == 401)
        assert ask(server, "/v1/models", "Bearer second").status_code == 200
        replace(file, "")
        wait_until(lambda: "token_unreadable" in caplog.text)
        assert ask(server, "/v1/models", "Bearer").status_code == 401
        assert ask(server, "/v1/models", "Bearer second").status_code == 200


@pytest.mark.parametrize("token", ["", "\n"])
def test_an_empty_token_is_refused_at_the_start(published: Published, tmp_path: Path, token: str) -> None:
    """An empty token is refused, since it protects nothing."""
    file = tmp_path / "token"
    file.write_text(token)
    with pytest.raises(ConfigError, match=r"serve\.token: the token is empty"):
        Server(config_of(published.world, token={"file": str(file)}))


def test_tls_follows_its_files(published: Published, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Both protocols over TLS; new connections see the new certificate once both files belong together."""
    first, second = make_certificate(tmp_path, "first"), make_certificate(tmp_path, "second")
    certificate, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    replace(certificate, first[0].read_text())
    replace(key, first[1].read_text())
    config: Config = config_of(published.world, tls_certificate=str(certificate), tls_key=str(key))
    with serving(config) as server:

        def trusts(authority: Path) -> bool:
            try:
                found = httpx.get(f"{server.url}/v2", verify=ssl.create_default_context(cafile=str(authority)))
            except httpx.ConnectError:
                return False
            return found.status_code == 200

        assert trusts(first[0]) and not trusts(second[0])
        replace(certificate, second[0].read_text())
        wait_until(lambda: "certificate_unusable" in caplog.text)
        assert trusts(first[0])
        replace(key, second[1].read_text())
        wait_until(lambda: trusts(second[0]))
        assert not trusts(first[0])
        with pytest.raises(httpx.HTTPError):
            httpx.get(f"http://127.0.0.1:{server.port}/v2")


def test_a_certificate_that_cannot_be_used_is_named_at_the_start(published: Published, tmp_path: Path) -> None:
    """Missing files, and a key of another certificate."""
    first, second = make_certificate(tmp_path, "a"), make_certificate(tmp_path, "b")
    for certificate, key in ((tmp_path / "nowhere.pem", first[1]), (first[0], second[1])):
        with pytest.raises(ConfigError, match=rf"serve\.tls_certificate.*{certificate.name}"):
            Server(config_of(published.world, tls_certificate=str(certificate), tls_key=str(key)))


def test_a_key_that_is_encrypted_is_refused_and_not_asked_for(tmp_path: Path) -> None:
    """A prompt would hold the server, at its start or in the middle of its requests."""
    certificate, key = make_certificate(tmp_path, "locked")
    locked = tmp_path / "locked.enc"
    command = f"openssl pkcs8 -topk8 -in {key} -out {locked} -passout pass:abcd"
    subprocess.run(command.split(), check=True, capture_output=True)
    files = f"{str(certificate)!r}, {str(locked)!r}"
    code = f"from stream_learner.adapters.http.security import Certificate; Certificate({files})"
    words = [sys.executable, "-c", code]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True) as process:
        try:
            process.wait(patience())
        finally:
            process.kill()
        assert process.stderr is not None
        said = process.stderr.read().decode()
    assert "ConfigError: serve.tls_certificate" in said and "pass phrase" not in said
