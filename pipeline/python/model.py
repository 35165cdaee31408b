"""A pushed model that predicts in this process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, overload

from pipeline.python.rows import Row, is_frame, like, to_rows, unusable_error
from trainer_module.errors import ConfigError, DataError

if TYPE_CHECKING:
    import pandas as pd

    from components.serving.model import Model as LoadedModel
    from pipeline.cli.predict import ChosenModel
    from trainer_module.export.interface import ModelInterface

TENSORFLOW_VARIABLES = ("TF_USE_LEGACY_KERAS", "TF_CPP_MIN_LOG_LEVEL")
"""The environment variables that the import of TensorFlow for a served model sets.

`load_model` restores them: a served model needs no Keras, so the program's own choice of Keras
remains, and a run compares such variables with those of the last run."""
_Frame = TypeVar("_Frame", bound="pd.DataFrame")


@dataclass(frozen=True, eq=False)
class Model:
    """A loaded version of a model, which several threads may call at the same time."""

    _loaded: LoadedModel
    _chosen: ChosenModel
    _other_columns: frozenset[str]
    """Columns that rows may have, although the model does not take them."""

    @property
    def folder(self) -> Path:
        """The folder of the version."""
        return self._chosen.folder

    @property
    def columns(self) -> list[str]:
        """The names of the columns that a row needs."""
        return [column.name for column in self._loaded.interface.columns]

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes, or an empty tuple if the model predicts numbers."""
        return self._loaded.interface.classes

    @overload
    def predict(
        self, rows: Mapping[str, Sequence[Any]], top_k: int | None = None
    ) -> dict[str, list[Any]]: ...

    @overload
    def predict(self, rows: Sequence[Mapping[str, Any]], top_k: int | None = None) -> list[Row]: ...

    @overload
    def predict(self, rows: _Frame, top_k: int | None = None) -> _Frame: ...

    def predict(self, rows: Any, top_k: int | None = None) -> Any:
        """Returns a prediction for each row, as `scopeline predict` writes it.

        The columns of a prediction are `class` and a `score_<class>` per class, or `value`.

        Args:
          rows: a list with a dict per row, a dict with a list per column, or a DataFrame, which may
            have more columns. Missing values are None or NaN. A picture is its path or its encoded
            bytes.
          top_k: the number of classes in a prediction, the most probable first, or None for all.

        Returns:
          The predictions in the same form: a list of dicts, a dict of lists, or a DataFrame with
          the index of the rows.

        Raises:
          DataError: a row lacks a column, has an unknown column, or a value cannot be used.
          ConfigError: `top_k` is not a number of classes.

        Example:
          model.predict([{"fare": 12.5, "company": "Ace"}])
        """
        import pyarrow.parquet as pq

        from components.serving.batch.job import PredictionJob, predict
        from pipeline.cli.given_rows import check_rows
        from pipeline.cli.predict import rows_as_input
        from pipeline.python.options import in_python
        from trainer_module.scratch import ScratchFolder

        if top_k is not None and (not isinstance(top_k, int) or top_k < 1):
            raise ConfigError(f"top_k={top_k!r}: expected a whole number of classes from 1.")
        interface = self._loaded.interface
        with ScratchFolder() as folder, in_python({"row": "rows"}):
            given = [_with_pictures(row, interface) for row in to_rows(self._taken(rows))]
            # A table may have more columns than the model takes, as a file may.
            others = {*self._other_columns, *(given[0] if is_frame(rows) else ())}
            checked = check_rows(given, interface, others)
            answers = Path(folder) / "answers.parquet"
            with rows_as_input(self._chosen, checked, Path(folder), "`rows`") as source:
                job = PredictionJob(
                    self._loaded,
                    source,
                    answers,
                    on_unreadable=self._chosen.on_unreadable,
                    top_k=top_k,
                )
                predict(job, lambda count: None)
            return like(rows, pq.read_table(answers))

    def _taken(self, rows: Any) -> Any:
        """Returns a DataFrame without the columns that the model does not take; others as given."""
        if not is_frame(rows):
            return rows
        interface = self._loaded.interface
        names = {*interface.by_request, *self._other_columns, *self.columns}
        parts = tuple(f"{name}{separator}" for name in self.columns for separator in "_.")
        parents = {name[:at] for name in names for at, sign in enumerate(name) if sign == "."}
        taken = [
            str(name) in names | parents or str(name).startswith(parts) for name in rows.columns
        ]
        return rows.loc[:, taken] if any(taken) else rows

    def __repr__(self) -> str:
        return f"<model {self.folder.parent.name}, version {self.folder.name}>"


def _with_pictures(row: Row, interface: ModelInterface) -> Row:
    """Returns a row with the bytes of the pictures that it names by a path."""
    encoded = {column.name for column in interface.columns if column.picture == "bytes"}
    pictures = {column.name for column in interface.columns if column.picture}
    result: Row = {}
    for name, value in row.items():
        if name in encoded and isinstance(value, str | Path):
            result[name] = _read(Path(value), name)
        elif isinstance(value, bytes) and name not in pictures:
            raise unusable_error(value, name)
        else:
            result[name] = str(value) if isinstance(value, Path) else value
    return result


def _read(path: Path, name: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(
            f"rows: the column `{name}` is {path}, which cannot be read ({error.strerror}); give"
            " the path of a picture, or its bytes."
        ) from None
