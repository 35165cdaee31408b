"""What the tests of notifications share."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pipeline import notify as notify_module
from pipeline.config import Occasion, PipelineConfig
from pipeline.ledger import Kind, Ledger
from pipeline.notify import notify

DIGITS = Path(__file__).parents[2] / "configs" / "digits.yaml"
SECRET = "s3cret-of-the-tests"  # noqa: S105
MESSAGE = "Trainer failed: größer als der Speicher"
DETAILS = {"run": "r1", "metrics": {"accuracy": 0.5}, "path": Path("/models/1")}


@contextmanager
def discreet(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, ledger: Ledger
) -> Iterator[None]:
    """Logs as a run does; the secret, in HOOK_KEY, must not come to light."""
    monkeypatch.setenv("HOOK_KEY", SECRET)
    monkeypatch.setattr(notify_module, "RETRY_SECONDS", 0.1)
    caplog.set_level(logging.INFO)
    yield
    assert SECRET not in caplog.text
    assert SECRET not in str(ledger.events())


def tell(config: PipelineConfig, ledger: Ledger, occasion: Occasion = Occasion.FAILED) -> float:
    """Notifies; returns how many seconds that took."""
    began = time.monotonic()
    notify(config, occasion, MESSAGE, DETAILS, ledger, run="r1")
    return time.monotonic() - began


def failure(ledger: Ledger) -> str:
    """The one failure that is recorded."""
    (event,) = ledger.events()
    assert event.kind is Kind.NOTIFICATION_FAILED
    assert (event.run, event.details) == ("r1", {"occasion": "failed"})
    return event.message
