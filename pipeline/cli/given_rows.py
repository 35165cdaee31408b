"""Rows on the command line (`predict --row`), and their predictions on the screen."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from rich.console import Console
from rich.text import Text

from pipeline.cli.options import plain_table
from pipeline.report.text import number, percent, signed, visible
from trainer_module.errors import ConfigError, DataError, counted, shorten
from trainer_module.export.interface import ModelInterface, RawColumn

Row = dict[str, Any]

_SHOWN_COLUMNS = 20
"""The most columns that a message lists."""
_SHOWN_CLASSES = 10
"""The number of classes that are shown without `--top-k`."""
_BAR = 30
"""The width of a bar for the score 1, in characters."""
_CLASSES, _SCORES, _SCORE = "classes", "scores", "score_"
_EXPLANATION, _OTHERS, _BASE = "explanation", "others", "base"


def parse_rows(
    texts: Sequence[str], interface: ModelInterface, other: Collection[str]
) -> list[Row]:
    """Returns the rows of `--row` options, whose numbers in text columns are texts.

    Args:
      texts: a JSON object per row.
      other: columns of the data that a row may have, although the model does not take them.

    Raises:
      ConfigError: a text is not a JSON object.
      DataError: the model does not take a column, or a value has the wrong type.
    """
    rows = [_parse(text, interface) for text in texts]
    return check_rows(rows, interface, other)


def check_rows(
    rows: Iterable[Mapping[str, Any]], interface: ModelInterface, other: Collection[str]
) -> list[Row]:
    """Returns rows in which the numbers in text columns are texts.

    Args:
      rows: the rows, with JSON values, and bytes for pictures.
      other: columns of the data that a row may have, although the model does not take them.

    Raises:
      DataError: the model does not take a column, or a value has the wrong type.
    """
    others = {*other, *interface.ignored, interface.label, interface.weight}
    return [_check(row, interface, others) for row in rows]


def _parse(text: str, interface: ModelInterface) -> Row:
    try:
        row = json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_to_object)
    except (ValueError, RecursionError) as error:
        reason = shorten(error, 100)
    else:
        if isinstance(row, dict) and row:
            return row
        reason = "it has no columns" if row == {} else "it is not an object"
    raise ConfigError(
        f"--row {shorten(text, 60)}: this is not a JSON object ({reason}); write"
        f" --row '{_example(interface)}'."
    )


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON, and a missing value is null")


def _to_object(pairs: Sequence[tuple[str, Any]]) -> Row:
    row = dict(pairs)
    if len(row) < len(pairs):
        name = next(name for index, (name, _) in enumerate(pairs) if name in dict(pairs[:index]))
        raise ValueError(f"the key {name!r} occurs twice")
    return row


def _example(interface: ModelInterface) -> str:
    """Returns a row with the first columns of a model, as JSON."""
    values = {column.name: _sample(column) for column in interface.columns[:2]}
    return json.dumps(values, ensure_ascii=False)


def _sample(column: RawColumn) -> str | float | list[Any]:
    if column.width != 1:
        return []
    if column.picture:
        return "picture.png"
    return "text" if column.dtype == "string" else 1 if column.is_whole else 1.5


def _check(row: Mapping[str, Any], interface: ModelInterface, other: Collection[str | None]) -> Row:
    """Returns a row with its numbers in text columns as texts, after checking names and types."""
    checked: Row = {}
    for name, value in _flatten(row):
        column = interface.column(name)
        if column is None and name not in other:
            # The names of requests to `serve` are accepted, too.
            column = interface.by_request.get(name)
            name = column.name if column else name
        if name in checked:
            raise DataError(f"--row: the column `{name}` is given twice, by both of its names.")
        if column is None:
            if name not in other and not _is_list_part(name, interface):
                raise _unknown(name, interface)
            checked[name] = value
            continue
        if column.picture and isinstance(value, bytes):
            checked[name] = value
            continue
        if column.picture == "bytes":
            raise DataError(
                f"--row: the column `{name}` is a picture, which JSON cannot contain; write"
                " --input picture.png."
            )
        is_list = isinstance(value, list)
        if value is not None and is_list == (column.width == 1):
            raise _wrong_type(name, value, column, interface)
        items = [_to_item(v, name, column, interface) for v in (value if is_list else [value])]
        checked[name] = items if is_list else items[0]
    return checked


def _flatten(row: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    """Yields the fields of a row; the fields of nested objects have paths as names."""
    for name, value in row.items():
        if isinstance(value, dict):
            yield from _flatten(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _is_list_part(name: str, interface: ModelInterface) -> bool:
    """Returns whether a name is a part of a list, such as `pixels_3` of `pixels`."""
    column = interface.column(name.rpartition("_")[0])
    return column is not None and column.width not in (None, 1)


def _to_item(value: Any, name: str, column: RawColumn, interface: ModelInterface) -> Any:
    """Returns a single value, or raises DataError if it has the wrong type."""
    if value is None or (isinstance(value, str) and column.dtype == "string"):
        return value
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    is_number = is_number and abs(value) <= sys.float_info.max
    if is_number and column.dtype != "string" and not (column.is_whole and value % 1):
        return value
    reader = column.text_reader
    text = reader.write(value) if reader and isinstance(value, int | float) else None
    if text is not None:
        return text.decode()
    raise _wrong_type(name, value, column, interface)


def _wrong_type(name: str, value: Any, column: RawColumn, interface: ModelInterface) -> DataError:
    return DataError(
        f"--row: the column `{name}` is {shorten(json.dumps(value, ensure_ascii=False), 60)},"
        f" expected {_kind(column)}; the model takes {_list_columns(interface)}."
    )


def _unknown(name: str, interface: ModelInterface) -> DataError:
    near = get_close_matches(name[:100], [column.name for column in interface.columns], n=1)
    hint = f" (did you mean `{near[0]}`?)" if near else ""
    return DataError(
        f"--row: the model has no column `{shorten(name, 60)}`{hint}; it takes"
        f" {_list_columns(interface)}."
    )


def _kind(column: RawColumn) -> str:
    """Returns the kind of a column's values in words."""
    reader = column.text_reader
    if column.picture:
        kind = "the path of a picture"
    elif column.dtype != "string":
        kind = "a whole number" if column.is_whole else "a number"
    else:
        kind = "text" if reader is None else reader.right
    return kind if column.width == 1 else f"a list with {kind} in each place"


def _list_columns(interface: ModelInterface) -> str:
    shown = [f"{column.name} ({_kind(column)})" for column in interface.columns]
    more = len(shown) - _SHOWN_COLUMNS
    rest = [f"and {counted(more, 'other column')}"] if more > 0 else []
    return ", ".join([*shown[:_SHOWN_COLUMNS], *rest])


def print_predictions(
    console: Console, predictions: Sequence[Row], copied: Collection[str], top_k: int | None
) -> None:
    """Prints the predictions of rows.

    Args:
      predictions: the columns of the predictions by name, of each row.
      copied: the names of columns that were copied from the rows.
      top_k: the number of classes in each prediction, or None for all classes.
    """
    for index, prediction in enumerate(predictions, 1):
        if len(predictions) > 1:
            console.print(f"{'' if index == 1 else chr(10)}row {index}")
        table = plain_table("", "", "")
        table.show_header = False
        for line in _lines(prediction, copied, top_k):
            table.add_row(*(Text(visible(str(cell))) for cell in line))
        console.print(table, soft_wrap=False)


def _lines(
    prediction: Row, copied: Collection[str], top_k: int | None
) -> Iterable[tuple[str, str, str]]:
    """Yields the lines of a prediction: a name, a value and a bar or an empty text."""
    shares = prediction.get(_EXPLANATION)
    scores, hidden = _scores(prediction, copied, top_k)
    hidden |= set() if shares is None else {_EXPLANATION, _OTHERS, _BASE}
    for name, value in prediction.items():
        if name not in hidden:
            yield name, _shown(value), ""
    ranked = sorted(scores, key=lambda pair: -pair[1])
    for label, score in ranked[: top_k or _SHOWN_CLASSES]:
        yield f"  {label}", percent(score), "█" * round(_BAR * score)
    if top_k is None and len(ranked) > _SHOWN_CLASSES:
        yield f"  and {counted(len(ranked) - _SHOWN_CLASSES, 'other class')}", "", ""
    if shares is not None:
        yield _EXPLANATION, "", ""
        for share in shares:
            yield f"  {share['column']}", signed(share["share"]), ""
        yield f"  {_OTHERS}", signed(prediction[_OTHERS]), ""
        yield f"  {_BASE}", number(prediction[_BASE]), ""


def _scores(
    prediction: Row, copied: Collection[str], top_k: int | None
) -> tuple[list[tuple[str, float]], set[str]]:
    """Returns the classes with their scores, and the names of the columns that contain them."""
    columns = {name: value for name, value in prediction.items() if name not in copied}
    if "class" not in columns:
        return [], set()
    if top_k is None:
        names = {name for name in columns if name.startswith(_SCORE)}
        return [(n.removeprefix(_SCORE), v or 0.0) for n, v in columns.items() if n in names], names
    classes = [name for name in columns if re.fullmatch(rf"{_CLASSES}_\d+", name)]
    scores = [f"{_SCORES}{name.removeprefix(_CLASSES)}" for name in classes]
    pairs = [(columns[c], columns[s] or 0.0) for c, s in zip(classes, scores, strict=True)]
    return pairs, {*classes, *scores}


def _shown(value: Any) -> str:
    """Returns a value with six significant digits, and all digits before the decimal point."""
    if not isinstance(value, float):
        return "" if value is None else str(value)
    return f"{value:.0f}" if 1e6 <= abs(value) < 1e15 else f"{value:.6g}"
