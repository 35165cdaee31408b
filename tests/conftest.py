"""What all tests share."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
sys.path.insert(0, str(Path(__file__).parents[1]))

import warm
from browser import EXECUTABLE, Browser

from components.processes.stopping import SIGNALS
from pipeline.runs.imports import freeze_imports
from trainer_module.typed_words import OPTIONS_VARIABLE, PROGRAM_VARIABLE

LONGEST = (
    "test_kubeflow",
    "test_kubeflow_spans",
    "test_tuner",
    "test_replay",
    "test_versions_e2e",
    "test_digits",
    "test_taxi",
    "test_crashes",
    "test_every_model",
    "test_loops",
    "test_kubernetes_training",
)
"""Modules of a minute, which begin before others of their kind: else one core waits for them."""


LONG = (
    "test_analyzer_cache",
    "test_artifact_reader",
    "test_base_models",
    "test_batch",
    "test_certificate",
    "test_clusters",
    "test_control_trainer",
    "test_conversion_trouble",
    "test_converting",
    "test_evaluation_report",
    "test_every_model",
    "test_every_type",
    "test_export",
    "test_folds",
    "test_input_pipeline",
    "test_kubernetes_launcher",
    "test_kubernetes_training",
    "test_kubernetes_trouble",
    "test_kubernetes_watch",
    "test_learner",
    "test_loops",
    "test_auto_epochs",
    "test_models",
    "test_observer",
    "test_preprocessing",
    "test_registries",
    "test_schedule_processes",
    "test_served_versions",
    "test_server",
    "test_step_imports",
    "test_study",
    "test_supervisor",
    "test_tabular",
    "test_trainer",
    "test_trial",
    "test_variants_evaluation",
    "test_warm_start",
    "test_warm_start_own_models",
    "test_weights",
)
"""Modules that train, evaluate, or start clusters or schedulers, for as long as whole pipelines."""


def pytest_configure(config: pytest.Config) -> None:
    """A shell that runs the tests in the background has its processes ignore Ctrl-C."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if config.getoption("numprocesses", None):
        warm.share()


def pytest_collection_finish() -> None:
    """What has been imported stays; the collector need not look through it again and again."""
    freeze_imports()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Fast tests first: pipelines and trainings run when everything else has passed."""
    for item in items:
        if item.path.stem in LONG:
            item.add_marker(pytest.mark.e2e)

    def order(item: pytest.Item) -> tuple[bool, int]:
        name = item.path.stem
        rank = LONGEST.index(name) if name in LONGEST else len(LONGEST)
        return item.get_closest_marker("e2e") is not None, rank

    items.sort(key=order)


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
