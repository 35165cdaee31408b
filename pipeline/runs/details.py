"""Collects the details of a run for its report."""

from __future__ import annotations

import time
from collections.abc import Mapping

from components.parts import Parts
from pipeline.credentials import mask_credentials
from pipeline.records.details import Lineage, RunDetails, StepCost
from pipeline.records.summary import RunSummary, State, Status
from pipeline.run_context import RunContext
from pipeline.runs.provenance import (
    code_version,
    config_without_secrets,
    describe_machine,
    package_versions,
)

_SECONDS_PER_HOUR = 3600


def collect_details(
    context: RunContext, summary: RunSummary, costs: Mapping[str, StepCost] | None = None
) -> None:
    """Adds the details of a run that has ended to its summary, part by part.

    A part that cannot be read, such as deleted artifacts, is left out with a note. After a stop,
    nothing is read from artifacts and metadata, so that the process ends soon.

    Args:
      costs: the measured costs of components, by name.
    """
    began, config = time.monotonic(), context.config
    details = RunDetails(costs=_price(costs or {}, summary, config.report.price_per_hour))
    summary.details = details

    def add_note(part: str, error: Exception) -> None:
        reason = mask_credentials(f"{type(error).__name__}: {error}")
        details.notes.append(f"{part} cannot be read: {reason}"[:300])

    parts, unknown = Parts("report", add_note), dict[str, str]()
    details.config = parts.make("the config", lambda: config_without_secrets(config), {})
    details.lineage = Lineage(
        config=config.fingerprint,
        code=parts.make("the version of the code", code_version, ""),
        versions=parts.make("the versions of packages", package_versions, unknown),
        machine=parts.make("the machine", describe_machine, unknown),
    )
    if summary.status is Status.INTERRUPTED:
        details.notes.append("the run was stopped, so its artifacts were not read")
    elif any(c.state in (State.RAN, State.CACHED) for c in summary.components):
        # The import is here, as a run that ends before TFX is imported has no artifacts.
        from pipeline.runs.artifact_details import ArtifactDetailsReader

        ArtifactDetailsReader(context, summary, details, parts).read()
    details.seconds = round(time.monotonic() - began, 3)


def _price(
    costs: Mapping[str, StepCost], summary: RunSummary, price_per_hour: float | None
) -> dict[str, StepCost]:
    """Returns the costs of the components that ran, with their prices."""
    prices = {
        c.name: None if price_per_hour is None else c.seconds / _SECONDS_PER_HOUR * price_per_hour
        for c in summary.components
        if c.state.has_duration
    }
    return {
        name: costs[name].model_copy(update={"price": None if price is None else round(price, 6)})
        for name, price in prices.items()
        if name in costs
    }
