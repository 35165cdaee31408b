"""The context of a run: its config, the location of its files, and its spans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from components.example_gen.formats import ExampleGenSettings
from pipeline.clock import system_clock
from pipeline.config.sections.data import has_spans, span_kind
from pipeline.config.settings import PipelineConfig
from pipeline.data.files import DataLocation, locate_data
from pipeline.data.ingestion import Ingestion, curated_schema, reading_settings
from pipeline.data.spans import Span, Window, choose_window, list_spans, whole_data
from pipeline.layout import Layout
from pipeline.records.metadata_store import connection_config
from trainer_module.errors import ConfigError

BY_HAND = "by hand"
"""The reason of a run that a user started."""


@dataclass(frozen=True)
class RunRequest:
    """The options of a run in addition to its config."""

    reason: str = BY_HAND
    """The reason for the run, for the event log."""
    through: str | None = None
    """The last span of the window, as a date, an hour or a number; default: the newest span."""
    validate_only: bool = False
    """Whether the run ends after it has read and checked the newest span."""
    search_only: bool = False
    """Whether the run ends after the search for better values."""
    force: bool = False
    """Whether to run even if nothing has changed since the last run."""
    through_name: str = "--through"
    """The name of the option for `through`, for messages."""

    @property
    def may_be_skipped(self) -> bool:
        """Whether the run may be skipped if nothing has changed since the last run.

        The result is true only if no option is set. A run that a scheduler requests is never
        skipped, as `history` has to show the run.
        """
        return self == RunRequest()


@dataclass(frozen=True)
class RunContext:
    """A config, the location of its files, and the spans that a run trains on."""

    config: PipelineConfig
    layout: Layout
    location: DataLocation
    window: Window | None = None
    """The spans to train on, or None for data without spans."""
    data: tuple[Span, ...] = ()
    """The spans to train on; data without spans counts as one span. Empty if the files are on
    another machine, as when a pipeline is compiled for Kubeflow.
    """
    recorded_ingestion: Ingestion | None = None
    """The result of `ingestion` in an earlier step of the run; None in the first step."""

    @cached_property
    def connection(self) -> Any:
        """The connection settings of ML Metadata, which are never logged, as they may contain a
        password.
        """
        return connection_config(self.config.metadata, self.layout)

    @cached_property
    def reading(self) -> ExampleGenSettings:
        """The settings of ExampleGen that do not need an import of TFX."""
        return reading_settings(self.config, self.layout)

    @cached_property
    def ingestion(self) -> Ingestion:
        """The settings with which ExampleGen reads the files, and the user's schema."""
        if self.recorded_ingestion is not None:
            return self.recorded_ingestion
        # The import of TFX takes seconds. Data and stores are therefore checked before.
        from pipeline.ingestion import resolve_ingestion

        curated = curated_schema(self.config.schema_file, self.layout)
        return resolve_ingestion(self.reading, curated, self.config.data, self.layout)


def resolve_run(
    config: PipelineConfig, layout: Layout, request: RunRequest = RunRequest()
) -> RunContext:
    """Returns the context of a run, with the spans of its data.

    Raises:
      ConfigError: the requested span is no date, hour or number, or the data has no spans.
      DataError: there is no data, or the window has a gap.
    """
    location = locate_data(config.data, layout)
    if not has_spans(config.data):
        if request.through is not None:
            raise ConfigError(
                f"{request.through_name} {request.through}: data.path ({config.data.path}) has no"
                f" spans; leave {request.through_name} out, or write {{SPAN}} or a date such as"
                " {YYYY}-{MM}-{DD} into data.path."
            )
        return RunContext(config, layout, location, data=(whole_data(location, config.data),))
    window = _find_window(config, location, request)
    return RunContext(config, layout, location, window, window.spans)


def resolve_elsewhere(config: PipelineConfig, layout: Layout) -> RunContext:
    """Returns the context of a pipeline whose files and stores are on another machine.

    Args:
      layout: the layout of the pipeline on the other machine; its `is_elsewhere` is true.
    """
    return RunContext(config, layout, locate_data(config.data, layout))


def _find_window(config: PipelineConfig, location: DataLocation, request: RunRequest) -> Window:
    through = None
    if request.through is not None:
        try:
            through = span_kind(config.data).parse(request.through)
        except ValueError:
            raise ConfigError(
                f"{request.through_name} {request.through}: each span at data.path is "
                f"{span_kind(config.data).value}"
            ) from None
    spans = list_spans(config.data, location)
    settings = config.schedule_or_default
    window = choose_window(spans, config.data, settings, system_clock(), through)
    if "window" in settings.model_fields_set:
        return window
    unused = [span for span in spans if span.number < window.spans[0].number]
    return replace(window, notes=(*window.notes, *_note_unused(unused)))


def _note_unused(spans: Sequence[Span]) -> list[str]:
    """Returns a note on older spans if the config does not set the window."""
    if not spans:
        return []
    extent = (
        f"span {spans[0]} is"
        if len(spans) == 1
        else f"{len(spans):,} spans, {spans[0]} to {spans[-1]}, are"
    )
    return [
        f"{extent} not trained on, as the default window is the newest span. To train on all "
        "spans, write schedule: {window: {all: true}}. To confirm the default, write schedule: "
        "{window: {last: 1}}"
    ]
