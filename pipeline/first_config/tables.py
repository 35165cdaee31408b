"""The proposal for a table: its label, task, split and features."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from components.column_types.choice import Choice
from components.column_types.decision import choose_types
from components.column_types.facts import Facts, collect_facts, collect_list_facts
from components.example_gen.checks.report import (
    MIN_ROWS,
    few_rows_error,
    note_similar_classes,
)
from components.example_gen.columns.type_inference import are_placeholders
from components.example_gen.formats import FORMATS, CsvSettings
from components.example_gen.undeclared import check_header
from pipeline.first_config.beginnings import Beginning, original_names
from pipeline.first_config.found_data import FoundData
from pipeline.first_config.labels import (
    OPTION,
    check_label,
    name_label,
    no_label_error,
    rank_labels,
)
from pipeline.first_config.leaks import find_leaks
from pipeline.first_config.pictures import find_encoded, find_path_columns
from pipeline.first_config.proposal import Proposal, choose_metrics, task_comment, task_value
from pipeline.first_config.splits import choose_split, is_series
from pipeline.first_config.tasks import choose_task
from trainer_module.errors import DataError, counted
from trainer_module.settings.tasks import BaseTask

_MAX_FEATURES = 12
"""The maximum number of features of which the config lists the inferred types."""

ChooseLabel = Callable[[list[str]], str]
"""A function that returns the label among candidates, of which the first is the likeliest."""
Features = dict[str, dict[str, Any]]
"""The section `features`."""


@dataclass(frozen=True)
class Table:
    """The first rows of a table, with facts about its columns."""

    data: FoundData
    beginning: Beginning
    pictures: Features
    """The columns that hold or name pictures."""
    facts: Mapping[str, Facts]
    """The facts about the other columns, in the order of the data."""

    @classmethod
    def of(cls, data: FoundData, beginning: Beginning) -> Table:
        """Returns the table with facts about its columns.

        Raises:
          DataError: the table has too few rows, or names pictures that do not exist.
        """
        rows = beginning.rows
        if rows.rows < MIN_ROWS and not data.splits:
            raise few_rows_error(rows.rows)
        pictures = _find_pictures(data, beginning)
        columns = {name: v for name, v in rows.columns.items() if name not in pictures}
        facts = [
            *collect_facts(columns, rows.dates, rows.total),
            *collect_list_facts(rows.lists),
        ]
        return cls(data, beginning, pictures, {column.name: column for column in facts})

    def choose_types(self, label: str = "") -> dict[str, Choice]:
        """Returns the types of all columns except the label and pictures."""
        return choose_types([facts for name, facts in self.facts.items() if name != label])

    def inputs(self, label: str) -> dict[str, pa.Array]:
        """Returns the columns of one value per row, except the label and pictures."""
        columns = self.beginning.rows.columns
        return {n: v for n, v in columns.items() if n != label and n not in self.pictures}


def _find_pictures(data: FoundData, beginning: Beginning) -> Features:
    if data.features:
        return {name: dict(feature) for name, feature in data.features.items()}
    spec = FORMATS[data.format]
    encoded = {name: {"type": "image"} for name in find_encoded(beginning.rows)}
    if encoded and spec.holds_bytes:
        return encoded
    if not spec.names_pictures:
        return {}
    paths = find_path_columns(beginning.rows, Path(beginning.originals[0]))
    return {
        name: {"type": "image", "from": "path"} | ({"folder": folder} if folder else {})
        for name, folder in paths.items()
    }


def choose_label(table: Table, label: str | None, choose: ChooseLabel) -> str:
    """Returns the label that the user names, or that `choose` chooses among the likely ones.

    Raises:
      DataError: the label cannot be one, or no column looks like one.
    """
    types, rows = table.choose_types(), table.beginning.rows
    if label is None:
        candidates = rank_labels(table.facts, types)
        named = name_label(table.facts)
        if named is not None and named not in candidates:
            check_label(named, table.facts, types, table.facts, table.beginning.is_complete)
        if not candidates:
            raise no_label_error(table.data.path, types)
        label = choose(candidates)
    if label in table.pictures:
        raise DataError(
            f"Label {label!r} contains pictures, which are inputs: name another by {OPTION}."
        )
    names = [*rows.columns, *rows.lists, *rows.vectors]
    if label not in names and table.beginning.dialect.header is not None:
        with original_names(table.beginning.files, table.beginning.originals):
            check_header(table.beginning.files[0], table.beginning.dialect, label)
    check_label(label, table.facts, types, names, table.beginning.is_complete)
    return label


def propose_table(table: Table, name: str, label: str) -> Proposal:
    """Returns the config for a table.

    Args:
      label: the label, which has been checked.
    """
    table = _mark_unlabelled(table, label)
    beginning, types = table.beginning, table.choose_types(label)
    labels = beginning.rows.columns[label]
    are_plain = not table.pictures and all(choice.type != "text" for choice in types.values())
    task = choose_task(table.facts[label], beginning.is_complete and are_plain)
    is_class = task.label_kind.is_classification
    data = _data_section(table, label, types, is_class)
    features, comments = _required_features(table, label)
    leaks, reasons = _leaks(table, types, label, task)
    if not leaks.keys() >= {name for name, choice in types.items() if not choice.is_ignored}:
        features, comments = leaks | features, reasons | comments
    for column, choice in _notable(types, beginning.is_complete):
        if column not in features and len(features) < _MAX_FEATURES:
            features[column] = choice.settings
            comments[column] = choice.reason
    return Proposal(
        {
            "name": name,
            "data": data,
            "task": task_value(task),
            **({"features": features} if features else {}),
            "evaluate": choose_metrics(task, _shares(labels) if is_class else []),
        },
        {
            "task": task_comment(task, not table.facts[label].is_text),
            **_order_comment(table, data, is_class),
            **{f"features.{column}": reason for column, reason in comments.items()},
        },
        _extent(table),
        _describe_types(types, features),
        (*table.data.notes, *_header_note(beginning), *_class_notes(label, labels, is_class)),
        table.data.table,
    )


def _class_notes(label: str, labels: pa.Array, is_class: bool) -> list[str]:
    return note_similar_classes(label, labels.drop_null().unique().to_pylist()) if is_class else []


def _extent(table: Table) -> str:
    """Returns the number of rows that were read, such as `20,000 of 50,000 rows`."""
    beginning, rows = table.beginning, table.beginning.rows
    if beginning.is_complete:
        return f"all {counted(rows.rows, 'row')}"
    part = f"{rows.rows:,} of " if rows.rows < rows.total else ""
    whole = table.data.files == beginning.files
    return f"{part}{'' if whole else 'the first '}{counted(rows.total, 'row')}"


_CLASS_NAMES = ["none", "nil", "nan"]
"""The placeholders that may be the name of a class, such as a damage of none."""


def _mark_unlabelled(table: Table, label: str) -> Table:
    """Returns the table with labels such as N/A as missing values, if two classes remain.

    They are `missing_values` of CSV files; other formats have no such names.
    """
    beginning, values = table.beginning, table.beginning.rows.columns[label]
    if not pa.types.is_binary(values.type) or table.data.format != "csv":
        return table
    names = pc.ascii_lower(pc.ascii_trim_whitespace(values.view(pa.string())))
    may_be_class = pc.is_in(names, pa.array(_CLASS_NAMES))
    missing = pc.and_not(are_placeholders(names), may_be_class)
    found = sorted(text.decode() for text in values.filter(missing).unique().to_pylist())
    update = {"missing_values": found}
    beginning = replace(beginning, dialect=beginning.dialect.model_copy(update=update))
    labels = pc.if_else(missing, pa.scalar(None, values.type), values)
    (facts,) = collect_facts({label: labels}, {}, beginning.rows.total)
    if facts.distinct < 2:
        return table
    rows = replace(beginning.rows, columns={**beginning.rows.columns, label: labels})
    facts = replace(facts, dates=table.facts[label].dates)
    return replace(
        table,
        beginning=replace(beginning, rows=rows),
        facts={**table.facts, label: facts},
    )


def _data_section(
    table: Table, label: str, types: Mapping[str, Choice], is_class: bool
) -> dict[str, Any]:
    """Returns the section `data`."""
    data, labels = table.data, table.beginning.rows.columns[label]
    section: dict[str, Any] = {"format": data.format, "path": data.path, "label": label}
    csv = _dialect(table.beginning.dialect)
    if is_class and (missing := table.beginning.placeholders.get(label)):
        csv["missing_values"] = missing  # Otherwise a run reads them as a class.
    if data.format == "csv" and csv:
        section["csv"] = csv
    if data.splits:
        section["splits"] = dict(data.splits)
    else:
        section |= choose_split(table.inputs(label), types, labels, is_class)
    if table.facts[label].has_gaps:
        section["unlabelled"] = "skip"
    return section


def _dialect(csv: CsvSettings) -> dict[str, Any]:
    return csv.model_dump(mode="json", exclude_defaults=True)


def _order_comment(table: Table, data: Mapping[str, Any], is_class: bool) -> dict[str, str]:
    """Returns the comment on `data.order_by`, if the section `data` has this key."""
    if "order_by" not in data:
        return {}
    if data["order_by"] is None:
        comment = "a random fifth of the rows evaluates, although rows have dates"
    elif not is_class and is_series(table.beginning.rows.columns[data["order_by"]]):
        comment = "the newest fifth of the rows evaluates; data.lags adds past labels as inputs"
    else:
        comment = "the newest fifth of the rows evaluates; null: a random fifth"
    return {"data.order_by": comment}


def _shares(labels: pa.Array) -> list[float]:
    counts = pc.value_counts(labels.drop_null()).field("counts").to_pylist()
    return [count / sum(counts) for count in counts]


def _required_features(table: Table, label: str) -> tuple[Features, dict[str, str]]:
    """Returns the features that a run does not infer, and comments on them."""
    features = {n: dict(feature) for n, feature in table.pictures.items() if n != label}
    mixed = [name for name in table.beginning.mixed if name != label and name not in features]
    comments = dict.fromkeys(mixed, "numbers and text")
    return features | {name: {"type": "categorical"} for name in mixed}, comments


def _leaks(
    table: Table, types: Mapping[str, Choice], label: str, task: BaseTask
) -> tuple[Features, dict[str, str]]:
    """Returns the columns that give the label away, as ignored features with comments."""
    inputs = {name: values for name, values in table.inputs(label).items() if name in types}
    labels = table.beginning.rows.columns[label]
    found = list(find_leaks(inputs, types, labels, task.label_kind))
    reasons = {
        leak.column: f"alone predicts the label ({leak}): is it known before the label?"
        for leak in found
    }
    return {leak.column: {"type": "ignore"} for leak in found}, reasons


def _notable(types: Mapping[str, Choice], is_complete: bool) -> Iterator[tuple[str, Choice]]:
    """Yields the columns of text, and the ignored columns if all rows have been read."""
    for name, choice in types.items():
        if choice.type == "text" or (choice.is_ignored and is_complete):
            yield name, choice


def _describe_types(types: Mapping[str, Choice], features: Features) -> str:
    """Returns the number of columns of each type, such as `2 numeric, 1 text`."""
    inferred = {name: choice.type for name, choice in types.items()}
    declared = {name: str(feature["type"]) for name, feature in features.items()}
    counts = Counter((inferred | declared).values())
    return ", ".join(f"{count:,} {kind}" for kind, count in counts.most_common())


def _header_note(beginning: Beginning) -> Iterator[str]:
    """Yields a note if the file has no header."""
    if beginning.dialect.header is not None:
        yield (
            f"the first row of {beginning.originals[0]} looks like data, so the columns are named"
            " by numbers: write their names into data.csv.header"
        )
