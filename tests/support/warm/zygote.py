"""A process that has imported the libraries and the product, and forks what is ordered from it.

    python -P -c "from tests.support.warm.zygote import main; main()" DESCRIPTOR LIBRARY...

The descriptor is a listening Unix socket. It is the product's fork server, see `forking` there, and
ends, with all processes that still run, when its standard input does. It runs nothing but imports:
no thread, and no TensorFlow runtime, which a fork would break.
"""

from __future__ import annotations

import atexit
import builtins
import contextlib
import gc
import importlib
import importlib.machinery
import inspect
import io
import os
import pkgutil
import random
import runpy
import shutil
import signal
import socket
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from components.compat import speed
from components.processes.local import forking
from pipeline.config.user_code import import_closure
from pipeline.own_modules import PACKAGES, ROOT
from tests.support.cpu_budget import note_seconds
from tests.support.warm import processes
from tests.support.warm.processes import Kind, Program
from trainer_module.compat.insides import find_changes

_address = ""
"""Of the zygote that has forked this process; set there."""
_added: dict[str, str] = {}
"""Variables that the libraries set as they were imported; likewise."""


def main() -> None:
    """Imports, then serves; a forked process runs `become_and_run`."""
    global _address
    listener = socket.socket(fileno=int(sys.argv[1]))
    _address = listener.getsockname()
    before, paths = dict(os.environ), [*sys.path]
    for library in sys.argv[2:]:
        importlib.import_module(library)
    if sys.argv[2:]:
        import_product()
    # Those of the tests were for the zygote alone, and libraries add folders as they are imported.
    own = os.environ.pop("PYTHONPATH").split(os.pathsep)
    sys.path[:] = [path for path in paths if path not in own]
    _added.update(item for item in os.environ.items() if before.get(item[0]) != item[1])
    # It goes through all modules at its first call, for which Pydantic is enough.
    inspect.getmodule(main.__code__)
    # What is never collected is never written to, and stays shared with the forked processes.
    gc.collect()
    gc.freeze()

    def forget() -> None:
        shutil.rmtree(Path(_address).parent, ignore_errors=True)

    forking.Server(listener, sys.stdin.fileno(), forget).serve()


def import_product() -> None:
    """Imports all of its modules, and reads the sources that nearly every command reads again."""
    names = [
        module.name
        for package in PACKAGES
        for module in pkgutil.walk_packages([str(ROOT / package)], f"{package}.")
        if not module.name.endswith("__main__")
    ]
    for name in names:
        importlib.import_module(name)
    import_closure(names, ROOT)
    for change in speed.CHANGES:
        if change.library in speed.imported_libraries():
            find_changes(change.known)


def become(argv: Sequence[str], program: Program) -> None:
    """Makes this process what a command line says, up to the program itself."""
    for name, value in _added.items():
        os.environ.setdefault(name, value)
    sys.orig_argv = list(argv)
    sys.path[:0] = _search_path(program)
    _open_streams(program.is_unbuffered)
    # What libraries found out when they were imported, and is another matter here.
    time.tzset()
    random.seed()


def _search_path(program: Program) -> list[str]:
    """What Python puts before its libraries."""
    first = {
        Kind.SCRIPT: os.path.dirname(os.path.realpath(program.name)),  # noqa: PTH120
        Kind.MODULE: os.getcwd(),  # noqa: PTH109
        Kind.CODE: "",
    }
    listed = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    given = [os.path.abspath(path) for path in listed if path]  # noqa: PTH100
    return [*([] if program.is_safe_path else [first[program.kind]]), *given]


def _open_streams(is_unbuffered: bool) -> None:
    """Standard input and output anew; handlers of loggers hold standard error, which has no state.

    The zygote has read nothing, and written nothing that was not flushed.
    """
    old = sys.stdout
    sys.stdin = sys.__stdin__ = open(0, closefd=False)  # noqa: SIM115
    output = open(1, "wb", buffering=0 if is_unbuffered else -1, closefd=False)  # noqa: SIM115
    sys.stdout = sys.__stdout__ = io.TextIOWrapper(
        output,
        encoding=old.encoding,
        errors=old.errors,
        line_buffering=not is_unbuffered and os.isatty(1),
        write_through=is_unbuffered,
    )


def become_and_run(order: Mapping[str, Any], server: int) -> NoReturn:
    """Runs a program as Python does, and ends the process as Python does.

    The interpreter is not taken down: that would only take time, and copy what is still shared.

    Args:
      order: `argv`, and what a Program has.
      server: the process id of the zygote.
    """
    del server
    program = Program(**{**order["program"], "kind": Kind(order["program"]["kind"])})
    become(order["argv"], program)
    _note_seconds_at_exit()
    processes.install(_address)
    code, is_interrupted = 0, False
    try:
        _run(program)
    except SystemExit as end:
        code = _exit_code(end)
    except BaseException as error:
        _shorten(error)
        sys.excepthook(type(error), error, error.__traceback__)
        code, is_interrupted = 1, isinstance(error, KeyboardInterrupt)
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    if is_interrupted:
        note_seconds()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(code)


def _note_seconds_at_exit() -> None:
    """Has this process, and none that it forks, note its seconds when it exits."""
    this, leave = os.getpid(), os._exit

    def note_and_leave(code: int) -> NoReturn:
        if os.getpid() == this:
            note_seconds()
        leave(code)

    os._exit = note_and_leave


def _run(program: Program) -> None:
    """As `__main__`, whose module stays the one that libraries may hold."""
    names = sys.modules["__main__"].__dict__
    names.clear()
    names.update(
        __name__="__main__",
        __doc__=None,
        __package__=None,
        __loader__=importlib.machinery.BuiltinImporter,
        __spec__=None,
        __annotations__={},
        __builtins__=builtins,
    )
    if program.kind is Kind.MODULE:
        sys.argv = ["-m", *program.arguments]
        runpy._run_module_as_main(program.name)  # type: ignore[attr-defined]
    elif program.kind is Kind.CODE:
        sys.argv = ["-c", *program.arguments]
        exec(compile(program.name, "<string>", "exec"), names)  # noqa: S102
    else:
        sys.argv = [program.name, *program.arguments]
        _run_script(program.name, names)


def _run_script(name: str, names: dict[str, Any]) -> None:
    loader = importlib.machinery.SourceFileLoader("__main__", name)
    names.update(__file__=name, __cached__=None, __loader__=loader)
    exec(compile(Path(name).read_bytes(), name, "exec"), names)  # noqa: S102


def _exit_code(end: SystemExit) -> int:
    if end.code is None:
        return 0
    if isinstance(end.code, int):
        return end.code & 0xFF
    print(end.code, file=sys.stderr)
    return 1


def _shorten(error: BaseException) -> None:
    """Leaves the frames of this file out of an error's traceback."""
    traceback = error.__traceback__
    while traceback and traceback.tb_frame.f_code.co_filename == __file__:
        traceback = traceback.tb_next
    error.__traceback__ = traceback
