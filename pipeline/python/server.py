"""A server in a child process that serves a model to this program and to browsers."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from pipeline.python.rows import to_rows
from trainer_module.errors import ConfigError, DataError, InternalError

if TYPE_CHECKING:
    import pandas as pd
    import requests

_POLL_SECONDS = 0.05
_REQUEST_SECONDS = 60
_LOG_BYTES = 1 << 24


def local_session() -> requests.Session:
    """Returns a session whose requests to this machine do not go through a proxy."""
    import requests

    session = requests.Session()
    session.trust_env = False
    return session


class Server:
    """A server that answers until `stop`, the end of a `with` block, or the end of this process."""

    def __init__(self, arguments: Sequence[Any]) -> None:
        """Starts the server, and returns when it answers.

        Args:
          arguments: the arguments of `serve_here`, without its callback.

        Raises:
          ScopelineError: the model cannot be served, as for the command.
        """
        from pipeline.cli.serve import read_key, serve_here
        from pipeline.python.command_process import CommandProcess

        key = read_key()
        self._headers = {"X-API-Key": key} if key else {}
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - the log can be read after the stop
        self._child = CommandProcess(serve_here, arguments, self._log, is_server=True)
        try:
            self.url, self.name = self._wait_for(lambda: self._child.receive(_POLL_SECONDS))
            """The address, such as http://127.0.0.1:8501, and the name of the model."""
            self._wait_for(self._answers)
        except BaseException:
            self.stop()
            raise

    def _wait_for(self, read: Any) -> Any:
        while (value := read()) is None:
            if self._child.process.poll() is not None:
                while self._child.receive() is not None:
                    pass  # An error of the command is raised.
                raise InternalError(f"{self._child.failure()}: {self.log[-2000:]}")
        return value

    def _answers(self) -> bool | None:
        import requests

        try:
            with local_session() as session:
                session.get(f"{self.url}/healthz", timeout=_REQUEST_SECONDS)
        except requests.ConnectionError:
            time.sleep(_POLL_SECONDS)
            return None
        return True

    @property
    def log(self) -> str:
        """The log of the server: a JSON object per line."""
        # The server writes at the position of this file, which must not change.
        return os.pread(self._log.fileno(), _LOG_BYTES, 0).decode(errors="replace")

    def predict(
        self, rows: Sequence[Mapping[str, Any]] | Mapping[str, Any] | pd.DataFrame
    ) -> list[dict[str, Any]]:
        """Returns the server's answer to each row, by TF Serving's REST API.

        Args:
          rows: the rows, as for `Model.predict`; a picture is a `Path` or its bytes.

        Raises:
          DataError: the server refuses the rows.
          ConfigError: the server has stopped.
        """
        import base64

        if self._child.process.poll() is not None:
            raise ConfigError(f"the server of {self.name} has stopped: start it again by `serve`.")

        def encoded(value: Any) -> Any:
            value = value.read_bytes() if isinstance(value, Path) else value
            is_bytes = isinstance(value, bytes)
            return {"b64": base64.b64encode(value).decode()} if is_bytes else value

        body = {"instances": [{n: encoded(v) for n, v in row.items()} for row in to_rows(rows)]}
        url = f"{self.url}/v1/models/{self.name}:predict"
        with local_session() as session:
            answer = session.post(url, json=body, headers=self._headers, timeout=_REQUEST_SECONDS)
        if not answer.ok:
            raise DataError(str(answer.json()["error"]))
        return list(answer.json()["predictions"])

    def stop(self) -> None:
        """Stops the server after the requests in progress; does nothing if it has stopped."""
        from components.processes.ending import SERVER_GRACE_SECONDS

        process = self._child.process
        if process.poll() is None:
            self._child.interrupt(signal.SIGTERM)
            try:
                process.wait(SERVER_GRACE_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._child.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        is_running = self._child.process.poll() is None
        return f"<server of {self.name}: {self.url if is_running else 'stopped'}>"
