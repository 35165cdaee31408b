"""The Evaluator's executor: measures a model, compares it, and blesses it if it is good enough."""

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
from tfx.components.evaluator import executor as stock
from tfx.types import Artifact, artifact_utils
from tfx.types import standard_component_specs as specs
from tfx.utils import json_utils, path_utils, proto_utils

from components.compat.tfx import make_beam_pipeline
from components.copying import read_text, write_text
from components.evaluator.batched.pipeline import evaluate_if_possible
from components.evaluator.batched.reading import FEATURE_PATTERN, UNREADABLE
from components.evaluator.constant_prediction import ConstantPrediction, predict_constant
from components.evaluator.dependence import Dependence, block_ends
from components.evaluator.gate import mark_blessing
from components.evaluator.intervals import (
    BASELINE_EXAMPLES_KEY,
    LEARNT_EXAMPLES_KEY,
    VerdictSettings,
)
from components.evaluator.slices import metric_name
from components.evaluator.train_overlap import find_train_overlap
from components.examples_reader import read_columns
from components.schema_reader import read_schema_artifact
from components.split_files import split_files
from trainer_module.errors import DataError
from trainer_module.runtime import report_notice
from trainer_module.settings import Task

Inputs = dict[str, list[Artifact]]

VERDICT_KEY = "verdict"
"""The execution property of the `VerdictSettings`, as JSON."""
CONSTANT_KEY = "constant"
"""The execution property, as JSON, that names the metric, its label and task, and whether the
constant prediction decides."""
WARM_START_KEY = "warm_start"
"""The execution property for whether training began with the weights of the model in service; 0 or
1."""
CONSTANT_FILE = "constant_prediction.json"
"""The file of the constant prediction, beside TFMA's files."""


class Executor(stock.Executor):
    """Measures as TFX does, by batches, and sets further conditions for a blessing.

    A model has to be better than a constant prediction if the config sets no threshold. Two kinds
    of models in service are left out of the comparison: one that was trained on rows of the
    evaluation, and one that cannot read them, because a column has changed its type since or has
    missing values that its schema does not allow. With the latter every evaluation would fail from
    then on.
    """

    def Do(  # noqa: N802 - TFX's name
        self, input_dict: Inputs, output_dict: Inputs, exec_properties: dict[str, Any]
    ) -> None:
        """Evaluates the model and writes or withholds the blessing, as the stock `Do` does.

        Besides the stock inputs it takes `baseline_examples` and `learnt_examples`.

        Raises:
          DataError: a slice cannot be named, or a row has no label or weight.
          Exception: an error that also occurs without the model in service.
        """
        settings = VerdictSettings.from_json(exec_properties.get(VERDICT_KEY) or "")
        input_dict, settings = _drop_overlapping_baseline(input_dict, exec_properties, settings)
        named = json.loads(exec_properties.get(CONSTANT_KEY) or "{}")
        if settings.keeps_ties is None:
            settings = replace(settings, keeps_ties=_have_same_data(input_dict))
        # A constant that does not decide only shows how far a model in service has degraded.
        if named and not (named["decides"] or input_dict.get(specs.BASELINE_MODEL_KEY)):
            named = {}
        splits = evaluated_splits(exec_properties)
        rows = _read_rows(input_dict, splits, named.get("label", ""), settings.dependence)
        if settings.dependence.order_by:
            ends = block_ends(rows.keys)
            settings = replace(settings, dependence=replace(settings.dependence, ends=ends))
        if named:
            labels = rows.labels_for(Task(named["task"]))
            constant = predict_constant(named["metric"], labels, rows.units(settings.dependence))
            if constant is not None and named["decides"]:
                bound = _add_bound(exec_properties[specs.EVAL_CONFIG_KEY], constant)
                exec_properties = {**exec_properties, specs.EVAL_CONFIG_KEY: bound}
            if constant is not None:
                folder = artifact_utils.get_single_uri(output_dict[specs.EVALUATION_KEY])
                write_text(json.dumps(asdict(constant)), folder, CONSTANT_FILE)
        try:
            self._evaluate(input_dict, output_dict, exec_properties, settings)
        except Exception as error:  # Beam and TFMA raise errors of any type.
            if UNREADABLE not in str(error) or not input_dict.get(specs.BASELINE_MODEL_KEY):
                raise
            found = FEATURE_PATTERN.search(str(error))
            report_notice(
                "the model in service cannot read this data, because columns have changed"
                f"{f' ({found[0]})' if found else ''}: only evaluate.thresholds decide on the new "
                "model. After its push, models are compared again"
            )
            alone = _drop_baseline(input_dict, settings, "cannot read this data")
            self._evaluate(alone[0], output_dict, exec_properties, alone[1])

    def _evaluate(
        self,
        input_dict: Inputs,
        output_dict: Inputs,
        exec_properties: dict[str, Any],
        settings: VerdictSettings,
    ) -> None:
        """Measures by batches, or with the stock executor if batches are not possible."""
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
        else:
            super().Do(input_dict, output_dict, exec_properties)


def evaluated_splits(exec_properties: dict[str, Any]) -> list[str]:
    """Returns the names of the splits to evaluate, in order."""
    splits = json_utils.loads(exec_properties.get(specs.EXAMPLE_SPLITS_KEY, "null")) or ["eval"]
    return sorted(splits)


def _read_config(input_dict: Inputs, exec_properties: dict[str, Any]) -> tfma.EvalConfig:
    """Returns TFMA's config, completed as TFX does."""
    config = tfma.EvalConfig()
    proto_utils.json_to_proto(exec_properties[specs.EVAL_CONFIG_KEY], config)
    has_baseline = bool(input_dict.get(specs.BASELINE_MODEL_KEY))
    config = tfma.utils.update_eval_config_with_defaults(
        config, has_baseline=has_baseline, rubber_stamp=True
    )
    tfma.utils.verify_eval_config(config)
    return config


def _models(config: tfma.EvalConfig, input_dict: Inputs) -> dict[str, str]:
    """Returns the folder of each model, by TFMA's name of it, which is empty for a single model."""
    is_alone, models = len(config.model_specs) == 1, {}
    for one in config.model_specs:
        key = specs.BASELINE_MODEL_KEY if one.is_baseline else specs.MODEL_KEY
        artifact = artifact_utils.get_single_instance(input_dict[key])
        is_old = path_utils.is_old_model_artifact(artifact)
        models["" if is_alone else one.name] = path_utils.serving_model_path(artifact.uri, is_old)
    return models


def _bless(
    input_dict: Inputs, output_dict: Inputs, exec_properties: dict[str, Any], evaluation: str
) -> None:
    """Writes the result of the validation into the blessing's artifact, as TFX does."""
    blessing = artifact_utils.get_single_instance(output_dict[specs.BLESSING_KEY])
    if "current_component_id" in exec_properties:
        component = exec_properties["current_component_id"]
        blessing.set_string_custom_property("component_id", component)
    is_good = tfma.load_validation_result(evaluation).validation_ok
    mark_blessing(input_dict, blessing, is_good)


def read_constant_prediction(uri: str) -> ConstantPrediction | None:
    """Returns the constant prediction on the data of an evaluation; None if there is none.

    Args:
      uri: the folder of the artifact.
    """
    text = read_text(uri, CONSTANT_FILE)
    return None if text is None else ConstantPrediction(**json.loads(text))


def _drop_overlapping_baseline(
    input_dict: Inputs, exec_properties: dict[str, Any], settings: VerdictSettings
) -> tuple[Inputs, VerdictSettings]:
    """Returns the inputs and settings, without a model in service that was trained on the evaluated
    rows.
    """
    if not input_dict.get(specs.BASELINE_MODEL_KEY):
        return input_dict, settings
    overlap = find_train_overlap(
        input_dict[specs.EXAMPLES_KEY],
        evaluated_splits(exec_properties)[0],
        input_dict.get(BASELINE_EXAMPLES_KEY) or [],
        input_dict.get(LEARNT_EXAMPLES_KEY) or [],
    )
    if not overlap.exceeds_limit:
        return input_dict, settings
    if exec_properties.get(WARM_START_KEY):
        raise DataError(
            "the new model was trained from the weights of the model in service, which was trained "
            f"on {overlap.share:.0%} of the eval split's rows by another split of the data; its "
            "metrics on these rows are not meaningful. Train the model once from scratch: "
            "--set schedule.warm_start=false"
        )
    report_notice(
        f"the model in service was trained on {overlap.share:.0%} of the eval split's rows by "
        "another split of the data, and a comparison is not meaningful. Only evaluate.thresholds "
        "and the baseline decide on the new model. After its push, models are compared again"
    )
    why = f"was trained on {overlap.share:.0%} of the eval split's rows"
    return _drop_baseline(input_dict, settings, why)


def _drop_baseline(
    input_dict: Inputs, settings: VerdictSettings, reason: str
) -> tuple[Inputs, VerdictSettings]:
    """Returns the inputs and settings of an evaluation without the model in service.

    Args:
      input_dict: inputs that include the model in service.
      settings: the verdict's settings.
      reason: the reason, as a clause after `which`.
    """
    alone = {key: a for key, a in input_dict.items() if key != specs.BASELINE_MODEL_KEY}
    return alone, replace(settings, not_compared=reason)


def _have_same_data(input_dict: Inputs) -> bool:
    """Returns whether both models were trained on the same data; False if that is not known."""
    theirs, ours = (
        {artifact.id for artifact in input_dict.get(key) or []}
        for key in (BASELINE_EXAMPLES_KEY, LEARNT_EXAMPLES_KEY)
    )
    return bool(ours) and theirs == ours


def _add_bound(eval_config: str, constant: ConstantPrediction) -> str:
    """Returns the evaluation's config with the value that the model has to reach as the metric's
    bound.
    """
    config = tfma.EvalConfig()
    proto_utils.json_to_proto(eval_config, config)
    for metric in (metric for spec in config.metrics_specs for metric in spec.metrics):
        if metric_name(metric) == constant.metric:
            if not metric.per_slice_thresholds:
                metric.per_slice_thresholds.add(slicing_specs=[tfma.SlicingSpec()])
            for per_slice in list(metric.per_slice_thresholds):
                # The constant is that of the whole split and does not apply to slices.
                slices = [spec for spec in per_slice.slicing_specs if spec != tfma.SlicingSpec()]
                if slices:
                    metric.per_slice_thresholds.add(
                        slicing_specs=slices, threshold=per_slice.threshold
                    )
                    del per_slice.slicing_specs[:]
                    per_slice.slicing_specs.add()
                # With both bounds a NaN fails; it would pass a missing bound.
                bounds = per_slice.threshold.value_threshold
                largest = sys.float_info.max
                bounds.lower_bound.value = -largest if constant.lower_is_better else constant.needed
                bounds.upper_bound.value = constant.needed if constant.lower_is_better else largest
    return json_format.MessageToJson(config)


@dataclass(frozen=True)
class _Rows:
    """The labels and keys of the evaluated examples, read before the models are loaded."""

    labels: pa.ChunkedArray
    """The labels; empty if they are not needed."""
    keys: np.ndarray
    """[rows], the rows' places in time, or the units of a column of groups; empty if they are not
    needed."""

    def labels_for(self, task: Task) -> np.ndarray:
        """Returns the labels, [rows]: numbers as they are, classes as indices in sorted order."""
        if not task.is_classification:
            return self.labels.to_numpy()
        return pc.index_in(self.labels, pc.unique(self.labels).sort()).to_numpy()

    def units(self, dependence: Dependence) -> np.ndarray | None:
        """Returns the number of each row's unit, [rows]; None if all rows are independent."""
        if not len(self.keys):
            return None
        keys = dependence.blocks(self.keys) if dependence.order_by else self.keys
        return np.unique(keys, return_inverse=True)[1]


def _read_rows(
    input_dict: Inputs,
    splits: Sequence[str],
    label: str,
    dependence: Dependence,
) -> _Rows:
    """Reads the labels and keys of the splits in one pass.

    Args:
      input_dict: inputs with `examples` and `schema`.
      splits: the splits to evaluate.
      label: the label's column; empty if neither labels nor units of groups are needed.
      dependence: which rows depend on one another.
    """
    column = dependence.column if label or dependence.order_by else ""
    schema = read_schema_artifact(artifact_utils.get_single_uri(input_dict[specs.SCHEMA_KEY]))
    features = [one for one in schema.feature if one.name in {label, column} - {""}]
    labels, keys, first = [], [], 0
    for split in splits if label or column else ():
        for batch in read_columns(input_dict[specs.EXAMPLES_KEY], split, features):
            if label:
                labels.append(batch.column(label).flatten())
            if dependence.order_by:
                keys.append(dependence.keys(batch))
            elif column:
                places = np.arange(first, first + batch.num_rows, dtype=np.uint64)
                keys.append(dependence.units(batch, places))
            first += batch.num_rows
    return _Rows(
        pa.chunked_array(labels) if labels else pa.chunked_array([], pa.int64()),
        np.concatenate(keys) if keys else np.zeros(0),
    )
