"""Makes variants in child processes, evaluates and measures them, and accepts what is good enough.

Killed in between, the next run goes on with the variants that are done.
"""

from __future__ import annotations

import functools
import math
import posixpath
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import tensorflow_model_analysis as tfma
from tfx import types
from tfx.dsl.components.base import base_beam_executor
from tfx.dsl.io import fileio
from tfx.types import artifact_utils
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
from components.optimizer.artifacts import VARIANTS_KEY
from components.optimizer.converting.parent import convert_in_child
from components.optimizer.evaluating import Evaluation, evaluate, read_evaluated
from components.optimizer.figures import (
    latency_of,
    measure_model,
    measure_variants,
    why_unmeasured,
)
from components.optimizer.gating import Evaluated, Figures, MadeVariant, decide, unmet
from components.optimizer.making import make_variants, take_over
from components.optimizer.plan import OptimizerPlan
from components.optimizer.report import OptimizerReport
from components.optimizer.report_files import write_report
from components.optimizer.sampling import read_sample
from components.schema_reader import read_schema_artifact
from components.trainer.backups import backup_directory
from components.trainer.options import TrainerOptions
from trainer_module.export.interface import read_interface
from trainer_module.export.variants.manifest import Variant, write_variant
from trainer_module.export.variants.running import Arrays
from trainer_module.scratch import ScratchFolder, lasting_folder

SPLIT_KEY = "split"
TRAIN_SPLIT_KEY = "train_split"

Inputs = dict[str, list[types.Artifact]]


class Executor(base_beam_executor.BaseBeamExecutor):
    """Gives `variants`: a folder for each that could be made, and the report."""

    def Do(  # noqa: N802 - TFX's name
        self, input_dict: Inputs, output_dict: Inputs, exec_properties: dict[str, Any]
    ) -> None:
        """Takes and gives what `OptimizerSpec` says; does nothing for a model that is refused.

        Raises:
          TrainingError: there are no examples to convert by, or the model is not of our export.
        """
        plan = OptimizerPlan.from_custom_config(exec_properties[CUSTOM_CONFIG_KEY])
        output = artifact_utils.get_single_uri(output_dict[VARIANTS_KEY])
        fileio.makedirs(output)
        if why := _why_skipped(input_dict):
            write_report(output, OptimizerReport(metric=plan.metric.name, skipped=why))
            return
        kept = _kept_folder(input_dict, exec_properties, output)
        kept.mkdir(parents=True, exist_ok=True)
        take_over(plan.names, kept, output, kept.name)
        with _local_model(input_dict) as saved_model:
            sample = read_sample(
                input_dict[TRANSFORMED_EXAMPLES_KEY],
                exec_properties[TRAIN_SPLIT_KEY],
                _uri(input_dict, TRANSFORM_GRAPH_KEY),
                read_interface(saved_model),
            )
            made, failed = make_variants(
                plan.names, kept, functools.partial(_convert, saved_model, sample)
            )
            measured = measure_variants(made, kept, sample)
            model = measure_model(saved_model, sample)
            evaluation = self._evaluation(input_dict, exec_properties, str(saved_model))
            evaluated, refused = evaluate(evaluation, {name: kept / name for name in made})
        found = [
            _describe(name, measured.get(name), evaluated.get(name), (failed | refused).get(name))
            for name in plan.names
        ]
        on_eval = read_evaluated(_uri(input_dict, EVALUATION_KEY))
        reports = [decide(plan, one, on_eval, model.figures) for one in found]
        for name, variant in measured.items():
            if name in evaluated:
                # JSON has no NaN.
                known = {k: v for k, v in evaluated[name].metrics.items() if math.isfinite(v)}
                write_variant(replace(variant, metrics=known), kept / name)
        copy_folder(str(kept), output)
        write_report(
            output,
            OptimizerReport(
                metric=plan.metric.name,
                variants=reports,
                unmet=unmet(plan, reports),
                made_from=kept.name,
                weight_bytes=model.figures.bytes,
                measured=model.measured,
            ),
        )
        shutil.rmtree(kept)

    def _evaluation(
        self, input_dict: Inputs, exec_properties: dict[str, Any], saved_model: str
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


def _uri(input_dict: Inputs, key: str) -> str:
    return str(artifact_utils.get_single_uri(input_dict[key]))


def _why_skipped(input_dict: Inputs) -> str:
    """Why no variants are made; empty if they are."""
    validation = tfma.load_validation_result(_uri(input_dict, EVALUATION_KEY))
    return "" if validation.validation_ok else "the model is not blessed"


def _kept_folder(input_dict: Inputs, exec_properties: dict[str, Any], output: str) -> Path:
    """The same for every execution that makes variants of the same model, however it decides.

    Beside the executions: TFX deletes what a failed execution has written. Where that is no folder
    of a file system, a temporary one, which lasts as long as this machine does.
    """
    by_others = (CUSTOM_CONFIG_KEY, EVAL_CONFIG_KEY, SPLIT_KEY)
    properties = {k: v for k, v in exec_properties.items() if k not in by_others}
    made_of = {key: input_dict[key] for key in (MODEL_KEY, TRANSFORMED_EXAMPLES_KEY)}
    scope = TrainerOptions.from_environment().backup_scope
    folder = backup_directory(made_of, properties, output, scope)
    if is_remote(folder):
        return Path(lasting_folder(), f"scopeline-{posixpath.basename(folder)}")
    return Path(folder)


@contextmanager
def _local_model(input_dict: Inputs) -> Iterator[Path]:
    """The exported model, in a folder of this machine."""
    model = artifact_utils.get_single_instance(input_dict[MODEL_KEY])
    path = path_utils.serving_model_path(model.uri, path_utils.is_old_model_artifact(model))
    if not is_remote(path):
        yield Path(path)
        return
    with ScratchFolder() as folder:
        copy_folder(path, folder)
        yield Path(folder)


def _convert(saved_model: Path, sample: Arrays, name: str, folder: Path) -> Variant:
    return convert_in_child(name, saved_model, sample, folder)


def _describe(
    name: str, variant: Variant | None, evaluated: Evaluated | None, failure: str | None
) -> MadeVariant:
    if variant is None or failure:
        return MadeVariant(name, failure or "it could not be made")
    return MadeVariant(
        name=name,
        evaluated=evaluated,
        figures=Figures(variant.bytes, latency_of(variant.measured)),
        gzipped_bytes=variant.gzipped_bytes,
        measured=variant.measured,
        remarks=variant.notes,
        unmeasured=why_unmeasured(variant),
    )
