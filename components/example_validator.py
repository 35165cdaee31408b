"""ExampleValidator whose anomalies decide: severe ones stop the run, others are shown."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from absl import logging
from tensorflow_metadata.proto.v0 import anomalies_pb2
from tfx import types
from tfx.components.example_validator import executor as stock
from tfx.dsl.components.base import base_component, executor_spec
from tfx.proto.orchestration import execution_result_pb2
from tfx.types import artifact_utils, component_spec, standard_artifacts
from tfx.types.standard_component_specs import ANOMALIES_KEY, SCHEMA_KEY, STATISTICS_KEY

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
    """What is odd about one column of one split."""

    split: str
    column: str
    description: str
    severe: bool

    def __str__(self) -> str:
        return f"{self.split} split, {self.column}: {self.description}"


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
          DataError: there are severe anomalies and `on_anomaly` is `fail`.
        """
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
                + ". Mend the data or the schema, or set on_anomaly: warn to go on regardless"
            )
        return output


class ExampleValidatorSpec(component_spec.ComponentSpec):
    """What ExampleValidator takes and gives; the parameters are explained at the component."""

    PARAMETERS = {
        name: component_spec.ExecutionParameter(type=str)
        for name in ("label", "ignored", "on_anomaly")
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
    ) -> None:
        """Constructs the component.

        Args:
          statistics: a channel of ExampleStatistics.
          schema: a channel of Schema.
          label: the label's column, of which every anomaly is severe.
          ignored: columns that the model does not see, of which none is.
          on_anomaly: `fail` or `warn`, what severe anomalies do.
        """
        spec = ExampleValidatorSpec(
            statistics=statistics,
            schema=schema,
            label=label,
            ignored=json.dumps(sorted(ignored)),
            on_anomaly=on_anomaly,
            anomalies=types.Channel(type=standard_artifacts.ExampleAnomalies),
        )
        super().__init__(spec=spec)


def read_anomalies(artifact: types.Artifact, label: str, ignored: Iterable[str]) -> list[Anomaly]:
    """The anomalies of all splits, severe ones first.

    Args:
      artifact: an ExampleAnomalies artifact.
      label: the label's column.
      ignored: columns that the model does not see.
    """
    found = []
    for split in artifact_utils.decode_split_names(artifact.split_names):
        folder = Path(artifact_utils.get_split_uri([artifact], split))
        message = anomalies_pb2.Anomalies.FromString(
            (folder / stock.DEFAULT_FILE_NAME).read_bytes()
        )
        for column, info in message.anomaly_info.items():
            severe = column == label or (column not in ignored and _is_unreadable(info))
            found.append(Anomaly(split, column, _describe(info), severe))
        if message.HasField("dataset_anomaly_info"):
            description = _describe(message.dataset_anomaly_info)
            found.append(Anomaly(split, "all columns", description, severe=False))
    return sorted(found, key=lambda anomaly: not anomaly.severe)


def _is_unreadable(info: anomalies_pb2.AnomalyInfo) -> bool:
    return any(reason.type in UNREADABLE for reason in info.reason)


def _describe(info: Any) -> str:
    """One clause about an anomaly: TFDV's own words, without a closing full stop."""
    return " ".join(info.description.split()).rstrip(".")
