"""The TFX component: stock's driver with hours, an executor that works on Arrow batches."""

from __future__ import annotations

from tfx.components.example_gen.component import FileBasedExampleGen
from tfx.dsl.components.base import executor_spec
from tfx.proto import example_gen_pb2, range_config_pb2

from components.example_gen import custom_config
from components.example_gen.executor import Executor
from components.example_gen.formats import ExampleGenSettings
from components.example_gen.spans.driver import Driver


class ArrowExampleGen(FileBasedExampleGen):
    """Reads files of one of the `FORMATS`, checks them and writes tf.Examples in splits.

    The output is what stock ExampleGens write, `examples` of type Examples, and so are
    fingerprints, the {SPAN}, {VERSION} and date placeholders of split patterns, and caching. {HH}
    beside a date makes a span of each hour, numbered by the hours since 1970.
    """

    DRIVER_CLASS = Driver

    EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(Executor)

    def __init__(
        self,
        settings: ExampleGenSettings,
        input_base: str,
        input_config: example_gen_pb2.Input | None = None,
        output_config: example_gen_pb2.Output | None = None,
        range_config: range_config_pb2.RangeConfig | None = None,
    ) -> None:
        """Takes stock's arguments and the settings of our executor.

        Args:
          settings: format, label and task.
          input_base: the folder that split patterns are relative to.
          input_config: one glob, or one per split; `*` where unset.
          output_config: hash buckets per split; train and eval, 2 to 1, where unset and the
            input has one glob.
          range_config: the range of spans to choose from; the latest where unset, which hours do
            without.
        """
        super().__init__(
            input_base=input_base,
            input_config=input_config,
            output_config=output_config,
            custom_config=custom_config.pack(settings),
            range_config=range_config,
        )
