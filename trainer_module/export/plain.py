"""Exports a model that takes and gives plain tensors, whatever it has learnt from."""

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
    """Saves a model with the signatures that serve, and what requests have to bring.

    Args:
      module: has all variables that `answer` reads.
      answer: takes a tensor for each column by its `request` name, [batch] or [batch, width], and
        gives tensors by name, [batch, ...] each.
      columns: what a request brings.
      task: that the model is of.
      directory: of the SavedModel.
      others: traced functions by the names of further signatures, which servers do not ask; one of
        them may take the place of `serving_default`.
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
