"""A webhook is told by real HTTP; servers that misbehave neither stop nor delay a run."""

from __future__ import annotations

import hashlib
import hmac
import json
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from pipeline.config.loading import load_config
from pipeline.config.sections.notify import Occasion
from pipeline.config.settings import PipelineConfig
from pipeline.records import notify as notify_module
from pipeline.records.event_log import EventLog
from pipeline.records.notify import SIGNATURE_HEADER, check_secrets
from tests.support.notifying import DIGITS, MESSAGE, failure, tell
from tests.support.webhook_server import SECRET, hook, mute, say_nothing
from trainer_module.errors import ConfigError

pytestmark = pytest.mark.usefixtures("secrets_are_kept")


def with_webhook(url: str, **settings: Any) -> PipelineConfig:
    return load_config(
        DIGITS, [f"notify.webhook.url={url}", *(f"notify.{k}={v}" for k, v in settings.items())]
    )


def test_webhook_is_told_and_can_check_the_signature(event_log: EventLog) -> None:
    with hook() as server:
        config = load_config(
            DIGITS, [f"notify.webhook={{url: '{server.url}', secret_variable: HOOK_KEY}}"]
        )
        tell(config, event_log)
    ((headers, body),) = server.requests
    content = json.loads(body)
    assert content.pop("at").startswith("20")
    assert content == {
        "pipeline": "digits",
        "occasion": "failed",
        "message": MESSAGE,
        "run": "r1",
        "details": {"run": "r1", "metrics": {"accuracy": 0.5}, "path": "/models/1"},
    }
    expected = hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
    assert headers[SIGNATURE_HEADER] == f"sha256={expected}"
    assert headers["Content-Type"] == "application/json"
    assert event_log.events() == []


def test_url_may_come_from_the_environment(
    event_log: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = load_config(DIGITS, ["notify.webhook={url_variable: HOOK_URL}"])
    with hook(204, 404) as server:
        monkeypatch.setenv("HOOK_URL", f"{server.url}/{SECRET}")
        check_secrets(config.notify)
        tell(config, event_log)
        assert event_log.events() == []
        tell(config, event_log)
    assert len(server.requests) == 2
    assert failure(event_log).startswith(f"the webhook at 127.0.0.1:{server.server_port} did not")


def test_variable_without_a_url_is_recorded(
    event_log: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOOK_URL", SECRET)
    config = load_config(DIGITS, ["notify.webhook={url_variable: HOOK_URL}"])
    words = "the environment variable HOOK_URL contains no URL: a webhook's URL begins with http://"
    with pytest.raises(ConfigError, match=words) as caught:
        check_secrets(config.notify)
    assert SECRET not in str(caught.value)
    tell(config, event_log)
    assert failure(event_log).startswith(f"the webhook did not receive 'failed': {words}")


@pytest.mark.parametrize("url", [f"http://u:{SECRET}/x@127.0.0.1/", f"http://127.0.0.1:{SECRET}/"])
def test_password_with_odd_signs_is_not_taken_for_a_host(event_log: EventLog, url: str) -> None:
    tell(with_webhook(url), event_log)
    assert failure(event_log).startswith("the webhook did not receive 'failed': ")
    assert SECRET not in failure(event_log)


def test_without_a_key_nothing_is_signed(event_log: EventLog) -> None:
    with hook() as server:
        tell(with_webhook(server.url), event_log)
    assert SIGNATURE_HEADER not in server.requests[0][0]


@pytest.mark.parametrize("value", [None, "", " \n"])
def test_nothing_is_signed_with_an_empty_key_or_sent_unsigned(
    event_log: EventLog, monkeypatch: pytest.MonkeyPatch, value: str | None
) -> None:
    if value is None:
        monkeypatch.delenv("HOOK_KEY")
    else:
        monkeypatch.setenv("HOOK_KEY", value)
    with hook() as server:
        config = load_config(
            DIGITS, [f"notify.webhook={{url: '{server.url}', secret_variable: HOOK_KEY}}"]
        )
        with pytest.raises(ConfigError, match="HOOK_KEY is not set, or is empty"):
            check_secrets(config.notify)
        tell(config, event_log)
    assert server.requests == []
    assert failure(event_log).endswith(
        "the environment variable HOOK_KEY with the key of the signature is not set, or is empty,"
        " and nothing is sent without it"
    )


def test_a_secret_is_asked_for_only_where_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOOK_KEY")
    webhook = "notify.webhook={url: 'https://example.com/hook', secret_variable: HOOK_KEY}"
    some = load_config(DIGITS, [webhook, "notify.occasions=[failed]"])
    check_secrets(some.notify, Occasion.ROLLED_BACK)
    with pytest.raises(ConfigError, match="HOOK_KEY"):
        check_secrets(some.notify, Occasion.FAILED)
    check_secrets(load_config(DIGITS, [webhook, "notify.occasions=[]"]).notify)


def test_other_occasions_are_silent(event_log: EventLog) -> None:
    with hook() as server:
        config = with_webhook(server.url, occasions="[drift]")
        tell(config, event_log, Occasion.PUSHED)
        assert server.requests == []
        tell(config, event_log, Occasion.DRIFT)
        assert json.loads(server.requests[0][1])["occasion"] == "drift"


def test_second_attempt_sends_the_same(event_log: EventLog) -> None:
    with hook(503) as server:
        tell(with_webhook(server.url), event_log)
    first, second = server.requests
    assert first[1] == second[1]
    assert event_log.events() == []


@pytest.mark.parametrize(
    ("statuses", "words"),
    [
        ([500, 500, 204], "the response is 500"),
        ([404, 204], "the response is 404"),
        ([302, 204], "the response is 302, a redirection; write the URL of its target"),
    ],
)
def test_status_that_refuses_is_recorded(
    event_log: EventLog, statuses: list[int], words: str, caplog: pytest.LogCaptureFixture
) -> None:
    with hook(*statuses) as server:
        tell(with_webhook(server.url), event_log)
    expected = f"the webhook at 127.0.0.1:{server.server_port} did not receive 'failed': {words}"
    assert failure(event_log) == expected
    assert expected in caplog.text
    assert len(server.requests) == len(statuses) - 1


def test_refused_connection_is_recorded(event_log: EventLog) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # Bound, and never listening.
        port = unused.getsockname()[1]
        tell(with_webhook(f"http://user:{SECRET}@127.0.0.1:{port}/{SECRET}"), event_log)
    assert failure(event_log) == (
        f"the webhook at 127.0.0.1:{port} did not receive 'failed': Connection refused"
    )


def _drip(connection: socket.socket, stop: threading.Event) -> None:
    """A header without an end, a byte at a time."""
    connection.sendall(b"HTTP/1.1 200 OK\r\nX-Slow: ")
    while not stop.wait(0.1):
        try:
            connection.sendall(b"x")
        except OSError:
            return


def test_server_that_never_answers_is_given_up(
    event_log: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notify_module, "READ_SECONDS", 0.5)
    with mute(say_nothing) as port:
        seconds = tell(with_webhook(f"http://127.0.0.1:{port}/"), event_log)
    assert 1.0 <= seconds < 4  # Two attempts.
    assert failure(event_log).endswith("did not receive 'failed': no response in time")


def test_server_that_drips_is_given_up_at_the_deadline(
    event_log: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notify_module, "DEADLINE_SECONDS", 1.5)
    with mute(_drip) as port:
        seconds = tell(with_webhook(f"http://127.0.0.1:{port}/"), event_log)
    assert 1.5 <= seconds < 4
    assert failure(event_log).endswith(
        "did not receive 'failed': no complete response within 1.5 s"
    )


@pytest.mark.parametrize("starts", [0, 1])
def test_process_without_room_for_threads_records_the_failure(
    event_log: EventLog, monkeypatch: pytest.MonkeyPatch, starts: int
) -> None:
    class Limited(threading.Thread):
        left = starts

        def start(self) -> None:
            if not Limited.left:
                raise RuntimeError("can't start new thread")
            Limited.left -= 1
            super().start()

    monkeypatch.setattr(threading, "Thread", Limited)
    tell(with_webhook("http://127.0.0.1:9/"), event_log)
    assert failure(event_log).endswith("did not receive 'failed': can't start new thread")


def test_url_that_is_none_is_recorded(event_log: EventLog) -> None:
    tell(with_webhook(f"http://127.0.0.1:port/{SECRET}"), event_log)
    assert "InvalidURL" in failure(event_log)


def test_ledger_that_cannot_be_written_is_no_failure(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "broken.db").write_bytes(b"no database at all" * 100)
    with hook(404) as server:
        tell(with_webhook(server.url), EventLog(tmp_path / "broken.db"))
    assert "The failed notification could not be recorded" in caplog.text


def test_missing_secret_is_named_before_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    config = load_config(
        DIGITS,
        [
            "notify.webhook={url: 'https://example.com/hook', secret_variable: HOOK_KEY}",
            "notify.email={server: m, sender: a@b.c, to: [a@b.c]}",
            "notify.email.user=a",
            "notify.email.password_variable=MAIL_KEY",
        ],
    )
    with pytest.raises(ConfigError, match=r"notify.email.password_variable: .* MAIL_KEY is not"):
        check_secrets(config.notify)
    monkeypatch.setenv("MAIL_KEY", "x")
    check_secrets(config.notify)
    monkeypatch.delenv("HOOK_KEY")
    with pytest.raises(ConfigError, match=r"notify.webhook.secret_variable: .* HOOK_KEY is not"):
        check_secrets(config.notify)
    with pytest.raises(ConfigError, match="expected both user and password_variable, or neither"):
        load_config(DIGITS, ["notify.email={server: m, sender: a, to: [a], user: a}"])
    config = load_config(DIGITS, ["notify.webhook={url_variable: hunter2}"])
    with pytest.raises(ConfigError, match=r"url_variable: .* that the key names is not set, or is"):
        check_secrets(config.notify)
