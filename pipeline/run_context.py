"""What a run knows once its config has been checked: resolved once, immutable, and handed on."""

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


@dataclass(frozen=True)
class RunRequest:
    """What a run is asked to do, besides what its config says."""

    because: str = BY_HAND
    """Why there is a run, for the event log."""
    through: str | None = None
    """The span that the window ends at, a date, an hour or a number; default: the newest."""
    validate_only: bool = False
    """Whether to read and check the newest span, and go no further."""
    search_only: bool = False
    """Whether to search for better values, and train nothing with them."""
    force: bool = False
    """Whether to run although nothing has changed since the last run."""
    through_name: str = "--through"
    """What `through` was given as, for messages."""

    @property
    def may_repeat(self) -> bool:
        """Whether all that is asked for is what a run came to whose like was there before.

        A run with a reason of its own, such as a schedule's, is one for the history.
        """
        return self == RunRequest()


@dataclass(frozen=True)
class RunContext:
    """A config, where its files are, and the spans that a run trains on."""

    config: PipelineConfig
    layout: Layout
    location: DataLocation
    window: Window | None = None
    """The spans to train on; None where the data does not come in spans."""
    data: tuple[Span, ...] = ()
    """The spans to train on; data without spans counts as one. Empty where the files are elsewhere,
    as for whoever compiles a pipeline for a cluster."""
    recorded_ingestion: Ingestion | None = None
    """As an earlier step of the run has resolved it; None where this process is the first."""

    @cached_property
    def connection(self) -> Any:
        """How ML Metadata reaches its store; may hold a password, and is never logged."""
        return connection_config(self.config.metadata, self.layout)

    @cached_property
    def reading(self) -> ExampleGenSettings:
        """How the files are read, as far as that is known before TFX is imported."""
        return reading_settings(self.config, self.layout)

    @cached_property
    def ingestion(self) -> Ingestion:
        """How the files become examples."""
        if self.recorded_ingestion is not None:
            return self.recorded_ingestion
        # It imports TFX, which takes seconds: data and stores are checked before.
        from pipeline.ingestion import resolve_ingestion

        curated = curated_schema(self.config.schema_file, self.layout)
        return resolve_ingestion(self.reading, curated, self.config.data, self.layout)


def resolve_run(
    config: PipelineConfig, layout: Layout, request: RunRequest = RunRequest()
) -> RunContext:
    """Finds the data of a run.

    Args:
      config: a checked config.
      layout: of the pipeline.
      request: up to which span.

    Raises:
      ConfigError: the span that is asked for is none, or the data has no spans.
      DataError: there is no data, or the window has a gap.
    """
    location = locate_data(config.data, layout)
    if not has_spans(config.data):
        if request.through is not None:
            raise ConfigError(
                f"{request.through_name} {request.through}: data.path ({config.data.path}) has no"
                " spans to end at; leave it out, or write {SPAN} or a date such as"
                " {YYYY}-{MM}-{DD} in data.path."
            )
        return RunContext(config, layout, location, data=(whole_data(location, config.data),))
    window = _find_window(config, location, request)
    return RunContext(config, layout, location, window, window.spans)


def resolve_elsewhere(config: PipelineConfig, layout: Layout) -> RunContext:
    """What is known of a pipeline whose files and stores are those of another machine.

    Args:
      config: a checked config.
      layout: of the pipeline there; its `is_elsewhere` is true.
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
    """Notes which spans, oldest first, are not trained on without the config saying so."""
    if not spans:
        return []
    extent = (
        f"span {spans[0]} is"
        if len(spans) == 1
        else (f"{len(spans):,} spans, {spans[0]} to {spans[-1]}, are")
    )
    return [
        f"{extent} not trained on, as the newest alone is by default; to train on all: schedule: "
        "{window: {all: true}}; if the newest is meant: schedule: {window: {last: 1}}"
    ]
