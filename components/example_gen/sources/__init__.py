"""The sources that read the formats; `components.example_gen.formats` registers them."""

from __future__ import annotations

from components.example_gen.formats import ExampleGenSettings
from components.example_gen.sources.base import Source
from components.example_gen.sources.joined_labels import JoinedSource
from trainer_module.sections import import_registered


def make_source(settings: ExampleGenSettings) -> Source:
    """The source of the settings' format, with labels of other files where there are such."""
    kind: type[Source] = import_registered(settings.format_spec.source)
    source = kind(settings)
    if settings.labels is None:
        return source
    return JoinedSource(settings, settings.labels, source, make_source)
