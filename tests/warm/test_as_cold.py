"""A program that is forked does what it does in a Python of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from warm import processes

ENDS = {
    "nothing": "pass",
    "a code": "import sys; sys.exit(3)",
    "a code of more than a byte": "import sys; sys.exit(-1)",
    "words": "import sys; sys.exit('what is wrong')",
    "none": "raise SystemExit",
    "an error": "def fail():\n    raise ValueError('no')\nfail()",
    "an error of another": "try:\n    1 / 0\nexcept ZeroDivisionError:\n    [][0]",
    "an interrupt": "print('so far'); raise KeyboardInterrupt",
    "at once": "import os; print('lost'); os._exit(9)",
    "a kill": "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
    "a signal": "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
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
    "closed output": "import sys; print('all'); sys.stdout.close()",
}
SHOW = """
import os, signal, sys
print(sys.argv, sys.path, sys.orig_argv, sys.executable)
print(os.getcwd(), __name__, __doc__, __package__, globals().get("__file__"), __spec__ is None)
print(sorted(globals()), sys.modules["__main__"].__dict__ is globals())
print(sys.stdout.encoding, sys.stdout.line_buffering, sys.stdin.read(), sys.stdin.fileno())
print([signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE)])
"""


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


def test_output_that_cannot_be_written_is_an_exit_code() -> None:
    forked, cold = both("-c", "import os; os.close(1); print('lost')")
    assert forked[0] == cold[0] == 120


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


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    for words in (["absent.py"], ["-m", "absent"], ["-c", "import absent"]):
        forked, cold = both(*words, cwd=tmp_path)
        assert forked == cold
    with pytest.raises(FileNotFoundError):
        processes.run([sys.executable, "-c", ""], cwd=tmp_path / "absent")


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


def test_output_comes_as_soon_as_it_is_asked_for() -> None:
    code = "import os; print('printed'); os.write(1, b'written\\n')"
    buffered, unbuffered = both("-c", code), both("-u", "-c", code)
    assert buffered[0] == buffered[1]
    assert unbuffered[0] == unbuffered[1]
    assert "printed\nwritten\n" in unbuffered[0][1]


def test_random_numbers_are_its_own() -> None:
    code = "import random, uuid, numpy; print(random.random(), numpy.random.rand(), uuid.uuid4())"
    one, other = (both("-c", code)[0][1].split() for _ in range(2))
    assert not set(one) & set(other)


def test_pickles_find_what_its_main_module_defines(tmp_path: Path) -> None:
    script = tmp_path / "pickles.py"
    script.write_text(
        "import cloudpickle, dill, pickle\n"
        "class Own:\n    pass\n"
        "def own(): return Own()\n"
        "for library in (pickle, dill, cloudpickle):\n"
        "    assert type(library.loads(library.dumps(own))()).__name__ == 'Own'\n"
    )
    forked, cold = both(str(script))
    assert forked == cold == (0, "", "")
