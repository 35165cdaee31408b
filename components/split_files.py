"""The files of an artifact of examples."""

from __future__ import annotations

from collections.abc import Iterable

from tfx import types
from tfx.dsl.io import fileio
from tfx.types import artifact_utils
from tfx.utils import io_utils


def split_files(examples: Iterable[types.Artifact], split: str) -> list[str]:
    """Returns the files of one split, sorted by name for each artifact, in the order of the
    artifacts.

    For a window of spans, oldest first, that is not the order of the whole paths, which contain the
    numbers of executions: 10 comes before 9 there.

    Args:
      examples: the examples of one or several spans, raw or transformed.
      split: the split's name.
    """
    return [
        file
        for uri in artifact_utils.get_split_uris(list(examples), split)
        for file in sorted(fileio.glob(io_utils.all_files_pattern(uri)))
    ]
