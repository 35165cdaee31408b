"""Brings a compiled pipeline to Kubeflow and starts a run of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice

import kfp_server_api as kfp_api

from pipeline.config.issues import near_match
from pipeline.config.sections.kubeflow import KubeflowSettings
from pipeline.config.settings import PipelineConfig
from pipeline.kubeflow.api.client import Kubeflow
from pipeline.kubeflow.api.errors import ConflictError
from pipeline.kubeflow.cluster_layout import pipeline_name, settings_of
from pipeline.kubeflow.compiled import CompiledPipeline, Parameters
from pipeline.kubeflow.kubeflow_rules import check_for_kubeflow
from pipeline.kubeflow.run_parameters import (
    apply_parameters,
    default_parameters,
    read_parameter,
)
from trainer_module.errors import ConfigError

MOST_RUNS = 1000
"""How many runs are searched for the latest one of a pipeline."""


@dataclass(frozen=True)
class PipelineVersion:
    """A compiled pipeline as Kubeflow has it."""

    pipeline: str
    version: str
    """Their ids."""
    name: str
    is_new: bool = False
    """Whether it was uploaded just now."""

    @property
    def reference(self) -> kfp_api.V2beta1PipelineVersionReference:
        """As runs refer to it."""
        return kfp_api.V2beta1PipelineVersionReference(
            pipeline_id=self.pipeline, pipeline_version_id=self.version
        )


def parse_parameters(config: PipelineConfig, given: Sequence[str]) -> Parameters:
    """The values of a run's parameters.

    Args:
      config: of the pipeline, checked.
      given: `name=value` each.

    Returns:
      The values that are given; the others have their defaults.

    Raises:
      ConfigError: there is no such parameter, or it cannot have the value.
    """
    known, values = default_parameters(config), Parameters()
    for text in given:
        name, separator, value = text.partition("=")
        if not separator:
            raise ConfigError(f"--parameter {text}: it has to be name=value, such as epochs=3")
        if name not in known:
            hint = near_match(name, known)
            raise ConfigError(f"--parameter {text}: there is no parameter `{name}`; {hint}")
        if name in values:
            raise ConfigError(f"--parameter {text}: `{name}` is given twice")
        try:
            values[name] = read_parameter(config, name, value)
        except ConfigError as error:
            raise ConfigError(f"--parameter {text}: {error}") from None
    for problem in check_for_kubeflow(apply_parameters(config, values)):
        raise ConfigError(f"--parameter {' and '.join(given)}: {problem}")
    return values


def ensure_version(kubeflow: Kubeflow, compiled: CompiledPipeline) -> PipelineVersion:
    """The pipeline's version of this content, uploaded if it is not there.

    Raises:
      ConfigError: Kubeflow refuses a call, or is too old for the config.
      InternalError: Kubeflow failed, or was not to be reached.
    """
    kubeflow.check_retries()
    name = compiled.name
    pipeline = _find_or_create(
        lambda: kubeflow.pipeline_id(name), lambda: kubeflow.create_pipeline(name)
    )[0]
    version, is_new = _find_or_create(
        lambda: kubeflow.version_id(pipeline, compiled.version),
        lambda: kubeflow.upload_version(pipeline, compiled.version, compiled.yaml),
    )
    return PipelineVersion(pipeline, version, compiled.version, is_new)


def ensure_experiment(kubeflow: Kubeflow, name: str) -> str:
    """The experiment of a name, created if it is not there; raises as calls do."""
    return _find_or_create(
        lambda: kubeflow.experiment_id(name), lambda: kubeflow.create_experiment(name)
    )[0]


def start_run(
    kubeflow: Kubeflow,
    settings: KubeflowSettings,
    version: PipelineVersion,
    parameters: Parameters,
) -> str:
    """Starts a run.

    Args:
      kubeflow: where.
      settings: the experiment and the account of the run.
      version: what runs.
      parameters: those that differ from their defaults.

    Returns:
      The run's id.
    """
    experiment = ensure_experiment(kubeflow, settings.experiment)
    began = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S")
    return kubeflow.create_run(
        kfp_api.V2beta1Run(
            display_name=f"{version.name} {began}",
            experiment_id=experiment,
            pipeline_version_reference=version.reference,
            runtime_config=kfp_api.V2beta1RuntimeConfig(parameters=dict(parameters)),
            service_account=settings.service_account,
        )
    )


def runs_of(kubeflow: Kubeflow, config: PipelineConfig) -> Iterator[kfp_api.V2beta1Run]:
    """The runs of a pipeline, newest first; those of others are left out."""
    name, experiment = pipeline_name(config), settings_of(config).experiment
    pipeline, folder = kubeflow.pipeline_id(name), kubeflow.experiment_id(experiment)
    runs = kubeflow.runs(folder) if pipeline and folder else iter(())
    for run in islice(runs, MOST_RUNS):
        reference = run.pipeline_version_reference
        if reference is not None and reference.pipeline_id == pipeline:
            yield run


def _find_or_create(find: Callable[[], str | None], create: Callable[[], str]) -> tuple[str, bool]:
    """An id, and whether it is new; somebody else may create it between the two calls."""
    found = find()
    if found is not None:
        return found, False
    try:
        return create(), True
    except ConflictError:
        found = find()
        if found is None:
            raise
        return found, False
