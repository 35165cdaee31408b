"""The InfraValidator component, which needs no Docker and compares a model's interfaces."""

from __future__ import annotations

import json
import logging
import os
import posixpath
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from tfx.components.util import model_utils
from tfx.dsl.components.base import base_component, base_executor, executor_spec
from tfx.dsl.io import fileio
from tfx.types import (
    Artifact,
    BaseChannel,
    Channel,
    artifact_utils,
    component_spec,
    standard_artifacts,
)
from tfx.types import standard_component_specs as specs
from tfx.types.component_spec import ChannelParameter, ExecutionParameter
from tfx.types.standard_component_specs import (
    BLESSING_KEY,
    CUSTOM_CONFIG_KEY,
    EXAMPLES_KEY,
    MODEL_BLESSING_KEY,
    MODEL_KEY,
    SCHEMA_KEY,
    STATISTICS_KEY,
    TRANSFORM_GRAPH_KEY,
)
from tfx.utils import io_utils, path_utils

from components.column_types.injection import add_choices
from components.copying import read_text, write_text
from components.example_gen.paths import is_remote
from components.processes.failures import OverdueError
from components.processes.launcher import Place, WorkerSpec
from components.processes.local.launcher import run_one
from components.pusher.certificate import CERTIFICATE_FILE, CERTIFICATE_FOLDER, CertificateLimits
from components.split_files import split_files
from trainer_module.errors import TrainingError
from trainer_module.export.interface import INTERFACE_FILE
from trainer_module.scratch import ScratchFolder

logger = logging.getLogger(__name__)

BLESSED_PROPERTY = "blessed"
"""TFX's custom property of an InfraBlessing."""
LIMITS_KEY = "certificate"
"""The execution property of the limits, which plans show; named like the config's section."""
GOLDEN_ROWS_KEY = "golden_rows"
"""The execution property of the import path of the family's `golden_rows`."""
_EVAL_SPLIT, _TRAIN_SPLIT = "eval", "train"
_STATISTICS_FILE = "FeatureStats.pb"
_WORKER = "components.infra_validator.worker"
_ON_CPU = {"CUDA_VISIBLE_DEVICES": "-1"}
"""The environment that hides the GPUs: the run may use all of their memory, and all interfaces have
to use the same device."""

Artifacts = dict[str, list[Artifact]]


class CertifyingExecutor(base_executor.BaseExecutor):
    """An executor that blesses a model if the predictions of all its interfaces agree."""

    def Do(  # noqa: N802 - TFX's name
        self, input_dict: Artifacts, output_dict: Artifacts, exec_properties: dict[str, Any]
    ) -> None:
        """Certifies the model, and writes the blessing and the certificate into `blessing`.

        A model that the Evaluator has not blessed is not certified. A model without an interface
        file, such as the model of a user's own `run_fn`, is blessed without a certificate.

        Raises:
          TrainingError: the process exceeded its time or memory limit.
          WorkerFailedError: the process failed for another reason.
        """
        (blessing,) = output_dict[specs.BLESSING_KEY]
        if not model_utils.is_model_blessed(
            artifact_utils.get_single_instance(input_dict[specs.MODEL_BLESSING_KEY])
        ):
            _mark(blessing, is_blessed=False)
            return
        artifact = artifact_utils.get_single_instance(input_dict[specs.MODEL_KEY])
        model = path_utils.serving_model_path(
            artifact.uri, path_utils.is_old_model_artifact(artifact)
        )
        if not fileio.exists(posixpath.join(model, INTERFACE_FILE)):
            logger.warning(
                "%s is pushed without a certificate, because it has no %s", model, INTERFACE_FILE
            )
            _mark(blessing, is_blessed=True)
            return
        with ScratchFolder() as scratch:
            folder = os.path.join(scratch, CERTIFICATE_FOLDER)
            os.makedirs(folder)
            payload = _payload(input_dict, exec_properties, model, scratch)
            run_process(payload | {"folder": folder}, CertificateLimits(**payload["limits"]))
            io_utils.copy_dir(folder, posixpath.join(blessing.uri, CERTIFICATE_FOLDER))
        _mark(blessing, is_blessed=not read_certificate(blessing.uri)["failure"])


def _mark(blessing: Artifact, is_blessed: bool) -> None:
    """Records the blessing for the Pusher, as TFX's own InfraValidator does."""
    blessing.set_int_custom_property(BLESSED_PROPERTY, int(is_blessed))
    name = "INFRA_BLESSED" if is_blessed else "INFRA_NOT_BLESSED"
    write_text("", blessing.uri, name)


def read_certificate(uri: str) -> dict[str, Any]:
    """Returns the certificate in the folder of an InfraBlessing, or {} if there is no
    certificate.
    """
    text = read_text(uri, CERTIFICATE_FOLDER, CERTIFICATE_FILE)
    return {} if text is None else dict(json.loads(text))


def _payload(
    input_dict: Artifacts, exec_properties: dict[str, Any], model: str, scratch: str
) -> dict[str, Any]:
    """Returns the payload of the process. A remote model is copied into `scratch`."""
    if is_remote(model):
        io_utils.copy_dir(model, os.path.join(scratch, "model"))
        model = os.path.join(scratch, "model")
    properties = add_choices(input_dict, exec_properties)
    payload = {
        "model": model,
        "custom_config": json.loads(properties[specs.CUSTOM_CONFIG_KEY]),
        "limits": json.loads(properties[LIMITS_KEY]),
        "golden_rows": properties.get(GOLDEN_ROWS_KEY) or "",
    }
    if not input_dict.get(specs.EXAMPLES_KEY):
        return payload
    (statistics,) = artifact_utils.get_split_uris(input_dict[specs.STATISTICS_KEY], _TRAIN_SPLIT)
    return {
        **payload,
        "transform_graph": artifact_utils.get_single_uri(input_dict[specs.TRANSFORM_GRAPH_KEY]),
        "examples": sorted(split_files(input_dict[specs.EXAMPLES_KEY], _EVAL_SPLIT)),
        "statistics": posixpath.join(statistics, _STATISTICS_FILE),
    }


def run_process(payload: dict[str, Any], limits: CertificateLimits) -> None:
    """Runs the certification in a child process, and waits until it ends.

    Raises:
      TrainingError: the process exceeded its time or memory limit.
      WorkerFailedError: the process failed for another reason.
    """
    spec = WorkerSpec(
        Place("certificate", 0, "certificate"),
        _WORKER,
        payload,
        _ON_CPU,
        limits.timeout,
    )
    try:
        run_one(spec)
    except OverdueError:
        raise TrainingError(
            f"the model did not predict the golden rows within {limits.timeout:g} s, and a server"
            " would be as slow; increase certificate.timeout to allow more time."
        ) from None


class InfraValidatorSpec(component_spec.ComponentSpec):
    """The inputs, outputs and parameters of `InfraValidator`, whose constructor explains them."""

    PARAMETERS = {
        name: ExecutionParameter(type=str) for name in (CUSTOM_CONFIG_KEY, LIMITS_KEY)
    } | {GOLDEN_ROWS_KEY: ExecutionParameter(type=str, optional=True)}
    INPUTS = {
        MODEL_KEY: ChannelParameter(type=standard_artifacts.Model),
        MODEL_BLESSING_KEY: ChannelParameter(type=standard_artifacts.ModelBlessing),
    } | {
        key: ChannelParameter(type=artifact, optional=True)
        for key, artifact in (
            (TRANSFORM_GRAPH_KEY, standard_artifacts.TransformGraph),
            (EXAMPLES_KEY, standard_artifacts.Examples),
            (STATISTICS_KEY, standard_artifacts.ExampleStatistics),
            (SCHEMA_KEY, standard_artifacts.Schema),
        )
    }
    OUTPUTS = {BLESSING_KEY: ChannelParameter(type=standard_artifacts.InfraBlessing)}


class InfraValidator(base_component.BaseComponent):
    """Compares the predictions of all interfaces of a blessed model for golden rows.

    The output `blessing`, an InfraBlessing, is blessed if all predictions agree. The artifact
    contains the certificate and the golden rows, which the Pusher copies into the version.
    """

    SPEC_CLASS = InfraValidatorSpec
    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(CertifyingExecutor)

    def __init__(
        self,
        model: BaseChannel,
        model_blessing: BaseChannel,
        limits: CertificateLimits,
        custom_config: Mapping[str, Any],
        transform_graph: BaseChannel | None = None,
        examples: BaseChannel | None = None,
        statistics: BaseChannel | None = None,
        schema: BaseChannel | None = None,
        golden_rows: str | None = None,
    ) -> None:
        """Constructs the component from channels and settings.

        Args:
          model: a channel of Model.
          model_blessing: a channel of ModelBlessing; a model that is not blessed is not certified.
          limits: the tolerance, timeout and memory limit.
          custom_config: the settings of the training, as for the Trainer.
          transform_graph: a channel of the TransformGraph that the model was trained with.
          examples: a channel of raw Examples, or None. If there are no examples, the golden rows
            come from `golden_rows`, or from edge values of the columns.
          statistics: a channel of the ExampleStatistics of the examples.
          schema: a channel of Schema, with the chosen types of columns.
          golden_rows: the import path of the family's function that returns golden rows, or None;
            see `Family.golden_rows`.
        """
        spec = InfraValidatorSpec(
            model=model,
            model_blessing=model_blessing,
            transform_graph=transform_graph,
            examples=examples,
            statistics=statistics,
            schema=schema,
            certificate=json.dumps(asdict(limits)),
            custom_config=json.dumps(custom_config),
            golden_rows=golden_rows,
            blessing=Channel(type=standard_artifacts.InfraBlessing),
        )
        super().__init__(spec=spec)
