"""The past labels of rows in files, computed from the pipeline's data and from the files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from components.example_gen.columns.encoded import ColumnKind
from components.example_gen.columns.type_inference import ColumnSurvey
from components.example_gen.formats import ExampleGenSettings
from components.example_gen.series import History, Labels
from components.example_gen.sources import make_source
from components.example_gen.sources.base import Batch, Source
from components.example_gen.sources.lagged import LagColumns, read_labels
from components.example_gen.sources.surveys import ColumnKinds, find_label_number_format
from components.named_columns import check_named_columns


@dataclass(frozen=True)
class PastSeries:
    """The pipeline's data, in which the labels before the rows of other files are."""

    settings: ExampleGenSettings
    """The settings with which the pipeline reads its data."""
    files: tuple[str, ...]

    @property
    def columns(self) -> LagColumns | None:
        """The columns of past labels, or None if the config has no `data.lags`."""
        settings = self.settings
        if settings.lags is None:
            return None
        return LagColumns(settings.lags, settings.label, settings.order_by)

    def read_labels(self) -> Labels | None:
        """Returns the labels of the pipeline's data, or None if there are none.

        Raises:
          DataError: the data cannot be read.
        """
        source = make_source(self.settings.model_copy(update={"lags": None}))
        return read_labels(source, self.settings, self.files)


class PastLabels:
    """The labels that are known for the rows of files."""

    def __init__(self, series: PastSeries, columns: LagColumns) -> None:
        self._series, self._columns = series, columns
        self._history: History | None = None

    @property
    def kinds(self) -> dict[str, ColumnKind]:
        """The kinds of the columns of past labels, by name."""
        return dict.fromkeys(self._columns.windows, ColumnKind.FLOAT)

    def are_needed(self, file: str, inferred: Mapping[str, ColumnKind]) -> bool:
        """Returns whether a file lacks the past labels, so that they have to be computed.

        Raises:
          DataError: the file lacks past labels, and also a column from which they are computed.
        """
        if not self.kinds.keys().isdisjoint(inferred):
            return False
        lags, order_by = self._columns.lags, self._columns.order_by
        keys = {"data.order_by": order_by}
        keys |= {f"data.lags.key.{index}": name for index, name in enumerate(lags.key)}
        check_named_columns(keys, inferred, f"input {file}")
        return True

    def read(self, source: Source, files: Sequence[str], settings: ExampleGenSettings) -> None:
        """Reads all labels that are known.

        Args:
          files: the files whose rows are predicted. Their labels, if they have any, count more than
            the labels of the pipeline's data.

        Raises:
          DataError: a file cannot be read.
        """
        parts = [self._series.read_labels()]
        for file in files:
            inferred = source.peek((file,))
            label = self._columns.label
            if label not in inferred or not self.are_needed(file, inferred):
                continue
            unknown = ColumnKinds(dict.fromkeys(inferred, ColumnKind.UNKNOWN))
            kinds = self.with_kinds(unknown, inferred, source, file)
            kinds[label] = ColumnKind.FLOAT
            if inferred[label] is ColumnKind.BYTES:
                survey = source.survey((file,)).columns.get(label, ColumnSurvey())
                kinds.label_number_format = find_label_number_format(survey, settings)
            parts.append(self._columns.gather(source.read((file,), kinds)))
        known = [part for part in parts if part is not None]
        self._history = History(known, self._columns.lags.unit) if known else None

    def with_kinds(
        self,
        kinds: ColumnKinds,
        inferred: Mapping[str, ColumnKind],
        source: Source,
        file: str,
    ) -> ColumnKinds:
        """Returns the kinds for reading a file that lacks the past labels.

        Args:
          kinds: the kinds of the columns that the model reads.
          inferred: the kinds of the columns of the file, which are all text in CSV.
        """
        needed, order_by = kinds.copy(), self._columns.order_by
        for name in self._columns.windows:
            needed.pop(name, None)
        for name in (order_by, *self._columns.lags.key):
            if needed.get(name, ColumnKind.UNKNOWN) is ColumnKind.UNKNOWN:
                needed[name] = inferred[name]
                if name == order_by and inferred[name] is ColumnKind.BYTES:
                    # The times may be numbers, such as 20260131.
                    needed[name] = source.survey((file,)).columns[name].kind
        return needed

    def add_to(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        """Yields the batches with their past labels."""
        for batch in batches:
            yield self._columns.add(batch, self._history)
