"""Exports a model whose inputs and outputs are plain tensors, for tasks without Transform."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from trainer_module.export.interface import ModelInterface, RawColumn
from trainer_module.export.saving import SERVING_RAW_SIGNATURE, write_interface
from trainer_module.settings.tasks import LearningTask

Answer = Callable[..., dict[str, tf.Tensor]]


def export_plain(
    module: tf.Module,
    answer: Answer,
    columns: Sequence[RawColumn],
    task: LearningTask,
    directory: str,
    others: Mapping[str, Any] | None = None,
) -> None:
    """Saves a model with the serving signatures, and the description of its inputs.

    Args:
      module: has all variables that `answer` reads.
      answer: takes a tensor for each column by its `request` name, [batch] or [batch, width], and
        returns tensors by name, [batch, ...] each.
      columns: the columns that a request sends.
      task: the task of the model.
      directory: the folder of the SavedModel.
      others: traced functions by the names of further signatures, which servers do not call; one of
        them may replace `serving_default`.
    """
    takes = {
        column.request: tf.TensorSpec(
            [None] if column.width == 1 else [None, column.width], column.dtype, column.request
        )
        for column in columns
    }
    traced = tf.function(answer).get_concrete_function(**takes)
    module.answer = traced  # As an attribute it is saved with its variables.
    default = tf.saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY
    signatures = {SERVING_RAW_SIGNATURE: traced, default: traced}
    module.others = dict(others or {})
    tf.saved_model.save(module, directory, signatures | module.others)
    write_interface(ModelInterface(tuple(columns), task=task.kind), directory)
