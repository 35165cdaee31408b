"""Writes the SavedModel, and beside it what others have to know of it."""

from __future__ import annotations

import os

import tensorflow as tf
import tensorflow_transform as tft
import tf_keras

from trainer_module.base_model import describe_model, write_description
from trainer_module.errors import TrainingError, shorten
from trainer_module.export.interface import INTERFACE_FILE, ModelInterface
from trainer_module.export.signatures import build_signatures, describe_inputs
from trainer_module.problem import Problem
from trainer_module.scratch import ScratchFolder
from trainer_module.settings import TrainerSettings


def export_model(
    model: tf_keras.Model,
    tft_output: tft.TFTransformOutput,
    problem: Problem,
    settings: TrainerSettings,
    directory: str,
    options: tf.saved_model.SaveOptions | None = None,
) -> None:
    """Saves the model with its signatures; the transform graph becomes a part of it.

    Beside them lies what its weights stand for, so that another training can go on from them, and
    what its inputs are, for who predicts and serves.
    """
    description = describe_model(model, problem, tft_output, settings.model.kind)
    # As an attribute of the model, the layer has its vocabularies saved with the model.
    model.tft_layer = tft_output.transform_features_layer()
    signatures = build_signatures(model, model.tft_layer, tft_output, problem, settings)
    # Keras traces every layer on its own for models that are loaded without their code; the zoo is
    # rebuilt from its config, and serving uses the signatures. What is trained for 8 bits has other
    # layers than Keras's.
    traces = settings.model.is_custom or settings.optimize.quantize is not None
    try:
        model.save(
            directory,
            save_format="tf",
            signatures=signatures,
            save_traces=traces,
            options=options,
        )
    finally:
        del model.tft_layer  # It is no part of what a checkpoint of the model holds.
    write_description(description, directory)
    write_interface(describe_inputs(tft_output, problem, settings), directory)


def try_export(
    model: tf_keras.Model,
    tft_output: tft.TFTransformOutput,
    problem: Problem,
    settings: TrainerSettings,
) -> None:
    """Exports a model to a folder that is deleted: what stops that is known before training.

    Raises:
      TrainingError: if the model cannot be exported; says what TensorFlow says.
    """
    # The variables may be on other hosts, as with a TPU, which have not got this one's folder. What
    # it is called depends on the cluster: localhost, chief or worker.
    with tf.device("CPU:0"):
        here = tf.constant(0).device
    options = tf.saved_model.SaveOptions(experimental_io_device=here)
    with ScratchFolder() as scratch:
        try:
            export_model(model, tft_output, problem, settings, scratch, options)
        except Exception as error:  # Layers of the user's own raise what they like.
            raise TrainingError(
                f"model {settings.model.kind!r} cannot be exported, so it is not trained: "
                f"{type(error).__name__}: {shorten(error)}"
            ) from error


def write_interface(interface: ModelInterface, directory: str) -> None:
    """Writes what an exported model asks for beside it."""
    path = os.path.join(directory, INTERFACE_FILE)
    tf.io.gfile.makedirs(os.path.dirname(path))
    with tf.io.gfile.GFile(path, "w") as file:
        file.write(interface.to_json())
