"""The check of a version against its certificate, before the version serves."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from components.example_gen.columns.encoded import (
    ARROW_TYPES,
    Cell,
    first_values,
    lists,
    no_values,
)
from components.example_gen.columns.tensors import to_request
from components.pusher.certificate import (
    CERTIFICATE_FILE,
    CERTIFICATE_PATH,
    GOLDEN_FILE,
    Agreement,
    Certificate,
    GoldenRow,
    check_certified_files,
    read_certificate,
)
from components.serving.model import Model, TransformedModel, load_model, load_transformed
from components.serving.requests import EXAMPLES_INPUT, Arrays, join_rows, kind_of_column
from trainer_module.errors import DamagedFileError, DataError
from trainer_module.export.interface import ModelInterface, RawColumn
from trainer_module.export.variants.manifest import hash_file

_DESCRIPTION, _EXAMPLE = "row", "example"
_ANSWER = "answer "
"""The prefix of the columns that contain expected outputs."""


def write_certificate(
    certificate: Certificate, folder: Path, rows: Sequence[GoldenRow], answers: Arrays
) -> None:
    """Writes a certificate and its golden rows into a folder.

    Args:
      certificate: the certificate. The digest of the golden rows is added to its files.
    """
    columns = {
        _DESCRIPTION: pa.array([row.description for row in rows]),
        _EXAMPLE: pa.array([row.example for row in rows], pa.binary()),
    }
    columns |= {_ANSWER + name: _to_column(values) for name, values in answers.items()}
    pq.write_table(pa.table(columns), folder / GOLDEN_FILE, compression="zstd")
    content = asdict(certificate)
    content["files"][f"{CERTIFICATE_PATH}/{GOLDEN_FILE}"] = hash_file(folder / GOLDEN_FILE)
    for agreement in content["ways"].values():
        if math.isinf(agreement["largest_difference"]):
            agreement["largest_difference"] = None  # JSON has no infinity.
    text = json.dumps(content, indent=2, allow_nan=False)
    (folder / CERTIFICATE_FILE).write_text(text + "\n")


def read_golden(folder: Path) -> tuple[list[GoldenRow], Arrays]:
    """Returns the golden rows, and their expected outputs by name.

    Raises:
      DamagedFileError: the file of the golden rows cannot be read.
    """
    path = folder / GOLDEN_FILE
    try:
        table = pq.read_table(path)
        descriptions, examples = (
            table.column(name).to_pylist() for name in (_DESCRIPTION, _EXAMPLE)
        )
    except (OSError, KeyError, pa.ArrowException) as error:
        problem = f"is damaged ({type(error).__name__})"
        raise DamagedFileError.of(path, problem, "push the version again.") from None
    rows = [GoldenRow(*row) for row in zip(descriptions, examples, strict=True)]
    answers = {
        name.removeprefix(_ANSWER): _to_array(table.column(name).combine_chunks())
        for name in table.column_names
        if name.startswith(_ANSWER)
    }
    return rows, answers


def _to_column(values: np.ndarray) -> pa.Array:
    flat = values.reshape(-1)
    column = pa.array(flat.tolist(), pa.binary()) if values.dtype == object else pa.array(flat)
    if values.ndim == 1:
        return column
    return pa.FixedSizeListArray.from_arrays(column, values[0].size)


def _to_array(column: pa.Array) -> np.ndarray:
    flat = column.flatten() if pa.types.is_fixed_size_list(column.type) else column
    values: np.ndarray = flat.to_numpy(zero_copy_only=False)
    return values.reshape(len(column), -1) if flat is not column else values


_CLASS, _CLASSES, _SCORES = "class", "classes", "scores"


def compare(expected: Arrays, actual: Arrays, rows: Sequence[GoldenRow]) -> Agreement:
    """Returns the largest difference between two sets of outputs, over all rows and outputs.

    - Scores: the absolute difference.
    - Other numbers, whose unit is unknown: the difference divided by the expected value, or by the
      root mean square of the output if the root mean square is larger.
    - Predicted classes that differ: the difference of their scores, as two classes may have nearly
      the same score.
    - Other texts: infinite if they differ.

    Args:
      expected: the expected outputs by name. Each output has the shape [rows, ...].
    """
    agreement = Agreement(0.0, "", "")
    if actual.keys() != expected.keys():
        missing = sorted(actual.keys() ^ expected.keys())[0]
        return Agreement(float("inf"), rows[0].description, missing)
    for name, values in expected.items():
        differences = _differences(name, values, actual[name], expected)
        row = int(np.argmax(differences))
        if differences[row] > agreement.largest_difference:
            agreement = Agreement(float(differences[row]), rows[row].description, name)
    return agreement


def _differences(
    name: str, expected: np.ndarray, actual: np.ndarray, answers: Arrays
) -> np.ndarray:
    """Returns the largest difference of an output in each row, as float64 of the shape [rows]."""
    if expected.shape != actual.shape:
        return np.full(len(expected), np.inf)
    if expected.dtype != object:
        numbers = expected.astype(np.float64)
        scale = 1.0 if name == _SCORES else _root_mean_square(numbers)
        differences = _number_differences(numbers, actual.astype(np.float64), scale)
    else:
        differs = _as_text(expected) != _as_text(actual)
        differences = np.where(differs, np.inf, 0.0)
        if name == _CLASS and differs.any() and {_CLASSES, _SCORES} <= answers.keys():
            differences = np.where(differs, _score_gaps(expected, actual, answers), 0.0)
    return differences.reshape(len(differences), -1).max(axis=1, initial=0.0)


def _root_mean_square(numbers: np.ndarray) -> float:
    """Returns the root mean square of the finite numbers, or 1 if all of them are 0."""
    finite = np.abs(numbers[np.isfinite(numbers)])
    largest = finite.max(initial=0.0)
    # The numbers are scaled first, as the squares of large numbers overflow.
    return float(largest * np.sqrt(np.mean((finite / largest) ** 2))) if largest else 1.0


def _number_differences(expected: np.ndarray, actual: np.ndarray, scale: float) -> np.ndarray:
    """Returns the differences, divided by the expected numbers or by a scale if it is larger."""
    with np.errstate(invalid="ignore", over="ignore"):
        differences = np.abs(expected - actual) / np.maximum(scale, np.abs(expected))
    are_equal = (expected == actual) | (np.isnan(expected) & np.isnan(actual))
    return np.where(are_equal, 0.0, np.where(np.isnan(differences), np.inf, differences))


def _score_gaps(expected: np.ndarray, actual: np.ndarray, answers: Arrays) -> np.ndarray:
    """Returns the difference between the scores of two classes in each row.

    The difference is infinite if one of the names is not a class of the model.
    """
    names = _as_text(answers[_CLASSES])

    def score_of(classes: np.ndarray) -> np.ndarray:
        matches = names == _as_text(classes)[:, np.newaxis]
        scores = np.where(matches, answers[_SCORES], 0.0).sum(axis=1)
        return np.where(matches.any(axis=1), scores, np.inf)

    gaps: np.ndarray = np.abs(score_of(expected) - score_of(actual))
    return np.where(np.isnan(gaps), np.inf, gaps)


def _as_text(values: np.ndarray) -> np.ndarray:
    """Returns bytes decoded as in the JSON of a response."""
    decoded = [v.decode(errors="replace") for v in values.reshape(-1).tolist()]
    return np.array(decoded, object).reshape(values.shape)


GOLDEN_BATCH_ROWS = 32
"""The number of golden rows in a batch. The number is small, as the rows may contain pictures."""


@dataclass(frozen=True)
class GoldenInputs:
    """A model, and its golden rows as inputs of each of its signatures."""

    model: Model
    rows: Sequence[GoldenRow]
    columns: pa.RecordBatch
    """The rows in the form in which ExampleGen's sources read rows."""
    tensors: Arrays
    """The inputs of `serving_raw` for the rows."""

    @classmethod
    def of(cls, model: Model, rows: Sequence[GoldenRow]) -> GoldenInputs:
        """Returns the inputs for a model. The tf.Examples of the golden rows are parsed."""
        examples = [row.example for row in rows]
        columns = read_columns(examples, model.interface, "a golden row", "push the version again")
        return cls(
            model, rows, columns, to_request(columns, Cell("the golden rows", 1), model.interface)
        )

    @property
    def examples(self) -> np.ndarray:
        """The input of `serving_default`: serialised tf.Examples."""
        return np.array([row.example for row in self.rows], object)

    @property
    def slices(self) -> list[slice]:
        """The slices that divide the rows into batches."""
        return [
            slice(start, start + GOLDEN_BATCH_ROWS)
            for start in range(0, len(self.rows), GOLDEN_BATCH_ROWS)
        ]

    def table(self) -> pa.Table:
        """Returns the rows as a table. A column with several values per row contains lists."""
        columns = {}
        for column in self.model.interface.columns:
            values = self.columns.column(column.name)
            columns[column.name] = first_values(values) if column.width == 1 else values
        return pa.table(columns)


def predict_examples(golden: GoldenInputs) -> Arrays:
    """Returns the predictions of `serving_default`, which takes serialised tf.Examples."""
    examples = golden.examples
    return join_rows(
        [golden.model.predict_examples({EXAMPLES_INPUT: examples[part]}) for part in golden.slices]
    )


def predict_raw(golden: GoldenInputs) -> Arrays:
    """Returns the predictions of `serving_raw`, which takes a tensor per column."""
    parts = ({n: tensor[part] for n, tensor in golden.tensors.items()} for part in golden.slices)
    return join_rows([golden.model.predict(part) for part in parts])


def read_columns(
    examples: Sequence[bytes], interface: ModelInterface, row: str, remedy: str
) -> pa.RecordBatch:
    """Returns serialised tf.Examples in the form in which ExampleGen's sources read rows.

    Args:
      row: the name of a row in the error message.
      remedy: the advice of the error message.

    Raises:
      DataError: an example cannot be parsed.
    """
    import tensorflow as tf
    from google.protobuf.message import DecodeError

    try:
        parsed = [tf.train.Example.FromString(example).features.feature for example in examples]
    except DecodeError as error:
        raise DataError(f"{row} is not a tf.Example ({error}): {remedy}.") from None
    columns = [_read_column(parsed, column) for column in interface.columns]
    return pa.RecordBatch.from_arrays(columns, [column.name for column in interface.columns])


def _read_column(parsed: Sequence[Any], column: RawColumn) -> pa.LargeListArray:
    kind = kind_of_column(column.dtype, column.is_whole)
    values: list[Any] = []
    lengths = np.zeros(len(parsed), np.int64)
    for row, features in enumerate(parsed):
        # Indexing the protobuf map with a missing key would insert the key.
        field = features[column.name].WhichOneof("kind") if column.name in features else None
        if field is not None:
            row_values = list(getattr(features[column.name], field).value)
            lengths[row] = len(row_values)
            values += row_values
    if not values:
        return no_values(len(parsed), kind)
    return lists(pa.array(values, ARROW_TYPES[kind]), lengths)


def load_certified(version: Path, variant: str | None = None) -> Model:
    """Loads a version after checking its files and predictions against its certificate.

    A version without a certificate is loaded without a check.

    Args:
      variant: the name of a variant that predicts in place of the SavedModel's network, or None.
        The variant's file is checked, but not its predictions, which may differ from the
        SavedModel's predictions.

    Raises:
      ConfigError: the version has no variant of that name.
      DataError: the files have changed, the model cannot be loaded, or its predictions differ from
        the certified predictions.
    """
    check_certified_files(version)  # A damaged file may crash the process when it is loaded.
    model = load_model(version, variant)
    check_answers(replace(model, variant=None))
    return model


def load_certified_variant(version: Path, variant: str) -> TransformedModel:
    """Loads only a variant of a version, after checking the version's files.

    The files are compared with the certificate. The predictions of the SavedModel are not checked,
    as that would require TensorFlow.

    Raises:
      ConfigError: the version has no variant of that name.
      DataError: the files have changed, or the variant cannot be loaded.
    """
    check_certified_files(version)
    return load_transformed(version, variant)


def check_answers(model: Model) -> None:
    """Raises DataError if the predictions of a model differ from its certificate."""
    folder = model.folder / CERTIFICATE_PATH
    certificate = read_certificate(folder)
    if certificate is None:
        return
    rows, expected = read_golden(folder)
    golden = GoldenInputs.of(model, rows)
    for predict in (predict_raw, predict_examples) if model.takes_examples else (predict_raw,):
        agreement = compare(expected, predict(golden), rows)
        if agreement.largest_difference > certificate.tolerance:
            raise DataError(
                f"the predictions of {model.folder} differ from its certificate:"
                f" {agreement.output!r} of {agreement.row} by {agreement.largest_difference:.3g},"
                f" expected at most {certificate.tolerance:g}."
            )
