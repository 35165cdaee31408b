"""Rows whose labels are in other files: they are joined by a key as the rows are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from components.example_gen.checks.columns import show_names
from components.example_gen.columns.encoded import (
    ColumnKind,
    first_values,
    no_values,
    single_values,
)
from components.example_gen.columns.seen import SeenColumn
from components.example_gen.columns.served import REQUEST_ID
from components.example_gen.formats import ExampleGenSettings
from components.example_gen.label_settings import LabelsSettings
from components.example_gen.paths import find_label_files, label_format
from components.example_gen.sources.base import Batch, Files, RowsSource, Source, Survey
from trainer_module.errors import DataError

_JOINED_ROWS = 65_536
"""That are joined together: each join looks at all labels."""

MakeSource = Callable[[ExampleGenSettings], Source]


@dataclass(frozen=True)
class _Labels:
    """All labels: keys as text, each once, and the label of each."""

    keys: pa.Array
    labels: pa.Array


class JoinedSource(RowsSource):
    """A source whose rows get the labels of other files; a row without one has none."""

    def __init__(
        self,
        settings: ExampleGenSettings,
        labels: LabelsSettings,
        rows: Source,
        make_source: MakeSource,
    ) -> None:
        """Reads nothing yet.

        Args:
          settings: of the rows.
          labels: where the labels are.
          rows: reads the rows.
          make_source: makes what reads a format.
        """
        super().__init__(settings, rows)
        self._labels, self._make_source = labels, make_source
        self._column: SeenColumn | None = None
        self._found: tuple[ColumnKind, _Labels] | None = None

    def survey(self, files: Files) -> Survey:
        """The columns of the rows, and the label."""
        survey = self._rows.survey(files)
        _check_columns(survey.columns, self._labels.key, self._settings.label, files[0])
        if self._column is None:
            self._column = self._survey_labels()
        return replace(survey, columns={**survey.columns, self._settings.label: self._column})

    def glance(self, files: Files) -> dict[str, ColumnKind]:
        """The columns at the beginning of the rows, and the label."""
        return {name: column.kind for name, column in self.survey(files).columns.items()}

    def read(self, files: Files, kinds: dict[str, ColumnKind]) -> Iterator[Batch]:
        """Yields the rows with their labels; the id of a request is no data."""
        kind = kinds[self._settings.label]
        if self._found is None or self._found[0] is not kind:
            self._found = kind, self._read_labels(kind)
        batches: list[Batch] = []
        for batch in self._rows.read(files, kinds):
            batches.append(batch)
            if sum(one.rows.num_rows for one in batches) >= _JOINED_ROWS:
                yield from self._join(batches, self._found[1])
                batches = []
        yield from self._join(batches, self._found[1])

    def _join(self, batches: Sequence[Batch], found: _Labels) -> Iterator[Batch]:
        if not batches:
            return
        key = self._labels.key
        keys = pa.chunked_array(
            [_as_text(b.rows.column(key), key, b.first.file) for b in batches], pa.binary()
        )
        places = pc.index_in(keys, value_set=found.keys).combine_chunks()
        start = 0
        for batch in batches:
            rows, count = batch.rows, batch.rows.num_rows
            values = found.labels.take(places.slice(start, count))
            is_empty = values.null_count == count
            label = no_values(count) if is_empty else single_values(values)
            rows = rows.append_column(self._settings.label, label)
            if key == REQUEST_ID:
                rows = rows.drop_columns([key])
            yield replace(batch, rows=rows, examples=None)
            start += count

    def _sources(self) -> Iterator[tuple[Source, Files]]:
        """What reads each file of labels."""
        for file in find_label_files(self._labels.path):
            yield self._make_source(self._settings_of(file)), (file,)

    def _settings_of(self, file: str) -> ExampleGenSettings:
        return ExampleGenSettings(
            format=label_format(file),
            label=self._settings.label,
            task=self._settings.target,
            csv=self._settings.csv,
            mixed_columns=(self._labels.key,),
            # Names the columns that are kept, though a server has added them.
            labels=None,
        )

    def _survey_labels(self) -> SeenColumn:
        columns = []
        for source, files in self._sources():
            found = source.survey(files).columns
            for name in (self._labels.key, self._settings.label):
                if name not in found:
                    raise DataError(
                        f"data.labels: {files[0]} has no column {name!r}; found"
                        f" {show_names(sorted(found))}."
                    )
            columns.append(found[self._settings.label])
        return reduce(SeenColumn.merge, columns)

    def _read_labels(self, kind: ColumnKind) -> _Labels:
        key, label = self._labels.key, self._settings.label
        keys, labels = [], []
        for source, files in self._sources():
            seen = {n: column.kind for n, column in source.survey(files).columns.items()}
            for batch in source.read(files, seen | {label: kind}):
                keys.append(_as_text(batch.rows.column(key), key, files[0]))
                labels.append(first_values(batch.rows.column(label)))
        typed = next((part.type for part in labels if not pa.types.is_null(part.type)), pa.int64())
        table = pa.table(
            {
                "key": pa.chunked_array(keys, pa.binary()),
                "label": pa.chunked_array([part.cast(typed) for part in labels], typed),
            }
        )
        return _last_of_each(table)


def _last_of_each(table: pa.Table) -> _Labels:
    """Each key once, with its last label that is one."""
    known = table.filter(pc.and_(table["key"].is_valid(), table["label"].is_valid()))
    numbered = known.append_column("place", pa.array(range(known.num_rows), pa.int64()))
    last = numbered.group_by("key").aggregate([("place", "max")])["place_max"]
    kept = known.take(last)
    return _Labels(kept["key"].combine_chunks(), kept["label"].combine_chunks())


def _as_text(column: pa.Array, key: str, file: str) -> pa.Array:
    """The keys of an encoded column as text, whatever kind the files have taken them for."""
    values = first_values(column)
    if pa.types.is_floating(values.type):
        raise DataError(
            f"data.labels.key: column {key!r} of {file} holds fractions, by which no rows can be"
            " told apart; name another column."
        )
    if pa.types.is_null(values.type) or pa.types.is_binary(values.type):
        return values.cast(pa.binary())
    return values.cast(pa.string()).cast(pa.binary())


def _check_columns(columns: dict[str, SeenColumn], key: str, label: str, file: str) -> None:
    if label in columns:
        raise DataError(
            f"{file} has a column {label!r}, which data.labels takes from other files; leave"
            " data.labels out, or drop the column."
        )
    if key not in columns:
        raise DataError(
            f"data.labels.key: {file} has no column {key!r}; found {show_names(sorted(columns))}."
        )
