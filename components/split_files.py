"""Lists the files of a split of examples, and names the type of an executor's artifacts."""

from __future__ import annotations

from collections.abc import Iterable

from tfx import types
from tfx.dsl.io import fileio
from tfx.types import artifact_utils
from tfx.utils import io_utils

Artifacts = dict[str, list[types.Artifact]]
"""The inputs or outputs of an executor, by key."""


def split_files(examples: Iterable[types.Artifact], split: str) -> list[str]:
    """Returns the files of a split in the order of the artifacts, and by name within an artifact.

    For a window of spans, this is not the order of the paths: the paths contain the numbers of
    executions, and 10 would come before 9.

    Args:
      examples: the examples of one or several spans, as read or as transformed.
    """
    return [
        file
        for uri in artifact_utils.get_split_uris(list(examples), split)
        for file in sorted(fileio.glob(io_utils.all_files_pattern(uri)))
    ]
