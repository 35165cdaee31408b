"""SchemaGen: a curated schema if there is one, else inferred from the first data, and kept.

TFX's SchemaGen infers anew from whatever data comes, so that no data ever contradicts it; its
ImportSchemaGen caches by path, so that an edited schema is not seen.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
import uuid
from collections.abc import Iterable
from typing import Any

import tensorflow_data_validation as tfdv
from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2, statistics_pb2
from tfx import types
from tfx.components.schema_gen.executor import DEFAULT_FILE_NAME
from tfx.components.statistics_gen import stats_artifact_utils
from tfx.dsl.components.base import base_component, base_executor, executor_spec
from tfx.dsl.io import fileio
from tfx.types import artifact_utils, component_spec, standard_artifacts
from tfx.types.standard_component_specs import SCHEMA_KEY, STATISTICS_KEY

from trainer_module.errors import DataError
from trainer_module.settings import Task

MARK = "# Inferred by Scopeline and kept; edit it to curate. sha256 of what follows: "


class Executor(base_executor.BaseExecutor):
    """Writes the schema that the parameters name."""

    def Do(  # noqa: N802 - TFX's name
        self,
        input_dict: dict[str, list[types.Artifact]],
        output_dict: dict[str, list[types.Artifact]],
        exec_properties: dict[str, Any],
    ) -> None:
        """Takes `statistics`, gives `schema`.

        Raises:
          DataError: the curated or the kept schema cannot be read, or lacks the label.
        """
        self._log_startup(input_dict, output_dict, exec_properties)
        label, kept = exec_properties["label"], exec_properties["kept"]
        given = exec_properties["curated"] or kept
        if exec_properties["curated"] or fileio.exists(given):
            schema = read_schema(given, label)
        else:
            artifact = artifact_utils.get_single_instance(input_dict[STATISTICS_KEY])
            splits = artifact_utils.decode_split_names(artifact.split_names)
            statistics = [
                stats_artifact_utils.load_statistics(artifact, split).proto() for split in splits
            ]
            task, images = Task(exec_properties["task"]), json.loads(exec_properties["images"])
            schema = infer_schema(statistics, label, task, images)
            _keep(kept, schema)
        folder = artifact_utils.get_single_uri(output_dict[SCHEMA_KEY])
        _write(posixpath.join(folder, DEFAULT_FILE_NAME), text_format.MessageToString(schema))


class SchemaGenSpec(component_spec.ComponentSpec):
    """What SchemaGen takes and gives; the parameters are explained at the component."""

    PARAMETERS = {
        name: component_spec.ExecutionParameter(type=str)
        for name in ("curated", "kept", "revision", "label", "task", "images")
    }
    INPUTS = {
        STATISTICS_KEY: component_spec.ChannelParameter(type=standard_artifacts.ExampleStatistics)
    }
    OUTPUTS = {SCHEMA_KEY: component_spec.ChannelParameter(type=standard_artifacts.Schema)}


class SchemaGen(base_component.BaseComponent):
    """The schema that the data has to keep, and that Transform parses it by."""

    SPEC_CLASS = SchemaGenSpec
    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(Executor)

    def __init__(
        self,
        statistics: types.BaseChannel,
        curated: str | None,
        kept: str,
        revision: str,
        label: str,
        task: Task,
        images: Iterable[str] = (),
    ) -> None:
        """Constructs the component.

        Args:
          statistics: a channel of ExampleStatistics.
          curated: the path of a schema.pbtxt of the user's, or None.
          kept: where the schema inferred from the first data is kept.
          revision: the `schema_revision` of both.
          label: the label's column.
          task: what the model predicts; classes get a domain that later data has to keep.
          images: columns of encoded images, which have no domain.
        """
        spec = SchemaGenSpec(
            statistics=statistics,
            curated=curated or "",
            kept=kept,
            revision=revision,
            label=label,
            task=task.value,
            images=json.dumps(sorted(images)),
            schema=types.Channel(type=standard_artifacts.Schema),
        )
        super().__init__(spec=spec)


def schema_revision(curated: str | None, kept: str) -> str:
    """What a user wrote, as a hash, so that an edit is never mistaken for a cached schema.

    Empty while the schema is inferred: the statistics then say all.
    """
    if curated is not None:
        return _sha256(_read(curated))
    if not fileio.exists(kept):
        return ""
    mark, _, text = _read(kept).partition(b"\n")
    return "" if mark.decode(errors="replace") == MARK + _sha256(text) else _sha256(text)


def schema_content(path: str) -> bytes:
    """The bytes of a schema's file; none where there is no file."""
    return _read(path) if fileio.exists(path) else b""


def read_schema(path: str, label: str) -> schema_pb2.Schema:
    """Reads a schema in text format.

    Raises:
      DataError: names the file and what is wrong with it.
    """
    try:
        schema = text_format.Parse(_read(path).decode(), schema_pb2.Schema())
    except (OSError, UnicodeDecodeError, text_format.ParseError) as error:
        raise DataError(f"{path}: not a schema in text format: {error}") from error
    columns = [feature.name for feature in schema.feature]
    if label not in columns:
        raise DataError(
            f"{path}: the schema has no feature for the label `{label}`, "
            f"only for {', '.join(columns)}"
        )
    return schema


def infer_schema(
    statistics: list[statistics_pb2.DatasetFeatureStatisticsList],
    label: str,
    task: Task,
    images: Iterable[str],
) -> schema_pb2.Schema:
    """Infers a schema that all splits keep, with a domain for the label's classes.

    Args:
      statistics: of each split.
      label: the label's column.
      task: what the model predicts.
      images: columns of encoded images.
    """
    schema = tfdv.infer_schema(statistics[0])
    for more in statistics[1:]:
        schema = tfdv.update_schema(schema, more)
    for feature in schema.feature:
        if feature.name in images:
            feature.ClearField("domain_info")
    if task.is_classification:
        _set_label_domain(schema, statistics, label)
    return schema


def _set_label_domain(
    schema: schema_pb2.Schema,
    statistics: list[statistics_pb2.DatasetFeatureStatisticsList],
    label: str,
) -> None:
    """Makes the classes seen so far the only ones that are known."""
    of_label = [
        feature
        for split in statistics
        for feature in split.datasets[0].features
        if feature.path.step[:] == [label] or feature.name == label
    ]
    kind = of_label[0].WhichOneof("stats")
    if kind == "num_stats":
        low = min(feature.num_stats.min for feature in of_label)
        high = max(feature.num_stats.max for feature in of_label)
        if tfdv.get_feature(schema, label).type == schema_pb2.INT:
            tfdv.set_domain(
                schema, label, schema_pb2.IntDomain(name=label, min=int(low), max=int(high))
            )
    elif kind == "string_stats":
        ranks = [feature.string_stats.rank_histogram.buckets for feature in of_label]
        classes = sorted({bucket.label for buckets in ranks for bucket in buckets})
        tfdv.set_domain(schema, label, schema_pb2.StringDomain(name=label, value=classes))


def _keep(path: str, schema: schema_pb2.Schema) -> None:
    """Writes the kept schema, whole or not at all."""
    text = text_format.MessageToString(schema)
    scratch = f"{path}.{uuid.uuid4().hex}.tmp"
    _write(scratch, f"{MARK}{_sha256(text.encode())}\n{text}")
    fileio.rename(scratch, path, overwrite=True)


def _read(path: str) -> bytes:
    with fileio.open(path, "rb") as opened:
        return bytes(opened.read())


def _write(path: str, text: str) -> None:
    with fileio.open(path, "w") as opened:
        opened.write(text)


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
