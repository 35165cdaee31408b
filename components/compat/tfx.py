"""Private parts of TFX 1.21: the Beam pipelines of executors, and names that TFX adds to TFMA."""

from __future__ import annotations

import apache_beam as beam
import tensorflow_model_analysis as tfma
from tensorflow_model_analysis.proto import config_pb2
from tfx.dsl.components.base.base_beam_executor import BaseBeamExecutor

from trainer_module.compat.insides import Known, require_known

_PIPELINES: Known = {
    "tfx.dsl.components.base.base_beam_executor": {
        "BaseBeamExecutor._make_beam_pipeline": "36227afec0ae"
    }
}


def make_beam_pipeline(executor: BaseBeamExecutor) -> beam.Pipeline:
    """Returns TFX's pipeline for an executor, with the options of its component.

    TFX's own executors call the private method `_make_beam_pipeline`. No public method of TFX
    returns a pipeline with the options of the run.

    Raises:
      InternalError: the installed TFX creates pipelines by other code.
    """
    require_known(_PIPELINES, "a component's Beam pipeline")
    return executor._make_beam_pipeline()


def add_config_messages() -> None:
    """Adds the messages of TFMA's config to TFMA, as `tfx.components` does on import."""
    for name in config_pb2.DESCRIPTOR.message_types_by_name:
        if not hasattr(tfma, name):
            setattr(tfma, name, getattr(config_pb2, name))
