"""Functions of a user's that a Trainer runs; without TensorFlow, so that tests are quick."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from types import SimpleNamespace

from trainer_module.runtime import report_progress, report_ready


def train(arguments: SimpleNamespace) -> None:
    """Exports its arguments, and the names of large modules that are imported."""
    report_ready()
    report_progress(1, 1, "epoch", "loss 0.5")
    received = {
        "arguments": vars(arguments) | {"runtime": arguments.runtime.model_dump(mode="json")},
        "tf_config": json.loads(os.environ.get("TF_CONFIG", "null")),
        "legacy_keras": os.environ["TF_USE_LEGACY_KERAS"],
        "heavy": [name for name in ("tensorflow", "tfx", "apache_beam") if name in sys.modules],
    }
    for folder in (arguments.serving_model_dir, arguments.model_run_dir):
        Path(folder).mkdir(parents=True, exist_ok=True)
        (Path(folder) / "received.json").write_text(json.dumps(received))


def die_once(arguments: SimpleNamespace) -> None:
    """Is killed while it trains, and goes on from its backup."""
    backup = Path(arguments.runtime.backup_directory)
    if not backup.exists():
        backup.mkdir(parents=True)
        os.kill(os.getpid(), signal.SIGKILL)
    train(arguments)


def divide_by_zero(arguments: SimpleNamespace) -> None:
    report_ready()
    raise ZeroDivisionError("float division by zero")


def wait_for_peers(arguments: SimpleNamespace) -> None:
    """As a strategy does whose peers do not come."""
    signal.pause()
