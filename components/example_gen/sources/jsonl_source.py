"""JSON lines: an object a line, parsed by Arrow some thousand lines at a time.

The fields of nested objects are columns named by their path, such as `address.city`. Rows are
counted as objects, from 1; a key that is absent from a line is a missing value, as null is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pa_json

from components.example_gen.columns.encoded import (
    Cell,
    ColumnKind,
    encode_typed,
    flatten,
    kind_of,
    no_values,
    unsupported_type_error,
)
from components.example_gen.columns.type_inference import ColumnSurvey, needs_integers
from components.example_gen.files import check_is_text, open_stream, reason_of, unreadable_error
from components.example_gen.sources.base import Batch, Files, Source, Survey
from trainer_module.errors import DataError

_BLOCK_BYTES = 4 << 20
_MARK = b"\xef\xbb\xbf"
_CONFLICT = re.compile(r"Column\((.*)\) (changed from \w+ to \w+|was specified twice) in row (\d+)")


@dataclass(frozen=True)
class _Block:
    """A block of whole lines of a file."""

    file: str
    data: bytes
    lines_before: int
    rows_before: int = 0

    def first(self, values: pa.ChunkedArray) -> Cell:
        """Returns the first value of a column of this block that is not missing."""
        row = values.is_valid().index(True).as_py()
        return Cell(self.file, self.rows_before + row + 1, str(values[row].as_py()))


class JsonlSource(Source):
    """A reader of JSON lines in two passes."""

    def survey(self, files: Files) -> Survey:
        """Returns the columns of one file, with types from all of its lines."""
        check_is_text(files[0], "JSON lines")
        columns: dict[str, ColumnSurvey] = {}
        for block, table in _read(files[0]):
            for name, values in zip(table.column_names, table.columns, strict=True):
                earlier, in_block = columns.get(name, ColumnSurvey()), _survey(name, values, block)
                if (
                    ColumnKind.BYTES in (earlier.kind, in_block.kind)
                    and earlier.numbers + in_block.numbers
                ):
                    raise _type_error(name, block.first(values))
                columns[name] = earlier.merge(in_block)
        if not columns:
            raise DataError(
                f"{files[0]} holds no object with keys: write one object per line, or leave the"
                " file out."
            )
        if "" in columns:
            raise DataError(f"A key in {files[0]} is empty: give each column a name.")
        return Survey(files[0], columns)

    def peek(self, files: Files) -> dict[str, ColumnKind]:
        """Returns the keys of the first lines."""
        check_is_text(files[0], "JSON lines")
        for block, table in _read(files[0]):
            return {
                name: _survey(name, values, block).kind
                for name, values in zip(table.column_names, table.columns, strict=True)
            }
        raise DataError(
            f"{files[0]} holds no object: write one object per line, or leave the file out."
        )

    def read(self, files: Files, kinds: dict[str, ColumnKind]) -> Iterator[Batch]:
        """Yields the rows of one file, a block at a time."""
        file = files[0]
        for block, table in _read(file):
            columns = [
                encode_typed(name, table[name].combine_chunks(), kind, file)
                if name in table.column_names
                else no_values(table.num_rows, kind)
                for name, kind in kinds.items()
            ]
            rows = pa.record_batch(columns, list(kinds))
            yield Batch(rows, Cell(file, block.rows_before + 1))


def _survey(name: str, values: pa.ChunkedArray, block: _Block) -> ColumnSurvey:
    kind = kind_of(values.type)
    if kind is None:
        raise unsupported_type_error(name, values.type, block.file)
    count = len(values) - values.null_count
    if not count or kind is ColumnKind.UNKNOWN:
        return ColumnSurvey()
    if kind is ColumnKind.BYTES:
        return ColumnSurvey(kind, texts=count, first_text=block.first(values))
    numbers = values if pa.types.is_primitive(values.type) else pc.list_flatten(values)
    large = kind is ColumnKind.INT and needs_integers(numbers)
    return ColumnSurvey(kind, numbers=count, needs_integers=large)


def _read(file: str) -> Iterator[tuple[_Block, pa.Table]]:
    """Yields the blocks of a file, each with its table, in which nested objects are flattened."""
    rows = 0
    for block in _read_blocks(file):
        counted = replace(block, rows_before=rows)
        table = flatten(_parse(counted), file)
        rows += table.num_rows
        if table.num_rows:
            yield counted, table


def _read_blocks(file: str) -> Iterator[_Block]:
    lines, rest = 0, b""
    try:
        with open_stream(file) as stream:
            while True:
                data = stream.read(_BLOCK_BYTES)
                rest += data if lines or rest else data.removeprefix(_MARK)
                end = rest.rfind(b"\n") + 1 if data else len(rest)
                if end:
                    yield _Block(file, rest[:end], lines)
                    lines, rest = lines + rest.count(b"\n", 0, end), rest[end:]
                if not data:
                    return
    except OSError as error:
        raise unreadable_error(file, error) from error


def _parse(block: _Block) -> pa.Table:
    try:
        block.data.decode()
    except UnicodeDecodeError as error:
        line = block.lines_before + block.data.count(b"\n", 0, error.start) + 1
        raise DataError(
            f"Line {line} of {block.file} is not UTF-8: save the file in that encoding."
        ) from error
    try:
        table = _parse_as(block, pa.schema([]))
        # Arrow would convert texts that look like times.
        texts = [f.with_type(t) for f in table.schema if (t := _without_times(f.type)) != f.type]
        return _parse_as(block, pa.schema(texts)) if texts else table
    except pa.ArrowInvalid as error:
        raise _syntax_error(block, error) from error


def _parse_as(block: _Block, schema: pa.Schema) -> pa.Table:
    if not block.data.strip():
        return pa.table({})
    return pa_json.read_json(
        pa.BufferReader(block.data),
        pa_json.ReadOptions(use_threads=False, block_size=len(block.data) + 1),
        pa_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="infer"),
    )


def _without_times(column_type: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(column_type):
        return pa.string()
    if pa.types.is_list(column_type):
        return pa.list_(_without_times(column_type.value_type))
    if pa.types.is_struct(column_type):
        return pa.struct([f.with_type(_without_times(f.type)) for f in column_type.fields])
    return column_type


def _syntax_error(block: _Block, error: Exception) -> DataError:
    """Returns the error for a block that Arrow cannot parse, with the line at fault."""
    rows = []
    for number, line in enumerate(block.data.splitlines(), block.lines_before + 1):
        if not line.strip():
            continue
        rows.append(number)
        try:
            value = json.loads(line.decode())
        except json.JSONDecodeError as broken:
            reason = " ".join(str(broken).split()).removesuffix(f" (char {broken.pos})")
            return _line_error(block.file, number, reason.replace("line 1 column", "column"))
        if not isinstance(value, dict):
            return _line_error(block.file, number, f"found a {type(value).__name__}")
    conflict = _CONFLICT.search(str(error))
    if conflict is None:
        return DataError(f"{block.file} is not in JSON lines ({reason_of(error)}): write it again.")
    path = conflict[1].strip("/").replace("/[]", "").replace("/", ".")
    return DataError(
        f"Key {path!r} {conflict[2]} in line {rows[int(conflict[3])]} of {block.file}: write it"
        " once per line, with the same type in every line (null means missing)."
    )


def _line_error(file: str, line: int, reason: str) -> DataError:
    return DataError(
        f"Line {line} of {file} is not a JSON object ({reason}): every line needs an object, such"
        " as"
        ' {"size": 2.5, "label": 1}.'
    )


def _type_error(name: str, cell: Cell) -> DataError:
    return DataError(
        f"Key {name!r} is {cell.value!r} in {cell}, but has another type in earlier rows: write"
        " only numbers, or only text (null means missing)."
    )
