"""TFX's executor, with the evaluation itself done by batches wherever its metrics allow that."""

from __future__ import annotations

import functools
import logging
from collections.abc import Mapping
from typing import Any

import tensorflow_model_analysis as tfma
from tensorflow_metadata.proto.v0 import schema_pb2
from tfx.components.evaluator import executor as stock
from tfx.types import Artifact, artifact_utils
from tfx.types import standard_component_specs as specs
from tfx.utils import json_utils, path_utils, proto_utils

from components.compat.tfx import make_beam_pipeline
from components.evaluator.batched.measuring import Computations
from components.evaluator.batched.pipeline import evaluate_if_possible
from components.evaluator.batched.reading import Question
from components.evaluator.batched.slices import slice_columns
from components.evaluator.gate import mark_blessing
from components.evaluator.verdict_settings import VerdictSettings
from components.schema_reader import read_schema_artifact
from components.split_files import split_files

logger = logging.getLogger(__name__)

Inputs = dict[str, list[Artifact]]

VERDICT_KEY = "verdict"
"""The execution property that says what the verdict makes of chance; JSON."""


class BatchExecutor(stock.Executor):
    """Gives what TFX's executor gives; what cannot be measured by batches is TFMA's to measure."""

    def Do(  # noqa: N802 - TFX's name
        self, input_dict: Inputs, output_dict: Inputs, exec_properties: dict[str, Any]
    ) -> None:
        """Takes `examples`, `model`, `baseline_model` and `schema`; gives `evaluation`, `blessing`.

        Raises:
          DataError: a slice cannot be named, or a row has no weight.
          RuntimeError: a model cannot read the examples.
        """
        config = read_config(input_dict, exec_properties)
        columns = slice_columns(config)
        if columns is None or Computations.of(config) is None:
            logger.info("Some of the metrics or slices are TFMA's to compute")
            super().Do(input_dict, output_dict, exec_properties)
            return
        evaluation = artifact_utils.get_single_uri(output_dict[specs.EVALUATION_KEY])
        settings = VerdictSettings.from_json(exec_properties.get(VERDICT_KEY) or "")
        question = _question(config, columns, input_dict, settings.dependence.column)
        files = _files(input_dict, exec_properties)
        if not evaluate_if_possible(
            functools.partial(make_beam_pipeline, self),
            files,
            config,
            question,
            columns,
            evaluation,
            settings,
        ):
            super().Do(input_dict, output_dict, exec_properties)
            return
        bless(input_dict, output_dict, exec_properties, evaluation)


def read_config(input_dict: Inputs, exec_properties: dict[str, Any]) -> tfma.EvalConfig:
    """TFMA's config, completed as TFX does."""
    config = tfma.EvalConfig()
    proto_utils.json_to_proto(exec_properties[specs.EVAL_CONFIG_KEY], config)
    has_baseline = bool(input_dict.get(specs.BASELINE_MODEL_KEY))
    config = tfma.utils.update_eval_config_with_defaults(
        config, has_baseline=has_baseline, rubber_stamp=True
    )
    tfma.utils.verify_eval_config(config)
    return config


def _question(
    config: tfma.EvalConfig, columns: list[tuple[str, ...]], input_dict: Inputs, dependence: str
) -> Question:
    schema = read_schema_artifact(artifact_utils.get_single_uri(input_dict[specs.SCHEMA_KEY]))
    is_alone, models = len(config.model_specs) == 1, {}
    for one in config.model_specs:
        key = specs.BASELINE_MODEL_KEY if one.is_baseline else specs.MODEL_KEY
        artifact = artifact_utils.get_single_instance(input_dict[key])
        path = path_utils.serving_model_path(
            artifact.uri, path_utils.is_old_model_artifact(artifact)
        )
        models["" if is_alone else one.name] = path
    return make_question(config, columns, schema, models, dependence=dependence)


def make_question(
    config: tfma.EvalConfig,
    columns: list[tuple[str, ...]],
    schema: schema_pb2.Schema,
    models: Mapping[str, str],
    variants: Mapping[str, str] | None = None,
    dependence: str = "",
) -> Question:
    """What models are asked, as a config says.

    Args:
      config: TFMA's.
      columns: of each kind of slices the columns that it is by.
      schema: of the raw columns.
      models: the folder of each, by the name that TFMA gives it; of a single one that is empty.
      variants: the folder of the variant that answers in a model's place, likewise.
      dependence: the column by which rows depend on one another, if there is one.
    """
    spec = config.model_specs[0]
    weight = spec.example_weight_key or None
    wanted = {name for names in columns for name in names} | {weight, dependence}
    features = (feature for feature in schema.feature if feature.name in wanted)
    (label_signature,) = spec.preprocessing_function_names
    return Question(
        models=models,
        signature=spec.signature_name,
        label_signature=label_signature,
        label_key=spec.label_key,
        weight=weight,
        columns=tuple(schema_pb2.Feature(name=f.name, type=f.type) for f in features),
        variants=variants or {},
    )


def evaluated_splits(exec_properties: dict[str, Any]) -> list[str]:
    """The names of the splits that are evaluated, in order."""
    splits = json_utils.loads(exec_properties.get(specs.EXAMPLE_SPLITS_KEY, "null")) or ["eval"]
    return sorted(splits)


def _files(input_dict: Inputs, exec_properties: dict[str, Any]) -> list[str]:
    examples, splits = input_dict[specs.EXAMPLES_KEY], evaluated_splits(exec_properties)
    return [file for split in splits for file in split_files(examples, split)]


def bless(
    input_dict: Inputs, output_dict: Inputs, exec_properties: dict[str, Any], evaluation: str
) -> None:
    """Says in the blessing's artifact what the validation came to, as TFX does."""
    blessing = artifact_utils.get_single_instance(output_dict[specs.BLESSING_KEY])
    if "current_component_id" in exec_properties:
        component = exec_properties["current_component_id"]
        blessing.set_string_custom_property("component_id", component)
    is_good = tfma.load_validation_result(evaluation).validation_ok
    mark_blessing(input_dict, blessing, is_good)
