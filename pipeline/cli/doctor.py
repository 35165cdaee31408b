"""Implements `scopeline doctor`: checks the machine, and gives advice on each problem."""

from __future__ import annotations

import importlib.util
import os
import platform
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import psutil
import typer
from rich.markup import escape

from components.compat.older_linux import (
    UnknownBinaryError,
    is_caused_by_older_linux,
    relax_environment,
)
from pipeline.cli.options import OUTPUT, OutputOption, VerboseOption, flag, quiet_console
from pipeline.exit_codes import EXIT_UNUSABLE
from trainer_module.errors import ConfigError, counted
from trainer_module.extras import install_command
from trainer_module.machine import count_cores, free_memory
from trainer_module.typed_words import typed_program

GIB = 2**30
MIN_PYTHON, FIRST_UNSUPPORTED_PYTHON = (3, 11), (3, 14)
MIN_DISK = 5 * GIB
MIN_MEMORY = 4 * GIB
LIBRARIES = (
    "ml_metadata",
    "tensorflow",
    "tf_keras",
    "tensorflow_data_validation",
    "tensorflow_transform",
    "tensorflow_model_analysis",
    "tfx",
)


class Level(StrEnum):
    """How serious the result of a check is."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


_COLOURS = {Level.OK: "green", Level.WARNING: "yellow", Level.PROBLEM: "red"}


@dataclass(frozen=True)
class CheckResult:
    """The result of one check, with advice if there is a problem."""

    subject: str
    level: Level
    state: str
    """The state of the machine that the check has found."""
    advice: str = ""


def doctor(
    output: OutputOption = OUTPUT,
    verbose: VerboseOption = False,
    fix: Annotated[bool, flag("--fix", "Make the libraries load on an older Linux.")] = False,
) -> None:
    """Check this machine, and give advice on each problem.

    Checks Python, the libraries, the disk, the memory and the devices. Two libraries of TFX need
    glibc 2.39; on an older Linux, --fix edits them first.

    Exit codes: 0 the machine is ready, 2 there is a problem.
    """
    if fix:
        _fix_machine()
    if not _show_findings(output, verbose):
        raise typer.Exit(EXIT_UNUSABLE)


def _fix_machine() -> None:
    try:
        for line in relax_environment():
            typer.echo(line)
    except UnknownBinaryError as error:
        raise ConfigError(str(error)) from error


def _show_findings(output: Path, verbose: bool) -> bool:
    """Shows the results of the checks as they come; returns whether there is no problem."""
    healthy = True
    with quiet_console(verbose) as console:
        for finding in examine(output):
            healthy = healthy and finding.level is not Level.PROBLEM
            level = f"[{_COLOURS[finding.level]}]{finding.level.value:<8}[/]"
            console.print(f"  {level} {finding.subject:<27} {escape(finding.state)}")
            if finding.advice:
                console.print(f"  {'':<8} {'':<27} -> {escape(finding.advice)}")
        console.print("\nready" if healthy else "\nnot ready: fix the problems above")
    return healthy


def examine(output: Path) -> Iterator[CheckResult]:
    """Yields the results of all checks, the quick checks first.

    Args:
      output: the folder that a run would write to.
    """
    checks: list[Callable[[], Iterator[CheckResult]]] = [
        _check_python,
        _check_bytecode,
        lambda: _check_disk(output),
        _check_memory,
        _check_libraries,
        _check_keras,
        _check_devices,
    ]
    for check in checks:
        yield from check()


def _check_python() -> Iterator[CheckResult]:
    state = f"{platform.python_version()}, {platform.system()} {platform.machine()}"
    if not MIN_PYTHON <= sys.version_info[:2] < FIRST_UNSUPPORTED_PYTHON:
        yield CheckResult("Python", Level.PROBLEM, state, "use Python 3.11, 3.12 or 3.13")
    elif (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        advice = "TFX has wheels only for Linux on x86-64: use a container or a virtual machine"
        yield CheckResult("Python", Level.PROBLEM, state, advice)
    else:
        yield CheckResult("Python", Level.OK, f"{state}, libc {' '.join(platform.libc_ver())}")


def _check_bytecode() -> Iterator[CheckResult]:
    spec = importlib.util.find_spec("tfx")
    if spec is None or spec.origin is None:
        return
    if (Path(spec.origin).parent / "__pycache__").is_dir():
        yield CheckResult("bytecode", Level.OK, "TFX is compiled")
    else:
        packages = Path(spec.origin).parents[1]
        advice = (
            "start-up takes three times as long; run: "
            f"{shlex.quote(sys.executable)} -m compileall -q -j 0 {shlex.quote(str(packages))}"
        )
        yield CheckResult("bytecode", Level.WARNING, "TFX is not compiled", advice)


def _check_disk(output: Path) -> Iterator[CheckResult]:
    folder = output.resolve()
    while not folder.exists():
        folder = folder.parent
    if not os.access(folder, os.W_OK | os.X_OK):
        advice = "give --output a folder that you may write"
        yield CheckResult("output", Level.PROBLEM, f"{folder} cannot be written", advice)
    free = shutil.disk_usage(folder).free
    state = f"{free / GIB:.1f} GiB free at {folder}"
    if free < MIN_DISK:
        advice = "every run keeps its artifacts: remove old ones, or give another --output"
        yield CheckResult("disk", Level.WARNING, state, advice)
    else:
        yield CheckResult("disk", Level.OK, state)


def _check_memory() -> Iterator[CheckResult]:
    free, total = free_memory(), psutil.virtual_memory().total  # noqa: TID251 - the machine's
    state = f"{free / GIB:.1f} of {total / GIB:.1f} GiB free"
    state += f", {count_cores()} cores"
    if free < MIN_MEMORY:
        advice = "TFX alone takes about 2 GiB: close other programs, or use a larger machine"
        yield CheckResult("memory", Level.WARNING, state, advice)
    else:
        yield CheckResult("memory", Level.OK, state)


def _check_libraries() -> Iterator[CheckResult]:
    for name in LIBRARIES:
        try:
            module = importlib.import_module(name)
        except ImportError as error:
            advice = "reinstall Scopeline; in a clone: `make clean setup`"
            if is_caused_by_older_linux(error):
                advice = f"run: {typed_program()} doctor --fix"
            yield CheckResult(name, Level.PROBLEM, str(error).splitlines()[-1], advice)
        else:
            yield CheckResult(name, Level.OK, getattr(module, "__version__", "loads"))


def _check_keras() -> Iterator[CheckResult]:
    value = os.environ.get("TF_USE_LEGACY_KERAS")
    if value != "1":
        advice = "unset TF_USE_LEGACY_KERAS, or set it to 1: Keras 3 breaks the strategies"
        yield CheckResult("Keras", Level.PROBLEM, f"TF_USE_LEGACY_KERAS is {value!r}", advice)


def _check_devices() -> Iterator[CheckResult]:
    try:
        import tensorflow as tf
    except ImportError:
        return
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        yield CheckResult(
            "devices",
            Level.OK,
            f"{counted(len(gpus), 'GPU')}: `train.strategy: mirrored` uses all of them",
        )
    elif shutil.which("nvidia-smi"):
        state = "there is an NVIDIA driver, but TensorFlow sees no GPU"
        advice = f"install TensorFlow's CUDA libraries: {install_command('gpu')}"
        yield CheckResult("devices", Level.WARNING, state, advice)
    else:
        yield CheckResult("devices", Level.OK, "CPU only")
