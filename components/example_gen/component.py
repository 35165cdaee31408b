"""The component ArrowExampleGen: TFX's driver with hourly spans, and an executor that reads files
with Arrow.
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
from components.example_gen.paths import HOUR, HOURS_A_DAY, is_hourly, literal

Splits = Iterable[example_gen_pb2.Input.Split]


class Driver(driver.FileBasedDriver):
    """TFX's driver for files, which also replaces the placeholder {HH}."""

    def get_input_processor(
        self,
        splits: Splits,
        range_config: range_config_pb2.RangeConfig | None = None,
        input_base_uri: str | None = None,
    ) -> input_processor.InputProcessor:
        """Returns the processor that finds the span, its version and its files.

        Raises:
          ValueError: a split's pattern contains {HH}, and the range config has no static range.
        """
        splits, base = list(splits), literal(input_base_uri or "")
        if not any(is_hourly(split.pattern) for split in splits):
            return super().get_input_processor(splits, range_config, base)
        if range_config is None or not range_config.HasField("static_range"):
            raise ValueError(
                "A split's pattern contains {HH}: give the span to read as static_range of the"
                " range_config."
            )
        return _HourProcessor(base, splits, range_config.static_range.start_span_number)


class _HourProcessor(input_processor.FileBasedInputProcessor):
    """TFX's processor for one hour. It replaces {HH} by the hour, and TFX replaces the date.

    A span of this class is a number of hours since 1970. A span of the parent class is a number of
    days.
    """

    def __init__(self, input_base_uri: str, splits: Splits, span: int) -> None:
        day, hour = divmod(span, HOURS_A_DAY)
        self._span, self._hour = span, f"{hour:02d}"
        hour_splits = [copy.deepcopy(split) for split in splits]
        for split in hour_splits:
            split.pattern = self._with_hour(split.pattern)
        days = range_config_pb2.StaticRange(start_span_number=day, end_span_number=day)
        super().__init__(
            input_base_uri, hour_splits, range_config_pb2.RangeConfig(static_range=days)
        )

    def resolve_span_and_version(self) -> tuple[int, int | None]:
        """Returns the span, and its latest version or None."""
        _, version = super().resolve_span_and_version()
        return self._span, version

    def get_pattern_for_span_version(self, pattern: str, span: int, version: int | None) -> str:
        """Returns a split's glob, in which all placeholders are replaced."""
        glob: str = super().get_pattern_for_span_version(
            self._with_hour(pattern), span // HOURS_A_DAY, version
        )
        return glob

    def _with_hour(self, pattern: str) -> str:
        return pattern.replace(f"{{{HOUR}}}", self._hour)


class ArrowExampleGen(FileBasedExampleGen):
    """An ExampleGen that reads files of one of the `FORMATS`, checks them and writes tf.Examples.

    The output `examples`, the fingerprints, the caching and the placeholders {SPAN}, {VERSION} and
    dates are the same as in TFX's ExampleGens. In addition, {HH} next to a date makes each hour a
    span, whose number is the number of hours since 1970.
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
        """Creates the component with the arguments of TFX's FileBasedExampleGen and the settings.

        Args:
          input_base: the folder that split patterns are relative to.
          input_config: a glob for all data, or a glob for each split; by default `*`.
          output_config: the number of hash buckets of each split. By default, data with one glob is
            split into train and eval, 2 to 1.
          range_config: the range of spans to choose from; by default the latest span. Hourly spans
            need a static range.
        """
        super().__init__(
            input_base=input_base,
            input_config=input_config,
            output_config=output_config,
            custom_config=pack_settings(settings),
            range_config=range_config,
        )
