"""Runs of ExampleValidator's executor on artifacts that a test makes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import tensorflow_data_validation as tfdv
from pydantic import TypeAdapter
from tensorflow_metadata.proto.v0 import statistics_pb2
from tfx.types import Artifact, artifact_utils, standard_artifacts

from components.example_validator.anomalies import Anomaly, read_anomalies
from components.example_validator.component import Executor, ValidationSettings
from components.example_validator.drift import Drift
from pipeline.config.sections.schedule import DriftSettings
from trainer_module.settings import Task

Statistics: TypeAlias = statistics_pb2.DatasetFeatureStatisticsList


def make_drift(section: dict[str, Any]) -> Drift:
    """Takes the section of a config."""
    return Drift(**DriftSettings.model_validate(section).model_dump(mode="json"))


class Validation:
    """Runs the component's executor on artifacts in a folder, after data that was `before`."""

    def __init__(self, root: Path, before: Statistics, label: str = "tipped") -> None:
        self.root, self.before, self._label = root, before, label
        self.schema = tfdv.infer_schema(before)

    def run(
        self,
        now: Statistics,
        drift: dict[str, Any] | None = None,
        on_anomaly: str = "fail",
        evaluation: Statistics | None = None,
        splits: Sequence[str] = ("train", "eval"),
        is_first: bool = False,
        examples: Artifact | None = None,
    ) -> list[Anomaly]:
        """The anomalies of the train split `now` and of an eval split.

        Args:
          now: statistics of the train split.
          drift: the section of a config.
          on_anomaly: the key of a config.
          evaluation: statistics of the eval split, by default as before.
          splits: those that the artifact of the statistics names.
          is_first: whether nothing was trained on before.
          examples: the rows of which drift is measured, which are not reviewed.
        """
        tfdv.write_schema_text(self.schema, str(self._folder("schema") / "schema.pbtxt"))
        inputs = self.inputs = {
            "statistics": [self._statistics("now", now, evaluation or self.before)],
            "schema": [self._artifact(standard_artifacts.Schema, "schema")],
            **({"examples": [examples]} if examples else {}),
        }
        inputs["statistics"][0].split_names = artifact_utils.encode_split_names([*splits])
        if not is_first:
            previous = self._statistics("before", self.before, self.before)
            inputs["previous_statistics"] = [previous]
        self.anomalies = self._artifact(standard_artifacts.ExampleAnomalies, "anomalies")
        settings = ValidationSettings(
            self._label,
            Task.BINARY,
            declared=None if examples else [],
            on_anomaly=on_anomaly,
            drift=make_drift(drift) if drift else Drift(),
            compared_with="span 6",
        )
        self.output = Executor().Do(
            inputs,
            {"anomalies": [self.anomalies]},
            {"settings": TypeAdapter(ValidationSettings).dump_json(settings)},
        )
        return read_anomalies(self.anomalies)

    def _folder(self, *names: str) -> Path:
        folder = self.root.joinpath(*names)
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def _artifact(self, kind: type[Artifact], name: str) -> Artifact:
        artifact = kind()
        artifact.uri = str(self.root / name)
        return artifact

    def _statistics(self, name: str, train: Statistics, evaluation: Statistics) -> Artifact:
        artifact = self._artifact(standard_artifacts.ExampleStatistics, name)
        artifact.split_names = artifact_utils.encode_split_names(["train", "eval"])
        for split, statistics in (("train", train), ("eval", evaluation)):
            path = self._folder(name, f"Split-{split}") / "FeatureStats.pb"
            path.write_bytes(statistics.SerializeToString())
        return artifact
