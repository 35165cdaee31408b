"""Tasks without TensorFlow that run in pods, each a function of this module.

The payload names the function as `do`, a folder of the volume as `folder`, and what else it needs.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from components.processes.launcher import Place, WorkerSpec
from components.processes.worker import Channel

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
        given = {"host": socket.gethostname(), "payload": payload, "environment": dict(os.environ)}
        file.write(json.dumps(given) + "\n")
    globals()[payload["do"]](payload, channel)


def finish(payload: Payload, channel: Channel) -> None:
    channel.send("ready")
    for step in (1, 2):
        channel.send("progress", text="epoch", done=step, total=2, detail="")


def sleep(payload: Payload, channel: Channel) -> None:
    channel.send("ready")
    time.sleep(60)


def wait_for(payload: Payload, channel: Channel) -> None:
    """A chief that goes on until some workers have been started twice."""
    channel.send("ready")
    while not all(len(starts(Path(payload["folder"]), n)) >= 2 for n in payload["waits_for"]):
        time.sleep(0.02)
