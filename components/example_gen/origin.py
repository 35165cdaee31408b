"""Where the examples of an artifact came from, for whoever looks for a row in the files again."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from tfx import types
from tfx.dsl.io import fileio

from components.example_gen.formats import ExampleGenSettings
from components.example_gen.paths import is_hidden
from components.example_gen.sources import make_source
from components.example_gen.sources.base import Batch, merge_surveys

ORIGIN_PROPERTY = "origin"
"""Of the artifact: the files and how they were read, as JSON."""

MOST_BYTES = 256 << 20
"""Of files that are read again: it happens in one process, and somebody waits for it."""


def note_origin(
    examples: types.Artifact, settings: ExampleGenSettings, patterns: Sequence[str]
) -> None:
    """Notes the globs of the input splits, and how their files were read."""
    origin = {"settings": settings.model_dump(mode="json"), "patterns": list(patterns)}
    examples.set_string_custom_property(ORIGIN_PROPERTY, json.dumps(origin))


def read_origin(examples: types.Artifact) -> Iterator[Batch]:
    """Yields the rows of the files again; none where it is not known, or they are too large.

    Nor of files that are an example each: those have no rows, and pictures take long to decode.

    Raises:
      DataError: the files have changed, and cannot be read any more.
    """
    text = examples.get_string_custom_property(ORIGIN_PROPERTY)
    if not text:
        return
    origin = json.loads(text)
    settings = ExampleGenSettings.model_validate(origin["settings"])
    if settings.format_spec.has_file_per_example:
        return
    source = make_source(settings)
    found = [sorted(fileio.glob(pattern)) for pattern in origin["patterns"]]
    groups = [
        group
        for files in found
        for group in source.plan([file for file in files if not is_hidden(file)])
    ]
    if sum(fileio.stat(file).length for group in groups for file in group) > MOST_BYTES:
        return
    kinds = merge_surveys([source.survey(group) for group in groups], settings)
    for group in groups:
        yield from source.read(group, kinds)
