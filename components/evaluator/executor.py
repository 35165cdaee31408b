"""Evaluator's executor: where the config sets no threshold, the constant prediction is one."""

from __future__ import annotations

import json
import posixpath
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import tensorflow_model_analysis as tfma
from google.protobuf import json_format
from tfx.dsl.io import fileio
from tfx.types import Artifact, artifact_utils
from tfx.types import standard_component_specs as specs
from tfx.utils import proto_utils

from components.evaluator.baseline import BaselineTolerantExecutor, without_baseline
from components.evaluator.batched.executor import VERDICT_KEY, evaluated_splits
from components.evaluator.constant_prediction import ConstantPrediction, predict_constant
from components.evaluator.dependence import Dependence, block_ends
from components.evaluator.eval_config import metric_name
from components.evaluator.inputs import BASELINE_EXAMPLES_KEY, LEARNT_EXAMPLES_KEY
from components.evaluator.seen import find_seen
from components.evaluator.verdict_settings import VerdictSettings
from components.examples_reader import read_columns
from components.schema_reader import read_schema_artifact
from trainer_module.errors import DataError
from trainer_module.runtime import report_notice
from trainer_module.settings import Task

CONSTANT_KEY = "constant"
"""The execution property that names the metric, its label and task, and says whether it decides;
JSON."""
WARM_START_KEY = "warm_start"
"""The execution property that says whether training began with the model in service; 0 or 1."""
CONSTANT_FILE = "constant_prediction.json"
"""Beside TFMA's files, where the constant prediction was looked at."""


class Executor(BaselineTolerantExecutor):
    """Measures as TFX does, and blesses no model that a constant prediction is as good as."""

    def Do(  # noqa: N802 - TFX's name
        self,
        input_dict: dict[str, list[Artifact]],
        output_dict: dict[str, list[Artifact]],
        exec_properties: dict[str, Any],
    ) -> None:
        """Evaluates, and gives or withholds the blessing, as stock's `Do` does.

        Besides stock's inputs it takes `baseline_examples` and `learnt_examples`: a model in
        service that has learnt from the rows of the evaluation is not compared with.
        """
        input_dict, exec_properties = _without_seen(input_dict, exec_properties)
        named = json.loads(exec_properties.get(CONSTANT_KEY) or "{}")
        settings = VerdictSettings.from_json(exec_properties.get(VERDICT_KEY) or "")
        if settings.keeps_ties is None:
            settings = replace(settings, keeps_ties=_are_of_the_same_data(input_dict))
        # Else it only says how far a model in service has fallen.
        if named and not (named["decides"] or input_dict.get(specs.BASELINE_MODEL_KEY)):
            named = {}
        splits = evaluated_splits(exec_properties)
        rows = _read_rows(input_dict, splits, named.get("label", ""), settings.dependence)
        if settings.dependence.order_by:
            ends = block_ends(rows.keys)
            settings = replace(settings, dependence=replace(settings.dependence, ends=ends))
        exec_properties = {**exec_properties, VERDICT_KEY: settings.to_json()}
        if named:
            labels = rows.labels_for(Task(named["task"]))
            constant = predict_constant(named["metric"], labels, rows.units(settings.dependence))
            if constant is not None and named["decides"]:
                bound = _with_bound(exec_properties[specs.EVAL_CONFIG_KEY], constant)
                exec_properties = {**exec_properties, specs.EVAL_CONFIG_KEY: bound}
            if constant is not None:
                folder = artifact_utils.get_single_uri(output_dict[specs.EVALUATION_KEY])
                fileio.makedirs(folder)
                with fileio.open(posixpath.join(folder, CONSTANT_FILE), "w") as opened:
                    opened.write(json.dumps(constant.to_json()))
        super().Do(input_dict, output_dict, exec_properties)


def read_constant_prediction(uri: str) -> ConstantPrediction | None:
    """The constant prediction on the data of an evaluation; None if it was not looked at.

    Args:
      uri: the folder of the artifact.
    """
    path = posixpath.join(uri, CONSTANT_FILE)
    if not fileio.exists(path):
        return None
    with fileio.open(path, "r") as opened:
        return ConstantPrediction(**json.loads(opened.read()))


def _without_seen(
    input_dict: dict[str, list[Artifact]], exec_properties: dict[str, Any]
) -> tuple[dict[str, list[Artifact]], dict[str, Any]]:
    """The inputs and properties, without a model in service that has learnt from what is judged."""
    if not input_dict.get(specs.BASELINE_MODEL_KEY):
        return input_dict, exec_properties
    seen = find_seen(
        input_dict[specs.EXAMPLES_KEY],
        evaluated_splits(exec_properties)[0],
        input_dict.get(BASELINE_EXAMPLES_KEY) or [],
        input_dict.get(LEARNT_EXAMPLES_KEY) or [],
    )
    if not seen.is_too_much:
        return input_dict, exec_properties
    if exec_properties.get(WARM_START_KEY):
        raise DataError(
            "the new model began with the weights of the model in service, which has learnt from "
            f"{seen.share:.0%} of the eval split's rows, as another split of the data had them in "
            "train: what it comes to on them says nothing. Train it from scratch once: --set "
            "schedule.warm_start=false"
        )
    report_notice(
        f"the model in service has learnt from {seen.share:.0%} of the eval split's rows, which "
        "another split of the data had in train: a comparison with it would be void. The new one "
        "is held by evaluate.thresholds and the constant prediction alone; once it is pushed, the "
        "next ones are compared with it"
    )
    why = f"has learnt from {seen.share:.0%} of the eval split's rows"
    return without_baseline(input_dict, exec_properties, why)


def _are_of_the_same_data(input_dict: dict[str, list[Artifact]]) -> bool:
    """Whether the model in service has learnt from what the new one has; False if nobody knows."""
    theirs, ours = (
        {artifact.id for artifact in input_dict.get(key) or []}
        for key in (BASELINE_EXAMPLES_KEY, LEARNT_EXAMPLES_KEY)
    )
    return bool(ours) and theirs == ours


def _with_bound(eval_config: str, constant: ConstantPrediction) -> str:
    """The evaluation's config with what is needed as the bound of the metric's value."""
    config = tfma.EvalConfig()
    proto_utils.json_to_proto(eval_config, config)
    for metric in (metric for spec in config.metrics_specs for metric in spec.metrics):
        if metric_name(metric) == constant.metric:
            if not metric.per_slice_thresholds:
                metric.per_slice_thresholds.add(slicing_specs=[tfma.SlicingSpec()])
            for per_slice in list(metric.per_slice_thresholds):
                # The constant is that of the whole split: it says nothing of a slice.
                slices = [spec for spec in per_slice.slicing_specs if spec != tfma.SlicingSpec()]
                if slices:
                    metric.per_slice_thresholds.add(
                        slicing_specs=slices, threshold=per_slice.threshold
                    )
                    del per_slice.slicing_specs[:]
                    per_slice.slicing_specs.add()
                # Both bounds are given: a NaN keeps neither, and a missing one would let it pass.
                bounds = per_slice.threshold.value_threshold
                largest = sys.float_info.max
                bounds.lower_bound.value = -largest if constant.is_of_a_loss else constant.needed
                bounds.upper_bound.value = constant.needed if constant.is_of_a_loss else largest
    return json_format.MessageToJson(config)


@dataclass(frozen=True)
class _Rows:
    """What is read of the evaluated examples before models are asked about them."""

    labels: pa.ChunkedArray
    """Of no rows where they are not asked for."""
    keys: np.ndarray
    """[rows], their places in time, or the units of a column of groups; of no rows likewise."""

    def labels_for(self, task: Task) -> np.ndarray:
        """The labels, [rows]: numbers as they are, classes as indices in their order."""
        if not task.is_classification:
            return self.labels.to_numpy()
        return pc.index_in(self.labels, pc.unique(self.labels).sort()).to_numpy()

    def units(self, dependence: Dependence) -> np.ndarray | None:
        """Numbers of the rows' units, [rows]; None where all are independent."""
        if not len(self.keys):
            return None
        keys = dependence.blocks(self.keys) if dependence.order_by else self.keys
        return np.unique(keys, return_inverse=True)[1]


def _read_rows(
    input_dict: dict[str, list[Artifact]],
    splits: Sequence[str],
    label: str,
    dependence: Dependence,
) -> _Rows:
    """Reads the splits once, for whatever is needed of them.

    Args:
      input_dict: with `examples` and `schema`.
      splits: those that are evaluated.
      label: its column; empty where labels are not needed, nor units of groups.
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
