"""The client of Kubeflow's API: endpoint, credentials and errors."""

from __future__ import annotations

import json
import socket
import ssl
from pathlib import Path

import pytest
import trustme

from pipeline.config.sections.kubeflow import KubeflowSettings
from pipeline.kubeflow.api.client import Kubeflow
from pipeline.kubeflow.api.errors import UnavailableError
from tests.support.kfp_server import Answer, KfpServer
from tests.support.small_pipeline import COMPILED, load
from trainer_module.errors import ConfigError

TOKEN = "a-secret-token"  # noqa: S105


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("KF_PIPELINES_ENDPOINT", "SCOPELINE_KFP_TOKEN", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("KF_PIPELINES_SA_TOKEN_PATH", str(tmp_path / "no-token"))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "no-kubectl"))


def connect(endpoint: str | None, **settings: str) -> Kubeflow:
    return Kubeflow(KubeflowSettings(endpoint=endpoint, **settings))


def error_body(message: str) -> str:
    return json.dumps({"error": message, "code": 13, "message": message, "details": []})


def test_the_endpoint_is_that_of_the_config_or_of_the_environment(
    server: KfpServer, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert connect(server.url).endpoint == server.url
    monkeypatch.setenv("KF_PIPELINES_ENDPOINT", server.url)
    assert connect(None).endpoint == server.url
    assert server.calls == ["GET /healthz"] * 2
    assert capfd.readouterr() == ("", "")


def test_refused_connection_is_unavailable() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        with pytest.raises(UnavailableError) as found:
            connect(url)
    assert f"{url}: Kubeflow Pipelines does not answer (connection refused); `kubeflow" in str(
        found.value
    )


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (
            Answer(200, "<html>Log in</html>", "text/html; charset=utf-8"),
            ConfigError,
            "text/html",
        ),
        (
            Answer(403, error_body("User 'ada' is not authorized\nand a stack trace")),
            ConfigError,
            "(403): User 'ada' is not authorized",
        ),
        (
            Answer(503, "upstream connect error", "text/plain"),
            UnavailableError,
            "503 Service Unavailable",
        ),
    ],
    ids=[
        "html",
        "403",
        "503",
    ],
)
def test_error_answers_have_their_kind_and_reason(
    server: KfpServer, answer: Answer, kind: type[Exception], words: str
) -> None:
    server.trouble("healthz", *[answer] * 4)
    with pytest.raises(kind) as found:
        connect(server.url)
    assert str(found.value).startswith(server.url)
    assert words in str(found.value)
    assert "\n" not in str(found.value)


def test_credentials_are_not_shown(server: KfpServer, monkeypatch: pytest.MonkeyPatch) -> None:
    server.token = TOKEN
    with pytest.raises(ConfigError, match=r"the authentication failed \(401\)"):
        connect(server.url)
    monkeypatch.setenv("SCOPELINE_KFP_TOKEN", "a-wrong-token")
    with pytest.raises(ConfigError) as found:
        connect(server.url.replace("http://", "http://ada:lovelace@"))
    assert "a-wrong-token" not in str(found.value)
    assert "lovelace" not in str(found.value)
    monkeypatch.setenv("SCOPELINE_KFP_TOKEN", "half a-secret-token")
    with pytest.raises(ConfigError) as found:
        connect(server.url)
    assert str(found.value) == "SCOPELINE_KFP_TOKEN: this is not a token: a token has no spaces"
    monkeypatch.setenv("SCOPELINE_KFP_TOKEN", f"{TOKEN}\n")
    connect(server.url)
    assert server.requests[-1].headers["authorization"] == f"Bearer {TOKEN}"


def test_certificate_of_an_unknown_authority_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    authority, file = trustme.CA(), tmp_path / "authorities.pem"
    authority.cert_pem.write_to_path(file)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    with KfpServer(tls=context) as server:
        with pytest.raises(ConfigError, match="SSL_CERT_FILE"):
            connect(server.url)
        monkeypatch.setenv("SSL_CERT_FILE", str(file))
        assert connect(server.url).endpoint == server.url


def test_several_users_need_a_namespace(server: KfpServer) -> None:
    server.multi_user = True
    with pytest.raises(ConfigError, match=r"^kubeflow\.namespace: .* a namespace for each user"):
        connect(server.url)
    kubeflow = connect(server.url, namespace="ada")
    version = kubeflow.ensure_version(COMPILED)
    assert version.pipeline == kubeflow.pipeline_id("digits")
    assert server.requests[-1].query["namespace"] == "ada"
    run = kubeflow.start_run(version, {})
    found = [r.body for r in server.requests if r.call in ("POST /pipelines", "POST /experiments")]
    assert [body["namespace"] for body in found] == ["ada", "ada"]
    assert list(server.runs) == [run]


def test_all_pages_are_read(server: KfpServer, tmp_path: Path) -> None:
    config = load(tmp_path, server.url)
    kubeflow = connect(server.url)
    version = kubeflow.ensure_version(COMPILED)
    made = [kubeflow.start_run(version, {}) for _ in range(5)]
    assert [run.run_id for run in kubeflow.runs_of(config)] == made[::-1]
    assert kubeflow.version_name(version.pipeline, version.version) == COMPILED.version
    assert kubeflow.version_name(version.pipeline, "another") is None
