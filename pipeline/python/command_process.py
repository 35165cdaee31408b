"""A child process that runs a command's function for a Python program, such as a notebook.

A notebook has an event loop, a state of TensorFlow and signal handlers of its own, which a run
would disturb and which would disturb a run.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe
from typing import IO, Any, TypeVar, cast

from components.processes.ending import name_signal
from components.processes.local.process import end_group_with_input
from components.processes.stopping import exit_process, install_handlers
from pipeline.cli.early_signals import exit_on_signals
from pipeline.own_modules import ROOT
from trainer_module import errors
from trainer_module.errors import InternalError, ScopelineError

_Result = TypeVar("_Result")

PROGRAM = "scopeline"
"""The command that messages name."""
_LEFT_OUT = ("FORCE_COLOR", "CLICOLOR_FORCE", "TF_USE_LEGACY_KERAS")
"""Variables by which a notebook's kernel makes programs draw as on a terminal, and the program's
choice of Keras."""
_START = (
    "import signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL);"
    " root, descriptor = sys.argv[1:]; root in sys.path or sys.path.insert(0, root);"
    f" from {__name__} import main; main(int(descriptor))"
)
_ANSWER, _ERROR = "answer", "error"
_POLL_SECONDS = 0.1


class CommandProcess:
    """A child process that runs a function. The process does not outlive this process."""

    def __init__(
        self,
        function: Callable[..., Any],
        arguments: Sequence[Any],
        output: int | IO[bytes],
        is_server: bool = False,
    ) -> None:
        """Starts the child process with the function.

        Args:
          function: a function of a module of Scopeline.
          arguments: the arguments of the function.
          output: the standard output and error of the process, as for `subprocess.Popen`.
          is_server: whether the function runs until a signal. Its last argument is then a function
            that sends values to this process.
        """
        self._connection, child_end = Pipe()
        environment = {name: os.environ[name] for name in os.environ if name not in _LEFT_OUT}
        with child_end:
            descriptor = child_end.fileno()
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-u", "-c", _START, str(ROOT), str(descriptor)],
                env=environment,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=[descriptor],
                # Ctrl-C reaches this process, which sends it on once.
                start_new_session=True,
                text=True,
                encoding="utf-8",
                errors="replace",
            )
        self._connection.send((function, tuple(arguments), is_server))

    def receive(self, seconds: float = 0.0) -> Any:
        """Returns the next value that the process has sent, or None if it has sent none.

        Raises:
          ScopelineError: the function raised it.
        """
        try:
            if not self._connection.poll(seconds):
                return None
            kind, value = self._connection.recv()
        except (EOFError, OSError):
            return None
        if kind == _ERROR:
            raise value
        return value

    def receive_until_end(self) -> Any:
        """Returns the next value that the process sends, or None if it ends without sending one.

        Raises:
          ScopelineError: the function raised it.
        """
        while self.process.poll() is None:
            if (value := self.receive(_POLL_SECONDS)) is not None:
                return value
        return self.receive()

    def interrupt(self, number: signal.Signals = signal.SIGINT) -> None:
        """Sends a signal to the process, which ends as the command does."""
        self.process.send_signal(number)

    def failure(self) -> InternalError:
        """Returns the error of a process that ended without an answer."""
        code = self.process.wait()
        name = name_signal(code)
        ended = f"was killed by {name}" if name else f"ended with exit code {code}"
        return InternalError(f"the process of the command {ended}; its output has the reason")

    def close(self) -> None:
        """Ends what is left of the process and of its group."""
        cast("IO[str]", self.process.stdin).close()
        self._connection.close()


def call(
    function: Callable[..., _Result],
    *arguments: Any,
    on_line: Callable[[str], None],
) -> _Result:
    """Returns the result of a function that runs in a child process.

    Args:
      function: a function of a module of Scopeline.
      arguments: its arguments.
      on_line: called with each line that the function prints.

    Raises:
      ScopelineError: the function raised it, or its process ended early.
      KeyboardInterrupt: Ctrl-C ended the function, as it ends the command.
    """
    child = CommandProcess(function, (*arguments,), subprocess.PIPE)
    # The process waits until a long answer is read, and ends its output only after that.
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(child.receive_until_end)
        try:
            was_interrupted = _forward(child, on_line)
            value = answer.result()
            if was_interrupted:
                raise KeyboardInterrupt
            if value is None:
                raise child.failure()
            return cast("_Result", value[0])
        finally:
            child.close()


def _forward(child: CommandProcess, on_line: Callable[[str], None]) -> bool:
    """Forwards the output until the process has ended; returns whether Ctrl-C has ended it."""
    was_interrupted = False
    output = cast("IO[str]", child.process.stdout)
    while True:
        try:
            for line in output:
                on_line(line)
            child.process.wait()
            return was_interrupted
        except KeyboardInterrupt:
            was_interrupted = True
            child.interrupt()


def main(descriptor: int) -> None:
    """Runs the function that the parent process sends, and sends the result back.

    Args:
      descriptor: the file descriptor of the connection to the parent process.
    """
    end_group_with_input()
    sys.argv[:] = [PROGRAM]
    os.set_inheritable(descriptor, False)
    connection = Connection(descriptor)
    function, arguments, is_server = connection.recv()
    if is_server:
        exit_on_signals()
    else:
        install_handlers()

    def send(value: Any) -> None:
        connection.send((_ANSWER, value))

    try:
        answer = function(*arguments, send) if is_server else function(*arguments)
    except ScopelineError as error:
        with suppress(OSError):
            connection.send((_ERROR, _known(error)))
        exit_process(1)
    except KeyboardInterrupt:
        exit_process(130)
    except Exception:
        traceback.print_exc()
        exit_process(1)
    # The parent tells an answer of None from a process that has not answered.
    with suppress(OSError):
        send((answer,))
    exit_process(0)


def _known(error: ScopelineError) -> ScopelineError:
    """Returns an error with the same message, of a class that the parent process knows."""
    known = next(base for base in type(error).__mro__ if base.__module__ == errors.__name__)
    return cast("ScopelineError", known(str(error)))
