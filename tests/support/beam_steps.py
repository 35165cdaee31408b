"""Pipelines with worker processes that succeed, fail, are killed or interrupted; prints JSON."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import apache_beam as beam
import psutil
from apache_beam.options.pipeline_options import PipelineOptions

from components.beam_workers.options import LOCAL_ARGS, limit_workers
from components.processes.local.fork_server import run_fork_server
from components.row_counts import count_read, count_written, write_row_counts
from components.spreading import SpreadFiles
from components.user_errors import find_user_error
from trainer_module.errors import DataError

FILES = 8


def note(file: str, folder: str) -> None:
    """Leaves who has had the file, of 10 rows."""
    count_read(file, 10)
    Path(folder, f"{Path(file).stem}.json").write_text(json.dumps([os.getpid(), file]))
    time.sleep(0.05)


def die(file: str) -> None:
    """As the kernel ends a process that takes too much memory."""
    if file.endswith("5.gz"):
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.05)


def refuse(file: str) -> None:
    """Raises an error that a user can mend."""
    if file.endswith("5.gz"):
        raise DataError(f"{file}: row 7 is odd.")


def break_down(file: str) -> None:
    """Raises what no check foresaw."""
    if file.endswith("5.gz"):
        raise ValueError("no such thing")


def note_listening(file: str, run: int, folder: str) -> None:
    """Leaves the addresses at which the run listens."""
    connections = psutil.Process(run).net_connections()
    listening = [c.laddr.ip for c in connections if c.status == psutil.CONN_LISTEN]
    found = {address.removeprefix("::ffff:") for address in listening}
    Path(folder, f"{Path(file).stem}.json").write_text(json.dumps(sorted(found)))


def lose(file: str, rows: int) -> None:
    """Counts fewer rows than there are."""
    count_read(file, rows - file.endswith("5.gz"))


def lose_on_writing(file: str, rows: int, folder: str) -> None:
    """Reads all and writes fewer."""
    count_read(file, rows)
    count_written(folder, rows - file.endswith("5.gz"))


def sleep(file: str) -> None:
    """Takes longer than anybody waits."""
    time.sleep(60)


def run(files: Sequence[str], work: Callable[..., None], *arguments: Any) -> None:
    """Runs a pipeline in two processes."""
    with limit_workers(2), beam.Pipeline(options=PipelineOptions(list(LOCAL_ARGS))) as pipeline:
        spread = SpreadFiles(files, files, is_counted=True)
        _ = pipeline | "Files" >> spread | "Work" >> beam.Map(work, *arguments)


def attempt(files: Sequence[str], work: Callable[..., None], *arguments: Any) -> dict[str, Any]:
    """The error of a pipeline, and the number of processes that it leaves."""
    before = set(psutil.Process().children(recursive=True))
    error = None
    try:
        run(files, work, *arguments)
    except BaseException as raised:
        error = raised
    known = find_user_error(error) if error else None
    new = set(psutil.Process().children(recursive=True)) - before
    _, left = psutil.wait_procs(new, timeout=20)
    return {
        "raised": type(error).__name__,
        "known": type(known).__name__,
        "message": str(known or error),
        "cause": str(error.__cause__) if error else "",
        "files": [Path(file).name for file, _ in getattr(error and error.__cause__, "frames", [])],
        "left": len(left),
    }


def main(root: Path, is_fresh: bool) -> None:
    """Runs each step in forks, or the first one in fresh processes."""
    split = root / "Split-train"
    split.mkdir()
    files = [str(split / f"{number}.gz") for number in range(FILES)]
    for file in files:
        Path(file).touch()
    if is_fresh:
        (root / "fresh").mkdir()
        run(files, note, str(root / "fresh"))
        print(json.dumps({"run": os.getpid()}))
        return
    found: dict[str, Any] = {"run": os.getpid()}
    with run_fork_server():
        (root / "forked").mkdir()
        run(files, note, str(root / "forked"))
        found["killed"] = attempt(files, die)
        found["refused"] = attempt(files, refuse)
        found["broken"] = attempt(files, break_down)
        (root / "listening").mkdir()
        run(files, note_listening, os.getpid(), str(root / "listening"))
        write_row_counts(str(root), {f"Split-train/{Path(file).name}": 10 for file in files})
        found["complete"] = attempt(files, count_read, 10)
        found["lost"] = attempt(files, lose, 10)
        written = str(root / "out" / "Split-train")
        found["unwritten"] = attempt(files, lose_on_writing, 10, written)
        threading.Timer(2, os.kill, (os.getpid(), signal.SIGINT)).start()
        found["interrupted"] = attempt(files, sleep)
    print(json.dumps(found))


if __name__ == "__main__":
    # By its name, so that it has one file in the run and in the workers.
    from tests.support import beam_steps

    beam_steps.main(Path(sys.argv[1]), is_fresh=len(sys.argv) > 2)
