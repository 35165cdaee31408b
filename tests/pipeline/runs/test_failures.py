"""How a failure is explained: one sentence, and the right exit code."""

from __future__ import annotations

import errno
import importlib
import re
from pathlib import Path

import pytest

from pipeline.records.summary import Status
from pipeline.runs.local import ComponentFailedError, explain
from trainer_module.errors import TryLaterError


def caused_by(cause: BaseException) -> ComponentFailedError:
    error = ComponentFailedError("Trainer")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (KeyboardInterrupt(), Status.INTERRUPTED, "interrupted"),
        (caused_by(TryLaterError("busy")), Status.FAILED, "busy"),
        (
            caused_by(OSError(errno.ENOSPC, "No space left; the model needs 2.0 MB", "/out/x")),
            Status.FAILED,
            "the disk is full (/out/x: No space left; the model needs 2.0 MB); free some space, or "
            "set another folder with --output",
        ),
        (caused_by(ValueError()), Status.FAILED, "ValueError: no message"),
    ],
)
def test_cause_is_named(error: BaseException, status: Status, message: str) -> None:
    assert explain(error) == (status, message)
    assert status.exit_code == {"interrupted": 130, "unusable": 2, "failed": 1}[status.value]


def test_line_of_the_users_own_code_is_named(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "own_model.py").write_text("def build(settings):\n    return settings['units']\n")
    monkeypatch.syspath_prepend(tmp_path)
    own_model = importlib.import_module("own_model")
    with pytest.raises(KeyError) as caught:
        own_model.build({})
    assert explain(caused_by(caught.value), [tmp_path / "own_model.py"]) == (
        Status.FAILED,
        "own_model.py, line 2: KeyError: 'units'",
    )


@pytest.mark.parametrize(
    "cause",
    [
        OSError(errno.ENOSPC, "No space left on device", "/out/x"),
    ],
)
def test_full_disk_error_has_file_and_free_space(cause: Exception) -> None:
    status, message = explain(caused_by(cause))
    assert status is Status.FAILED
    assert re.fullmatch(
        r"the disk is full \(/out/x: [\d.]+ [kMG]B are free\); free some space, or set another "
        "folder with --output",
        message,
    )
