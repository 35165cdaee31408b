"""TFX, as of 1.21: one parse of each schema, and the Beam pipelines of executors."""

from __future__ import annotations

from functools import lru_cache, wraps
from typing import Any

import apache_beam as beam
from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2
from tfx.dsl.components.base.base_beam_executor import BaseBeamExecutor
from tfx.dsl.io import fileio
from tfx.utils import io_utils

from trainer_module.compat.insides import Known, require_known

_PIPELINES: Known = {
    "tfx.dsl.components.base.base_beam_executor": {
        "BaseBeamExecutor._make_beam_pipeline": "36227afec0ae",
    },
}


def make_beam_pipeline(executor: BaseBeamExecutor) -> beam.Pipeline:
    """The pipeline that TFX makes for an executor, with the options of its component.

    TFX has its own executors call this private method, and no public one. Without it nothing can
    be computed: an executor that took its options elsewhere would leave the run's out.

    Raises:
      InternalError: this TFX makes pipelines in another way.
    """
    require_known(_PIPELINES, "a component's Beam pipeline")
    return executor._make_beam_pipeline()


def remember_schemas() -> None:
    """Lets TFX's components of this process share parses of a schema; once in a process.

    Protobuf reads text in Python, seconds for thousands of columns. Wrapped in `io_utils`:
    `SchemaReader.read`, which TFX's components name themselves, so that there is no public way.
    `components.compat.speed` leaves another one as it is, and run.log says so.
    """
    reader: Any = io_utils.SchemaReader
    if hasattr(reader.read, "__wrapped__"):
        return

    @wraps(reader.read)
    def read(self: Any, schema_path: str) -> schema_pb2.Schema:
        del self
        with fileio.open(schema_path) as file:
            return schema_pb2.Schema.FromString(_parse(file.read()))

    reader.read = read


@lru_cache(2)
def _parse(text: str) -> bytes:
    """What the text says, as bytes: whoever reads may change what they get."""
    return text_format.Parse(text, schema_pb2.Schema()).SerializeToString()
