"""Texts of the data that no model of it reads, in columns that were found to be written so."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import TypeAdapter
from tensorflow_metadata.proto.v0 import schema_pb2
from tfx import types
from tfx.types import artifact_utils

from components.column_types.choice import read_choices
from components.example_gen.columns.encoded import shown
from components.examples_reader import read_columns
from trainer_module.export.interface import TextReader
from trainer_module.settings import Feature, NumericFeature

MOST_ROWS = 1_000_000
"""Of a split that are read, about."""
_FEATURE: TypeAdapter[Feature] = TypeAdapter(Feature)


def note_unreadable(
    examples: types.Artifact, schema: schema_pb2.Schema, exempt: Collection[str]
) -> list[str]:
    """What people should know of texts that count as missing, as they cannot be read.

    Of dates ExampleGen says so itself.

    Args:
      examples: the artifact.
      schema: of its columns, with what they are taken for.
      exempt: columns that are not looked at, as the config says what they are.
    """
    readers = {
        name: reader
        for name, choice in read_choices(schema).items()
        if name not in exempt and choice.type != "date"
        if (reader := _reader_of(_FEATURE.validate_python(choice.settings))) is not None
    }
    wanted = [f for f in schema.feature if f.name in readers and f.type == schema_pb2.BYTES]
    if not wanted:
        return []
    texts = Counter[str]()
    odd = {feature.name: Counter[bytes]() for feature in wanted}
    for split in artifact_utils.decode_split_names(examples.split_names):
        rows = 0
        for batch in read_columns([examples], split, wanted):
            for name, counter in odd.items():
                found = _count(batch, name)
                texts[name] += sum(found.values())
                unread = (text for text in found if not readers[name].is_readable(text))
                counter.update({text: found[text] for text in unread})
            if (rows := rows + batch.num_rows) >= MOST_ROWS:
                break
    return [
        _note(name, counts, texts[name], readers[name]) for name, counts in odd.items() if counts
    ]


def _reader_of(feature: Feature) -> TextReader | None:
    if isinstance(feature, NumericFeature):
        style, unit = feature.written or "", feature.unit or ""
        return TextReader(feature.forms(), style, unit) if style else None
    return TextReader(feature.forms()) if feature.forms() else None


def _count(batch: pa.RecordBatch, name: str) -> dict[bytes, int]:
    place = batch.schema.get_field_index(name)
    if place < 0 or pa.types.is_null(batch.column(place).type):
        return {}
    counts = pc.value_counts(batch.column(place).flatten().cast(pa.binary()))
    return dict(
        zip(counts.field("values").to_pylist(), counts.field("counts").to_pylist(), strict=True)
    )


def _note(name: str, odd: Counter[bytes], texts: int, reader: TextReader) -> str:
    ((most, times),) = odd.most_common(1)
    return (
        f"column {name!r}: {odd.total():,} of {texts:,} texts cannot be read, and"
        f" count as missing, such as {shown(most)!r} ({times:,}); right is {reader.right}"
    )
