"""Functions of commands run in child processes, for programs that call them by `scopeline`."""

from __future__ import annotations

import contextlib
import io
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import scopeline
from pipeline.cli.run import plan
from pipeline.python.command_process import call
from trainer_module.errors import ConfigError, InternalError

TABLE = "plan,age,churned\n" + "".join(
    f"{'gold' if index % 3 else 'basic'},{20 + index % 50},{'yes' if index % 4 else 'no'}\n"
    for index in range(400)
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A working directory with a table, for which `init` has written a config."""
    folder = tmp_path_factory.mktemp("customers")
    (folder / "customers.csv").write_text(TABLE)
    with pytest.MonkeyPatch.context() as patch, io.StringIO() as screen:
        patch.chdir(folder)
        with contextlib.redirect_stdout(screen):
            assert scopeline.init("customers.csv", label="churned") == Path("config.yaml")
        assert "label: churned; task: binary" in screen.getvalue()
        yield folder


def test_import_is_fast_and_loads_no_library() -> None:
    slow = ["tensorflow", "tfx", "numpy", "pyarrow", "pydantic", "typer"]
    code = f"import sys, scopeline; print([name for name in {slow} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(scopeline.__file__).parent,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "[]\n"


@pytest.mark.slow
def test_init_writes_a_config_as_the_command(folder: Path) -> None:
    text = Path("config.yaml").read_text()
    assert "by `scopeline init customers.csv --label churned`" in text
    with pytest.raises(ConfigError, match=r"config\.yaml exists: add force=True"):
        scopeline.init("customers.csv", label="churned")


@pytest.mark.slow
def test_errors_are_those_of_the_command(folder: Path) -> None:
    with pytest.raises(ConfigError) as raised:
        scopeline.plan("nope.yaml")
    with pytest.raises(ConfigError) as of_command:
        plan(Path("nope.yaml"), [], Path("output"), False)
    assert str(raised.value) == str(of_command.value)


@pytest.mark.slow
def test_run_on_unusable_data_raises_with_its_report(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("customers.csv").write_text(TABLE.replace("churned", "left"))
    with pytest.raises(scopeline.RunFailedError) as raised:
        scopeline.run("config.yaml", output=folder / "out")
    result = raised.value.result
    assert (result.verdict, result.pushed, result.model) == ("unusable", False, None)
    error = result.summary.error
    assert error is not None
    assert str(raised.value) == f"ExampleGen failed: {error.message}"
    assert "churned" in error.message
    assert result.report.is_file()
    assert error.message in capsys.readouterr().out.replace("\n", " ")


@pytest.mark.slow
def test_process_that_fails_or_dies_is_an_error_with_its_output() -> None:
    lines: list[str] = []
    with pytest.raises(InternalError, match="ended with exit code 1"):
        call(divmod, 1, 0, on_line=lines.append)
    assert lines[-1].startswith("ZeroDivisionError")
    with pytest.raises(InternalError, match="was killed by SIGKILL"):
        call(signal.raise_signal, signal.SIGKILL, on_line=lines.append)


INTERRUPTED = """
import os, signal, threading, time
from pipeline.python.command_process import call
threading.Timer(2, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    call(time.sleep, 60, on_line=print)
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.slow
def test_ctrl_c_ends_the_child() -> None:
    root = Path(scopeline.__file__).parent
    command = [sys.executable, "-c", INTERRUPTED]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=30)
    assert done.stdout == "interrupted\n"
