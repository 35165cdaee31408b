"""A source that adds past labels to the rows of another source: lags and moving averages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from components.example_gen.columns.encoded import (
    Cell,
    ColumnKind,
    first_values,
    label_lengths,
    single_values,
)
from components.example_gen.columns.type_inference import ColumnSurvey
from components.example_gen.formats import ExampleGenSettings, LagsSettings
from components.example_gen.notes import FileNotes
from components.example_gen.series import History, Labels, Moments, read_moments
from components.example_gen.sources.base import Batch, Files, Source, Survey
from components.example_gen.sources.labels import RowsSource
from components.example_gen.sources.surveys import merge_surveys
from trainer_module.errors import DataError


@dataclass(frozen=True)
class LagColumns:
    """The columns of past labels, and how they are computed from rows."""

    lags: LagsSettings
    label: str
    order_by: str

    @property
    def windows(self) -> dict[str, tuple[int, int]]:
        """The window of each column, by name."""
        return self.lags.windows(self.label)

    def moments(self, batch: Batch) -> Moments:
        """Returns the moments of a batch's rows."""
        return read_moments(batch.rows, batch.first, self.order_by, self.lags)

    def gather(self, batches: Iterable[Batch]) -> Labels | None:
        """Returns the labels of all rows that have a label and a time, or None without any.

        Raises:
          DataError: a value is not a time.
        """
        moments, labels, rows, cells = [], [], list[np.ndarray](), []
        for batch in batches:
            if not batch.rows.num_rows or self.label not in batch.rows.schema.names:
                continue
            column = batch.rows.column(self.label)
            found = self.moments(batch)
            kept = found.are_known & (label_lengths(column) == 1)
            if kept.any():
                moments.append(found.only(kept))
                values = first_values(column).filter(pa.array(kept))
                labels.append(values.to_numpy(zero_copy_only=False).astype(np.float32))
                rows.append(np.flatnonzero(kept))
                cells.append(batch.first)
        if not moments:
            return None
        series = pa.chunked_array([part.series for part in moments], pa.string()).combine_chunks()
        joined = Moments(series, np.concatenate([part.times for part in moments]))
        starts = np.cumsum([0, *map(len, rows[:-1])])
        return Labels(joined, np.concatenate(labels), cells, starts, np.concatenate(rows))

    def add(self, batch: Batch, history: History | None) -> Batch:
        """Returns the rows with the columns, and the counts of missing past labels."""
        moments, rows = self.moments(batch), batch.rows
        notes = FileNotes(lagged_rows=rows.num_rows)
        for name, window in self.windows.items():
            values = np.full(rows.num_rows, np.nan, np.float32)
            if history is not None:
                values = history.means(moments, window)
                is_gap = np.isnan(values) & history.begins_within(moments, window)
                notes.add(_count_missing(name, values, is_gap, batch.first))
            rows = rows.append_column(name, single_values(pa.array(values, from_pandas=True)))
        notes.add(batch.notes)
        return replace(batch, rows=rows, notes=notes)


def _count_missing(name: str, values: np.ndarray, is_gap: np.ndarray, first: Cell) -> FileNotes:
    """Returns the number of rows before the series has begun, and of rows after a gap."""
    early, gaps = int((np.isnan(values) & ~is_gap).sum()), int(is_gap.sum())
    return FileNotes(
        early_lags=Counter({name: early} if early else {}),
        lag_gaps=Counter({name: gaps} if gaps else {}),
        first_gap=[first.below(int(np.argmax(is_gap)))] if gaps else [],
    )


class LaggedSource(RowsSource):
    """A source that adds the columns of `data.lags` to a table of series.

    The labels of all files are read before the first row is read, once in each process.
    """

    def __init__(self, settings: ExampleGenSettings, lags: LagsSettings, rows: Source) -> None:
        super().__init__(settings, rows)
        self._columns = LagColumns(lags, settings.label, settings.order_by)
        self._groups: list[Files] = []
        self._history: History | None = None

    def plan(self, files: Sequence[str]) -> list[Files]:
        """Returns the groups of the wrapped source, all of which the past labels are from."""
        self._groups = super().plan(files)
        return self._groups

    def survey(self, files: Files) -> Survey:
        """Returns the columns of the wrapped source and the past labels."""
        survey = self._rows.survey(files)
        _check_unused(self._columns.windows, survey.columns, files[0])
        added = dict.fromkeys(self._columns.windows, ColumnSurvey(ColumnKind.FLOAT))
        return replace(survey, columns={**survey.columns, **added} if survey.columns else {})

    def peek(self, files: Files) -> dict[str, ColumnKind]:
        """Returns the columns of the wrapped source and the past labels."""
        added = dict.fromkeys(self._columns.windows, ColumnKind.FLOAT)
        return {**self._rows.peek(files), **added}

    def read(self, files: Files, kinds: dict[str, ColumnKind]) -> Iterator[Batch]:
        """Yields the rows with their past labels.

        Raises:
          DataError: two rows have the same series and time, or no row has one of the past labels.
        """
        own = kinds.copy()
        for name in self._columns.windows:
            own.pop(name, None)
        if self._history is None:
            self._history = self._read_history(own)
        for batch in self._rows.read(files, own):
            _check_unused(self._columns.windows, batch.rows.schema.names, files[0])
            yield self._columns.add(batch, self._history) if batch.rows.num_rows else batch

    def _read_history(self, kinds: dict[str, ColumnKind]) -> History | None:
        labels = self._columns.gather(
            batch for files in self._groups for batch in self._rows.read(files, kinds)
        )
        if labels is None:
            return None
        history = History([labels], self._columns.lags.unit)
        _check_known(history, self._columns)
        return history


def _check_unused(windows: Iterable[str], names: Iterable[str], file: str) -> None:
    if taken := sorted({*windows}.intersection(names)):
        raise DataError(
            f"{file} has a column {taken[0]!r}, which data.lags computes from the labels: remove"
            " the column, or remove the step or mean from data.lags."
        )


def _check_known(history: History, columns: LagColumns) -> None:
    """Raises DataError if no row has the past label of a column."""
    moments, lags = history.moments(), columns.lags
    for name, window in columns.windows.items():
        if not np.isnan(history.means(moments, window)).all():
            continue
        times = f"{window[1]:,}" if window[0] == window[1] else f"{window[1]:,} to {window[0]:,}"
        usual = f"most neighbouring times differ by {history.step:,}" if history.step else ""
        raise DataError(
            f"data.lags: {name!r} is missing in all {len(moments.times):,} rows, as no label is"
            f" {times} {lags.unit}s older than a row{f' ({usual})' * bool(usual)}: write steps that"
            " the data has, or another unit (minute, hour, day, month), such as data: {lags:"
            " {steps: [1], unit: month}}."
        )


def read_labels(source: Source, settings: ExampleGenSettings, files: Files) -> Labels | None:
    """Returns the labels of files with series, or None if there are no labels.

    Args:
      source: the source of the rows, without past labels.
      settings: the settings with which the files were read for training.

    Raises:
      DataError: the files cannot be read.
    """
    lags, groups = settings.lags, source.plan(files)
    if lags is None or not groups:
        return None
    kinds = merge_surveys([source.survey(group) for group in groups], settings)
    columns = LagColumns(lags, settings.label, settings.order_by)
    return columns.gather(batch for group in groups for batch in source.read(group, kinds))
