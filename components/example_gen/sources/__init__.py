"""The sources that read the formats; `components.example_gen.formats` registers them."""

from __future__ import annotations

from components.example_gen.formats import ExampleGenSettings
from components.example_gen.sources.base import Source
from trainer_module.sections import import_registered


def make_source(settings: ExampleGenSettings) -> Source:
    """The source of the settings' format."""
    source: type[Source] = import_registered(settings.format_spec.source)
    return source(settings)
