"""Tasks without TensorFlow that run in pods, each a function of this module.

The payload names the function as `do`, a folder of the volume as `folder`, and what else it needs.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from components.processes.launcher import Place, WorkerSpec
from components.processes.worker import Channel
from trainer_module.errors import TrainingError

Payload = dict[str, Any]


def spec(place: Place, do: str, folder: Path, **more: Any) -> WorkerSpec:
    return WorkerSpec(
        place, "tests.support.kube_workers", {"do": do, "folder": str(folder), **more}
    )


def workers(*specs: Mapping[str, Any], folder: Path) -> list[WorkerSpec]:
    """A worker for each mapping of what it does."""
    return [spec(Place("worker", i), folder=folder, **more) for i, more in enumerate(specs)]


def starts(folder: Path, name: str) -> list[dict[str, Any]]:
    """What each pod of a worker wrote when it began."""
    file = folder / f"{name}.starts"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def main(payload: Payload, channel: Channel) -> None:
    folder = Path(payload["folder"])
    task = payload["tf_config"]["task"]
    with (folder / f"{task['type']}{task['index']}.starts").open("a") as file:
        told = {"host": socket.gethostname(), "payload": payload, "environment": dict(os.environ)}
        file.write(json.dumps(told) + "\n")
    globals()[payload["do"]](payload, channel)


def finish(payload: Payload, channel: Channel) -> None:
    channel.send("ready")
    for step in (1, 2):
        channel.send("progress", text="epoch", done=step, total=2, detail="")


def count(payload: Payload, channel: Channel) -> None:
    """Says a lot, with a progress bar before each event."""
    channel.send("ready")
    for step in range(payload["lines"]):
        print(f"line {step}", file=sys.stderr)
        print("=====>", end="", file=sys.stderr, flush=True)
        channel.send("progress", text="step", done=step + 1, total=payload["lines"], detail="")
        time.sleep(payload["pause"])


def sleep(payload: Payload, channel: Channel) -> None:
    channel.send("ready")
    time.sleep(60)


def keep_quiet(payload: Payload, channel: Channel) -> None:
    """Runs, and never becomes ready."""
    time.sleep(60)


def sleep_at_first(payload: Payload, channel: Channel) -> None:
    """Waits in the first launch alone."""
    channel.send("ready")
    time.sleep(0 if payload["restarts"] else 60)


def write_outside(payload: Payload, channel: Channel) -> None:
    """Tries to write where a pod may, and where it must not."""
    own = Path(tempfile.gettempdir())
    (own / "mine").touch()
    try:
        Path("/not-mine").touch()
    except OSError as error:
        names = sorted(path.name for path in own.iterdir())
        raise TrainingError(f"{error.strerror}: {own} holds {names}") from None


def fail(payload: Payload, channel: Channel) -> None:
    channel.send("ready")
    print("about to divide", flush=True)
    raise ZeroDivisionError("float division by zero")


def export(arguments: SimpleNamespace) -> None:
    """A run_fn of a user's that needs nothing."""
    for folder, file in ((arguments.serving_model_dir, "m"), (arguments.model_run_dir, "run.json")):
        Path(folder).mkdir(parents=True)
        (Path(folder) / file).write_text("{}")


def die_until(payload: Payload, channel: Channel) -> None:
    """Is killed in every launch but those from number `lives_at` on, counted from 0."""
    channel.send("ready")
    if len(payload["restarts"]) < payload["lives_at"]:
        os.kill(os.getpid(), signal.SIGKILL)


def wait_for(payload: Payload, channel: Channel) -> None:
    """A chief that goes on until some workers have been started twice."""
    channel.send("ready")
    while not all(len(starts(Path(payload["folder"]), n)) >= 2 for n in payload["waits_for"]):
        time.sleep(0.02)


def look_up(payload: Payload, channel: Channel) -> None:
    """Waits for its peers as a trainer does, and says which names it found."""
    from components.trainer.worker import await_names
    from trainer_module.tf_config import TFConfig

    config = payload["tf_config"]
    own = TFConfig(config["cluster"], config["task"]["type"], config["task"]["index"])
    await_names(own)
    channel.send("ready")
    for _, address in own.peers:
        print("found", socket.gethostbyname(address.rpartition(":")[0]), flush=True)
    (Path(payload["folder"]) / "found").touch()


def finish_when_found(payload: Payload, channel: Channel) -> None:
    """Keeps its name until a peer has looked it up: that of a pod that has ended is gone."""
    while not (Path(payload["folder"]) / "found").exists():
        time.sleep(0.02)
    finish(payload, channel)
