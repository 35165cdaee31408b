"""Kubeflow's API: how it is found, and what is said when it does not do as it is asked."""

from __future__ import annotations

import json
import socket
import ssl
import time
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from pipeline.config.sections.kubeflow import KubeflowSettings
from pipeline.kubeflow.api.client import Kubeflow, NoLogError
from pipeline.kubeflow.api.errors import UnavailableError
from tests.support.kfp_server import Answer, KfpServer
from tests.support.small_pipeline import COMPILED, load
from trainer_module.errors import ConfigError, InternalError

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


def test_nothing_says_where_it_is(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(
        ConfigError, match=r"^kubeflow\.endpoint: the address .* is unknown: set this key or"
    ):
        connect(None)
    assert capfd.readouterr().out == ""


def test_nothing_listens() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        began = time.monotonic()
        with pytest.raises(UnavailableError) as found:
            connect(url)
    assert f"{url}: Kubeflow Pipelines does not answer (connection refused); `kubeflow" in str(
        found.value
    )
    assert time.monotonic() - began < 5


def test_no_such_host() -> None:
    with pytest.raises(UnavailableError, match=r"kfp\.invalid: .* does not answer \(no such host"):
        connect("http://kfp.invalid")


def test_it_accepts_but_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.kubeflow.api.errors.READ_SECONDS", 0.2)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        with pytest.raises(UnavailableError, match=r"does not answer \(no answer in time\)"):
            connect(f"http://127.0.0.1:{silent.getsockname()[1]}")


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (
            Answer(200, "<html>Log in</html>", "text/html; charset=utf-8"),
            ConfigError,
            "returned a web page (text/html; charset=utf-8) instead of JSON: the page may be a log",
        ),
        (
            Answer(401, error_body("no user identity header")),
            ConfigError,
            "the authentication failed (401): no user identity header; SCOPELINE_KFP_TOKEN takes",
        ),
        (
            Answer(403, error_body("User 'ada' is not authorized\nand a stack trace")),
            ConfigError,
            "you may not read its health (403): User 'ada' is not authorized",
        ),
        (
            Answer(404, "<html>nginx</html>", "text/html"),
            ConfigError,
            "this is not the API of Kubeflow Pipelines 2.14 or newer (404); `kubeflow.endpoint`",
        ),
        (Answer(409, error_body("exists")), ConfigError, "it already exists (409): exists"),
        (
            Answer(500, error_body("database is locked")),
            InternalError,
            "Kubeflow Pipelines failed to read its health (500 Internal Server Error): database "
            "is locked",
        ),
        (
            Answer(503, "upstream connect error", "text/plain"),
            UnavailableError,
            "cannot read its health now (503 Service Unavailable): upstream connect error",
        ),
        (
            Answer(400, json.dumps({"error_message": "bad", "error_details": "trace"})),
            ConfigError,
            "cannot read its health (400 Bad Request): bad",
        ),
    ],
    ids=["html", "401", "403", "404", "409", "500", "503", "400"],
)
def test_what_is_said_of_answers(
    server: KfpServer, answer: Answer, kind: type[Exception], words: str
) -> None:
    server.trouble("healthz", *[answer] * 4)
    with pytest.raises(kind) as found:
        connect(server.url)
    assert str(found.value).startswith(server.url)
    assert words in str(found.value)
    assert "\n" not in str(found.value)


def test_an_answer_of_another_shape(server: KfpServer) -> None:
    kubeflow = connect(server.url)
    server.trouble("GET /pipelines", Answer(200, '{"pipelines": 3}'))
    with pytest.raises(
        InternalError, match=r"cannot look for the pipeline `digits`: the answer is"
    ):
        kubeflow.pipeline_id("digits")


def test_credentials_do_not_show(server: KfpServer, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_the_token_of_a_pod(
    server: KfpServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    server.token = TOKEN
    (tmp_path / "token").write_text(TOKEN)
    monkeypatch.setenv("KF_PIPELINES_SA_TOKEN_PATH", str(tmp_path / "token"))
    connect(server.url)


def make_certificate(file: Path) -> ssl.SSLContext:
    """A server's side of TLS, with a certificate that nobody else has signed."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kubeflow")])
    addresses = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(addresses, critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    file.write_bytes(certificate.public_bytes(pem))
    private = file.with_suffix(".key")
    private.write_bytes(
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file, private)
    return context


def test_certificates(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "authorities.pem"
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    with KfpServer(tls=make_certificate(file)) as server:
        with pytest.raises(ConfigError, match="certificate is not trusted; SSL_CERT_FILE names"):
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
    told = [r.body for r in server.requests if r.call in ("POST /pipelines", "POST /experiments")]
    assert [body["namespace"] for body in told] == ["ada", "ada"]
    assert list(server.runs) == [run]


def test_one_user_needs_none(server: KfpServer) -> None:
    connect(server.url, namespace="kubeflow").ensure_version(COMPILED)
    [made] = [request for request in server.requests if request.call == "POST /pipelines"]
    assert made.body == {"display_name": "digits"}


def test_all_pages_are_read(server: KfpServer, tmp_path: Path) -> None:
    config = load(tmp_path, server.url)
    kubeflow = connect(server.url)
    version = kubeflow.ensure_version(COMPILED)
    made = [kubeflow.start_run(version, {}) for _ in range(5)]
    assert [run.run_id for run in kubeflow.runs_of(config)] == made[::-1]
    assert kubeflow.version_name(version.pipeline, version.version) == COMPILED.version
    assert kubeflow.version_name(version.pipeline, "another") is None


def test_a_log_whose_pod_is_gone(server: KfpServer) -> None:
    kubeflow = connect(server.url)
    with pytest.raises(NoLogError, match="the log of pod-1 cannot be read: Failed to read logs"):
        next(kubeflow.log("run-1", "pod-1"))


@pytest.mark.parametrize(
    "answer",
    [
        Answer(404, "404 page not found", "text/plain"),
        Answer(500, error_body("no such pod")),
        Answer(200, "<!DOCTYPE html><title>Kubeflow</title>", "text/html"),
    ],
    ids=["404", "500", "html"],
)
def test_an_api_that_reads_no_logs(server: KfpServer, answer: Answer) -> None:
    kubeflow = connect(server.url)
    server.trouble("/log$", answer)
    with pytest.raises(NoLogError, match="the log of pod-1"):
        next(kubeflow.log("run-1", "pod-1"))
