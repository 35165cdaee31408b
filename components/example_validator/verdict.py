"""The handling of anomalies: whether the run stops, and the remedies."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from trainer_module.errors import DataError, DriftError

if TYPE_CHECKING:
    from components.example_validator.anomalies import Anomaly

SCHEMA_COMMAND = "scopeline schema accept --config FILE"
"""The command that changes the schema to accept the last run's data."""


def span_command(span: str) -> str:
    """Returns the command that accepts a span that drifted."""
    return f"scopeline spans accept {span} --reason TEXT --config FILE"


SPAN_COMMAND = span_command("SPAN")


def check_anomalies(anomalies: Sequence[Anomaly], stops: bool) -> None:
    """Raises an error for severe drift, and for other severe anomalies if `stops` is True.

    Raises:
      DriftError: there is drift and nothing else.
      DataError: the data contradicts the schema.
    """
    severe = [anomaly for anomaly in anomalies if anomaly.severe and not anomaly.is_drift]
    drift = [anomaly for anomaly in anomalies if anomaly.severe and anomaly.is_drift]
    problems = []
    if severe and stops:
        problems.append(
            f"the data contradicts the schema: {_listed(severe)}{_new_columns(anomalies)}. Correct"
            f" the data; or, if the data is right, change the schema by `{SCHEMA_COMMAND}`; or set"
            " on_anomaly: warn, so that the run continues"
        )
    if drift:
        problems.append(
            f"the data drifted: {_listed(drift)}. Correct the data; or, if the data is right,"
            f" accept it by `{SPAN_COMMAND}`; or set drift.on_drift: warn, so that the run"
            " continues"
        )
    if problems:
        raise (DataError if severe and stops else DriftError)("; ".join(problems))


def _listed(anomalies: Iterable[Anomaly]) -> str:
    return "; ".join(str(anomaly) for anomaly in anomalies)


def _new_columns(anomalies: Iterable[Anomaly]) -> str:
    """Returns a hint at new columns, which may be renamed ones."""
    new = sorted(anomaly.column for anomaly in anomalies if anomaly.is_new_column)
    return f" (new in the data: {', '.join(new)})" if new else ""
