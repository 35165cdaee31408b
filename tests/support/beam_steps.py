"""Steps of pipelines whose workers are processes, and the run that tries them; prints JSON."""

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


def refuse_at_length(file: str) -> None:
    """Raises one whose message has several lines."""
    if file.endswith("5.gz"):
        raise DataError('two lines,\nand it isn\'t "one"')


def break_down(file: str) -> None:
    """Raises what no check foresaw."""
    if file.endswith("5.gz"):
        raise ValueError("no such thing")


def die_alone(file: str, folder: str) -> None:
    """Ends one process while the other has much to do: the one that is first to say so."""
    try:
        Path(folder, "busy").touch(exist_ok=False)
    except FileExistsError:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)


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
    """What a pipeline raises, how long it takes, and the processes that it leaves."""
    before = set(psutil.Process().children(recursive=True))
    began, error = time.monotonic(), None
    try:
        run(files, work, *arguments)
    except BaseException as raised:
        error = raised
    known = find_user_error(error) if error else None
    return {
        "raised": type(error).__name__,
        "known": type(known).__name__,
        "said": str(known or error),
        "cause": str(error.__cause__) if error else "",
        "files": [Path(file).name for file, _ in getattr(error and error.__cause__, "frames", [])],
        "seconds": time.monotonic() - began,
        "left": len(set(psutil.Process().children(recursive=True)) - before),
    }


def main(root: Path) -> None:
    """Tries all of it."""
    split = root / "Split-train"
    split.mkdir()
    files = [str(split / f"{number}.gz") for number in range(FILES)]
    for file in files:
        Path(file).touch()
    told: dict[str, Any] = {"run": os.getpid()}
    with run_fork_server():
        (root / "forked").mkdir()
        run(files, note, str(root / "forked"))
        told["killed"] = attempt(files, die)
        told["abandoned"] = attempt(files, die_alone, str(root))
        told["refused"] = attempt(files, refuse)
        told["refused at length"] = attempt(files, refuse_at_length)
        told["broken"] = attempt(files, break_down)
        (root / "listening").mkdir()
        run(files, note_listening, os.getpid(), str(root / "listening"))
        write_row_counts(str(root), {f"Split-train/{Path(file).name}": 10 for file in files})
        told["complete"] = attempt(files, count_read, 10)
        told["lost"] = attempt(files, lose, 10)
        written = str(root / "out" / "Split-train")
        told["unwritten"] = attempt(files, lose_on_writing, 10, written)
        threading.Timer(2, os.kill, (os.getpid(), signal.SIGINT)).start()
        told["interrupted"] = attempt(files, sleep)
    (root / "fresh").mkdir()
    run(files, note, str(root / "fresh"))
    print(json.dumps(told))


if __name__ == "__main__":
    # By its name, so that it has one file in the run and in the workers.
    from tests.support import beam_steps

    beam_steps.main(Path(sys.argv[1]))
