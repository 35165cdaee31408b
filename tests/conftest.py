"""What all tests share."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator

import pytest

os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

from components.processes.stopping import SIGNALS
from pipeline.runs.imports import freeze_imports
from tests.support import warm
from tests.support.browser import EXECUTABLE, Browser
from tests.support.project import Project
from tests.support.two_cpus import split_cpu_at_import
from trainer_module.typed_words import OPTIONS_VARIABLE, PROGRAM_VARIABLE

pytest_plugins = ["tests.support.cpu_budget"]
# Where the environment forbids them, pytest would compile each test module again in each process.
sys.dont_write_bytecode = False
split_cpu_at_import()


def pytest_configure(config: pytest.Config) -> None:
    """A shell that runs the tests in the background has its processes ignore Ctrl-C."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if config.getoption("numprocesses", None):
        warm.share()


def pytest_collection_finish() -> None:
    """What has been imported stays; the collector need not look through it again and again."""
    freeze_imports()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Slow tests begin, so that no process is left with one of them at the end."""

    def order(item: pytest.Item) -> tuple[bool, bool]:
        return item.get_closest_marker("slow") is None, item.get_closest_marker("proof") is None

    items.sort(key=order)


@pytest.fixture(scope="session", autouse=True)
def _libraries_have_begun() -> None:
    """TensorFlow's first function takes a second, which is no test's own."""
    if "tensorflow" in sys.modules:
        import tensorflow as tf

        tf.function(lambda number: number + 1.0)(tf.constant(1.0))


@pytest.fixture(autouse=True)
def _words_of_other_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forgets the words and options of commands that earlier tests ran in this process."""
    for variable in (PROGRAM_VARIABLE, OPTIONS_VARIABLE):
        monkeypatch.setenv(variable, "")  # So that monkeypatch also removes later values.
        monkeypatch.delenv(variable)


@pytest.fixture(autouse=True)
def _signal_handlers() -> Iterator[None]:
    """Restores the signal handlers that a test's commands have replaced in this process."""
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A browser without network."""
    if EXECUTABLE is None:
        pytest.skip("there is no Chromium here; `apt-get install -y chromium` brings it")
    with Browser(tmp_path_factory.mktemp("browser")) as started:
        yield started


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A folder of a module's own, in which its pipelines run."""
    return Project(tmp_path_factory.mktemp("project"))
