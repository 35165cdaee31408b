"""Mail reaches a real mail server, encrypted if the config demands it; a refusal is recorded."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from email import message_from_bytes, policy
from pathlib import Path
from typing import Any

import pytest
import trustme
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult

from pipeline.config.loading import load_config
from pipeline.config.sections.notify import Occasion
from pipeline.config.settings import PipelineConfig
from pipeline.records.event_log import EventLog
from tests.support.notifying import DIGITS, MESSAGE, failure, tell
from tests.support.webhook_server import SECRET

pytestmark = pytest.mark.usefixtures("secrets_are_kept")


class Mailbox:
    """A mail server's handler: keeps what it receives, and refuses one recipient."""

    def __init__(self) -> None:
        self.mails: list[tuple[list[str], Any]] = []

    async def handle_RCPT(self, server, session, envelope, address, options) -> str:  # noqa: N802
        if address.startswith("nobody@"):
            return "550 no such user"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server, session, envelope) -> str:  # noqa: N802
        mail = message_from_bytes(envelope.content, policy=policy.default)
        self.mails.append((envelope.rcpt_tos, mail))
        return "250 OK"


@contextmanager
def mail_server(**options: Any) -> Iterator[tuple[Mailbox, int]]:
    mailbox = Mailbox()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    controller = Controller(mailbox, hostname="127.0.0.1", port=port, **options)
    controller.start()
    try:
        yield mailbox, port
    finally:
        controller.stop()


def with_mail(port: int, to: str = "[a@example.com, b@example.com]", **keys: Any) -> PipelineConfig:
    settings = {
        "server": f"localhost:{port}",
        "sender": "scopeline@example.com",
        "to": to,
        "tls": "false",
        **keys,
    }
    return load_config(DIGITS, [f"notify.email.{k}={v}" for k, v in settings.items()])


def test_mail_arrives(event_log: EventLog) -> None:
    with mail_server() as (mailbox, port):
        tell(with_mail(port), event_log, Occasion.NOT_BLESSED)
    ((to, mail),) = mailbox.mails
    assert to == ["a@example.com", "b@example.com"]
    assert mail["Subject"] == "digits: not blessed"
    assert mail["From"] == "scopeline@example.com"
    text = mail.get_content()
    assert text.startswith(MESSAGE)
    assert "run: r1" in text
    assert '"accuracy": 0.5' in text
    assert event_log.events() == []


@pytest.mark.parametrize(
    ("to", "mails", "words"),
    [
        ("[a@example.com, nobody@example.com]", 1, "refuses the addresses nobody@example.com"),
    ],
)
def test_refused_recipient_is_recorded(
    event_log: EventLog, to: str, mails: int, words: str
) -> None:
    with mail_server() as (mailbox, port):
        tell(with_mail(port, to), event_log)
    assert len(mailbox.mails) == mails
    assert words in failure(event_log)


def test_mail_is_not_sent_without_tls(event_log: EventLog) -> None:
    with mail_server() as (mailbox, port):
        tell(with_mail(port, tls="true"), event_log)
    assert mailbox.mails == []
    assert failure(event_log).endswith("STARTTLS extension not supported by server.")


def _authenticate(server, session, envelope, mechanism, login) -> AuthResult:
    right = (login.login, login.password) == (b"scopeline", SECRET.encode())
    return AuthResult(success=right, handled=False)


@contextmanager
def encrypted_server(authority: trustme.CA) -> Iterator[tuple[Mailbox, int]]:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost").configure_cert(context)
    with mail_server(
        tls_context=context,
        require_starttls=True,
        auth_required=True,
        authenticator=_authenticate,
    ) as served:
        yield served


def test_mail_is_encrypted_and_logs_in(
    event_log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "authority.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "authority.pem"))
    login = {"tls": "true", "user": "scopeline", "password_variable": "HOOK_KEY"}
    with encrypted_server(authority) as (mailbox, port):
        tell(with_mail(port, **login), event_log)
        assert len(mailbox.mails) == 1
        monkeypatch.setenv("HOOK_KEY", "another")
        tell(with_mail(port, **login), event_log)
        assert len(mailbox.mails) == 1
    assert failure(event_log).endswith("the server refuses the login (535)")


def test_mail_is_not_sent_to_an_untrusted_server(event_log: EventLog) -> None:
    with encrypted_server(trustme.CA()) as (mailbox, port):
        tell(with_mail(port, tls="true"), event_log)
    assert mailbox.mails == []
    assert "certificate verify failed" in failure(event_log)
