"""The Evaluator's executor: measures a model, compares it, and blesses it if it passes."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import tensorflow_model_analysis as tfma
from google.protobuf import json_format
from tfx.components.evaluator import executor as tfx_evaluator
from tfx.types import artifact_utils
from tfx.types import standard_component_specs as specs
from tfx.utils import json_utils, path_utils, proto_utils

from components.compat.tfx import make_beam_pipeline
from components.copying import read_text, write_text
from components.evaluator.batched.pipeline import evaluate_if_possible
from components.evaluator.batched.reading import FEATURE_PATTERN, UNREADABLE
from components.evaluator.constant_prediction import ConstantPrediction, predict_constant
from components.evaluator.dependence import Dependence, block_ends
from components.evaluator.explanation.explain import try_explain
from components.evaluator.gate import mark_blessing
from components.evaluator.intervals import (
    BASELINE_EXAMPLES_KEY,
    TRAINING_EXAMPLES_KEY,
    VerdictSettings,
)
from components.evaluator.loaded import keep_models
from components.evaluator.naive_prediction import predict_naively, write_naive_prediction
from components.evaluator.slices import metric_name
from components.evaluator.train_overlap import find_train_overlap
from components.example_gen.columns.encoded import flat_columns
from components.examples_reader import read_columns
from components.schema_reader import read_schema_artifact
from components.split_files import Artifacts, split_files
from trainer_module.errors import DataError
from trainer_module.runtime import report_notice
from trainer_module.settings import Task

VERDICT_KEY = "verdict"
"""The execution property of the `VerdictSettings`, as JSON."""
CONSTANT_KEY = "constant"
"""The execution property for the constant prediction, as JSON: the metric, the label's column, the
task, and whether a model that does not beat the constant prediction is rejected."""
NAIVE_KEY = "naive"
"""The execution property for the naive prediction, as JSON: the label's column and the columns of
past labels. The property is missing without past labels."""
WARM_START_KEY = "warm_start"
"""The execution property that is 1 if training began with the weights of the model in service, and
0 otherwise."""
EXPLAIN_KEY = "explain"
"""The execution property that is 1 if the model is explained after its evaluation."""
CONSTANT_FILE = "constant_prediction.json"
"""The file of the constant prediction, in the folder of TFMA's files."""


class Executor(tfx_evaluator.Executor):
    """Measures the same metrics as TFX, in batches, and adds conditions for a blessing.

    If the config sets no thresholds, a model has to be better than a constant prediction. There are
    two cases without a comparison with the model in service:

    - The model in service was trained on too many of the evaluated rows.
    - The model in service cannot read the rows: the type of a column has changed, or a column has
      missing values that the model's schema does not allow. Without this rule, every later
      evaluation would fail.
    """

    def Do(  # noqa: N802 - TFX's name
        self, input_dict: Artifacts, output_dict: Artifacts, exec_properties: dict[str, Any]
    ) -> None:
        """Evaluates the model and blesses it or not, as TFX's own `Do` does, and explains it.

        The inputs `baseline_examples` and `training_examples` are additional to TFX's own.

        Raises:
          DataError: the value of a slice is not UTF-8, or a row has no label or weight.
          Exception: an error of Beam or TFMA that the model in service has not caused.
        """
        with keep_models():
            settings = self._judge(input_dict, output_dict, exec_properties)
            if exec_properties.get(EXPLAIN_KEY):
                _explain(input_dict, output_dict, exec_properties, settings)

    def _judge(
        self, input_dict: Artifacts, output_dict: Artifacts, exec_properties: dict[str, Any]
    ) -> VerdictSettings:
        """Evaluates the model, blesses it or not, and returns the settings with all blocks of time.

        Raises:
          The errors of `Do`.
        """
        settings = VerdictSettings.from_json(exec_properties.get(VERDICT_KEY) or "")
        input_dict, settings = _drop_overlapping_model(input_dict, exec_properties, settings)
        constant_settings = json.loads(exec_properties.get(CONSTANT_KEY) or "{}")
        if settings.keeps_ties is None:
            settings = replace(settings, keeps_ties=_have_same_data(input_dict))
        # A constant prediction that does not decide is only useful next to a model in service: it
        # shows how far that model has degraded.
        if constant_settings and not (
            constant_settings["decides"] or input_dict.get(specs.BASELINE_MODEL_KEY)
        ):
            constant_settings = {}
        splits = evaluated_splits(exec_properties)
        rows = _read_rows(
            input_dict, splits, constant_settings.get("label", ""), settings.dependence
        )
        if settings.dependence.order_by:
            ends = block_ends(rows.keys)
            settings = replace(settings, dependence=replace(settings.dependence, ends=ends))
        if constant_settings:
            labels = rows.labels_for(Task(constant_settings["task"]))
            constant = predict_constant(
                constant_settings["metric"], labels, rows.units(settings.dependence)
            )
            if constant is not None and constant_settings["decides"]:
                bound = _add_bound(exec_properties[specs.EVAL_CONFIG_KEY], constant)
                exec_properties = {**exec_properties, specs.EVAL_CONFIG_KEY: bound}
            if constant is not None:
                folder = artifact_utils.get_single_uri(output_dict[specs.EVALUATION_KEY])
                write_text(json.dumps(asdict(constant)), folder, CONSTANT_FILE)
        if naive := json.loads(exec_properties.get(NAIVE_KEY) or "{}"):
            _write_naive_prediction(naive, input_dict, output_dict, splits)
        try:
            self._evaluate(input_dict, output_dict, exec_properties, settings)
        except Exception as error:  # Beam and TFMA raise errors of any type.
            if UNREADABLE not in str(error) or not input_dict.get(specs.BASELINE_MODEL_KEY):
                raise
            feature = FEATURE_PATTERN.search(str(error))
            report_notice(
                "the model in service cannot read this data, because columns have changed"
                f"{f' ({feature[0]})' if feature else ''}. Only evaluate.thresholds decide on the "
                "new model. Comparisons resume after its push"
            )
            input_dict, settings = _drop_model_in_service(
                input_dict, settings, "cannot read this data"
            )
            self._evaluate(input_dict, output_dict, exec_properties, settings)
        return settings

    def _evaluate(
        self,
        input_dict: Artifacts,
        output_dict: Artifacts,
        exec_properties: dict[str, Any],
        settings: VerdictSettings,
    ) -> None:
        """Measures in batches, or with TFX's own executor if batches are not possible."""
        config = _read_config(input_dict, exec_properties)
        evaluation = artifact_utils.get_single_uri(output_dict[specs.EVALUATION_KEY])
        examples, splits = input_dict[specs.EXAMPLES_KEY], evaluated_splits(exec_properties)
        is_done = evaluate_if_possible(
            functools.partial(make_beam_pipeline, self),
            [file for split in splits for file in split_files(examples, split)],
            config,
            read_schema_artifact(artifact_utils.get_single_uri(input_dict[specs.SCHEMA_KEY])),
            _models(config, input_dict),
            evaluation,
            settings,
        )
        if is_done:
            _bless(input_dict, output_dict, exec_properties, evaluation)
            return
        if certain := [*settings.lower, *settings.upper]:
            raise DataError(
                f"evaluate.thresholds.{certain[0]}: found a bound to be met for certain, but TFMA"
                " alone can measure this data, and gives no confidence intervals; expected other"
                " columns in evaluate.slices, or a bound without `confident`"
            )
        super().Do(input_dict, output_dict, exec_properties)


def _explain(
    input_dict: Artifacts,
    output_dict: Artifacts,
    exec_properties: dict[str, Any],
    settings: VerdictSettings,
) -> None:
    """Explains the new model, and stores the explanation beside TFMA's files."""
    artifact = artifact_utils.get_single_instance(input_dict[specs.MODEL_KEY])
    examples = input_dict[specs.EXAMPLES_KEY]
    try_explain(
        [f for split in evaluated_splits(exec_properties) for f in split_files(examples, split)],
        path_utils.serving_model_path(artifact.uri, path_utils.is_old_model_artifact(artifact)),
        read_schema_artifact(artifact_utils.get_single_uri(input_dict[specs.SCHEMA_KEY])),
        settings.dependence,
        artifact_utils.get_single_uri(output_dict[specs.EVALUATION_KEY]),
    )


def _write_naive_prediction(
    naive: dict[str, Any], input_dict: Artifacts, output_dict: Artifacts, splits: Sequence[str]
) -> None:
    """Measures past labels as predictions, and stores the best."""
    names = [naive["label"], *naive["columns"]]
    schema = read_schema_artifact(artifact_utils.get_single_uri(input_dict[specs.SCHEMA_KEY]))
    features = [feature for feature in schema.feature if feature.name in names]
    batches = [
        batch
        for split in splits
        for batch in read_columns(input_dict[specs.EXAMPLES_KEY], split, features)
    ]
    columns = flat_columns([batch.select([f.name for f in features]) for batch in batches])
    numbers = {n: c.to_numpy(zero_copy_only=False).astype(float) for n, c in columns.items()}
    if found := predict_naively(numbers.pop(naive["label"]), numbers):
        evaluation = artifact_utils.get_single_uri(output_dict[specs.EVALUATION_KEY])
        write_naive_prediction(found, evaluation)


def evaluated_splits(exec_properties: dict[str, Any]) -> list[str]:
    """Returns the names of the splits to evaluate, in order."""
    splits = json_utils.loads(exec_properties.get(specs.EXAMPLE_SPLITS_KEY, "null")) or ["eval"]
    return sorted(splits)


def _read_config(input_dict: Artifacts, exec_properties: dict[str, Any]) -> tfma.EvalConfig:
    """Returns TFMA's config, with the defaults that TFX adds."""
    config = tfma.EvalConfig()
    proto_utils.json_to_proto(exec_properties[specs.EVAL_CONFIG_KEY], config)
    has_baseline = bool(input_dict.get(specs.BASELINE_MODEL_KEY))
    config = tfma.utils.update_eval_config_with_defaults(
        config, has_baseline=has_baseline, rubber_stamp=True
    )
    tfma.utils.verify_eval_config(config)
    return config


def _models(config: tfma.EvalConfig, input_dict: Artifacts) -> dict[str, str]:
    """Returns the folder of each model by TFMA's name of the model.

    If there is only one model, its name is empty.
    """
    models, has_one = {}, len(config.model_specs) == 1
    for spec in config.model_specs:
        key = specs.BASELINE_MODEL_KEY if spec.is_baseline else specs.MODEL_KEY
        artifact = artifact_utils.get_single_instance(input_dict[key])
        is_old = path_utils.is_old_model_artifact(artifact)
        models["" if has_one else spec.name] = path_utils.serving_model_path(artifact.uri, is_old)
    return models


def _bless(
    input_dict: Artifacts, output_dict: Artifacts, exec_properties: dict[str, Any], evaluation: str
) -> None:
    """Writes the result of the validation into the blessing artifact, as TFX does."""
    blessing = artifact_utils.get_single_instance(output_dict[specs.BLESSING_KEY])
    if "current_component_id" in exec_properties:
        component = exec_properties["current_component_id"]
        blessing.set_string_custom_property("component_id", component)
    is_blessed = tfma.load_validation_result(evaluation).validation_ok
    mark_blessing(input_dict, blessing, is_blessed)


def read_constant_prediction(uri: str) -> ConstantPrediction | None:
    """Returns the constant prediction that an evaluation stored, or None."""
    text = read_text(uri, CONSTANT_FILE)
    return None if text is None else ConstantPrediction(**json.loads(text))


def _drop_overlapping_model(
    input_dict: Artifacts, exec_properties: dict[str, Any], settings: VerdictSettings
) -> tuple[Artifacts, VerdictSettings]:
    """Returns the inputs and settings, without a model in service trained on the eval rows.

    Raises:
      DataError: the model in service was trained on the eval rows, and the new model started from
        its weights.
    """
    if not input_dict.get(specs.BASELINE_MODEL_KEY):
        return input_dict, settings
    overlap = find_train_overlap(
        input_dict[specs.EXAMPLES_KEY],
        evaluated_splits(exec_properties)[0],
        input_dict.get(BASELINE_EXAMPLES_KEY) or [],
        input_dict.get(TRAINING_EXAMPLES_KEY) or [],
    )
    if not overlap.exceeds_limit:
        return input_dict, settings
    if exec_properties.get(WARM_START_KEY):
        raise DataError(
            "the new model started from the weights of the model in service, and the model in "
            f"service was trained on {overlap.share:.0%} of the eval split's rows, because the "
            "data was split differently then. Metrics of the new model on these rows are not "
            "meaningful. Train the model once from scratch: --set schedule.warm_start=false"
        )
    report_notice(
        f"the model in service was trained on {overlap.share:.0%} of the eval split's rows, "
        "because the data was split differently then. A comparison is not meaningful: only "
        "evaluate.thresholds and the baseline decide on the new model. Comparisons resume after "
        "its push"
    )
    reason = f"was trained on {overlap.share:.0%} of the eval split's rows"
    return _drop_model_in_service(input_dict, settings, reason)


def _drop_model_in_service(
    input_dict: Artifacts, settings: VerdictSettings, reason: str
) -> tuple[Artifacts, VerdictSettings]:
    """Returns the inputs and settings of an evaluation without the model in service.

    Args:
      reason: the reason as a predicate of the model in service, such as "cannot read this data".
    """
    remaining = {
        key: artifacts for key, artifacts in input_dict.items() if key != specs.BASELINE_MODEL_KEY
    }
    return remaining, replace(settings, not_compared=reason)


def _have_same_data(input_dict: Artifacts) -> bool:
    """Returns whether both models were trained on the same data, or False if that is unknown."""
    baseline_ids, training_ids = (
        {artifact.id for artifact in input_dict.get(key) or []}
        for key in (BASELINE_EXAMPLES_KEY, TRAINING_EXAMPLES_KEY)
    )
    return bool(training_ids) and baseline_ids == training_ids


def _add_bound(eval_config: str, constant: ConstantPrediction) -> str:
    """Returns TFMA's config with a bound: the metric's value that beats the constant prediction."""
    config = tfma.EvalConfig()
    proto_utils.json_to_proto(eval_config, config)
    for metric in (metric for spec in config.metrics_specs for metric in spec.metrics):
        if metric_name(metric) == constant.metric:
            if not metric.per_slice_thresholds:
                metric.per_slice_thresholds.add(slicing_specs=[tfma.SlicingSpec()])
            for per_slice in list(metric.per_slice_thresholds):
                # The constant prediction is for the whole split; slices have thresholds of their
                # own.
                slices = [spec for spec in per_slice.slicing_specs if spec != tfma.SlicingSpec()]
                if slices:
                    metric.per_slice_thresholds.add(
                        slicing_specs=slices, threshold=per_slice.threshold
                    )
                    del per_slice.slicing_specs[:]
                    per_slice.slicing_specs.add()
                # TFMA fails a NaN only if both bounds are set.
                threshold = per_slice.threshold.value_threshold
                max_float = sys.float_info.max
                threshold.lower_bound.value = (
                    -max_float if constant.lower_is_better else constant.needed
                )
                threshold.upper_bound.value = (
                    constant.needed if constant.lower_is_better else max_float
                )
    return json_format.MessageToJson(config)


@dataclass(frozen=True)
class _Rows:
    """The labels and keys of the evaluated examples, read before the models are loaded."""

    labels: pa.ChunkedArray
    """The labels, or an empty array if the evaluation needs no labels."""
    keys: np.ndarray
    """[rows], the sort key of each row in time, or the number of its group. Empty if all rows are
    independent."""

    def labels_for(self, task: Task) -> np.ndarray:
        """Returns the labels, [rows]: numbers unchanged, and classes as their sorted indices."""
        if not task.is_classification:
            return self.labels.to_numpy()
        return pc.index_in(self.labels, pc.unique(self.labels).sort()).to_numpy()

    def units(self, dependence: Dependence) -> np.ndarray | None:
        """Returns the number of each row's unit, [rows], or None if all rows are independent."""
        if not len(self.keys):
            return None
        keys = dependence.blocks(self.keys) if dependence.order_by else self.keys
        return np.unique(keys, return_inverse=True)[1]


def _read_rows(
    input_dict: Artifacts,
    splits: Sequence[str],
    label: str,
    dependence: Dependence,
) -> _Rows:
    """Reads the labels and keys of the splits in one pass.

    Args:
      label: the label's column, or an empty string if neither labels nor groups are needed.
    """
    column = dependence.column if label or dependence.order_by else ""
    schema = read_schema_artifact(artifact_utils.get_single_uri(input_dict[specs.SCHEMA_KEY]))
    features = [feature for feature in schema.feature if feature.name in {label, column} - {""}]
    labels, keys, rows_before = [], [], 0
    for split in splits if label or column else ():
        for batch in read_columns(input_dict[specs.EXAMPLES_KEY], split, features):
            if label:
                labels.append(batch.column(label).flatten())
            if dependence.order_by:
                keys.append(dependence.keys(batch))
            elif column:
                row_ids = np.arange(rows_before, rows_before + batch.num_rows, dtype=np.uint64)
                keys.append(dependence.units(batch, row_ids))
            rows_before += batch.num_rows
    return _Rows(
        pa.chunked_array(labels) if labels else pa.chunked_array([], pa.int64()),
        np.concatenate(keys) if keys else np.zeros(0),
    )
