"""The handling of anomalies: whether they stop the run, and how to correct them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from trainer_module.errors import DataError, DriftError
from trainer_module.typed_words import typed_command

if TYPE_CHECKING:
    from components.example_validator.anomalies import Anomaly

_SPAN = "SPAN"
"""The placeholder of a span's name, which components do not know."""


def schema_command() -> str:
    """Returns the command that changes the schema so that the data of the last run agrees."""
    return typed_command("schema accept")


def span_command(span: str = _SPAN) -> str:
    """Returns the command that accepts a span that drifted."""
    return typed_command(f"spans accept {span} --reason TEXT")


def check_anomalies(anomalies: Sequence[Anomaly], stops: bool) -> None:
    """Raises an error if there are severe anomalies.

    Args:
      stops: whether severe contradictions of the schema stop the run. Severe drift always does.

    Raises:
      DriftError: there is severe drift, and no other severe anomaly stops the run.
      DataError: the data contradicts the schema.
    """
    severe = [anomaly for anomaly in anomalies if anomaly.severe and not anomaly.is_drift]
    drift = [anomaly for anomaly in anomalies if anomaly.severe and anomaly.is_drift]
    problems = []
    if severe and stops:
        problems.append(
            f"the data contradicts the schema: {_listed(severe)}{_new_columns(anomalies)}. Correct"
            f" the data; or, if the data is correct, change the schema by `{schema_command()}`; or"
            " set on_anomaly: warn, so that the run continues"
        )
    if drift:
        problems.append(
            f"the data drifted: {_listed(drift)}. Correct the data; or, if the data is correct,"
            f" accept the span by `{span_command()}`; or set drift.on_drift: warn, so that the run"
            " continues"
        )
    if problems:
        raise (DataError if severe and stops else DriftError)("; ".join(problems))


def _listed(anomalies: Iterable[Anomaly]) -> str:
    return "; ".join(str(anomaly) for anomaly in anomalies)


def _new_columns(anomalies: Iterable[Anomaly]) -> str:
    """Returns a hint with the new columns, as a missing column may have been renamed."""
    new = sorted(anomaly.column for anomaly in anomalies if anomaly.is_new_column)
    return f" (new in the data: {', '.join(new)})" if new else ""
