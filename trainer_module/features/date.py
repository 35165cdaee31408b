"""The feature type of dates and times: their age, and their cyclic parts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import field_validator

from trainer_module.errors import DataError
from trainer_module.features.base import BaseFeature
from trainer_module.features.date_formats import Form, candidates

if TYPE_CHECKING:
    import tensorflow as tf

    from trainer_module.features.raw_columns import AnyTensor

Part = Literal["age", "year", "month", "day", "weekday", "hour"]
_STRAIGHT = ("age", "year")
"""The parts that are not cyclic."""
_PER_DAY = {"days": 1.0, "s": 86400.0, "ms": 86400e3, "us": 86400e6, "ns": 86400e9}


class DateFeature(BaseFeature):
    """A date or time (UTC): its age and its year, scaled, and its month, day, weekday and hour.

    Month, day, weekday and hour are cyclic, each encoded as a sine and a cosine. A missing date is
    all 0; if the first data had missing dates, an additional input flags them.
    """

    type: Literal["date"]
    may_mix: ClassVar[bool] = True
    format: str | None = None
    """The format of the dates, such as `%d/%m/%Y`, with `%H:%M` at its end if times follow;
    default: inferred from the train split. A time may follow any date."""
    unit: Literal["days", "s", "ms", "us", "ns"] | None = None
    """The unit of a number, counted from 1970; without it a number is read as text such as
    20260131."""
    parts: list[Part] | None = None
    """The parts that the model sees; default: all, but no hour if the format has no time."""
    reference: str | None = None
    """Another column of dates from which the age is measured; default: a fixed day."""

    @field_validator("format")
    @classmethod
    def _can_be_read(cls, value: str | None) -> str | None:
        if value is not None:
            Form.parse(value)
        return value

    @property
    def chosen_parts(self) -> list[Part]:
        """The value of `parts`, or by default the parts that can vary."""
        if self.parts is not None:
            return self.parts
        parts: list[Part] = ["age", "year", "month", "day", "weekday"]
        has_time = Form.parse(self.format).has_time if self.format else self.unit != "days"
        return [*parts, "hour"] if has_time else parts

    def forms(self) -> dict[str, str]:
        """Returns the pattern of the format, or by default the patterns of all formats that can be
        inferred.
        """
        if self.unit is not None:
            return {}
        if self.format is not None:
            return {self.format: Form.parse(self.format).pattern}
        return {form.layout: form.pattern for _, form in candidates()}

    def place_names(self, name: str) -> tuple[str, ...]:
        """Returns the names of the parts; cyclic parts have two."""
        return tuple(
            f"{name}[{place}]"
            for part in self.chosen_parts
            for place in ((part,) if part in _STRAIGHT else (f"{part} sin", f"{part} cos"))
        )

    def columns_of(self, name: str) -> tuple[str, ...]:
        """Returns the column itself, and the reference column of its age."""
        return (name, self.reference) if self.reference else (name,)

    @classmethod
    def transform(
        cls, columns: Mapping[str, AnyTensor], features: Mapping[str, Any]
    ) -> dict[str, tf.Tensor]:
        """Returns the parts, [batch, parts] float32 each, and the flags of optional columns.

        Raises:
          DataError: if a column has a unit and holds text, or a reference is no date.
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
                    f"features.{name}.reference: column {feature.reference!r} is no date; declare "
                    f"it by features: {{{feature.reference}: {{type: date}}}}."
                )
        parts = calendar.make_parts(days, {n: f.reference for n, f in features.items()})
        outputs = {}
        for name, feature in features.items():
            chosen = [values for part in feature.chosen_parts for values in parts[name][part]]
            outputs[name] = tf.concat(chosen, 1)
            outputs |= flag_missing(name, columns[name], tf.math.is_nan(days[name]))
        return outputs
