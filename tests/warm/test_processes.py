"""A program that is forked does what it does in a Python of its own, and ends with its starter."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

from tests.support.warm import processes

ENDS = {
    "nothing": "pass",
    "a code": "import sys; sys.exit(3)",
    "an error": "def fail():\n    raise ValueError('no')\nfail()",
    "a kill": "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
    "at exit": "import atexit; atexit.register(print, 'bye'); print('hello', end='')",
    "a thread": (
        "import threading, time\n"
        "def late():\n    time.sleep(0.2)\n    print('late')\n"
        "threading.Thread(target=late).start(); print('early')"
    ),
    "temporary files": (
        "import pathlib, tempfile\n"
        "folder = tempfile.TemporaryDirectory()\n"
        "import atexit\n"
        "atexit.register(lambda: print(pathlib.Path(folder.name).exists()))"
    ),
}


def both(*words: str, **options: Any) -> list[tuple[int, str, str]]:
    """How a command of Python ends and what it says: forked, and in a Python of its own."""
    command = [sys.executable, *words]
    options.setdefault("env", dict(os.environ))
    options["env"].pop("PYTHONUNBUFFERED", None)
    options |= {"capture_output": True, "text": True}
    done = [run(command, **options) for run in (processes.run, subprocess.run)]
    return [(one.returncode, one.stdout, one.stderr) for one in done]


@pytest.mark.slow
@pytest.mark.parametrize("code", ENDS.values(), ids=ENDS)
def test_forked_program_ends_as_a_fresh_python_does(code: str) -> None:
    forked, cold = both("-c", code)
    assert forked == cold
