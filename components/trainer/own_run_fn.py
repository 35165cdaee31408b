"""The arguments of a `run_fn` of the user's: TFX's own, in a process that TFX has not started."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tfx.components.trainer.fn_args_utils import DataAccessor, FnArgs
from tfx.components.util import examples_utils, tfxio_utils
from tfx.proto import example_gen_pb2
from tfx.types import standard_artifacts

from trainer_module.runtime import Runtime

_TELEMETRY = ["Trainer"]


def make_fn_args(arguments: Mapping[str, Any], runtime: Runtime) -> FnArgs:
    """TFX's FnArgs, with a `runtime` besides.

    Args:
      arguments: the plain values of those that TFX has made; an accessor of data cannot be sent.
      runtime: of this process.
    """
    examples = standard_artifacts.Examples()
    # What Transform writes, whatever it has read.
    examples_utils.set_payload_format(examples, example_gen_pb2.PayloadFormat.FORMAT_TF_EXAMPLE)
    accessor = DataAccessor(
        tf_dataset_factory=tfxio_utils.get_tf_dataset_factory_from_artifact([examples], _TELEMETRY),
        record_batch_factory=tfxio_utils.get_record_batch_factory_from_artifact(
            [examples], _TELEMETRY
        ),
        data_view_decode_fn=None,
    )
    fn_args = FnArgs(**arguments, data_accessor=accessor)
    fn_args.runtime = runtime
    return fn_args
