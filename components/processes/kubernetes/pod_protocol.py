"""How a launcher and its pods talk: tasks travel in one variable, events in the pods' logs."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from components.processes.launcher import TaskEvent, TaskSpec
from trainer_module.errors import ConfigError

TASKS_VARIABLE = "SCOPELINE_TASKS"
"""The environment variable that holds what the tasks of a Job are told, packed."""
INDEX_VARIABLE = "JOB_COMPLETION_INDEX"
"""Which of them a pod is; the Job controller sets it."""
MARK = "scopeline-event: "
"""What follows it in a line of a pod's log is an event, as JSON."""
MAX_CHARACTERS = 100_000
"""Linux takes 131,071 bytes in one variable."""


class PodPayload(NamedTuple):
    """What one pod is told."""

    payload: dict[str, Any]
    environment: dict[str, str]


def pack(specs: Sequence[TaskSpec]) -> str:
    """What the tasks of a Job are told, in the order of their indices, as plain text.

    Raises:
      ConfigError: it is more than an environment variable may hold.
    """
    told = [[dict(spec.payload), dict(spec.environment)] for spec in specs]
    packed = base64.b64encode(gzip.compress(json.dumps(told).encode(), mtime=0)).decode()
    if len(packed) > MAX_CHARACTERS:
        raise ConfigError(
            f"what the pods of {len(specs)} tasks have to be told takes {len(packed):,} characters "
            f"of an environment variable, but {MAX_CHARACTERS:,} is the most; use fewer workers, "
            "or shorter settings of the model and the features."
        )
    return packed


def unpack(packed: str, index: int) -> PodPayload:
    """What the task of that index is told, of what `pack` made."""
    return PodPayload(*json.loads(gzip.decompress(base64.b64decode(packed)))[index])


def split_line(line: str) -> tuple[str | None, TaskEvent | None]:
    """The text of a line of a pod's log, and the event in it.

    A progress bar may stand before an event, as it does not end its line.
    """
    text, mark, said = line.partition(MARK)
    if not mark:
        return line, None
    try:
        event = TaskEvent(**json.loads(said))
    except (ValueError, TypeError):  # Another process wrote into the line.
        return line, None
    return text or None, event
