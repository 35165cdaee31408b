"""Makes the model card of a version from the results of its run and the section `card`.

The JSON follows the schema v0.0.2 of TensorFlow's model-card-toolkit:
https://github.com/tensorflow/model-card-toolkit/tree/main/model_card_toolkit/schema/v0.0.2
"""

from __future__ import annotations

import json
import math
import platform
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

from components import release
from components.disk import show_size, sizes_below
from pipeline.config.sections.card import CardSettings
from pipeline.config.settings import PipelineConfig
from pipeline.records.summary import MetricSummary, RunSummary
from pipeline.report.private_slices import is_private, without_private_slices
from trainer_module.errors import DataError, counted
from trainer_module.export.interface import ModelInterface, read_interface

SCHEMA_VERSION = "0.0.2"
MAX_COLUMNS, MAX_SLICES = 500, 200
"""The maximum numbers of columns and of slices that a card lists; it gives the number of others."""
_PROPRIETARY = "proprietary"
"""The licence without a public text, which model-card-toolkit accepts as an identifier."""
_PACKAGES = ("tensorflow", "tf-keras", "tfx")


@dataclass(frozen=True)
class CardSource:
    """Everything that a card is made from."""

    config: PipelineConfig
    summary: RunSummary
    """The summary, with the results of all components before the Pusher."""
    interface: ModelInterface | None
    """The inputs of the model, or None if they are unknown."""
    size: int | None
    """The size of the exported model in bytes, or None if its files are on another machine."""
    trained: datetime
    """The time of the training; the model may be from the cache of an earlier run."""

    @classmethod
    def read(
        cls, config: PipelineConfig, summary: RunSummary, exported: Path, trained: datetime
    ) -> CardSource:
        """Returns the source of a card.

        Args:
          summary: the summary of the run before the push.
          trained: the time of the training.
        """
        try:
            interface = read_interface(exported)
        except DataError:  # A training function of the user's may export another model.
            interface = None
        size = sum(sizes_below(exported)) if exported.is_dir() else None
        return cls(config, summary, interface, size, trained)

    @property
    def card(self) -> CardSettings:
        """The section `card`, with the facts that people know."""
        return self.config.card

    @property
    def slices(self) -> dict[str, dict[str, float]]:
        """The metrics by slice, without slices by private columns, whose names are values."""
        private, slices = self.config.report.private, self.summary.slices.items()
        return {name: values for name, values in slices if not is_private(name, private)}

    @property
    def notes(self) -> list[str]:
        """The notes of the run, without the names of slices by private columns."""
        return without_private_slices(self.summary, self.config.report.private).notes

    @property
    def columns(self) -> list[tuple[str, str]]:
        """The raw columns that the model takes, with their types."""
        interface = self.interface
        return [] if interface is None else [(c.name, _type_of(c)) for c in interface.columns]

    @property
    def kind(self) -> str:
        """The kind of the model."""
        return str(self.summary.training.get("model") or self.config.model.kind or "unknown")

    @property
    def description(self) -> list[tuple[str, str]]:
        """The facts about the model and its run, by name."""
        summary, training = self.summary, self.summary.training
        window = summary.window
        facts = {
            "Run": summary.run_id,
            "Trained": self.trained.date().isoformat(),
            "Task": self.config.target.kind,
            "Model": self.kind,
            "Size": "" if self.size is None else show_size(self.size),
            "Strategy": _strategy(summary),
            "Epochs": str(training.get("epochs") or ""),
            "Data": self.config.data.format,
            "Spans": "" if window is None else _extent(window.spans),
            "Fingerprint of the config": self.config.fingerprint,
            "Certificate": summary.certificate.gist if summary.certificate else "",
            "Versions in this run": ", ".join(
                f"{name} {number}" for name, number in _versions().items()
            ),
        }
        return [(name, value) for name, value in facts.items() if value]

    @property
    def missing(self) -> list[str]:
        """The fields for which neither the config nor the run has a value, with the remedy."""
        fields = CardSettings.model_fields
        people = [f"card.{name} in the config" for name in fields if not getattr(self.card, name)]
        summary, run = self.summary, []
        if not summary.examples:
            run.append("the number of rows: the run made no statistics")
        if self.interface is None:
            run.append("the columns: the description of the model's inputs cannot be read")
        if unsure := [n for n, metric in summary.metrics.items() if metric.interval is None]:
            run.append(f"the confidence intervals of {', '.join(unsure)}")
        if not self.slices:
            run.append("the metrics by slice: no evaluate.slices, or only of private columns")
        if summary.certificate is None:
            run.append("the certificate: the run made none")
        return people + run


def licence_of(text: str | None) -> dict[str, str]:
    """Returns a licence as `identifier`, if it is one of SPDX or proprietary, or `custom_text`."""
    if text is None:
        return {}
    if text.lower() == _PROPRIETARY:
        return {"identifier": _PROPRIETARY}
    try:
        return {"identifier": canonicalize_license_expression(text)}
    except InvalidLicenseExpression:
        return {"custom_text": text}


def card_as_json(source: CardSource) -> str:
    """Returns a card as JSON. Fields without a value are left out."""
    content = {
        "schema_version": SCHEMA_VERSION,
        "model_details": _model_details(source),
        "model_parameters": _model_parameters(source),
        "quantitative_analysis": {"performance_metrics": _metrics(source)},
        "considerations": _considerations(source.card),
    }
    return json.dumps(_without_empty(content), indent=2, ensure_ascii=False) + "\n"


def _model_details(source: CardSource) -> dict[str, Any]:
    card, summary = source.card, source.summary
    facts = [f"{name}: {value}" for name, value in source.description]
    missing = [f"Missing: {field}" for field in source.missing]
    licence = licence_of(card.licence)
    return {
        "name": source.config.name,
        "overview": card.overview,
        "documentation": "\n".join([*facts, *missing]),
        "owners": [{"name": card.owner, "contact": card.contact}],
        "version": {"name": summary.run_id, "date": _date(summary.started)},
        "licenses": [licence],
        "references": [{"reference": url} for url in card.references],
    }


def _model_parameters(source: CardSource) -> dict[str, Any]:
    columns, interface = source.columns, source.interface
    classes = () if interface is None else interface.classes
    outputs = counted(len(classes), "class") if classes else ""
    more = len(columns) - MAX_COLUMNS
    return {
        "model_architecture": source.kind,
        "data": [
            {"name": split, "description": f"{rows:,} rows, {counted(len(columns), 'column')}"}
            for split, rows in source.summary.examples.items()
        ],
        "input_format": counted(len(columns), "column")
        + (f", of which {more:,} are not listed" if more > 0 else ""),
        "input_format_map": [{"key": n, "value": t} for n, t in columns[:MAX_COLUMNS]],
        "output_format": f"{source.config.target.kind}{': ' if outputs else ''}{outputs}",
    }


def _metrics(source: CardSource) -> list[dict[str, Any]]:
    whole = [_metric(name, metric) for name, metric in source.summary.metrics.items()]
    slices = [
        {"type": metric, "value": show_number(value), "slice": name}
        for name, values in list(source.slices.items())[:MAX_SLICES]
        for metric, value in values.items()
    ]
    return whole + slices


def _metric(name: str, metric: MetricSummary) -> dict[str, Any]:
    bounds = metric.interval
    interval = bounds and {
        "lower_bound": show_number(bounds[0]),
        "upper_bound": show_number(bounds[1]),
    }
    return {"type": name, "value": show_number(metric.value), "confidence_interval": interval}


def _considerations(card: CardSettings) -> dict[str, Any]:
    def described(texts: list[str]) -> list[dict[str, str]]:
        return [{"description": text} for text in texts]

    return {
        "users": described(card.users),
        "use_cases": described(card.intended_use),
        "limitations": described(card.limits),
        "tradeoffs": described(card.tradeoffs),
        "ethical_considerations": [
            {"name": name, "mitigation_strategy": text} for name, text in card.risks.items()
        ],
    }


def _without_empty(value: Any) -> Any:
    """Returns a value without empty strings, lists and mappings, and without None."""
    if isinstance(value, dict):
        filled = {key: _without_empty(item) for key, item in value.items()}
        return {key: item for key, item in filled.items() if item not in (None, "", [], {})}
    if isinstance(value, list):
        filled_items = [_without_empty(item) for item in value]
        return [item for item in filled_items if item not in (None, "", [], {})]
    return value


def show_number(value: float) -> str:
    """Returns a metric with six significant digits, or `undefined`."""
    return f"{value:.6g}" if math.isfinite(value) else "undefined"


def _date(started: str) -> str | None:
    """Returns the date of a time in ISO 8601, or None if the time cannot be read."""
    try:
        return datetime.fromisoformat(started).date().isoformat()
    except ValueError:
        return None


def _type_of(column: Any) -> str:
    if column.picture:
        return "image"
    return "integer" if column.is_whole else str(column.dtype)


def _strategy(summary: RunSummary) -> str:
    replicas = summary.replicas
    return summary.strategy + (f", {counted(replicas, 'replica')}" if replicas else "")


def _extent(spans: list[str]) -> str:
    return spans[0] if len(spans) == 1 else f"{spans[0]} to {spans[-1]} ({len(spans)})"


def _versions() -> dict[str, str]:
    found = {"Python": platform.python_version(), release.NAME: release.read_version()}
    for name in _PACKAGES:
        with suppress(PackageNotFoundError):  # Builds such as tensorflow-cpu have other names.
            found[name] = version(name)
    return found
