"""SchemaGen: a curated schema if there is one, otherwise one inferred from the first data and
stored.

TFX's SchemaGen infers a new schema from each run's data, so that no data ever contradicts it; its
ImportSchemaGen caches by path and does not notice edits.
"""

from __future__ import annotations

import json
import math
import posixpath
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2, statistics_pb2
from tfx import types
from tfx.components.schema_gen.executor import DEFAULT_FILE_NAME
from tfx.components.statistics_gen import stats_artifact_utils
from tfx.dsl.components.base import base_component, base_executor, executor_spec
from tfx.dsl.io import fileio
from tfx.types import artifact_utils, component_spec, standard_artifacts
from tfx.types.standard_component_specs import EXAMPLES_KEY, SCHEMA_KEY, STATISTICS_KEY
from tfx_bsl.tfxio import tensor_representation_util

from components.column_types.choice import annotate, read_choices, strip_choices
from components.column_types.decision import choose_types
from components.column_types.facts import collect_facts, collect_list_facts, count_columns
from components.column_types.pictures import choose_size
from components.example_gen.columns.encoded import flat_columns, list_columns
from components.example_gen.notes import read_notes
from components.examples_reader import read_columns, read_sample
from components.schema_gen.files import keep_schema, read_schema, schema_revision, write_text
from components.schema_gen.inference import infer_schema
from trainer_module.errors import DataError
from trainer_module.features.raw_columns import MISSING_INTEGER
from trainer_module.settings import Task

_Gap = schema_pb2.TensorRepresentation.DefaultValue
_GAPS = {
    schema_pb2.FLOAT: _Gap(float_value=math.nan),
    schema_pb2.INT: _Gap(int_value=MISSING_INTEGER),
    schema_pb2.BYTES: _Gap(bytes_value=b""),
}
"""The default value of a dense tensor by type; `dense_numbers` and `dense_strings` interpret it."""


def fill_gaps(schema: schema_pb2.Schema) -> None:
    """Sets the default value of dense tensors for columns in which no value was missing.

    Such a column is as cheap to parse as one with a value in every row, and the model gets no
    additional input that would flag what never happened in training. Columns of several values, or
    whose values may be missing by the schema, are sparse.
    """
    representations = tensor_representation_util.GetTensorRepresentationsFromSchema(schema) or {}
    # All columns need one: readers infer none if the schema has any.
    tensors = tensor_representation_util.InferTensorRepresentationsFromMixedSchema(schema)
    for feature in schema.feature:
        if feature.name not in representations and _is_in_every_row(feature):
            dense = schema_pb2.TensorRepresentation.DenseTensor(
                column_name=feature.name, default_value=_GAPS[feature.type]
            )
            dense.shape.dim.add(size=1)
            tensors[feature.name] = schema_pb2.TensorRepresentation(dense_tensor=dense)
    tensor_representation_util.SetTensorRepresentationsInSchema(schema, tensors)


def _is_in_every_row(feature: schema_pb2.Feature) -> bool:
    """Returns whether the schema expects one value in each example, but gives the feature no
    shape.
    """
    counts = (feature.value_count.min, feature.value_count.max)
    return feature.presence.min_fraction == 1 and counts == (1, 1) and feature.type in _GAPS


def floats_among(schema: schema_pb2.Schema, names: Collection[str]) -> set[str]:
    """Returns the given columns that are floats in the schema."""
    return {f.name for f in schema.feature if f.type == schema_pb2.FLOAT and f.name in names}


def make_whole(
    schema: schema_pb2.Schema,
    names: set[str],
    statistics: Iterable[statistics_pb2.DatasetFeatureStatisticsList],
) -> set[str]:
    """Changes the columns that are integers in the data to integers in the schema; returns their
    names.
    """
    whole = {
        feature.path.step[0] or feature.name
        for split in statistics
        for feature in split.datasets[0].features
        if feature.type == statistics_pb2.FeatureNameStatistics.INT
    }
    for feature in schema.feature:
        if feature.name in names & whole:
            feature.type = schema_pb2.INT
            feature.ClearField("domain_info")
    return names & whole


def check_is_inferred(path: str, curated: str, columns: set[str]) -> None:
    """Raises DataError for a change to a schema that a user wrote or edited.

    Args:
      path: the schema.
      curated: the path of the user's own schema, or empty.
      columns: the identifiers that are integers in the data and floats in the schema.

    Raises:
      DataError: the schema is the user's.
    """
    if curated or schema_revision(None, path):
        column, *others = sorted(columns)
        raise DataError(
            f"{path}: column {column!r} is `type: FLOAT`, which cannot hold some of its whole"
            " numbers exactly, but the config uses them as identifiers; write `type: INT` there"
            + (f", and for {', '.join(others)}." if others else ".")
        )


Statistics: TypeAlias = dict[str, statistics_pb2.DatasetFeatureStatisticsList]
"""The statistics by split."""
_LOOKED_AT_SPLIT = "train"
"""The split whose examples determine the types of columns."""


class Executor(base_executor.BaseExecutor):
    """Writes the schema that the parameters name."""

    def Do(  # noqa: N802 - TFX's name
        self,
        input_dict: dict[str, list[types.Artifact]],
        output_dict: dict[str, list[types.Artifact]],
        exec_properties: dict[str, Any],
    ) -> None:
        """Writes the curated, stored or inferred schema to `schema`.

        Raises:
          DataError: the curated or the stored schema cannot be read, lacks the label, has an
            invalid annotation, or has floats that would change identifiers.
        """
        label, kept = exec_properties["label"], exec_properties["kept"]
        curated_file = exec_properties["curated"] or kept
        if exec_properties["curated"] or fileio.exists(curated_file):
            schema = read_schema(curated_file, label)
            names = floats_among(schema, json.loads(exec_properties["names"]))
            if whole := names and make_whole(
                schema, names, [*_load_statistics(input_dict).values()]
            ):
                check_is_inferred(curated_file, exec_properties["curated"], whole)
                keep_schema(kept, schema)
        else:
            statistics = _load_statistics(input_dict)
            task, images = Task(exec_properties["task"]), json.loads(exec_properties["images"])
            schema = infer_schema([*statistics.values()], label, task, images)
            if exec_properties["aside"]:
                _choose_types(schema, statistics, input_dict, exec_properties)
            keep_schema(kept, schema)
        unsized = json.loads(exec_properties["unsized"])
        known = {
            n for n, choice in read_choices(schema, curated_file).items() if choice.type == "image"
        }
        if missing := sorted({*unsized} - known):
            _choose_sizes(schema, missing, input_dict)
            if not exec_properties["curated"]:
                keep_schema(kept, schema)
        if not exec_properties["aside"]:
            strip_choices(schema, unsized)
        fill_gaps(schema)
        folder = artifact_utils.get_single_uri(output_dict[SCHEMA_KEY])
        write_text(posixpath.join(folder, DEFAULT_FILE_NAME), text_format.MessageToString(schema))


def _load_statistics(input_dict: Mapping[str, list[types.Artifact]]) -> Statistics:
    artifact = artifact_utils.get_single_instance(input_dict[STATISTICS_KEY])
    splits = artifact_utils.decode_split_names(artifact.split_names)
    load = stats_artifact_utils.load_statistics
    return {split: load(artifact, split).proto() for split in splits}


def _choose_types(
    schema: schema_pb2.Schema,
    statistics: Statistics,
    input_dict: Mapping[str, list[types.Artifact]],
    exec_properties: Mapping[str, Any],
) -> None:
    """Writes the chosen types of the first data's columns into a schema."""
    no_features = {*json.loads(exec_properties["aside"]), *json.loads(exec_properties["images"])}
    features = [feature for feature in schema.feature if feature.name not in no_features]
    examples = artifact_utils.get_single_instance(input_dict[EXAMPLES_KEY])
    sample = read_sample(examples, _LOOKED_AT_SPLIT, features) if features else []
    total = sum(split.datasets[0].num_examples for split in statistics.values())
    counts = count_columns(statistics[_LOOKED_AT_SPLIT])
    several = {name for name, column in counts.items() if column.longest > 1}
    flat = {n: values for n, values in flat_columns(sample).items() if n not in several}
    facts = collect_facts(flat, read_notes(examples).dates, total, counts)
    # Lists of one length are vectors.
    vectors = {feature.name for feature in features if feature.HasField("shape")}
    lists = {n: v for n, v in list_columns(sample, several).items() if n not in vectors}
    annotate(schema, choose_types([*facts, *collect_list_facts(lists, counts)]))


def _choose_sizes(
    schema: schema_pb2.Schema, names: Sequence[str], input_dict: Mapping[str, list[types.Artifact]]
) -> None:
    """Writes the sizes of columns of pictures into a schema.

    Raises:
      DataError: a column holds no picture.
    """
    examples = input_dict[EXAMPLES_KEY]
    # Removes the choices of columns that had another type before.
    strip_choices(schema, {feature.name for feature in schema.feature} - {*names})
    for name in names:
        feature = schema_pb2.Feature(name=name, type=schema_pb2.BYTES)
        batches = read_columns(examples, _LOOKED_AT_SPLIT, [feature])
        values = (batch.column(name).flatten() for batch in batches)
        choice = choose_size(encoded.as_py() for some in values for encoded in some)
        if choice is None:
            raise DataError(
                f"Column {name!r} holds no picture in the split {_LOOKED_AT_SPLIT!r} to take the"
                f" size from: set the size, such as features: {{{name}: {{type: image, height: 64,"
                " width: 64}}"
            )
        annotate(schema, {name: choice})


class SchemaGenSpec(component_spec.ComponentSpec):
    """The inputs, outputs and parameters of SchemaGen, which explains the parameters."""

    PARAMETERS = {
        name: component_spec.ExecutionParameter(type=str)
        for name in (
            *("curated", "kept", "revision", "label", "task"),
            *("images", "aside", "names", "unsized"),
        )
    }
    INPUTS = {
        STATISTICS_KEY: component_spec.ChannelParameter(type=standard_artifacts.ExampleStatistics),
        EXAMPLES_KEY: component_spec.ChannelParameter(type=standard_artifacts.Examples),
    }
    OUTPUTS = {SCHEMA_KEY: component_spec.ChannelParameter(type=standard_artifacts.Schema)}


class SchemaGen(base_component.BaseComponent):
    """Provides the schema that the data has to keep, and by which Transform parses it."""

    SPEC_CLASS = SchemaGenSpec
    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(Executor)

    def __init__(
        self,
        statistics: types.BaseChannel,
        examples: types.BaseChannel,
        curated: str | None,
        kept: str,
        revision: str,
        label: str,
        task: Task,
        images: Iterable[str] = (),
        aside: Iterable[str] | None = None,
        names: Iterable[str] = (),
        unsized: Iterable[str] = (),
    ) -> None:
        """Constructs the TFX component.

        Args:
          statistics: a channel of ExampleStatistics.
          examples: a channel of the same Examples; a sample determines the types of columns.
          curated: the path of the user's schema.pbtxt, or None.
          kept: the path for the schema that is inferred from the first data.
          revision: the `schema_revision` of both.
          label: the label's column.
          task: the task; classes get a domain that later data has to keep.
          images: columns of encoded images, which have no domain.
          aside: columns that are not features, such as the label. Types are chosen and stored for
            the others; None chooses none, and removes those in the schema.
          names: columns of identifiers whose integers must not change, in a format that guesses
            types. If one was a quantity when the schema was inferred, the schema is changed.
          unsized: the columns of `images` whose size is determined from the first data and stored.
        """
        spec = SchemaGenSpec(
            statistics=statistics,
            examples=examples,
            curated=curated or "",
            kept=kept,
            revision=revision,
            label=label,
            task=task.value,
            images=json.dumps(sorted(images)),
            aside="" if aside is None else json.dumps(sorted(aside)),
            names=json.dumps(sorted(names)),
            unsized=json.dumps(sorted(unsized)),
            schema=types.Channel(type=standard_artifacts.Schema),
        )
        super().__init__(spec=spec)
