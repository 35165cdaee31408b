"""ExampleValidator whose anomalies decide: severe ones stop the run, others are shown."""

from __future__ import annotations

import json
import os
import posixpath
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from absl import logging
from tensorflow_metadata.proto.v0 import anomalies_pb2, schema_pb2, statistics_pb2
from tfx import types
from tfx.components.example_validator import executor as stock
from tfx.components.example_validator import labels
from tfx.components.statistics_gen import stats_artifact_utils
from tfx.dsl.components.base import base_component, executor_spec
from tfx.proto.orchestration import execution_result_pb2
from tfx.types import artifact_utils, component_spec, standard_artifacts
from tfx.types.standard_component_specs import ANOMALIES_KEY, SCHEMA_KEY, STATISTICS_KEY
from tfx.utils import io_utils, writer_utils

from components.example_validator.drift import DRIFT, Drift
from components.named_columns import check_named_columns
from trainer_module.errors import DataError

PREVIOUS_STATISTICS_KEY = "previous_statistics"
DRIFT_SPLIT = "train"
"""The split of which drift is measured."""

_Type = anomalies_pb2.AnomalyInfo

UNREADABLE = {
    # A column that is gone, or that holds another type: Transform could not parse it.
    _Type.SCHEMA_MISSING_COLUMN,
    _Type.FEATURE_TYPE_NOT_PRESENT,
    _Type.FEATURE_TYPE_NO_VALUES,
    _Type.UNEXPECTED_DATA_TYPE,
    _Type.ENUM_TYPE_BYTES_NOT_STRING,
    _Type.ENUM_TYPE_FLOAT_NOT_STRING,
    _Type.ENUM_TYPE_INT_NOT_STRING,
    _Type.FLOAT_TYPE_NOT_FLOAT,
    _Type.FLOAT_TYPE_STRING_NOT_FLOAT,
    _Type.FLOAT_TYPE_NON_STRING,
    _Type.INT_TYPE_INT_EXPECTED,
    _Type.INT_TYPE_NOT_INT_STRING,
    _Type.INT_TYPE_NOT_STRING,
    _Type.INT_TYPE_STRING_EXPECTED,
    _Type.STRING_TYPE_NOW_FLOAT,
    _Type.STRING_TYPE_NOW_INT,
    _Type.INVALID_FEATURE_SHAPE,
    _Type.INVALID_SCHEMA_SPECIFICATION,
}
"""Severe for every column that the model uses; any anomaly of the label is severe."""

OUT_OF_RANGE = {
    _Type.FLOAT_TYPE_BIG_FLOAT,
    _Type.FLOAT_TYPE_SMALL_FLOAT,
    _Type.FLOAT_TYPE_HAS_NAN,
    _Type.FLOAT_TYPE_HAS_INF,
    _Type.INT_TYPE_BIG_INT,
    _Type.INT_TYPE_SMALL_INT,
}
"""Severe as well: of a feature, such bounds are never inferred, so that a person has set them."""


@dataclass(frozen=True)
class Anomaly:
    """What is odd about one column, in the splits that share it."""

    splits: tuple[str, ...]
    column: str
    description: str
    severe: bool
    is_new_column: bool = False
    is_drift: bool = False
    """Whether it is a difference from older data, not from the schema."""

    def __str__(self) -> str:
        splits = " and ".join(self.splits) + (" split" if len(self.splits) == 1 else " splits")
        return f"{splits}, {self.column}: {self.description}"


class Executor(stock.Executor):
    """Validates as TFX does and measures drift, then stops at severe anomalies."""

    _drift = Drift({})
    _previous: statistics_pb2.DatasetFeatureStatisticsList | None = None

    def Do(  # noqa: N802 - TFX's name
        self,
        input_dict: dict[str, list[types.Artifact]],
        output_dict: dict[str, list[types.Artifact]],
        exec_properties: dict[str, Any],
    ) -> execution_result_pb2.ExecutorOutput:
        """Takes `statistics`, `schema` and `previous_statistics`, gives `anomalies`.

        Raises:
          DataError: the data lacks a column that the config names, drift cannot be measured as the
            config says, there are severe anomalies and `on_anomaly` is `fail`, or there is drift
            and `on_drift` is.
        """
        self._drift = Drift.from_json(exec_properties["drift"])
        schema = io_utils.SchemaReader().read(
            io_utils.get_only_uri_in_dir(artifact_utils.get_single_uri(input_dict[SCHEMA_KEY]))
        )
        check_columns(json.loads(exec_properties["named"]) | self._drift.named, schema)
        self._drift.check_measures(schema)
        previous = input_dict.get(PREVIOUS_STATISTICS_KEY)
        self._previous = _load_statistics(previous) if previous else None
        output = super().Do(input_dict, output_dict, exec_properties)
        anomalies = read_anomalies(
            artifact_utils.get_single_instance(output_dict[ANOMALIES_KEY]),
            exec_properties["label"],
            json.loads(exec_properties["ignored"]),
            self._drift.is_severe,
        )
        for anomaly in anomalies:
            logging.warning("Anomaly: %s", anomaly)
        _raise_for(anomalies, exec_properties["on_anomaly"] == "fail")
        return output

    def _Validate(  # noqa: N802 - TFX's name
        self, inputs: dict[str, Any], outputs: dict[str, Any]
    ) -> anomalies_pb2.Anomalies:
        """Validates one split; TFX calls it for each."""
        folder = outputs[labels.SCHEMA_DIFF_PATH]
        is_compared = Path(folder).name == f"Split-{DRIFT_SPLIT}"
        if self._previous is None or not self._drift.columns or not is_compared:
            return super()._Validate(inputs, outputs)
        anomalies = self._drift.validate(inputs[STATISTICS_KEY], inputs[SCHEMA_KEY], self._previous)
        writer_utils.write_anomalies(os.path.join(folder, stock.DEFAULT_FILE_NAME), anomalies)
        return anomalies


class ExampleValidatorSpec(component_spec.ComponentSpec):
    """What ExampleValidator takes and gives; the parameters are explained at the component."""

    PARAMETERS = {
        name: component_spec.ExecutionParameter(type=str)
        for name in ("label", "ignored", "on_anomaly", "named", "drift")
    }
    INPUTS = {
        STATISTICS_KEY: component_spec.ChannelParameter(type=standard_artifacts.ExampleStatistics),
        SCHEMA_KEY: component_spec.ChannelParameter(type=standard_artifacts.Schema),
        PREVIOUS_STATISTICS_KEY: component_spec.ChannelParameter(
            type=standard_artifacts.ExampleStatistics, optional=True
        ),
    }
    OUTPUTS = {
        ANOMALIES_KEY: component_spec.ChannelParameter(type=standard_artifacts.ExampleAnomalies)
    }


class ExampleValidator(base_component.BaseComponent):
    """Compares the statistics of every split with the schema."""

    SPEC_CLASS = ExampleValidatorSpec
    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(Executor)

    def __init__(
        self,
        statistics: types.BaseChannel,
        schema: types.BaseChannel,
        label: str,
        ignored: Iterable[str],
        on_anomaly: str,
        named: Mapping[str, str],
        drift: str = "",
        previous_statistics: types.BaseChannel | None = None,
    ) -> None:
        """Constructs the component.

        Args:
          statistics: a channel of ExampleStatistics.
          schema: a channel of Schema.
          label: the label's column, of which every anomaly is severe.
          ignored: columns that the model does not see, of which none is.
          on_anomaly: `fail` or `warn`, what severe anomalies do.
          named: columns that the config names, by the key that does.
          drift: the config's `drift` section as JSON: thresholds by column, what passing one does.
          previous_statistics: a channel of ExampleStatistics, which drift is measured from; it may
            be empty.
        """
        spec = ExampleValidatorSpec(
            statistics=statistics,
            schema=schema,
            label=label,
            ignored=json.dumps(sorted(ignored)),
            on_anomaly=on_anomaly,
            named=json.dumps(dict(named), sort_keys=True),
            drift=drift,
            previous_statistics=previous_statistics,
            anomalies=types.Channel(type=standard_artifacts.ExampleAnomalies),
        )
        super().__init__(spec=spec)


def _load_statistics(
    statistics: list[types.Artifact],
) -> statistics_pb2.DatasetFeatureStatisticsList:
    (artifact,) = statistics
    return stats_artifact_utils.load_statistics(artifact, DRIFT_SPLIT).proto()


def check_columns(named: Mapping[str, str], schema: schema_pb2.Schema) -> None:
    """Raises DataError for the first column that the config names and the schema lacks."""
    check_named_columns(named, [feature.name for feature in schema.feature])


def read_anomalies(
    artifact: types.Artifact, label: str, ignored: Iterable[str], drift_is_severe: bool = False
) -> list[Anomaly]:
    """The anomalies of all splits, severe ones first.

    Args:
      artifact: an ExampleAnomalies artifact.
      label: the label's column.
      ignored: columns that the model does not see.
      drift_is_severe: whether drift is, of any column.
    """
    found: dict[tuple[str, str], Anomaly] = {}
    for split in artifact_utils.decode_split_names(artifact.split_names):
        folder = artifact_utils.get_split_uri([artifact], split)
        message = anomalies_pb2.Anomalies.FromString(
            io_utils.read_bytes_file(posixpath.join(folder, stock.DEFAULT_FILE_NAME))
        )
        infos = dict(message.anomaly_info)
        if message.HasField("dataset_anomaly_info"):
            infos["all columns"] = message.dataset_anomaly_info
        for column, kinds, description in _by_nature(infos):
            is_drift = kinds <= DRIFT
            severe = (
                drift_is_severe
                if is_drift
                else column == label
                or (column not in ignored and bool(kinds & (UNREADABLE | OUT_OF_RANGE)))
            )
            is_new = _Type.SCHEMA_NEW_COLUMN in kinds
            key = (column, description)
            splits = (*found[key].splits, split) if key in found else (split,)
            found[key] = Anomaly(splits, *key, severe, is_new, is_drift)
    return sorted(found.values(), key=lambda anomaly: not anomaly.severe)


def _by_nature(
    infos: Mapping[str, anomalies_pb2.AnomalyInfo],
) -> Iterator[tuple[str, set[int], str]]:
    """Columns with kinds of anomaly and description; drift apart from what else the column has."""
    for column, info in infos.items():
        drift = [reason for reason in info.reason if reason.type in DRIFT]
        others = [reason for reason in info.reason if reason.type not in DRIFT]
        for reasons in (others, drift):
            # TFDV's own summary, unless it is of both.
            text = " ".join(r.description for r in reasons) if drift else info.description
            if reasons:
                kinds = {reason.type for reason in reasons}
                yield column, kinds, " ".join(text.split()).rstrip(".")


def _raise_for(anomalies: Sequence[Anomaly], stops: bool) -> None:
    """Raises DataError for severe anomalies: for drift, and if it `stops` the run for others."""
    severe = [anomaly for anomaly in anomalies if anomaly.severe and not anomaly.is_drift]
    drift = [anomaly for anomaly in anomalies if anomaly.severe and anomaly.is_drift]
    problems = []
    if severe and stops:
        problems.append(
            f"the data contradicts the schema: {_listed(severe)}{_new_columns(anomalies)}. Mend "
            "the data, or the schema (schema.pbtxt in the pipeline's output, or the file that "
            "`schema:` names), or set on_anomaly: warn to go on regardless"
        )
    if drift:
        problems.append(
            f"the data drifted from what was trained on: {_listed(drift)}. Mend the data, raise "
            "the thresholds of drift.columns, or set drift.on_drift: warn to go on regardless"
        )
    if problems:
        raise DataError("; ".join(problems))


def _listed(anomalies: Iterable[Anomaly]) -> str:
    return "; ".join(str(anomaly) for anomaly in anomalies)


def _new_columns(anomalies: Iterable[Anomaly]) -> str:
    """What may be the new name of a column that is missing."""
    new = sorted(anomaly.column for anomaly in anomalies if anomaly.is_new_column)
    return f" (new in the data: {', '.join(new)})" if new else ""
