"""The component SchemaGen: it provides the user's own schema, or infers one from the first data.

The inferred schema is stored for later runs. TFX's SchemaGen infers a new schema from the data of
each run, so that data never contradicts the schema. TFX's ImportSchemaGen caches the schema by its
path, so that edits have no effect.
"""

from __future__ import annotations

import json
import math
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
from components.column_types.words import choose_words
from components.copying import write_text
from components.example_gen.columns.encoded import flat_columns, list_columns
from components.example_gen.notes import read_notes
from components.examples_reader import read_columns, read_sample
from components.schema_gen.files import keep_schema, read_schema, schema_revision
from components.schema_gen.inference import infer_schema
from components.split_files import Artifacts
from trainer_module.errors import DataError, as_key
from trainer_module.features.raw_columns import MISSING_INTEGER
from trainer_module.settings import Task

_Default = schema_pb2.TensorRepresentation.DefaultValue
_DEFAULTS = {
    schema_pb2.FLOAT: _Default(float_value=math.nan),
    schema_pb2.INT: _Default(int_value=MISSING_INTEGER),
    schema_pb2.BYTES: _Default(bytes_value=b""),
}
"""The default values of dense tensors by type, which mean a missing value. `dense_numbers` and
`dense_strings` read them."""


def fill_gaps(schema: schema_pb2.Schema) -> None:
    """Sets default values for columns in which the schema expects a value in every row.

    If a later row lacks a value, its dense tensor gets the default value. A dense column takes
    little time to parse, and the model needs no additional input for missing values, which did not
    occur in training. Columns with several values per row, or with missing values, are sparse.
    """
    representations = tensor_representation_util.GetTensorRepresentationsFromSchema(schema) or {}
    # If the schema represents some columns, readers do not infer the others, so all are set.
    tensors = tensor_representation_util.InferTensorRepresentationsFromMixedSchema(schema)
    for feature in schema.feature:
        if feature.name not in representations and _is_in_every_row(feature):
            dense = schema_pb2.TensorRepresentation.DenseTensor(
                column_name=feature.name, default_value=_DEFAULTS[feature.type]
            )
            dense.shape.dim.add(size=1)
            tensors[feature.name] = schema_pb2.TensorRepresentation(dense_tensor=dense)
    tensor_representation_util.SetTensorRepresentationsInSchema(schema, tensors)


def _is_in_every_row(feature: schema_pb2.Feature) -> bool:
    """Returns whether the schema expects one value of a feature in each row."""
    counts = (feature.value_count.min, feature.value_count.max)
    return feature.presence.min_fraction == 1 and counts == (1, 1) and feature.type in _DEFAULTS


def floats_among(schema: schema_pb2.Schema, names: Collection[str]) -> set[str]:
    """Returns the names of columns that are floats in the schema."""
    return {f.name for f in schema.feature if f.type == schema_pb2.FLOAT and f.name in names}


def make_whole(
    schema: schema_pb2.Schema,
    names: set[str],
    statistics: Iterable[statistics_pb2.DatasetFeatureStatisticsList],
) -> set[str]:
    """Changes the type of columns in a schema to integer if their values are integers in the data.

    Returns:
      The names of the changed columns.
    """
    integers = {
        feature.path.step[0] or feature.name
        for split in statistics
        for feature in split.datasets[0].features
        if feature.type == statistics_pb2.FeatureNameStatistics.INT
    }
    for feature in schema.feature:
        if feature.name in names & integers:
            feature.type = schema_pb2.INT
            feature.ClearField("domain_info")
    return names & integers


def check_is_inferred(path: str, curated: str, columns: set[str]) -> None:
    """Checks that a schema may be changed, as no user has written or edited it.

    Args:
      curated: the path of the user's own schema, or an empty string if there is none.
      columns: the columns that are integers in the data and floats in the schema.

    Raises:
      DataError: a user has written or edited the schema.
    """
    if curated or schema_revision(None, path):
        column, *others = sorted(columns)
        raise DataError(
            f"{path}: column {column!r} is `type: FLOAT`, which cannot hold some of the column's"
            " integers exactly, but the config uses the integers as identifiers; write `type: INT`"
            + (f" for {column!r} and {', '.join(map(repr, others))}." if others else ".")
        )


Statistics: TypeAlias = dict[str, statistics_pb2.DatasetFeatureStatisticsList]
_SAMPLED_SPLIT = "train"
"""The split whose examples determine the types of columns."""


class Executor(base_executor.BaseExecutor):
    """An executor that writes the user's own, the stored or a new inferred schema."""

    def Do(  # noqa: N802 - TFX's name
        self, input_dict: Artifacts, output_dict: Artifacts, exec_properties: dict[str, Any]
    ) -> None:
        """Writes the schema to the output `schema`.

        Raises:
          DataError: the user's own or the stored schema cannot be read, lacks the label, has an
            invalid annotation, or declares identifiers as floats that cannot hold them.
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
        choices = read_choices(schema, curated_file)
        sized = {name for name, choice in choices.items() if choice.type == "image"}
        if missing := sorted({*unsized} - sized):
            _choose_sizes(schema, missing, input_dict)
            if not exec_properties["curated"]:
                keep_schema(kept, schema)
        if not exec_properties["aside"]:
            strip_choices(schema, unsized)
        fill_gaps(schema)
        folder = artifact_utils.get_single_uri(output_dict[SCHEMA_KEY])
        write_text(text_format.MessageToString(schema), folder, DEFAULT_FILE_NAME)


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
    """Chooses the types of the columns from the first data, and writes them into a schema."""
    no_features = {*json.loads(exec_properties["aside"]), *json.loads(exec_properties["images"])}
    features = [feature for feature in schema.feature if feature.name not in no_features]
    labels = [feature for feature in schema.feature if feature.name == exec_properties["label"]]
    examples = artifact_utils.get_single_instance(input_dict[EXAMPLES_KEY])
    sample = read_sample(examples, _SAMPLED_SPLIT, [*features, *labels]) if features else []
    total = sum(split.datasets[0].num_examples for split in statistics.values())
    counts = count_columns(statistics[_SAMPLED_SPLIT])
    list_names = {name for name, column in counts.items() if column.longest > 1}
    flat = {n: values for n, values in flat_columns(sample).items() if n not in list_names}
    label = flat.pop(exec_properties["label"], None)
    facts = collect_facts(flat, read_notes(examples).dates, total, counts)
    # Columns whose lists all have the same length are vectors.
    vectors = {feature.name for feature in features if feature.HasField("shape")}
    lists = {n: v for n, v in list_columns(sample, list_names).items() if n not in vectors}
    lists.pop(exec_properties["label"], None)
    choices = choose_types([*facts, *collect_list_facts(lists, counts)])
    if label is not None:
        is_class = Task(exec_properties["task"]).is_classification
        choices |= choose_words(facts, choices, flat, label, is_class)
    annotate(schema, choices)


def _choose_sizes(
    schema: schema_pb2.Schema, names: Sequence[str], input_dict: Mapping[str, list[types.Artifact]]
) -> None:
    """Chooses the sizes of pictures in columns, and writes them into a schema.

    Raises:
      DataError: a column does not contain a picture.
    """
    examples = input_dict[EXAMPLES_KEY]
    strip_choices(schema, {feature.name for feature in schema.feature} - {*names})
    for name in names:
        feature = schema_pb2.Feature(name=name, type=schema_pb2.BYTES)
        batches = read_columns(examples, _SAMPLED_SPLIT, [feature])
        values = (batch.column(name).flatten() for batch in batches)
        choice = choose_size(encoded.as_py() for batch_values in values for encoded in batch_values)
        if choice is None:
            raise DataError(
                f"Column {name!r} contains no picture in the split {_SAMPLED_SPLIT!r}, so the size"
                f" of the pictures is unknown: set the size, such as features: {{{as_key(name)}:"
                " {type: image, height: 64, width: 64}}"
            )
        annotate(schema, {name: choice})


class SchemaGenSpec(component_spec.ComponentSpec):
    """The inputs, outputs and parameters of SchemaGen. Its constructor describes them."""

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
    """A SchemaGen that provides the schema with which data is compared and parsed."""

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
          examples: a channel of the Examples of the statistics. A sample determines the types of
            columns.
          kept: the path at which the inferred schema is stored.
          revision: the result of `schema_revision(curated, kept)`.
          task: the label's kind of task. For a classification, the schema lists the classes.
          images: columns of encoded images, for which the schema lists no values.
          aside: columns that are not features, such as the label. The types of the other columns
            are chosen and stored. With None, no types are chosen, and stored types are ignored.
          names: columns whose integers must stay exact, in a format whose types are inferred. If
            the inferred schema declares them as floats that cannot hold them, it is changed.
          unsized: the columns of `images` whose size is chosen from the first data and stored.
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
