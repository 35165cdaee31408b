"""Workers without TensorFlow for the tests of the supervisor, each a function of this module.

The payload names the function as `do`, a folder as `folder`, and for some what else they need.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from components.processes.launcher import Place, WorkerSpec
from components.processes.worker import Channel, limit_memory
from trainer_module.errors import TrainingError

Payload = dict[str, Any]


class UnavailableError(Exception):
    """Named as TensorFlow's."""


def spec(place: Place, do: str, folder: Path, **more: Any) -> WorkerSpec:
    return WorkerSpec(
        place, "tests.support.cluster_workers", {"do": do, "folder": str(folder), **more}
    )


def workers(*specs: Mapping[str, Any], folder: Path) -> list[WorkerSpec]:
    """A worker for each mapping of what it does."""
    return [spec(Place("worker", i), folder=folder, **more) for i, more in enumerate(specs)]


def main(payload: Payload, channel: Channel) -> None:
    folder = Path(payload["folder"])
    config = payload.get("tf_config", {"task": {"type": "worker", "index": 0}})
    name = f"{config['task']['type']}{config['task']['index']}"
    with (folder / f"{name}.starts").open("a") as file:
        file.write(json.dumps({"pid": os.getpid(), "payload": payload}) + "\n")
    globals()[payload["do"]](payload, channel)


def finish(payload: Payload, channel: Channel) -> None:
    channel.send("ready")
    task = payload.get("tf_config", {}).get("task", {"index": 0})
    for step in (1, 2):
        detail = f"of worker {task['index']}"
        channel.send("progress", text="epoch", done=step, total=2, detail=detail)


def talk(payload: Payload, channel: Channel) -> None:
    print("said to stdout", flush=True)
    os.write(2, b"said to stderr\n")
    names = ("TF_CONFIG", "OMP_NUM_THREADS", "TF_NUM_INTEROP_THREADS")
    print(sys.stdin.read(), *map(os.environ.get, names))


def sleep(payload: Payload, channel: Channel) -> None:
    channel.send("ready")
    time.sleep(60)


def never_ready(payload: Payload, channel: Channel) -> None:
    time.sleep(60)


def sleep_stubbornly(payload: Payload, channel: Channel) -> None:
    """Has a child of its own, and like a TensorFlow cluster does not listen to SIGTERM."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    (Path(payload["folder"]) / f"{os.getpid()}.grandchild").write_text(str(child.pid))
    channel.send("ready")
    time.sleep(60)


def describe(payload: Payload, channel: Channel) -> None:
    """Writes down what may differ between processes that began in other ways."""
    files = [str(Path(f"/proc/self/fd/{n}").readlink()) for n in range(3, 64) if _is_open(n)]
    found = {
        "title": " ".join(psutil.Process().cmdline()).strip(),
        "variables": {name: os.environ.get(name) for name in ("OWN", "LATE", "EARLY")},
        "folder": str(Path.cwd()),
        "temporary": tempfile.mkstemp()[1],
        "finds": payload["folder"] in sys.path,
        "leads": os.getsid(0) == os.getpgid(0) == os.getpid(),
        "handlers": {s.name: str(signal.getsignal(s)) for s in signal.Signals},
        "log_handlers": len(logging.root.handlers),
        "files": sorted({file.partition(":")[0] for file in files} - {os.devnull}),
        "streams": [stream.fileno() for stream in (sys.stdin, sys.stdout, sys.stderr)],
    }
    (Path(payload["folder"]) / "described").write_text(json.dumps(found))


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def fail(payload: Payload, channel: Channel) -> None:
    """Raises the error of the payload, after its seconds."""
    time.sleep(payload.get("after", 0))
    kinds = {"UnavailableError": UnavailableError, "TrainingError": TrainingError}
    raise kinds.get(payload["error"], ValueError)(payload["message"])


def hold_memory(payload: Payload, channel: Channel) -> None:
    limit_memory(1.0, TrainingError("it is too large"), channel)
    time.sleep(60)


def exit_early(payload: Payload, channel: Channel) -> None:
    os._exit(3)


def die_until(payload: Payload, channel: Channel) -> None:
    """Is killed by SIGKILL in every launch but those from number `lives_at` on, counted from 0."""
    channel.send("ready")
    if len(payload["restarts"]) < payload["lives_at"]:
        os.kill(os.getpid(), signal.SIGKILL)


def serve_on_taken_port(payload: Payload, channel: Channel) -> None:
    """In the first launch finds its port taken by another process."""
    starts = (Path(payload["folder"]) / "worker0.starts").read_text().splitlines()
    if len(starts) == 1:
        raise OSError("Address already in use")
    channel.send("ready")


def wait_for(payload: Payload, channel: Channel) -> None:
    """A chief that goes on until some workers have been started twice."""
    channel.send("ready")
    (Path(payload["folder"]) / "chief.ready").touch()
    files = [Path(payload["folder"]) / f"{name}.starts" for name in payload["waits_for"]]
    while not all(file.exists() and len(file.read_text().splitlines()) >= 2 for file in files):
        time.sleep(0.02)


def listen(payload: Payload, channel: Channel) -> None:
    """A server at its address; in the first launch it is killed once the chief is ready."""
    task = payload["tf_config"]["task"]
    address = payload["tf_config"]["cluster"][task["type"]][task["index"]]
    server = socket.create_server(("localhost", int(address.partition(":")[2])))
    channel.send("ready")
    if not payload["restarts"]:
        while not (Path(payload["folder"]) / "chief.ready").exists():
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGKILL)
    server.accept()
