"""An ExampleValidator that stops the run at severe anomalies and reports the others."""

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
from trainer_module.errors import InternalError
from trainer_module.runtime import report_notice
from trainer_module.settings import Task

PREVIOUS_STATISTICS_KEY = "previous_statistics"
SETTINGS_KEY = "settings"
DRIFT_SPLIT = "train"
"""The split whose drift is measured."""


@dataclass(frozen=True)
class ValidationSettings:
    """The config's settings for columns and their anomalies."""

    label: str
    """The label's column, of which every anomaly is severe."""
    task: Task
    """The task of the model."""
    declared: Sequence[str] | None
    """The columns that the config declares; the others are reviewed. None reviews no columns."""
    ignored: Sequence[str] = ()
    """The columns that are not inputs of the model, of which no anomaly is severe."""
    on_anomaly: str = "fail"
    """The handling of severe anomalies: `fail` or `warn`."""
    named: Mapping[str, str] = field(default_factory=dict)
    """The columns that the config names, by the key."""
    drift: Drift = field(default_factory=Drift)
    """The thresholds by column, and whether exceeding one stops the run."""
    compared_with: str = ""
    """The name of the data that drift is measured from, such as `span 2026-01-05`."""
    group: str = ""
    """The column whose equal values keep rows together in one split; empty if there is none."""
    dates: Mapping[str, str | None] | None = None
    """The declared columns that may date the rows, with the config's format; None if the config
    sets whether rows are split by time."""
    on_leakage: str = "warn"
    """The handling of label leakage by a column or by a random split of dated rows: `fail` or
    `warn`."""


_SETTINGS = TypeAdapter(ValidationSettings)


class Executor(base_executor.BaseExecutor):
    """Validates as TFX does and measures drift, then stops at severe anomalies."""

    def Do(  # noqa: N802 - TFX's name
        self,
        input_dict: dict[str, list[types.Artifact]],
        output_dict: dict[str, list[types.Artifact]],
        exec_properties: dict[str, Any],
    ) -> execution_result_pb2.ExecutorOutput:
        """Writes the anomalies and the review of the columns to `anomalies`.

        Reads `statistics`, `schema`, `previous_statistics` and `examples`.

        Raises:
          DataError: the data lacks a column that the config names, drift cannot be measured as
            configured, there are severe anomalies and `on_anomaly` is `fail`, there is drift and
            `on_drift` is `fail`, or there is label leakage and `on_leakage` is `fail`.
          InternalError: the statistics have no split.
        """
        settings = _SETTINGS.validate_json(exec_properties[SETTINGS_KEY])
        drift = settings.drift
        schema = read_schema_artifact(artifact_utils.get_single_uri(input_dict[SCHEMA_KEY]))
        names = [feature.name for feature in schema.feature]
        check_named_columns({**settings.named, **drift.named}, names, "schema")
        drift.check_measures(schema)
        previous = input_dict.get(PREVIOUS_STATISTICS_KEY) if drift.columns else None
        older = None
        if previous:
            older = OlderData(_load_statistics(previous, DRIFT_SPLIT), settings.compared_with)
        examples = next(iter(input_dict.get(EXAMPLES_KEY) or []), None)
        # The config's declaration of a column takes precedence.
        choices = read_choices(schema).items()
        excluded = {n for n, choice in choices if choice.is_ignored} - {*(settings.declared or ())}
        statistics = artifact_utils.get_single_instance(input_dict[STATISTICS_KEY])
        anomalies_artifact = artifact_utils.get_single_instance(output_dict[ANOMALIES_KEY])
        anomalies_artifact.split_names, anomalies_artifact.span = (
            statistics.split_names,
            statistics.span,
        )
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
            # Columns that contradict the schema are reported already.
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
    """Compares the statistics of one split with the schema, and with older ones if there are
    any.
    """
    if older is None:
        return SplitValidation(statistics, tfdv.validate_statistics(statistics, schema), None)
    numbers = drift.numbers(statistics, older.statistics)
    values = _read_values(examples, DRIFT_SPLIT, numbers)
    return SplitValidation(
        statistics, drift.validate(statistics, schema, older.statistics, values), older
    )


def _write(artifact: types.Artifact, checked: Mapping[str, SplitValidation]) -> None:
    """Writes the anomalies of each split, and marks the splits without anomalies, as TFX does."""
    if not checked:
        raise InternalError("the statistics have no split, so there is nothing to validate.")
    for split, one in checked.items():
        path = os.path.join(
            artifact_utils.get_split_uri([artifact], split), stock.DEFAULT_FILE_NAME
        )
        writer_utils.write_anomalies(path, one.anomalies)
    blessed = {
        split: stock.NOT_BLESSED_VALUE
        if one.anomalies.anomaly_info or one.anomalies.HasField("dataset_anomaly_info")
        else stock.BLESSED_VALUE
        for split, one in checked.items()
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
    """Compares the statistics of every split with the schema."""

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
          statistics: a channel of ExampleStatistics.
          schema: a channel of Schema.
          settings: the config's settings.
          previous_statistics: a channel of ExampleStatistics, from which drift is measured; it may
            be empty.
          examples: a channel of Examples, whose files are searched for anomalies and whose columns
            are reviewed.
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
    """Returns all numbers of some columns; empty if there are no examples to read."""
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
