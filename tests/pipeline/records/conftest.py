"""What the tests of records share."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.records import notify as notify_module
from pipeline.records.event_log import EventLog
from tests.support.webhook_server import SECRET


@pytest.fixture
def event_log(tmp_path: Path) -> EventLog:
    return EventLog(tmp_path / "ledger.db")


@pytest.fixture
def secrets_are_kept(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, event_log: EventLog
) -> Iterator[None]:
    """Logs as a run does; the secret, in HOOK_KEY, must not come to light."""
    monkeypatch.setenv("HOOK_KEY", SECRET)
    monkeypatch.setattr(notify_module, "RETRY_SECONDS", 0.1)
    caplog.set_level(logging.INFO)
    yield
    assert SECRET not in caplog.text
    assert SECRET not in str(event_log.events())
