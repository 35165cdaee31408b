"""The source of JSON lines: each line is an object, and Arrow parses some thousand lines at a time.

The fields of nested objects are columns whose names are paths, such as `address.city`. Row 1 is the
first object. A key that a line lacks is a missing value, like null.
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
from components.row_progress import count_rows
from trainer_module.errors import DataError

_BLOCK_BYTES = 4 << 20
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_CONFLICT = re.compile(r"Column\((.*)\) (changed from \w+ to \w+|was specified twice) in row (\d+)")


@dataclass(frozen=True)
class _Block:
    """A block of complete lines of a file."""

    file: str
    data: bytes
    lines_before: int
    rows_before: int = 0

    def first_cell(self, values: pa.ChunkedArray) -> Cell:
        """Returns the first cell of a column of the block that has a value."""
        row = values.is_valid().index(True).as_py()
        return Cell(self.file, self.rows_before + row + 1, str(values[row].as_py()))


class JsonlSource(Source):
    """A reader of JSON lines. The first pass infers the types; the second pass reads the rows."""

    def survey(self, files: Files) -> Survey:
        """Returns the columns of a file with the types of all lines."""
        check_is_text(files[0], "JSON lines")
        columns: dict[str, ColumnSurvey] = {}
        rows = 0
        for block, table in _read(files[0]):
            rows += table.num_rows
            count_rows(table.num_rows)
            for name, values in zip(table.column_names, table.columns, strict=True):
                earlier, in_block = columns.get(name, ColumnSurvey()), _survey(name, values, block)
                if (
                    ColumnKind.BYTES in (earlier.kind, in_block.kind)
                    and earlier.numbers + in_block.numbers
                ):
                    raise _type_error(name, block.first_cell(values))
                columns[name] = earlier.merge(in_block)
        if not columns:
            raise DataError(
                f"{files[0]} contains no object with keys: write one object per line, or remove the"
                " file."
            )
        if "" in columns:
            raise DataError(f"{files[0]} contains an empty key: give each column a name.")
        return Survey(files[0], columns, rows=rows)

    def peek(self, files: Files) -> dict[str, ColumnKind]:
        """Returns the columns of the first block of lines."""
        check_is_text(files[0], "JSON lines")
        for block, table in _read(files[0]):
            return {
                name: _survey(name, values, block).kind
                for name, values in zip(table.column_names, table.columns, strict=True)
            }
        raise DataError(
            f"{files[0]} contains no object: write one object per line, or remove the file."
        )

    def read(self, files: Files, kinds: dict[str, ColumnKind]) -> Iterator[Batch]:
        """Yields the rows of a file. Each batch is a block."""
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
        return ColumnSurvey(kind, texts=count, first_text=block.first_cell(values))
    numbers = values if pa.types.is_primitive(values.type) else pc.list_flatten(values)
    large = kind is ColumnKind.INT and needs_integers(numbers)
    return ColumnSurvey(kind, numbers=count, needs_integers=large)


def _read(file: str) -> Iterator[tuple[_Block, pa.Table]]:
    """Yields the blocks of a file, each with a table of its rows. Nested objects are flattened."""
    rows = 0
    for lines in _read_blocks(file):
        block = replace(lines, rows_before=rows)
        table = flatten(_parse(block), file)
        rows += table.num_rows
        if table.num_rows:
            yield block, table


def _read_blocks(file: str) -> Iterator[_Block]:
    lines, rest = 0, b""
    try:
        with open_stream(file) as stream:
            while True:
                data = stream.read(_BLOCK_BYTES)
                rest += data if lines or rest else data.removeprefix(_BYTE_ORDER_MARK)
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
            f"Line {line} of {block.file} is not UTF-8: save the file as UTF-8."
        ) from error
    try:
        table = _parse_as(block, pa.schema([]))
        # Arrow converts strings that look like times, so the block is parsed again with strings.
        texts = [f.with_type(t) for f in table.schema if (t := _without_times(f.type)) != f.type]
        table = _parse_as(block, pa.schema(texts)) if texts else table
        return table if _is_valid(table) else _parse_lists(block, table.schema)
    except pa.ArrowInvalid as error:
        raise _syntax_error(block, error) from error


def _is_valid(table: pa.Table) -> bool:
    try:
        table.validate()
    except pa.ArrowInvalid:
        return False
    return True


def _parse_lists(block: _Block, schema: pa.Schema) -> pa.Table:
    """Returns the table of a block whose lists are invalid, as Arrow 18 infers them, because a null
    precedes their first value. Arrow reads lists of a known type correctly.
    """
    no_values = pa.list_(pa.null())
    types = (pa.list_(pa.string()) if f.type == no_values else f.type for f in schema)
    known = [f.with_type(known_type) for f, known_type in zip(schema, types, strict=True)]
    table = _parse_as(block, pa.schema(known))
    for index, field in enumerate(schema):
        if field.type == no_values:
            table = table.set_column(index, field.name, pa.nulls(len(table)))
    return table


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
    """Returns the error for a block that Arrow cannot parse, with the number of the wrong line."""
    rows = []
    for number, line in enumerate(block.data.splitlines(), block.lines_before + 1):
        if not line.strip():
            continue
        rows.append(number)
        try:
            value = json.loads(line.decode())
        except json.JSONDecodeError as json_error:
            reason = " ".join(str(json_error).split()).removesuffix(f" (char {json_error.pos})")
            return _line_error(block.file, number, reason.replace("line 1 column", "column"))
        if not isinstance(value, dict):
            return _line_error(block.file, number, f"found a {type(value).__name__}")
    conflict = _CONFLICT.search(str(error))
    if conflict is None:
        return DataError(f"{block.file} is not JSON lines ({reason_of(error)}): write it again.")
    path = conflict[1].strip("/").replace("/[]", "").replace("/", ".")
    return DataError(
        f"Key {path!r} {conflict[2]} in line {rows[int(conflict[3])]} of {block.file}: write every"
        " key once per line, with the same type in every line (null means missing)."
    )


def _line_error(file: str, line: int, reason: str) -> DataError:
    return DataError(
        f"Line {line} of {file} is not a JSON object ({reason}): expected an object in every line,"
        ' such as {"size": 2.5, "label": 1}.'
    )


def _type_error(name: str, cell: Cell) -> DataError:
    return DataError(
        f"Key {name!r} is {cell.value!r} in {cell}, but has another type in earlier rows: write"
        " only numbers, or only text (null means missing)."
    )
