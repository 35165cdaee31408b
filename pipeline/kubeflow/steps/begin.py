"""The first step of a run: checks data and stores, reads the spans that are new."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from tfx.orchestration.local import runner_utils

from pipeline.config import PipelineConfig
from pipeline.ingestion import ingestion_fingerprint
from pipeline.journal import Journal
from pipeline.kubeflow.compiling.nodes import compile_graph, values_of
from pipeline.kubeflow.image import code_hash
from pipeline.kubeflow.places import cluster_layout, run_root, seen_from_pods
from pipeline.kubeflow.steps.overlap import is_alone
from pipeline.kubeflow.steps.run_folder import RunFolder, RunRecord
from pipeline.layout import Layout
from pipeline.ledger import Ledger
from pipeline.metadata import check_store
from pipeline.notify import check_secrets
from pipeline.request import RunRequest
from pipeline.rules import check_rules
from pipeline.run import find_window
from pipeline.schedule.spans import Window, has_spans, whole_data
from pipeline.screen import Screen
from pipeline.window import WindowReader, left_out, make_spans
from trainer_module.errors import ConfigError

logger = logging.getLogger(__name__)

BECAUSE = "on Kubeflow"


@dataclass(frozen=True)
class Parameters:
    """What a run can be given."""

    epochs: int
    strategy: str
    span: str
    """The span to end at; empty: the newest."""


def begin(
    told: PipelineConfig, parameters: Parameters, run_id: str, code: str, screen: Screen
) -> None:
    """Finds out what the run works on, and writes it down for the other steps.

    A second attempt at it finds what the first one wrote, and does nothing.

    Args:
      told: the config as it was compiled.
      parameters: of the run.
      run_id: of the run.
      code: the hash of the code that compiled the pipeline.
      screen: where people look.

    Raises:
      ConfigError: config, parameters, secrets or the metadata cannot be used.
      DataError: there is no data, or the window has a gap.
      ComponentFailedError: an older span of the window cannot be read.
    """
    config = _apply(told, parameters)
    layout = cluster_layout(config)
    folder = RunFolder(run_root(layout), run_id)
    if folder.read_record() is not None:
        return
    notes = _compare_code(code)
    _make_output(layout)
    check_secrets(config)
    _check(config)
    check_store(config, layout)
    request = RunRequest(BECAUSE, parameters.span or None, through_name="the parameter span,")
    window = find_window(config, layout, request)
    folder.write_record(_look(config, layout, run_id, window, notes, screen))


def _look(
    config: PipelineConfig,
    layout: Layout,
    run_id: str,
    window: Window | None,
    notes: list[str],
    screen: Screen,
) -> RunRecord:
    """Reads what is new but for the newest span, and compiles the graph with what is known now."""
    began, ledger = time.time(), Ledger(layout.ledger)
    data = list(window.spans) if window else [whole_data(config.data, layout)]
    journal = Journal(ledger, config, run_id, data, BECAUSE)
    journal.started()
    spans, usable = None, data
    if window is not None:
        usable = WindowReader(config, layout, ledger, journal, run_id).read(window, screen)
        spans = make_spans(usable, ledger)
        notes = [*notes, *window.notes, *left_out(window, usable)]
    graph = compile_graph(config, layout, spans)
    deployment = runner_utils.extract_local_deployment_config(graph)
    nodes = values_of(graph)
    return RunRecord(
        config=config,
        because=BECAUSE,
        began=began,
        window=window,
        data=usable,
        states=journal.states,
        notes=notes,
        ingestion=ingestion_fingerprint(config, layout),
        is_alone=is_alone(config, layout, run_id),
        nodes=nodes,
        shown=[n for n in nodes if runner_utils.extract_executor_spec(deployment, n) is not None],
    )


def _apply(told: PipelineConfig, parameters: Parameters) -> PipelineConfig:
    """The config with a run's parameters, and the metadata that pods reach.

    Raises:
      ConfigError: a parameter cannot be used.
    """
    train: dict[str, Any] = {"epochs": parameters.epochs}
    if parameters.strategy != told.train.strategy.kind:
        train["strategy"] = parameters.strategy
    if parameters.span and not has_spans(told.data):
        raise ConfigError(
            f"the parameter span is {parameters.span!r}, but data.path has no spans; leave it empty"
        )
    values = told.model_dump(mode="json", by_alias=True, exclude_unset=True)
    values["train"] = values.get("train", {}) | train
    try:
        return seen_from_pods(PipelineConfig.model_validate(values))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = first["loc"][1] if len(first["loc"]) > 1 else first["loc"][0]
        raise ConfigError(
            f"the parameter {name} is {train.get(str(name))!r}; {first['msg'].lower()}"
        ) from None


def _check(config: PipelineConfig) -> None:
    """Checks what could not be checked where the pipeline was compiled: files, and parameters.

    Raises:
      ConfigError: lists every problem.
    """
    problems = [str(problem) for problem in check_rules(config)]
    if problems:
        raise ConfigError("; ".join(problems))


def _compare_code(compiled_from: str) -> list[str]:
    """What people should know of the code in the image."""
    if compiled_from == code_hash():
        return []
    note = (
        "the image holds other code than the one that compiled the pipeline; build the image "
        "again, or compile with its code"
    )
    logger.warning(note)
    return [note]


def _make_output(layout: Layout) -> None:
    """Makes the pipeline's folder now: later, a step would have worked for nothing.

    Raises:
      ConfigError: nothing can be written there.
    """
    try:
        layout.root.mkdir(parents=True, exist_ok=True)
        scratch = layout.root / ".writable"
        scratch.touch()
        scratch.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError(
            f"{layout.root}: the volume cannot be written ({error.strerror or error}); the image "
            "runs as user and group 1000, which its folder has to belong to"
        ) from None
