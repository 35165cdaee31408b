"""The columns `explanation`, `others` and `base` of batch predictions: additive shares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from components.example_gen.columns.encoded import Cell
from components.example_gen.columns.tensors import MISSING, to_request
from components.pusher.certificate import CERTIFICATE_PATH, GOLDEN_FILE
from components.serving.batch.reading import Block, Input, read_blocks
from components.serving.certificate import read_columns, read_golden
from components.serving.model import Model
from components.serving.requests import Arrays
from trainer_module.attribution import additive_shares, choose_players
from trainer_module.errors import ConfigError, DataError, enumerate_names
from trainer_module.export.interface import ModelInterface
from trainer_module.settings.tasks import Task, supervised_class

EXPLAINED_ROWS = 256
"""The number of rows that are explained together."""
_PERMUTATIONS = 32
"""The number of permutations, each with another background row."""
_BACKGROUND_ROWS = 200
"""The maximum number of rows with which rows are compared."""
_SCORES, _VALUE = "scores", "value"
EXPLANATION, OTHERS, BASE = "explanation", "others", "base"
"""The columns of the output: the strongest columns with their shares, the share of all other
columns, and the mean prediction to which the shares are added."""
_EXPLANATION_TYPE = pa.list_(pa.struct([("column", pa.string()), ("share", pa.float64())]))


@dataclass(frozen=True, eq=False)
class Explainer:
    """Explains predictions of a model by additive shares of its columns.

    The explained number is the probability of the second class of a binary task, the probability of
    the predicted class of other classifications, or the predicted number.
    """

    model: Model
    shown: int
    background: Arrays
    """The rows with which rows are compared, by request name."""
    players: tuple[tuple[str, ...], ...]
    """The groups of columns that move together, by request name."""

    @classmethod
    def of(cls, model: Model, inputs: Input, shown: int) -> Explainer:
        """Returns an explainer of a loaded model.

        The background is up to 200 rows of the eval split, which the version contains; in a version
        without a certificate, rows of the first block of the input.

        Args:
          shown: the number of columns in an explanation.

        Raises:
          ConfigError: the model predicts neither classes nor a number.
          DataError: the golden rows or the input cannot be read.
        """
        if not {_SCORES, _VALUE} & model.outputs.keys():
            raise ConfigError(
                "--explain needs a model that predicts classes or a number, and the model in"
                f" {model.folder} returns {enumerate_names(sorted(model.outputs), 'and')}: leave"
                " --explain out."
            )
        background = _background(model, inputs)
        answers = _explained(model.predict(background), model.interface)
        players = choose_players(
            lambda rows: _explained(model.predict(rows), model.interface),
            background,
            background,
            outputs=answers.argmax(1),
        )
        return cls(model, shown, background, players)

    def explain(self, block: Block, answers: Arrays) -> dict[str, pa.Array]:
        """Returns the columns `explanation`, `others` and `base` for rows.

        Raises:
          DataError: the model cannot take a row.
        """
        interface = self.model.interface
        tensors = to_request(columns_of(block, interface), block.first, interface)
        rows, background = _with_equal_widths(tensors, self.background, interface)
        shares = additive_shares(
            lambda mixed: _explained(self.model.predict(mixed), interface),
            rows,
            background,
            _PERMUTATIONS,
            outputs=_explained(answers, interface).argmax(1),
            players=self.players,
        )
        names = [
            interface.by_request[group[0]].name if len(group) == 1 else ""
            for group in shares.players
        ]
        return _to_columns(names, shares.values, shares.base, self.shown)


def _to_columns(
    names: Sequence[str], shares: np.ndarray, base: np.ndarray, shown: int
) -> dict[str, pa.Array]:
    """Returns the columns of the output.

    Args:
      names: the name of each column, or an empty string for a group of columns.
      shares: the shares, [rows, columns].
      base: the mean prediction, [rows].
    """
    single = np.array([bool(name) for name in names])
    strength = np.where(single, np.abs(shares), -1.0)
    strongest = np.argsort(-strength, axis=1, kind="stable")[:, : min(shown, int(single.sum()))]
    explanations = [
        [{"column": names[index], "share": float(row[index])} for index in chosen]
        for row, chosen in zip(shares, strongest, strict=True)
    ]
    others = shares.sum(1) - np.take_along_axis(shares, strongest, 1).sum(1)
    return {
        EXPLANATION: pa.array(explanations, _EXPLANATION_TYPE),
        OTHERS: pa.array(others),
        BASE: pa.array(base),
    }


def _explained(answers: Arrays, interface: ModelInterface) -> np.ndarray:
    """Returns the numbers that may be explained: a column per class, or one column."""
    if _SCORES not in answers:
        return answers[_VALUE].reshape(len(answers[_VALUE]), -1)
    scores = answers[_SCORES]
    return scores[:, 1:] if _is_binary(interface) else scores


def _is_binary(interface: ModelInterface) -> bool:
    # A task without a label may belong to a family that is not registered in this process.
    is_supervised = bool(interface.label)
    return is_supervised and supervised_class(interface.task).label_kind is Task.BINARY


def _background(model: Model, inputs: Input) -> Arrays:
    """Returns the rows of the eval split in the version, or else rows of the input."""
    interface, folder = model.interface, model.folder / CERTIFICATE_PATH
    golden = read_golden(folder)[0] if (folder / GOLDEN_FILE).exists() else []
    examples = [row.example for row in golden if row.is_of_eval]
    if examples:
        rows = read_columns(
            examples[:_BACKGROUND_ROWS], interface, "a golden row", "push the version again"
        )
        return to_request(rows, Cell("the golden rows", 1), interface)
    block = next((block for block in read_blocks(inputs, interface) if block.count), None)
    if block is None:
        raise DataError("--explain: the input has no rows to explain; leave --explain out.")
    rows = columns_of(block, interface)
    even = np.linspace(0, block.count - 1, min(block.count, _BACKGROUND_ROWS)).astype(np.int64)
    return to_request(rows.take(pa.array(even)), block.first, interface)


def columns_of(block: Block, interface: ModelInterface) -> pa.RecordBatch:
    """Returns the encoded columns of a block; tf.Examples are parsed."""
    if block.rows is not None:
        return block.rows
    file = block.first.file
    return read_columns(
        block.examples or [], interface, f"a record of {file}", f"write {file} again"
    )


def _with_equal_widths(
    rows: Mapping[str, np.ndarray], others: Mapping[str, np.ndarray], interface: ModelInterface
) -> tuple[Arrays, Arrays]:
    """Returns two groups of rows, whose lists are padded to the same number of values."""
    width = {name: max(v.shape[1:], others[name].shape[1:]) for name, v in rows.items()}
    first, second = (
        {
            name: _pad(values, width[name], interface.by_request[name].dtype)
            for name, values in group.items()
        }
        for group in (rows, others)
    )
    return first, second


def _pad(values: np.ndarray, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    if values.shape[1:] == shape:
        return values
    padded = np.full((len(values), *shape), MISSING.get(dtype, 0), values.dtype)
    padded[:, : values.shape[1]] = values
    return padded
