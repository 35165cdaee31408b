"""The component ExampleValidator: it stops the run if it finds severe anomalies, and reports other
anomalies.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import tensorflow_data_validation as tfdv
from absl import logging
from pydantic import TypeAdapter
from tensorflow_metadata.proto.v0 import schema_pb2, statistics_pb2
from tfx import types
from tfx.components.example_validator import executor as stock
from tfx.components.statistics_gen import stats_artifact_utils
from tfx.dsl.components.base import base_component, base_executor, executor_spec
from tfx.proto.orchestration import execution_result_pb2
from tfx.types import artifact_utils, component_spec, standard_artifacts
from tfx.types.standard_component_specs import (
    ANOMALIES_KEY,
    EXAMPLES_KEY,
    SCHEMA_KEY,
    STATISTICS_KEY,
)
from tfx.utils import writer_utils

from components.column_types.choice import read_choices
from components.column_types.facts import count_columns
from components.example_validator.anomalies import SplitValidation, find_anomalies, write_anomalies
from components.example_validator.drift import Drift, OlderData
from components.example_validator.review import (
    REVIEWED_SPLIT,
    Review,
    check_leakage,
    note_unreadable,
    review_examples,
    write_review,
)
from components.example_validator.verdict import check_anomalies
from components.examples_reader import read_columns
from components.named_columns import check_named_columns
from components.schema_reader import read_schema_artifact
from components.split_files import Artifacts
from trainer_module.errors import InternalError
from trainer_module.runtime import report_notice
from trainer_module.settings import Task

PREVIOUS_STATISTICS_KEY = "previous_statistics"
SETTINGS_KEY = "settings"
DRIFT_SPLIT = "train"
"""The split whose drift is measured."""


@dataclass(frozen=True)
class ValidationSettings:
    """The settings of ExampleValidator."""

    label: str
    """The label's column. All its anomalies are severe."""
    task: Task
    """The label's kind of task, such as regression."""
    declared: Sequence[str] | None
    """The columns that the config declares, which are not reviewed. With None, no column is
    reviewed."""
    ignored: Sequence[str] = ()
    """The columns that are not inputs of the model. None of their anomalies is severe."""
    on_anomaly: str = "fail"
    """The handling of severe anomalies: `fail` or `warn`."""
    named: Mapping[str, str] = field(default_factory=dict)
    """The columns in the config, by the key whose value is the column."""
    drift: Drift = field(default_factory=Drift)
    """The thresholds of columns, and the handling of drift."""
    compared_with: str = ""
    """The name of the older data from which drift is measured, such as `span 2026-01-05`."""
    group: str = ""
    """The column by which rows are grouped into splits (`data.split_by`), or an empty string for no
    column.
    """
    dates: Mapping[str, str | None] | None = None
    """The declared columns that may hold the date of a row, with the format in the config. None if
    the config sets `data.order_by`, so that the split is not reviewed."""
    on_leakage: str = "warn"
    """The handling of label leakage by a column, or by a random split of dated rows: `fail` or
    `warn`."""


_SETTINGS = TypeAdapter(ValidationSettings)


class Executor(base_executor.BaseExecutor):
    """An executor that finds anomalies with TFDV, measures drift and reviews the columns."""

    def Do(  # noqa: N802 - TFX's name
        self, input_dict: Artifacts, output_dict: Artifacts, exec_properties: dict[str, Any]
    ) -> execution_result_pb2.ExecutorOutput:
        """Writes the anomalies and the review of the columns to `anomalies`.

        Reads `statistics`, `schema`, `previous_statistics` and `examples`.

        Raises:
          DataError: the data lacks a column of the config, a drift threshold does not suit the type
            of its column, there are severe anomalies and `on_anomaly` is `fail`, there is drift and
            `on_drift` is `fail`, or there is label leakage and `on_leakage` is `fail`.
          InternalError: the statistics have no split.
        """
        settings = _SETTINGS.validate_json(exec_properties[SETTINGS_KEY])
        drift = settings.drift
        schema = read_schema_artifact(artifact_utils.get_single_uri(input_dict[SCHEMA_KEY]))
        names = [feature.name for feature in schema.feature]
        check_named_columns({**settings.named, **drift.columns_by_key}, names, "schema")
        drift.check_measures(schema)
        previous = input_dict.get(PREVIOUS_STATISTICS_KEY) if drift.columns else None
        older = None
        if previous:
            older = OlderData(_load_statistics(previous, DRIFT_SPLIT), settings.compared_with)
        examples = next(iter(input_dict.get(EXAMPLES_KEY) or []), None)
        # The config's declaration of a column takes precedence over the schema's choice.
        choices = read_choices(schema).items()
        excluded = {n for n, choice in choices if choice.is_ignored} - {*(settings.declared or ())}
        statistics = artifact_utils.get_single_instance(input_dict[STATISTICS_KEY])
        anomalies_artifact = artifact_utils.get_single_instance(output_dict[ANOMALIES_KEY])
        anomalies_artifact.split_names = statistics.split_names
        anomalies_artifact.span = statistics.span
        checked = {
            split: _validate(
                _load_statistics([statistics], split),
                schema,
                drift,
                older if split == DRIFT_SPLIT else None,
                examples,
            )
            for split in artifact_utils.decode_split_names(anomalies_artifact.split_names)
        }
        _write(anomalies_artifact, checked)
        anomalies = find_anomalies(
            checked,
            schema,
            settings.label,
            excluded | {*settings.ignored},
            drift.is_severe,
            examples,
        )
        write_anomalies(anomalies_artifact, anomalies)
        for anomaly in anomalies:
            logging.warning("Anomaly: %s", anomaly)
        check_anomalies(anomalies, settings.on_anomaly == "fail")
        if examples is not None and settings.declared is not None:
            # Columns that contradict the schema are not reviewed, as their anomalies are reported.
            contradicting = {anomaly.column for anomaly in anomalies if anomaly.severe}
            exempt = {*settings.declared, *excluded, *contradicting}
            review = Review()
            if settings.label not in contradicting:
                review = review_examples(
                    examples,
                    schema,
                    settings.label,
                    settings.task,
                    exempt,
                    settings.group,
                    count_columns(checked[REVIEWED_SPLIT].statistics),
                    settings.dates,
                )
            write_review(anomalies_artifact, review)
            for note in note_unreadable(examples, schema, exempt):
                report_notice(note)
            if settings.on_leakage == "fail":
                check_leakage(review)
        output = execution_result_pb2.ExecutorOutput()
        output.output_artifacts[ANOMALIES_KEY].artifacts.append(anomalies_artifact.mlmd_artifact)
        return output


def _validate(
    statistics: statistics_pb2.DatasetFeatureStatisticsList,
    schema: schema_pb2.Schema,
    drift: Drift,
    older: OlderData | None,
    examples: types.Artifact | None,
) -> SplitValidation:
    """Returns the anomalies of a split: differences from the schema, and drift if there is older
    data.
    """
    if older is None:
        return SplitValidation(statistics, tfdv.validate_statistics(statistics, schema), None)
    numbers = drift.numbers(statistics, older.statistics)
    values = _read_values(examples, DRIFT_SPLIT, numbers)
    return SplitValidation(
        statistics, drift.validate(statistics, schema, older.statistics, values), older
    )


def _write(artifact: types.Artifact, checked: Mapping[str, SplitValidation]) -> None:
    """Writes TFDV's anomalies of each split, and marks the splits without anomalies as blessed."""
    if not checked:
        raise InternalError("ExampleValidator cannot run, as the statistics have no split.")
    for split, validation in checked.items():
        path = os.path.join(
            artifact_utils.get_split_uri([artifact], split), stock.DEFAULT_FILE_NAME
        )
        writer_utils.write_anomalies(path, validation.anomalies)
    blessed = {
        split: stock.NOT_BLESSED_VALUE
        if validation.anomalies.anomaly_info
        or validation.anomalies.HasField("dataset_anomaly_info")
        else stock.BLESSED_VALUE
        for split, validation in checked.items()
    }
    artifact.set_json_value_custom_property(stock.ARTIFACT_PROPERTY_BLESSED_KEY, blessed)


class ExampleValidatorSpec(component_spec.ComponentSpec):
    """The inputs, outputs and parameters of ExampleValidator."""

    PARAMETERS = {SETTINGS_KEY: component_spec.ExecutionParameter(type=str)}
    INPUTS = {
        STATISTICS_KEY: component_spec.ChannelParameter(type=standard_artifacts.ExampleStatistics),
        SCHEMA_KEY: component_spec.ChannelParameter(type=standard_artifacts.Schema),
        PREVIOUS_STATISTICS_KEY: component_spec.ChannelParameter(
            type=standard_artifacts.ExampleStatistics, optional=True
        ),
        EXAMPLES_KEY: component_spec.ChannelParameter(
            type=standard_artifacts.Examples, optional=True
        ),
    }
    OUTPUTS = {
        ANOMALIES_KEY: component_spec.ChannelParameter(type=standard_artifacts.ExampleAnomalies)
    }


class ExampleValidator(base_component.BaseComponent):
    """An ExampleValidator that finds anomalies and drift in statistics, and reviews the columns."""

    SPEC_CLASS = ExampleValidatorSpec
    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(Executor)

    def __init__(
        self,
        statistics: types.BaseChannel,
        schema: types.BaseChannel,
        settings: ValidationSettings,
        previous_statistics: types.BaseChannel | None = None,
        examples: types.BaseChannel | None = None,
    ) -> None:
        """Constructs the TFX component.

        Args:
          previous_statistics: a channel of the ExampleStatistics of older data, from which drift is
            measured; the channel may be empty.
          examples: a channel of Examples. Their original files are searched for anomalous rows, and
            their columns are reviewed.
        """
        spec = ExampleValidatorSpec(
            statistics=statistics,
            schema=schema,
            settings=_SETTINGS.dump_json(settings).decode(),
            previous_statistics=previous_statistics,
            examples=examples,
            anomalies=types.Channel(type=standard_artifacts.ExampleAnomalies),
        )
        super().__init__(spec=spec)


def _read_values(
    examples: types.Artifact | None, split: str, columns: list[schema_pb2.Feature]
) -> dict[str, np.ndarray]:
    """Returns all numbers of each column, by name. The result is empty without examples."""
    if examples is None or not columns:
        return {}
    batches = [*read_columns([examples], split, columns)]
    return {
        column.name: np.concatenate(
            [
                batch.column(column.name).flatten().to_numpy(zero_copy_only=False)
                for batch in batches
                if not pa.types.is_null(batch.column(column.name).type)
            ]
            or [np.zeros(0)]
        )
        for column in columns
    }


def _load_statistics(
    statistics: list[types.Artifact], split: str
) -> statistics_pb2.DatasetFeatureStatisticsList:
    (artifact,) = statistics
    return stats_artifact_utils.load_statistics(artifact, split).proto()
