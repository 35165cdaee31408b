"""The TFX component: the stock driver with hourly spans, and an executor that uses Arrow
batches.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable

from tfx.components.example_gen import driver, input_processor
from tfx.components.example_gen.component import FileBasedExampleGen
from tfx.dsl.components.base import executor_spec
from tfx.proto import example_gen_pb2, range_config_pb2

from components.example_gen.executor import Executor, pack_settings
from components.example_gen.formats import ExampleGenSettings
from components.example_gen.paths import HOUR, HOURS_A_DAY, is_hourly

Splits = Iterable[example_gen_pb2.Input.Split]


class Driver(driver.FileBasedDriver):
    """TFX's driver of files, with the placeholder {HH}."""

    def get_input_processor(
        self,
        splits: Splits,
        range_config: range_config_pb2.RangeConfig | None = None,
        input_base_uri: str | None = None,
    ) -> input_processor.InputProcessor:
        """Returns the processor that finds the span, its version and its files.

        Raises:
          ValueError: the splits have hours, and the range names no span.
        """
        splits = list(splits)
        if not any(is_hourly(split.pattern) for split in splits):
            return super().get_input_processor(splits, range_config, input_base_uri)
        if range_config is None or not range_config.HasField("static_range"):
            raise ValueError("{HH} in a split's pattern needs the span to read, in a static_range")
        return _HourProcessor(
            input_base_uri or "", splits, range_config.static_range.start_span_number
        )


class _HourProcessor(input_processor.FileBasedInputProcessor):
    """TFX's processor for the day of an hour, with that hour for {HH}.

    Callers count spans in hours since 1970; the parent class counts days.
    """

    def __init__(self, input_base_uri: str, splits: Splits, span: int) -> None:
        day, hour = divmod(span, HOURS_A_DAY)
        self._span, self._hour = span, f"{hour:02d}"
        of_the_hour = [copy.deepcopy(split) for split in splits]
        for split in of_the_hour:
            split.pattern = self._with_hour(split.pattern)
        only = range_config_pb2.StaticRange(start_span_number=day, end_span_number=day)
        super().__init__(
            input_base_uri, of_the_hour, range_config_pb2.RangeConfig(static_range=only)
        )

    def resolve_span_and_version(self) -> tuple[int, int | None]:
        """Returns the span of the range, and its latest version."""
        _, version = super().resolve_span_and_version()
        return self._span, version

    def get_pattern_for_span_version(self, pattern: str, span: int, version: int | None) -> str:
        """Returns a split's glob without placeholders."""
        filled: str = super().get_pattern_for_span_version(
            self._with_hour(pattern), span // HOURS_A_DAY, version
        )
        return filled

    def _with_hour(self, pattern: str) -> str:
        return pattern.replace(f"{{{HOUR}}}", self._hour)


class ArrowExampleGen(FileBasedExampleGen):
    """Reads files of one of the `FORMATS`, checks them and writes tf.Examples in splits.

    The output is that of stock ExampleGens, `examples` of type Examples, with the same
    fingerprints, {SPAN}, {VERSION} and date placeholders of split patterns, and caching. {HH}
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
        """Takes the stock arguments and the settings of our executor.

        Args:
          settings: the format, label and task.
          input_base: the folder that split patterns are relative to.
          input_config: one glob, or one per split; `*` if unset.
          output_config: hash buckets per split; train and eval, 2 to 1, if unset and the input has
            one glob.
          range_config: the range of spans to choose from; the latest if unset, which hourly spans
            do not support.
        """
        super().__init__(
            input_base=input_base,
            input_config=input_config,
            output_config=output_config,
            custom_config=pack_settings(settings),
            range_config=range_config,
        )
