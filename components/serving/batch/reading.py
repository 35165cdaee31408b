"""Reading of input rows from files.

The rows are read in the same way as by ExampleGen, but in one pass, as the model defines the types
of the columns.
"""

from __future__ import annotations

import posixpath
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from pathlib import Path

import numpy as np
import pyarrow as pa

from components.example_gen.columns.encoded import (
    Cell,
    ColumnKind,
    first_values,
    list_lengths,
    lists,
)
from components.example_gen.columns.type_inference import ColumnSurvey
from components.example_gen.files import is_gzip
from components.example_gen.formats import (
    FORMATS,
    IMAGE_FEATURE,
    CsvSettings,
    ExampleGenSettings,
    format_by_name,
)
from components.example_gen.notes import FileNotes
from components.example_gen.paths import find_neighbours, is_hidden, no_file_error, resolve_input
from components.example_gen.picture_files import check_encoded_pictures, is_picture
from components.example_gen.sources import make_source
from components.example_gen.sources.base import Source
from components.example_gen.sources.surveys import ColumnKinds, find_label_number_format
from components.named_columns import check_named_columns
from components.serving.batch.past_labels import PastLabels, PastSeries
from components.serving.batch.writing import text_column
from components.serving.requests import EXAMPLES_INPUT, kind_of_column, measure_pictures
from trainer_module.errors import ConfigError, DataError, counted, enumerate_names
from trainer_module.export.interface import ModelInterface, TextReader
from trainer_module.features.pixels import DATA_PIXELS
from trainer_module.settings.tasks import Task, supervised_class


@dataclass(frozen=True)
class Block:
    """A block of rows that are read together."""

    count: int
    first: Cell
    """The file and the row number of the first row."""
    rows: pa.RecordBatch | None
    """The encoded columns, or None if the file contains tf.Examples."""
    examples: list[bytes] | None = None
    """The serialised tf.Examples, or None for other files."""
    copied: dict[str, pa.Array] = field(default_factory=dict)
    """The columns that are copied to the output, with one value per row."""
    missing: Counter[str] = field(default_factory=Counter)
    """The number of rows without a past label that was to be computed, by column."""

    def split(self, count: int) -> Iterator[Block]:
        """Yields the rows in blocks of at most `count` rows."""
        for start in range(0, self.count, count):
            yield replace(self.slice(start, count), missing=Counter() if start else self.missing)

    def slice(self, start: int, count: int) -> Block:
        """Returns at most `count` rows, from the row `start`; `missing` counts the whole block."""
        return replace(
            self,
            count=min(count, self.count - start),
            first=replace(self.first, row=self.first.row + start),
            rows=self.rows.slice(start, count) if self.rows is not None else None,
            examples=self.examples[start : start + count] if self.examples is not None else None,
            copied={name: values.slice(start, count) for name, values in self.copied.items()},
        )

    def checksum(self, previous: int) -> int:
        """Returns a checksum of the previous checksum and the rows of this block."""
        checksum = previous
        if self.examples is not None:
            for example in self.examples:
                checksum = zlib.crc32(example, checksum)
        for batch in filter(
            None, [self.rows, pa.record_batch(self.copied) if self.copied else None]
        ):
            checksum = zlib.crc32(batch.serialize(), checksum)
        return checksum


_RECORDS_PER_BLOCK = 4096
_PICTURES_PER_BLOCK = 128
FILE_COLUMN = "file"
"""The column with the path of each picture, if the input consists of picture files."""


@dataclass(frozen=True)
class Input:
    """The input files, their format and options."""

    files: tuple[str, ...]
    format: str
    csv: CsvSettings = field(default_factory=CsvSettings)
    pictures: dict[str, str] = field(default_factory=dict)
    """The folders for relative paths of pictures, by column."""
    max_pixels: int = DATA_PIXELS
    copied: tuple[str, ...] = ()
    """The columns that are copied to the output."""
    extra_columns: dict[str, ColumnKind] = field(default_factory=dict)
    """Columns that are read in addition to the columns of the model, such as the label. If the kind
    of a column is UNKNOWN, the kind is inferred from the file."""
    series: PastSeries | None = None
    """The series whose past labels are inputs of the model, or None."""


def find_files(pattern: str, default_format: str | None = None) -> tuple[tuple[str, ...], str]:
    """Returns the files of a path, folder or glob, sorted by name, and their format.

    Args:
      default_format: the format of files whose name does not determine the format.

    Raises:
      DataError: no file matches.
      ConfigError: the format is unknown, or the files have several formats.
    """
    path = Path(pattern)
    neighbours: list[str] = []
    if path.is_dir():
        files = [str(p) for p in sorted(path.rglob("*")) if p.is_file()]
    elif path.exists():
        files = [pattern]
    else:
        base, glob = resolve_input(pattern, default_format or "csv")
        files = [str(p) for p in sorted(Path(base).glob(glob)) if p.is_file()]
        neighbours = find_neighbours(Path(base), glob)
    files = [file for file in files if not is_hidden(file)]
    if not files:
        raise no_file_error(pattern, neighbours, "--input")
    formats = {_format_of(file) or default_format or "" for file in files}
    if "images" in formats:
        files, formats = [file for file in files if is_picture(file)], {"images"}
    if len(formats) > 1 or "" in formats:
        shown = ", ".join(sorted({posixpath.splitext(file)[1] or file for file in files}))
        raise ConfigError(
            f"--input {pattern} matches {shown}, expected files of one format: pictures, or one of"
            f" {', '.join(ending for spec in FORMATS.values() for ending in spec.endings)}."
        )
    return tuple(files), formats.pop()


def _format_of(file: str) -> str | None:
    return "images" if is_picture(file) else format_by_name(file)


def check_not_input(output: Path, pattern: str, inputs: Input) -> None:
    """Raises ConfigError if the input of this command or a later command includes the output."""
    target, input_path = output.resolve(), Path(pattern).resolve()
    if any(Path(f).name == target.name and Path(f).resolve() == target for f in inputs.files):
        raise ConfigError(
            f"--output {output} is also a file of --input {pattern}: name another output file."
        )
    if inputs.format == "images":
        return  # The output is not a picture, so a later command does not read it.
    written = (target, target / "part.parquet", Path(f"{target}.parts", f"part{target.suffix}"))
    is_inside = input_path.is_dir() and target.is_relative_to(input_path)
    if is_inside or any(_matches(path, str(input_path)) for path in written):
        raise ConfigError(
            f"--output {output} matches --input {pattern}: the next command with this --input would"
            " read these predictions; name an output file in another folder."
        )


def _matches(path: Path, pattern: str) -> bool:
    if "**" in pattern:
        return fnmatch(str(path), pattern.replace("**/", "*"))
    return path.match(pattern)


def read_blocks(inputs: Input, interface: ModelInterface) -> Iterator[Block]:
    """Yields the rows of all files, in order.

    Raises:
      DataError: a file cannot be read. The message names the file and the row or column.
      ConfigError: a column to copy is missing.
    """
    if inputs.format == "images":
        yield from _read_pictures(inputs, interface)
    elif inputs.format == "tfrecord":
        yield from _read_records(inputs.files, inputs.copied, interface, inputs.max_pixels)
    else:
        settings = _settings(inputs, interface)
        source = make_source(settings)
        past = _past_labels(source, settings, inputs, interface)
        for file in inputs.files:
            yield from _read_table(source, settings, file, inputs, interface, past)


def _settings(inputs: Input, interface: ModelInterface) -> ExampleGenSettings:
    return ExampleGenSettings(
        format=inputs.format,
        label=interface.label,
        task=_label_kind(interface),
        csv=inputs.csv,
        pictures=_picture_paths(inputs, interface),
        encoded_pictures=tuple(c.name for c in interface.columns if c.picture == "bytes"),
        max_pixels=inputs.max_pixels,
        on_bad_file=None,
    )


def _past_labels(
    source: Source, settings: ExampleGenSettings, inputs: Input, interface: ModelInterface
) -> PastLabels | None:
    """Returns the labels before the rows of all files, or None if the model reads none."""
    columns = inputs.series.columns if inputs.series is not None else None
    if inputs.series is None or columns is None:
        return None
    if columns.windows.keys().isdisjoint(column.name for column in interface.columns):
        return None
    past = PastLabels(inputs.series, columns)
    past.read(source, inputs.files, settings)
    return past


def _label_kind(interface: ModelInterface) -> str:
    """Returns the name of a task with the same kind of label as the model's task.

    The options of the model's task, such as the order of its classes, are not needed to read rows.
    """
    # A task without a label may belong to a family that is not registered in this process.
    if not interface.label:
        return Task.REGRESSION.value
    return supervised_class(interface.task).label_kind.value


class _Kinds(ColumnKinds):
    """A mapping of columns to kinds. Columns that are not in the mapping are not converted."""

    def __missing__(self, name: str) -> ColumnKind:
        return ColumnKind.UNKNOWN


def _read_table(
    source: Source,
    settings: ExampleGenSettings,
    file: str,
    inputs: Input,
    interface: ModelInterface,
    past: PastLabels | None,
) -> Iterator[Block]:
    inferred = source.peek((file,))
    if past is not None and not past.are_needed(file, inferred):
        past = None
    kinds = _Kinds({name: inferred[name] for name in inputs.copied if name in inferred})
    kinds |= {c.name: kind_of_column(c.dtype, c.is_whole) for c in interface.columns}
    split_lists = _find_split_lists(inferred, interface)
    kinds |= {part: kinds[name] for name, parts in split_lists.items() for part in parts}
    # These columns are numbers in the file, although the model expects text and parses it.
    number_readers = {
        c.name: reader
        for c in interface.columns
        if c.style and inferred.get(c.name) in (ColumnKind.INT, ColumnKind.FLOAT)
        if (reader := c.text_reader) is not None
    }
    kinds |= dict.fromkeys(number_readers, ColumnKind.FLOAT)
    kinds |= {name: kind or inferred.get(name, kind) for name, kind in inputs.extra_columns.items()}
    existing = inferred | {name: kinds[name] for name in split_lists}
    existing |= past.kinds if past is not None else {}
    _check_columns(file, existing, inputs, interface)
    if interface.label in inputs.extra_columns:
        label = source.survey((file,)).columns.get(interface.label, ColumnSurvey())
        kinds.label_number_format = find_label_number_format(label, settings)
    if past is None:
        batches = source.read((file,), kinds)
    else:
        batches = past.add_to(source.read((file,), past.with_kinds(kinds, inferred, source, file)))
    names = list(
        dict.fromkeys([*(column.name for column in interface.columns), *inputs.extra_columns])
    )
    if settings.pictures:
        from components.example_gen.sources.pictures import limit_batches, read_pictures

        batches = limit_batches(batches)
    for batch in batches:
        rows = batch.rows
        copied = {name: _copied_column(rows, name) for name in inputs.copied}
        check_encoded_pictures(rows, batch.first, settings)
        if settings.pictures:
            rows, _ = read_pictures(rows, batch.first, settings, FileNotes())
        for name, parts in split_lists.items():
            rows = rows.append_column(name, _join_columns(rows, parts))
        for name, reader in number_readers.items():
            index = rows.schema.get_field_index(name)
            rows = rows.set_column(index, name, _as_texts(rows.column(index), reader))
        missing = batch.notes.early_lags + batch.notes.lag_gaps
        yield Block(rows.num_rows, batch.first, rows.select(names), None, copied, missing)


def _find_split_lists(
    inferred: dict[str, ColumnKind], interface: ModelInterface
) -> dict[str, list[str]]:
    """Returns the columns `name_1`, `name_2`, ... that a file has in place of a list `name`."""
    parts_by_list = {
        column.name: [f"{column.name}_{number}" for number in range(1, column.width + 1)]
        for column in interface.columns
        if column.name not in inferred and column.width is not None and column.width > 1
    }
    return {name: parts for name, parts in parts_by_list.items() if inferred.keys() >= {*parts}}


def _join_columns(rows: pa.RecordBatch, parts: Sequence[str]) -> pa.LargeListArray:
    """Returns the values of several columns as a list per row, with NaN for missing values."""
    columns = [first_values(rows.column(part)).to_numpy(zero_copy_only=False) for part in parts]
    values = np.stack(columns, axis=1)
    return lists(pa.array(values.ravel()), np.full(len(values), len(parts), np.int64))


def _as_texts(encoded: pa.Array, reader: TextReader) -> pa.LargeListArray:
    """Returns numbers as texts in the notation that the model parses, such as a decimal comma."""
    values = encoded.flatten().to_pylist()
    texts = [b"" if v != v else reader.write(v) or str(v).encode() for v in values]
    return lists(pa.array(texts, pa.binary()), list_lengths(encoded))


def _check_columns(
    file: str,
    inferred: dict[str, ColumnKind],
    inputs: Input,
    interface: ModelInterface,
) -> None:
    """Raises an error if a file lacks a column, or if a file other than CSV has text in a column of
    numbers; in CSV, each unreadable value is reported with its row.
    """
    needed = [*(column.name for column in interface.columns), *inputs.extra_columns]
    references = {f"column {name!r}, which the model needs": name for name in needed}
    references |= {f"--columns {name}": name for name in inputs.copied}
    check_named_columns(references, inferred, f"input {file}")
    for column in interface.columns:
        is_text = inferred[column.name] is ColumnKind.BYTES
        if inputs.format != "csv" and is_text and column.dtype != "string":
            raise DataError(
                f"Column {column.name!r} of {file} contains text, but the model takes numbers."
            )


def _picture_paths(inputs: Input, interface: ModelInterface) -> dict[str, str]:
    """Returns the folder for relative paths, for each column that contains paths of pictures.

    In Parquet files, such a column may also contain the pictures themselves.
    """
    return {
        c.name: inputs.pictures.get(c.name, "") for c in interface.columns if c.picture == "path"
    }


def _copied_column(rows: pa.RecordBatch, name: str) -> pa.Array:
    column = rows.column(name)
    if list_lengths(column).max(initial=0) > 1:
        raise ConfigError(
            f"--columns {name}: the column contains lists, which cannot be copied; remove the"
            " column from --columns."
        )
    values = first_values(column)
    return text_column(values) if pa.types.is_binary(values.type) else values


def _read_pictures(inputs: Input, interface: ModelInterface) -> Iterator[Block]:
    names = [column.name for column in interface.columns]
    if len(names) != 1 or not interface.columns[0].picture:
        raise ConfigError(
            "--input contains pictures, but the model takes the columns"
            f" {enumerate_names(names, 'and')}: give a table with these columns."
        )
    if unknown := [name for name in inputs.copied if name != FILE_COLUMN]:
        raise ConfigError(f"--columns {unknown[0]}: pictures have only the column `{FILE_COLUMN}`.")
    source = make_source(
        ExampleGenSettings(
            format="images",
            label="class",
            task=_label_kind(interface),
            max_pixels=inputs.max_pixels,
            on_bad_file=None,
        )
    )
    for start in range(0, len(inputs.files), _PICTURES_PER_BLOCK):
        files = inputs.files[start : start + _PICTURES_PER_BLOCK]
        for batch in source.read(files, {}):
            selected = [IMAGE_FEATURE, *inputs.extra_columns]
            rows = batch.rows.rename_columns([IMAGE_FEATURE, interface.label]).select(selected)
            rows = rows.rename_columns([*names, *inputs.extra_columns])
            yield Block(
                rows.num_rows,
                Cell(files[0], start + 1),
                rows,
                copied={FILE_COLUMN: pa.array(files, pa.string())},
            )


def _read_records(
    files: Sequence[str], copied: Sequence[str], interface: ModelInterface, max_pixels: int
) -> Iterator[Block]:
    """Yields the records of files, in order.

    Args:
      files: TFRecord files, which are gzipped if their name ends in .gz.

    Raises:
      DataError: a file is damaged, or is not a TFRecord file.
    """
    import tensorflow as tf

    for file in files:
        row = 1
        dataset = tf.data.TFRecordDataset(file, "GZIP" if is_gzip(file) else "")
        try:
            for records in dataset.batch(_RECORDS_PER_BLOCK).as_numpy_iterator():
                first, examples = Cell(file, row), records.tolist()
                columns = {name: _column(name, examples, first) for name in copied}
                _check_pictures(examples, first, interface, max_pixels)
                yield Block(len(examples), first, None, examples, columns)
                row += len(examples)
        except tf.errors.OpError as error:
            raise DataError(
                f"{file} is damaged or truncated after about {counted(row - 1, 'record')}: copy or"
                " write the file again (the name of a gzipped file must end in .gz)."
            ) from error


def _check_pictures(
    examples: Sequence[bytes], first: Cell, interface: ModelInterface, max_pixels: int
) -> None:
    """Raises DataError for the first record with a picture that the model cannot decode."""
    measure_pictures(
        {EXAMPLES_INPUT: np.array(examples, object)},
        interface,
        are_examples=True,
        max_pixels=max_pixels,
        format_row=lambda row: f"record {first.row + row} of {first.file}",
    )


def _column(name: str, examples: Sequence[bytes], first: Cell) -> pa.Array:
    """Returns a feature with one value per record, or null if a record lacks the feature."""
    return pa.array([_value(name, example, first, row) for row, example in enumerate(examples)])


def _value(name: str, example: bytes, first: Cell, row: int) -> str | float | None:
    import tensorflow as tf

    features = tf.train.Example.FromString(example).features.feature
    kind = features[name].WhichOneof("kind") if name in features else None
    values = list(getattr(features[name], kind).value) if kind else []
    if len(values) > 1:
        raise ConfigError(
            f"--columns {name}: record {first.row + row} of {first.file} has {len(values)}"
            " values, expected one value; remove the column from --columns."
        )
    if not values:
        return None
    value: bytes | float = values[0]
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else value
