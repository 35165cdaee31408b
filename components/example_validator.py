"""ExampleValidator whose anomalies decide: severe ones stop the run, others are shown."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from absl import logging
from tensorflow_metadata.proto.v0 import anomalies_pb2, schema_pb2
from tfx import types
from tfx.components.example_validator import executor as stock
from tfx.dsl.components.base import base_component, executor_spec
from tfx.proto.orchestration import execution_result_pb2
from tfx.types import artifact_utils, component_spec, standard_artifacts
from tfx.types.standard_component_specs import ANOMALIES_KEY, SCHEMA_KEY, STATISTICS_KEY
from tfx.utils import io_utils

from trainer_module.errors import DataError

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


@dataclass(frozen=True)
class Anomaly:
    """What is odd about one column, in the splits that share it."""

    splits: tuple[str, ...]
    column: str
    description: str
    severe: bool
    is_new_column: bool = False

    def __str__(self) -> str:
        splits = " and ".join(self.splits) + (" split" if len(self.splits) == 1 else " splits")
        return f"{splits}, {self.column}: {self.description}"


class Executor(stock.Executor):
    """Validates as TFX does, then stops at severe anomalies."""

    def Do(  # noqa: N802 - TFX's name
        self,
        input_dict: dict[str, list[types.Artifact]],
        output_dict: dict[str, list[types.Artifact]],
        exec_properties: dict[str, Any],
    ) -> execution_result_pb2.ExecutorOutput:
        """Takes `statistics` and `schema`, gives `anomalies`.

        Raises:
          DataError: the data lacks a column that the config names, or there are severe anomalies
            and `on_anomaly` is `fail`.
        """
        check_columns(
            json.loads(exec_properties["named"]),
            io_utils.SchemaReader().read(
                io_utils.get_only_uri_in_dir(artifact_utils.get_single_uri(input_dict[SCHEMA_KEY]))
            ),
        )
        output = super().Do(input_dict, output_dict, exec_properties)
        artifact = artifact_utils.get_single_instance(output_dict[ANOMALIES_KEY])
        anomalies = read_anomalies(
            artifact, exec_properties["label"], json.loads(exec_properties["ignored"])
        )
        for anomaly in anomalies:
            logging.warning("Anomaly: %s", anomaly)
        severe = [anomaly for anomaly in anomalies if anomaly.severe]
        if severe and exec_properties["on_anomaly"] == "fail":
            raise DataError(
                "the data contradicts the schema: "
                + "; ".join(str(anomaly) for anomaly in severe)
                + _new_columns(anomalies)
                + ". Mend the data, or the schema (schema.pbtxt in the pipeline's output, or the "
                "file that `schema:` names), or set on_anomaly: warn to go on regardless"
            )
        return output


class ExampleValidatorSpec(component_spec.ComponentSpec):
    """What ExampleValidator takes and gives; the parameters are explained at the component."""

    PARAMETERS = {
        name: component_spec.ExecutionParameter(type=str)
        for name in ("label", "ignored", "on_anomaly", "named")
    }
    INPUTS = {
        STATISTICS_KEY: component_spec.ChannelParameter(type=standard_artifacts.ExampleStatistics),
        SCHEMA_KEY: component_spec.ChannelParameter(type=standard_artifacts.Schema),
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
    ) -> None:
        """Constructs the component.

        Args:
          statistics: a channel of ExampleStatistics.
          schema: a channel of Schema.
          label: the label's column, of which every anomaly is severe.
          ignored: columns that the model does not see, of which none is.
          on_anomaly: `fail` or `warn`, what severe anomalies do.
          named: columns that the config names, by the key that does.
        """
        spec = ExampleValidatorSpec(
            statistics=statistics,
            schema=schema,
            label=label,
            ignored=json.dumps(sorted(ignored)),
            on_anomaly=on_anomaly,
            named=json.dumps(dict(named), sort_keys=True),
            anomalies=types.Channel(type=standard_artifacts.ExampleAnomalies),
        )
        super().__init__(spec=spec)


def check_columns(named: Mapping[str, str], schema: schema_pb2.Schema) -> None:
    """Raises DataError for the first column that the config names and the schema lacks."""
    columns = [feature.name for feature in schema.feature]
    for key, column in named.items():
        if column not in columns:
            near = difflib.get_close_matches(column, columns, n=1)
            hint = f"did you mean `{near[0]}`?" if near else f"it has {', '.join(columns)}"
            raise DataError(f"{key}: the data has no column `{column}`; {hint}")


def read_anomalies(artifact: types.Artifact, label: str, ignored: Iterable[str]) -> list[Anomaly]:
    """The anomalies of all splits, severe ones first.

    Args:
      artifact: an ExampleAnomalies artifact.
      label: the label's column.
      ignored: columns that the model does not see.
    """
    found: dict[tuple[str, str], Anomaly] = {}
    for split in artifact_utils.decode_split_names(artifact.split_names):
        folder = Path(artifact_utils.get_split_uri([artifact], split))
        message = anomalies_pb2.Anomalies.FromString(
            (folder / stock.DEFAULT_FILE_NAME).read_bytes()
        )
        infos = dict(message.anomaly_info)
        if message.HasField("dataset_anomaly_info"):
            infos["all columns"] = message.dataset_anomaly_info
        for column, info in infos.items():
            kinds = {reason.type for reason in info.reason}
            severe = column == label or (column not in ignored and bool(kinds & UNREADABLE))
            is_new = _Type.SCHEMA_NEW_COLUMN in kinds
            key = (column, " ".join(info.description.split()).rstrip("."))
            splits = (*found[key].splits, split) if key in found else (split,)
            found[key] = Anomaly(splits, *key, severe, is_new)
    return sorted(found.values(), key=lambda anomaly: not anomaly.severe)


def _new_columns(anomalies: Iterable[Anomaly]) -> str:
    """What may be the new name of a column that is missing."""
    new = sorted(anomaly.column for anomaly in anomalies if anomaly.is_new_column)
    return f" (new in the data: {', '.join(new)})" if new else ""
