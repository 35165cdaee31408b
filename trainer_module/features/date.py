"""The feature type `date`: the age, the year and the calendar parts of a date or time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import field_validator

from trainer_module.errors import DataError, as_key
from trainer_module.features.base import BaseFeature
from trainer_module.features.date_formats import WEEKDAYS, Form, candidates

if TYPE_CHECKING:
    import tensorflow as tf

    from trainer_module.features.raw_columns import AnyTensor

Part = Literal["age", "year", "month", "day", "weekday", "hour", "year_day"]
_NUMBERS: dict[str, tuple[str, ...]] = {
    "age": ("age",),
    "year": ("year",),
    "weekday": tuple(day.capitalize() for day in WEEKDAYS),
}
"""The names of the numbers of each part that is not cyclic."""
_PER_DAY = {"days": 1.0, "s": 86400.0, "ms": 86400e3, "us": 86400e6, "ns": 86400e9}
"""The number of units per day."""


class DateFeature(BaseFeature):
    """A date or time (UTC): its age and its year, scaled, and its month, day, weekday and hour.

    The month, the day of the month or of the year, and the hour are cyclic: each becomes a sine and
    a cosine. The weekday becomes seven numbers, of which one is 1. For a missing date, all numbers
    are 0. If the data from which the schema was inferred has missing dates, an
    additional input flags missing dates.
    """

    type: Literal["date"]
    may_mix: ClassVar[bool] = True
    format: str | None = None
    """The format of the dates, such as `%d/%m/%Y`, or `%d/%m/%Y %H:%M` if the model reads the hour.
    A time may follow a date in any format. Default: inferred from the train split."""
    unit: Literal["days", "s", "ms", "us", "ns"] | None = None
    """The unit of numbers that count from the start of 1970. Default: numbers are dates such as
    20260131."""
    parts: list[Part] | None = None
    """The parts that the model reads. Default: all parts but `year_day`, the day of the year, and
    without `hour` if the format has no time or the unit is `days`."""
    reference: str | None = None
    """The name of another column of dates, to which the age is measured. Default: the age is
    measured to a fixed day."""

    @field_validator("format")
    @classmethod
    def _check_format(cls, value: str | None) -> str | None:
        if value is not None:
            Form.parse(value)
        return value

    @property
    def chosen_parts(self) -> list[Part]:
        """The value of `parts`, or its default."""
        if self.parts is not None:
            return self.parts
        parts: list[Part] = ["age", "year", "month", "day", "weekday"]
        has_time = Form.parse(self.format).has_time if self.format else self.unit != "days"
        return [*parts, "hour"] if has_time else parts

    def forms(self) -> dict[str, str]:
        """Returns the pattern of `format`, or the patterns of all formats if `format` is not set.

        The result is empty for numbers with a unit.
        """
        if self.unit is not None:
            return {}
        if self.format is not None:
            return {self.format: Form.parse(self.format).pattern}
        return {form.layout: form.pattern for _, form in candidates()}

    def value_names(self, name: str) -> tuple[str, ...]:
        """Returns the names of the numbers: one for age and year, seven for the weekday, and two
        for other parts.
        """
        return tuple(
            f"{name}[{label}]"
            for part in self.chosen_parts
            for label in _NUMBERS.get(part, (f"{part} sin", f"{part} cos"))
        )

    def columns_of(self, name: str) -> tuple[str, ...]:
        """Returns the name of the column, and of its reference column if there is one."""
        return (name, self.reference) if self.reference else (name,)

    @classmethod
    def transform(
        cls, columns: Mapping[str, AnyTensor], features: Mapping[str, Any]
    ) -> dict[str, tf.Tensor]:
        """Returns the parts, [batch, numbers] float32 each, and the flags of optional columns.

        Raises:
          DataError: a column with a `unit` holds text, or a `reference` is not a date feature.
        """
        import tensorflow as tf

        from trainer_module.features import calendar
        from trainer_module.features.raw_columns import flag_missing

        texts = {name: columns[name] for name, f in features.items() if f.unit is None}
        days = calendar.read_texts(texts, {name: features[name].format for name in texts})
        for name in features.keys() - texts.keys():
            unit = features[name].unit
            days[name] = calendar.read_numbers(name, columns[name], _PER_DAY[unit])
        for name, feature in features.items():
            if feature.reference is not None and feature.reference not in days:
                raise DataError(
                    f"features.{name}.reference: column {feature.reference!r} is not a date; add "
                    f"features: {{{as_key(feature.reference)}: {{type: date}}}}."
                )
        parts = calendar.make_parts(days, {n: f.reference for n, f in features.items()})
        outputs = {}
        for name, feature in features.items():
            numbers = [values for part in feature.chosen_parts for values in parts[name][part]]
            outputs[name] = tf.concat(numbers, 1)
            outputs |= flag_missing(name, columns[name], tf.math.is_nan(days[name]))
        return outputs
