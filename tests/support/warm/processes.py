"""Processes of this Python that begin with libraries and product imported: `run` and `Popen`.

They stand for those of `subprocess`. The first use starts a zygote (see `zygote`), which
imports for some seconds; from then on a process costs what it does itself. A command that is none
of this Python, or asks for what a fork cannot give, starts as ever.

Whose child a process is differs: the zygote's, not the test's. So does what the list of processes
shows of it: the zygote's command line. What a program needs of a new interpreter, such as the
order of its imports, is for tests that start it by `subprocess`.
"""

from __future__ import annotations

import atexit
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import IO, Any, AnyStr

from components.processes.local import forking
from pipeline.own_modules import ROOT

LIBRARIES = (
    "tfx.components",
    "tfx.orchestration.portable.launcher",
    "tensorflow_model_analysis",
    "tensorflow_transform",
    "tf_keras",
    "kfp",
    "kubernetes",
    "typer",
    "pydantic",
)
"""What the command lines and steps spend their first seconds with."""
HONOURED = {
    *("stdin", "stdout", "stderr", "cwd", "env", "pass_fds", "start_new_session"),
    *("text", "encoding", "errors", "bufsize", "universal_newlines"),
}
"""The options of `subprocess.Popen` that a process can have here."""
_START = "from tests.support.warm.zygote import main; main()"
_END_SECONDS = 10
_LOCK = threading.Lock()
_address: str | None = None
"""Of the zygote, once there is one."""
SHARED = "WARM_ZYGOTE"
"""The variable with the address of a zygote that is another process's, see `share`."""
FROZEN = ("PYTHONHASHSEED", "TF_USE_LEGACY_KERAS")
"""Variables that Python and its libraries read once: a fork keeps what the zygote had."""


class Kind(StrEnum):
    """How Python is told what to run."""

    SCRIPT = "script"
    MODULE = "-m"
    CODE = "-c"


@dataclass(frozen=True)
class Program:
    """What a command line of Python runs, and its options as far as a fork can honour them."""

    kind: Kind
    name: str
    """A path, a module, or code."""
    arguments: tuple[str, ...]
    is_safe_path: bool = False
    is_unbuffered: bool = False


def read_command(argv: Sequence[str], environment: Mapping[str, str]) -> Program | None:
    """The program of a command line; None if it is not this Python's, or asks for more."""
    python = shutil.which(argv[0], path=environment.get("PATH"))
    if python is None or not _is_this_python(Path(python)):
        return None
    frozen = {name: environment[name] for name in FROZEN if name in environment}
    if any(os.environ.get(name) != value for name, value in frozen.items()):
        return None
    words = list(argv[1:])
    options = set()
    while words and words[0] in ("-P", "-u"):
        options.add(words.pop(0))
    if not words:
        return None
    kind = {"-m": Kind.MODULE, "-c": Kind.CODE}.get(words[0], Kind.SCRIPT)
    if kind is not Kind.SCRIPT:
        words.pop(0)
    elif words[0].startswith("-"):
        return None
    return Program(
        kind,
        words[0],
        tuple(words[1:]),
        "-P" in options or bool(environment.get("PYTHONSAFEPATH")),
        "-u" in options or bool(environment.get("PYTHONUNBUFFERED")),
    )


def _is_this_python(path: Path) -> bool:
    this = Path(sys.executable)
    return path.parent == this.parent and path.name.startswith("python")


class Popen(subprocess.Popen[AnyStr]):
    """A process that the zygote forks, where it can."""

    kinds: Sequence[Kind] = tuple(Kind)
    """The programs that it forks."""
    _forked: forking.ForkedProcess | None = None
    """The process; None if it is none of the zygote's."""

    def __init__(self, args: Sequence[str | os.PathLike[str]], **options: Any) -> None:
        """Starts it.

        Args:
          args: The command.
          options: Those of `subprocess.Popen`.
        """
        self._options = options
        self._environment = dict(os.environ if options.get("env") is None else options["env"])
        self._program: Program | None = None
        if options.keys() <= HONOURED and not isinstance(args, str | bytes):
            program = read_command([os.fspath(word) for word in args], self._environment)
            self._program = program if program and program.kind in self.kinds else None
        super().__init__(args, **options)

    def _execute_child(self, *given: Any) -> None:
        """What `subprocess.Popen` calls once it has made its pipes."""
        if self._program is None:
            return super()._execute_child(*given)
        ends = given[10:16]
        try:
            self._order(self._program, [ends[0], ends[3], ends[5]])
        finally:
            self._close_pipe_fds(*ends)  # type: ignore[attr-defined]

    def _order(self, program: Program, streams: Sequence[int]) -> None:
        """Has the process forked.

        Args:
          program: What it runs.
          streams: The descriptors of its standard streams; -1 for those of this process.
        """
        cwd = os.fspath(self._options.get("cwd") or Path.cwd())
        os.stat(cwd)  # noqa: PTH116 - raised here, as by `subprocess`
        passed: tuple[int, ...] = tuple(self._options.get("pass_fds", ()))
        birth = forking.ForkRequest(
            call="tests.support.warm.zygote:become_and_run",
            argument={"argv": list(map(os.fspath, self.args)), "program": asdict(program)},
            environment=self._environment,
            folder=os.path.realpath(cwd),
            descriptor_numbers=(0, 1, 2, *passed),
            is_session=bool(self._options.get("start_new_session")),
        )
        own: list[int] = [n if stream == -1 else stream for n, stream in enumerate(streams)]
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as requests:
            requests.connect(_zygote())
            self._forked = forking.fork(requests, birth, [*own, *passed])
        self.pid = self._forked.pid
        self._child_created = True

    def _internal_poll(self, _deadstate: int | None = None, **_: Any) -> int | None:
        if self._forked is None:
            return super()._internal_poll(_deadstate)
        if self.returncode is None:
            self.returncode = self._forked.poll()
        return self.returncode

    def _wait(self, timeout: float | None) -> int | None:
        if self._forked is None:
            return super()._wait(timeout)
        if self._forked.wait(timeout) is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(self.args, timeout)
        return self._internal_poll()


class ScriptPopen(Popen[AnyStr]):
    """Forks scripts alone: in a forked process, whatever starts modules wants them as children."""

    kinds = (Kind.SCRIPT,)


def run(
    args: Sequence[str | os.PathLike[str]],
    *,
    input: AnyStr | None = None,
    capture_output: bool = False,
    timeout: float | None = None,
    check: bool = False,
    **options: Any,
) -> subprocess.CompletedProcess[Any]:
    """`subprocess.run`, with a process that the zygote forks."""
    if input is not None:
        options["stdin"] = subprocess.PIPE
    if capture_output:
        options |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with Popen[Any](args, **options) as process:
        try:
            said, errors = process.communicate(input, timeout)
        except BaseException:
            process.kill()
            raise
    done = subprocess.CompletedProcess(process.args, process.returncode, said, errors)
    if check:
        done.check_returncode()
    return done


def share() -> None:
    """Has pytest's workers, which this process starts, use its zygote: each would need seconds."""
    os.environ[SHARED] = _zygote()


def install(address: str) -> None:
    """In a forked process: scripts that it starts are forked, too, by the same zygote."""
    global _address
    _address = address
    subprocess.Popen = ScriptPopen


def _zygote() -> str:
    """The address of this process's zygote, which is started when it is first asked for."""
    global _address
    with _LOCK:
        if _address is None:
            _address = os.environ.get(SHARED) or _start()
    return _address


def _start() -> str:
    address = str(Path(tempfile.mkdtemp(prefix="warm-")) / "zygote")
    environment = {**os.environ, "TF_USE_LEGACY_KERAS": "1", "PYTHONPATH": str(ROOT)}
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(address)
        listener.listen()
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", _START, str(listener.fileno()), *LIBRARIES],
            stdin=subprocess.PIPE,
            pass_fds=[listener.fileno()],
            env=environment,
            # Ctrl-C is for the tests, and they end it.
            start_new_session=True,
        )
    atexit.register(_stop, process)
    return address


def _stop(zygote: subprocess.Popen[bytes]) -> None:
    """The end of its input ends it, and every process that it still has."""
    lifeline: IO[bytes] | None = zygote.stdin
    assert lifeline is not None
    lifeline.close()
    zygote.wait(_END_SECONDS)
