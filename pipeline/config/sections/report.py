"""The section `report`: the contents of a run's report."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from pipeline.config.issues import Issue
from trainer_module.settings import Settings


class ReportSettings(Settings):
    """The contents of `report.html`, which each run writes. No key has an effect on the model."""

    price_per_hour: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """The price of this machine per hour in any currency, from which the report computes the price
    of each component; default: no prices.
    """
    private: list[str] = []
    """The columns of which the report shows no values: in statistics, effects on predictions and
    worst examples. Anomalies and drift name values of all columns.
    """


def label_is_not_private(report: ReportSettings, no_features: tuple[str, ...]) -> Iterator[Issue]:
    """Checks that the label is not private, as all results of a model are about its label."""
    label = no_features[0]
    if label in report.private:
        yield Issue(
            f"report.private.{report.private.index(label)}",
            f"found {label!r}, the label, whose values are in every result of the model; remove it",
        )


REPORT_RULES = (label_is_not_private,)
