"""Messages of a webhook over real HTTP; failing servers neither stop nor delay a run."""

from __future__ import annotations

import hashlib
import hmac
import json
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


def test_webhook_receives_a_signed_message(event_log: EventLog) -> None:
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


@pytest.mark.parametrize(
    "url",
    [
        f"http://u:{SECRET}/x@127.0.0.1/",
    ],
)
def test_password_in_a_url_is_not_recorded(event_log: EventLog, url: str) -> None:
    tell(with_webhook(url), event_log)
    assert failure(event_log).startswith("the webhook did not receive 'failed': ")
    assert SECRET not in failure(event_log)


@pytest.mark.parametrize(
    "value",
    [
        None,
        "",
    ],
)
def test_nothing_is_sent_without_its_signing_key(
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


def test_unlisted_occasion_is_not_sent(event_log: EventLog) -> None:
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


def test_silent_webhook_times_out(event_log: EventLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notify_module, "READ_SECONDS", 0.5)
    with mute(say_nothing) as port:
        tell(with_webhook(f"http://127.0.0.1:{port}/"), event_log)
    assert failure(event_log).endswith("did not receive 'failed': no response in time")


def test_missing_secret_is_refused_at_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
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
