"""The Optimizer component, which makes variants of a blessed model."""

from __future__ import annotations

import functools
import json
import math
import posixpath
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import tensorflow_model_analysis as tfma
from google.protobuf import json_format
from tfx.dsl.components.base import base_beam_component, base_beam_executor, executor_spec
from tfx.dsl.io import fileio
from tfx.types import BaseChannel, Channel, artifact_utils, component_spec, standard_artifacts
from tfx.types.component_spec import ChannelParameter, ExecutionParameter
from tfx.types.standard_component_specs import (
    CUSTOM_CONFIG_KEY,
    EVAL_CONFIG_KEY,
    EVALUATION_KEY,
    EXAMPLES_KEY,
    MODEL_KEY,
    SCHEMA_KEY,
    TRANSFORM_GRAPH_KEY,
    TRANSFORMED_EXAMPLES_KEY,
)
from tfx.utils import path_utils, proto_utils

from components.compat.tfx import make_beam_pipeline
from components.copying import copy_folder
from components.example_gen.paths import is_remote
from components.optimizer.artifacts import VARIANTS_KEY, ModelVariants, write_report
from components.optimizer.converting.conversion import convert_in_child
from components.optimizer.evaluating import (
    Evaluation,
    evaluate,
    measure_model,
    measure_variants,
    read_model_metrics,
    unmeasured_reason,
)
from components.optimizer.gating import (
    OptimizerPlan,
    VariantMetrics,
    decide,
    unmet_requirements,
)
from components.optimizer.making import make_variants, read_sample, reuse_variants
from components.optimizer.report import OptimizerReport, VariantReport
from components.schema_reader import read_schema_artifact
from components.split_files import Artifacts
from components.trainer.backups import backup_directory
from components.trainer.options import TrainerOptions
from trainer_module.export.interface import read_interface
from trainer_module.export.variants.manifest import Variant, write_variant
from trainer_module.scratch import ScratchFolder, lasting_folder

SPLIT_KEY = "split"
"""The execution property of the split on which variants are evaluated."""
TRAIN_SPLIT_KEY = "train_split"
"""The execution property of the split from which the sample is read."""


class Executor(base_beam_executor.BaseBeamExecutor):
    """Writes the output `variants`: a folder for each converted variant, and the report.

    Child processes convert the variants. After a kill, the next run reuses the complete variants.
    """

    def Do(  # noqa: N802 - TFX's name
        self, input_dict: Artifacts, output_dict: Artifacts, exec_properties: dict[str, Any]
    ) -> None:
        """Converts, measures and evaluates the variants of a blessed model.

        `OptimizerSpec` lists the inputs and outputs.

        Raises:
          TrainingError: the train split has no examples, or the model was not exported by this
            project's export.
        """
        plan = OptimizerPlan.from_custom_config(exec_properties[CUSTOM_CONFIG_KEY])
        output = artifact_utils.get_single_uri(output_dict[VARIANTS_KEY])
        fileio.makedirs(output)
        if reason := _skip_reason(input_dict):
            write_report(output, OptimizerReport(metric=plan.metric.name, skipped=reason))
            return
        folder = _variants_folder(input_dict, exec_properties, output)
        folder.mkdir(parents=True, exist_ok=True)
        reuse_variants(plan.names, folder, output, folder.name)
        with _local_model(input_dict) as saved_model:
            sample = read_sample(
                input_dict[TRANSFORMED_EXAMPLES_KEY],
                exec_properties[TRAIN_SPLIT_KEY],
                _uri(input_dict, TRANSFORM_GRAPH_KEY),
                read_interface(saved_model),
            )
            made, failed = make_variants(
                plan.names,
                folder,
                lambda name, target: convert_in_child(name, saved_model, sample, target),
            )
            measured = measure_variants(made, folder, sample)
            model_figures = measure_model(saved_model, sample)
            evaluation = self._evaluation(input_dict, exec_properties, str(saved_model))
            evaluated, not_evaluated = evaluate(evaluation, {name: folder / name for name in made})
        drafts = [
            _describe(
                name, measured.get(name), evaluated.get(name), (failed | not_evaluated).get(name)
            )
            for name in plan.names
        ]
        model_metrics = read_model_metrics(_uri(input_dict, EVALUATION_KEY))
        reports = [decide(plan, draft, model_metrics, model_figures) for draft in drafts]
        for name, variant in measured.items():
            if name in evaluated:
                # Metrics that are not finite are left out, because JSON has no such numbers.
                finite = {
                    metric: value
                    for metric, value in evaluated[name].metrics.items()
                    if math.isfinite(value)
                }
                write_variant(replace(variant, metrics=finite), folder / name)
        copy_folder(str(folder), output)
        write_report(
            output,
            OptimizerReport(
                metric=plan.metric.name,
                variants=reports,
                unmet=unmet_requirements(plan, reports),
                made_from=folder.name,
                weight_bytes=model_figures.bytes,
                measured=model_figures.measured,
            ),
        )
        shutil.rmtree(folder)

    def _evaluation(
        self, input_dict: Artifacts, exec_properties: dict[str, Any], saved_model: str
    ) -> Evaluation:
        eval_config = tfma.EvalConfig()
        proto_utils.json_to_proto(exec_properties[EVAL_CONFIG_KEY], eval_config)
        return Evaluation(
            saved_model,
            input_dict[EXAMPLES_KEY],
            exec_properties[SPLIT_KEY],
            read_schema_artifact(_uri(input_dict, SCHEMA_KEY)),
            eval_config,
            functools.partial(make_beam_pipeline, self),
        )


def _uri(input_dict: Artifacts, key: str) -> str:
    return str(artifact_utils.get_single_uri(input_dict[key]))


def _skip_reason(input_dict: Artifacts) -> str:
    """Returns the reason why no variants are made, or an empty string."""
    validation = tfma.load_validation_result(_uri(input_dict, EVALUATION_KEY))
    return "" if validation.validation_ok else "the model is not blessed"


def _variants_folder(input_dict: Artifacts, exec_properties: dict[str, Any], output: str) -> Path:
    """Returns a folder that is the same for every execution with the same model and sample.

    The folder does not depend on the conditions for accepting variants. It is not in the folder of
    an execution, because TFX deletes the output of a failed execution. If the pipeline root is
    remote, it is a temporary folder of this machine.
    """
    unrelated = (CUSTOM_CONFIG_KEY, EVAL_CONFIG_KEY, SPLIT_KEY)
    properties = {key: value for key, value in exec_properties.items() if key not in unrelated}
    inputs = {key: input_dict[key] for key in (MODEL_KEY, TRANSFORMED_EXAMPLES_KEY)}
    scope = TrainerOptions.from_environment().backup_scope
    folder = backup_directory(inputs, properties, output, scope)
    if is_remote(folder):
        return Path(lasting_folder(), f"scopeline-{posixpath.basename(folder)}")
    return Path(folder)


@contextmanager
def _local_model(input_dict: Artifacts) -> Iterator[Path]:
    """Yields the folder of the exported model on this machine."""
    model = artifact_utils.get_single_instance(input_dict[MODEL_KEY])
    path = path_utils.serving_model_path(model.uri, path_utils.is_old_model_artifact(model))
    if not is_remote(path):
        yield Path(path)
        return
    with ScratchFolder() as folder:
        copy_folder(path, folder)
        yield Path(folder)


def _describe(
    name: str, variant: Variant | None, evaluated: VariantMetrics | None, failure: str | None
) -> VariantReport:
    """Returns the report of a variant without the decision: `accepted` is False.

    Args:
      variant: the measured variant, or None if the conversion has failed.
      evaluated: the metrics of the variant, or None if the evaluation has failed.
    """
    if variant is None or evaluated is None or failure:
        reason = failure or "the conversion failed"
        return VariantReport(name=name, accepted=False, reasons=[reason])
    return VariantReport(
        name=name,
        accepted=False,
        remarks=[*variant.notes],
        unmeasured=unmeasured_reason(variant),
        bytes=variant.bytes,
        gzipped_bytes=variant.gzipped_bytes,
        metrics=dict(evaluated.metrics),
        slices={name: dict(metrics) for name, metrics in evaluated.slices.items()},
        measured=dict(variant.measured),
    )


class OptimizerSpec(component_spec.ComponentSpec):
    """The inputs, outputs and parameters of `Optimizer`, whose constructor explains them."""

    PARAMETERS = {
        EVAL_CONFIG_KEY: ExecutionParameter(type=str),
        CUSTOM_CONFIG_KEY: ExecutionParameter(type=str),
        SPLIT_KEY: ExecutionParameter(type=str),
        TRAIN_SPLIT_KEY: ExecutionParameter(type=str),
    }
    INPUTS = {
        MODEL_KEY: ChannelParameter(type=standard_artifacts.Model),
        EVALUATION_KEY: ChannelParameter(type=standard_artifacts.ModelEvaluation),
        EXAMPLES_KEY: ChannelParameter(type=standard_artifacts.Examples),
        TRANSFORMED_EXAMPLES_KEY: ChannelParameter(type=standard_artifacts.Examples),
        TRANSFORM_GRAPH_KEY: ChannelParameter(type=standard_artifacts.TransformGraph),
        SCHEMA_KEY: ChannelParameter(type=standard_artifacts.Schema),
    }
    OUTPUTS = {VARIANTS_KEY: ChannelParameter(type=ModelVariants)}


class Optimizer(base_beam_component.BaseBeamComponent):
    """Converts, measures and evaluates variants of a model, and decides whether to accept them."""

    SPEC_CLASS = OptimizerSpec
    EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(Executor)

    def __init__(
        self,
        model: BaseChannel,
        evaluation: BaseChannel,
        examples: BaseChannel,
        transformed_examples: BaseChannel,
        transform_graph: BaseChannel,
        schema: BaseChannel,
        eval_config: tfma.EvalConfig,
        split: str,
        train_split: str,
        plan: OptimizerPlan,
    ) -> None:
        """Constructs the TFX component.

        Args:
          evaluation: a channel of ModelEvaluation, with the validation and the metrics of the
            model. The blessing is not an input, because it is changed while the model waits for a
            push: a cached Optimizer would run again.
          examples: a channel of raw Examples, on which variants are evaluated.
          transformed_examples: a channel of transformed Examples, from which a sample is taken.
          train_split: the split from which the sample is read.
        """
        spec = OptimizerSpec(
            model=model,
            evaluation=evaluation,
            examples=examples,
            transformed_examples=transformed_examples,
            transform_graph=transform_graph,
            schema=schema,
            eval_config=json_format.MessageToJson(eval_config, sort_keys=True),
            custom_config=json.dumps(plan.to_custom_config(), sort_keys=True),
            split=split,
            train_split=train_split,
            variants=Channel(type=ModelVariants),
        )
        super().__init__(spec=spec)
