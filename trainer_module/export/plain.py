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
      module: the module with all variables that `answer` reads.
      answer: the function of the model. It takes a tensor for each column by the column's `request`
        name, [batch] or [batch, width], and returns tensors by name, [batch, ...] each.
      columns: the columns that a request sends.
      task: the task of the model.
      directory: the folder of the SavedModel.
      others: the traced functions of additional signatures, by the name of the signature. Servers
        do not call these signatures, except `serving_default`, which may be among them.
    """
    specs = {
        column.request: tf.TensorSpec(
            [None] if column.width == 1 else [None, column.width], column.dtype, column.request
        )
        for column in columns
    }
    traced = tf.function(answer).get_concrete_function(**specs)
    module.answer = traced  # TensorFlow saves the attributes of the module.
    default = tf.saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY
    signatures = {SERVING_RAW_SIGNATURE: traced, default: traced}
    module.others = dict(others or {})
    tf.saved_model.save(module, directory, signatures | module.others)
    write_interface(ModelInterface(tuple(columns), task=task.kind), directory)
