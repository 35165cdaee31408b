"""A program that is forked does what it does in a Python of its own, and ends with its starter."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.warm import processes

ROOT = Path(__file__).parents[2]
SLEEP = "import time; print('ready', flush=True); time.sleep(60)"


ENDS = {
    "nothing": "pass",
    "a code": "import sys; sys.exit(3)",
    "words": "import sys; sys.exit('what is wrong')",
    "an error": "def fail():\n    raise ValueError('no')\nfail()",
    "an interrupt": "print('so far'); raise KeyboardInterrupt",
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
SHOW = """
import os, signal, sys
print(sys.argv, sys.path, sys.orig_argv, sys.executable)
print(os.getcwd(), __name__, __doc__, __package__, globals().get("__file__"), __spec__ is None)
print(sorted(globals()), sys.modules["__main__"].__dict__ is globals())
print(sys.stdout.encoding, sys.stdout.line_buffering, sys.stdin.read(), sys.stdin.fileno())
print([signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE)])
"""


def python(code: str, **options: Any) -> processes.Popen[str]:
    return processes.Popen([sys.executable, "-c", code], text=True, **options)


def is_warm(process: subprocess.Popen[str]) -> bool:
    """Whether a process began with the libraries imported."""
    with process:
        return process.communicate()[0] == "True\n"


def await_that(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_libraries_and_product_are_there_and_tensorflow_does_not_run() -> None:
    code = (
        "import sys, threading; before = set(sys.modules)\n"
        "from tensorflow.python.eager import context\n"
        f"absent = {{*{processes.LIBRARIES}, 'components.trainer.component'}} - before\n"
        "print(absent, context.context_safe(), threading.active_count())"
    )
    done = processes.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "set() None 1\n", done.stderr


def test_streams_go_where_they_should(tmp_path: Path) -> None:
    code = "import sys; print(sys.stdin.read()); print('wrong', file=sys.stderr)"
    with (tmp_path / "both").open("wb") as file:
        python(code, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT).wait()
    assert sorted((tmp_path / "both").read_text().split()) == ["wrong"]
    with python(code, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as one:
        assert one.communicate("given") == ("given\n", "wrong\n")


def test_it_has_the_descriptors_that_it_was_given_and_no_others() -> None:
    reading, writing = os.pipe()
    code = (
        "import os, sys; number = int(sys.argv[1]); os.write(number, b'through')\n"
        "print([n for n in range(3, 256) if n != number and os.path.exists(f'/proc/self/fd/{n}')])"
    )
    command = [sys.executable, "-c", code, str(writing)]
    done = processes.run(command, pass_fds=[writing], capture_output=True, text=True)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        assert pipe.read() == b"through"
    assert done.stdout == "[]\n", done.stderr


def test_it_can_lead_a_session_that_is_killed_as_one() -> None:
    code = "import os, subprocess; subprocess.Popen(['sleep', '61']); " + SLEEP
    process = python(code, stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdout is not None
    assert os.getsid(process.pid) == process.pid
    assert process.stdout.readline() == "ready\n"
    os.killpg(process.pid, signal.SIGKILL)
    # The pipe ends with the last of them.
    assert process.stdout.read() == ""
    assert process.wait(5) == -signal.SIGKILL
    process.stdout.close()


def test_a_script_that_it_starts_is_forked_and_nothing_else_is(tmp_path: Path) -> None:
    show = "import sys; print('tfx' in sys.modules)"
    (tmp_path / "inner.py").write_text(show)
    (tmp_path / "outer.py").write_text(
        "import subprocess, sys\n"
        "for words in (['inner.py'], ['-m', 'inner'], ['-c', sys.argv[1]]):\n"
        "    print(subprocess.check_output([sys.executable, *words], text=True).strip())\n"
        "print(subprocess.run('exit 3', shell=True).returncode)\n"
    )
    command = [sys.executable, "outer.py", show]
    done = processes.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout == "True\nFalse\nFalse\n3\n", done.stderr


def test_what_a_fork_cannot_give_is_started_as_ever() -> None:
    show = ["-c", "import sys; print('tfx' in sys.modules)"]
    ways: list[tuple[list[str], dict[str, Any]]] = [
        ([sys.executable, "-B", *show], {}),
        ([sys.executable, *show], {"env": {**os.environ, "PYTHONHASHSEED": "7"}}),
        ([sys.executable, *show], {"umask": 0o77}),
        (["/usr/bin/env", "python3", *show], {}),
    ]
    for command, options in ways:
        assert not is_warm(
            processes.Popen(command, stdout=subprocess.PIPE, text=True, **options)
        ), command
    assert is_warm(
        processes.Popen(
            [Path(sys.executable).name, *show],
            env={"PATH": f"{Path(sys.executable).parent}:/usr/bin"},
            stdout=subprocess.PIPE,
            text=True,
        )
    )


@pytest.mark.parametrize("how", [None, signal.SIGKILL], ids=["ends", "is killed"])
def test_nothing_is_left_when_whoever_started_it(how: signal.Signals | None) -> None:
    code = (
        "import json, subprocess, sys, time\n"
        "from tests.support.warm import processes\n"
        "processes.LIBRARIES = ()\n"
        f"code = {SLEEP!r}\n"
        "started = [processes.Popen([sys.executable, '-c', code], stdout=subprocess.PIPE)\n"
        "           for _ in range(2)]\n"
        "for one in started: one.stdout.readline()\n"
        "started[0].kill()\n"
        "print(json.dumps([one.pid for one in started]), flush=True)\n"
        "sys.stdin.read()\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment.pop(processes.SHARED, None)
    with subprocess.Popen(
        [sys.executable, "-c", code],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as starter:
        assert starter.stdout is not None
        pids = json.loads(starter.stdout.readline())
        if how:
            starter.send_signal(how)
    await_that(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))


def test_variables_that_a_fork_has_too_late_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    command = [sys.executable, "-c", ""]
    monkeypatch.setenv("TF_USE_LEGACY_KERAS", "1")
    assert processes.read_command(command, os.environ) is not None
    assert processes.read_command(command, {}) is not None
    assert processes.read_command(command, {"TF_USE_LEGACY_KERAS": "0"}) is None


def both(*words: str, **options: Any) -> list[tuple[int, str, str]]:
    """How a command of Python ends and what it says: forked, and in a Python of its own."""
    command = [sys.executable, *words]
    options.setdefault("env", dict(os.environ))
    options["env"].pop("PYTHONUNBUFFERED", None)
    options |= {"capture_output": True, "text": True}
    done = [run(command, **options) for run in (processes.run, subprocess.run)]
    return [(one.returncode, one.stdout, one.stderr) for one in done]


@pytest.mark.parametrize("code", ENDS.values(), ids=ENDS)
def test_it_ends_as_a_python_does(code: str) -> None:
    forked, cold = both("-c", code)
    assert forked == cold


@pytest.mark.parametrize("safe", [[], ["-P"]], ids=["", "safe path"])
@pytest.mark.parametrize("how", ["script", "module", "code"])
def test_it_sees_what_it_was_started_with(how: str, safe: list[str], tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "shown.py").write_text(f'"""Shows."""\n{SHOW}')
    program = {
        "script": [str(tmp_path / "below" / "shown.py")],
        "module": ["-m", "shown"],
        "code": ["-c", SHOW],
    }
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}/below:relative"}
    words = [*safe, *program[how], "--option", "a b"]
    forked, cold = both(*words, cwd=tmp_path, env=environment, input="given")
    assert forked == cold
    assert forked[0] == 0


def test_it_has_the_environment_that_it_was_given() -> None:
    code = (
        "import ctypes, os, time\n"
        "seen = ctypes.CDLL(None).getenv; seen.restype = ctypes.c_char_p\n"
        "print(seen(b'GIVEN'), seen(b'HOME'), os.environ['GIVEN'], 'HOME' in os.environ)\n"
        "print(time.tzname, time.localtime(0).tm_hour)\n"
    )
    forked, cold = both("-c", code, env={"GIVEN": "ä", "TZ": "Asia/Tokyo", "LANG": "C.UTF-8"})
    assert forked == cold
    assert "Asia" not in forked[1]
    assert "9\n" in forked[1]
