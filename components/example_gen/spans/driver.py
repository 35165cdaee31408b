"""Which files of the span that is asked for are read: TFX's driver, and spans of an hour."""

from __future__ import annotations

import copy
from collections.abc import Iterable

from tfx.components.example_gen import driver, input_processor
from tfx.proto import example_gen_pb2, range_config_pb2

from components.example_gen.spans.placeholders import HOUR, HOURS_A_DAY, is_hourly

Splits = Iterable[example_gen_pb2.Input.Split]


class Driver(driver.FileBasedDriver):
    """TFX's driver of files, which knows {HH} besides."""

    def get_input_processor(
        self,
        splits: Splits,
        range_config: range_config_pb2.RangeConfig | None = None,
        input_base_uri: str | None = None,
    ) -> input_processor.InputProcessor:
        """What finds the span, its version and its files.

        Raises:
          ValueError: the splits have hours, and no span is asked for.
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
    """TFX's processor of the day that an hour belongs to, for which {HH} is that hour.

    Spans outside are hours since 1970, and days inside.
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
        """The span that is asked for, and its latest version."""
        _, version = super().resolve_span_and_version()
        return self._span, version

    def get_pattern_for_span_version(self, pattern: str, span: int, version: int | None) -> str:
        """A split's glob, without placeholders."""
        filled: str = super().get_pattern_for_span_version(
            self._with_hour(pattern), span // HOURS_A_DAY, version
        )
        return filled

    def _with_hour(self, pattern: str) -> str:
        return pattern.replace(f"{{{HOUR}}}", self._hour)
