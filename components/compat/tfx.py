"""Private parts of TFX 1.21: the Beam pipelines of executors."""

from __future__ import annotations

import apache_beam as beam
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
