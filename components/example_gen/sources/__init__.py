"""The sources, which read the formats. `components.example_gen.formats` registers them."""

from __future__ import annotations

from components.example_gen.formats import ExampleGenSettings
from components.example_gen.sources.base import Source
from components.example_gen.sources.labels import (
    JoinedSource,
    OptionalLabelSource,
    ParsedLabelSource,
)
from components.example_gen.sources.lagged import LaggedSource
from trainer_module.sections import import_registered


def make_source(settings: ExampleGenSettings) -> Source:
    """Returns the source for the settings' format. The source also joins, adds or parses labels,
    and adds past labels, if the settings require it.
    """
    source = _make_plain(settings)
    if settings.may_lack_label:
        source = OptionalLabelSource(settings, source)
    if settings.labels is not None:
        source = JoinedSource(settings, settings.labels, source, _make_plain)
    if settings.task.is_classification:
        return source
    source = ParsedLabelSource(settings, source)
    return source if settings.lags is None else LaggedSource(settings, settings.lags, source)


def _make_plain(settings: ExampleGenSettings) -> Source:
    kind: type[Source] = import_registered(settings.format_spec.source)
    return kind(settings)
