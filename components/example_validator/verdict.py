"""What anomalies come to: whether the run stops, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from trainer_module.errors import DataError, DriftError

if TYPE_CHECKING:
    from components.example_validator.anomalies import Anomaly

ACCEPT = "local_runner.py schema accept --config FILE"
"""The command that makes right what the last run found wrong."""


def accept_span(span: str) -> str:
    """Returns the command by which a span that drifted is used all the same."""
    return f"local_runner.py spans accept {span} --reason TEXT --config FILE"


ACCEPT_SPAN = accept_span("SPAN")


def raise_for(anomalies: Sequence[Anomaly], stops: bool) -> None:
    """Raises DataError for severe anomalies: for drift, and if it `stops` the run for others.

    Raises:
      DriftError: there is drift and nothing else.
      DataError: the data contradicts the schema.
    """
    severe = [anomaly for anomaly in anomalies if anomaly.severe and not anomaly.is_drift]
    drift = [anomaly for anomaly in anomalies if anomaly.severe and anomaly.is_drift]
    problems = []
    if severe and stops:
        problems.append(
            f"the data contradicts the schema: {_listed(severe)}{_new_columns(anomalies)}. Mend "
            f"the data; or, if it is right, change the schema by `{ACCEPT}`; or set on_anomaly: "
            "warn to go on regardless"
        )
    if drift:
        problems.append(
            f"the data drifted: {_listed(drift)}. Mend the data; or, if it is right, accept it by "
            f"`{ACCEPT_SPAN}`; or set drift.on_drift: warn to go on regardless"
        )
    if problems:
        raise (DataError if severe and stops else DriftError)("; ".join(problems))


def _listed(anomalies: Iterable[Anomaly]) -> str:
    return "; ".join(str(anomaly) for anomaly in anomalies)


def _new_columns(anomalies: Iterable[Anomaly]) -> str:
    """What may be the new name of a column that is missing."""
    new = sorted(anomaly.column for anomaly in anomalies if anomaly.is_new_column)
    return f" (new in the data: {', '.join(new)})" if new else ""
