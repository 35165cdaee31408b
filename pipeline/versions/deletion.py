"""A deletion under way, written down so that one that is killed is finished and told."""

from __future__ import annotations

import json
import logging
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from components.disk import write_whole
from components.pusher.versions import now
from pipeline.layout import Layout
from pipeline.records.event_log import EventKind, EventLog
from trainer_module.errors import counted

logger = logging.getLogger(__name__)


@dataclass
class Deletion:
    """What goes: paths with their sizes."""

    file: Path
    began: str
    """Names the deletion."""
    versions: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By path, the lineage of each with its `bytes`."""
    runs: dict[str, int] = field(default_factory=dict)
    artifacts: dict[str, int] = field(default_factory=dict)
    bytes: int = 0
    """Of what is none of these, such as the working files of executions."""

    @classmethod
    def begin(cls, layout: Layout, event_log: EventLog) -> Deletion:
        """A new deletion, or the one that was killed."""
        try:
            found = cls(layout.deletion, **json.loads(layout.deletion.read_text()))
        except (OSError, ValueError, TypeError):
            return cls(layout.deletion, now())
        # It may have been killed after it was told.
        last = event_log.last(EventKind.DELETED)
        told = last is not None and last.details.get("began") == found.began
        return cls(layout.deletion, now()) if told else found

    def save(self) -> None:
        """Writes down what goes before it does; a full disk keeps nothing from being deleted."""
        content = asdict(self)
        del content["file"]
        if not (self.versions or self.runs or self.artifacts):
            return
        try:
            write_whole(self.file, json.dumps(content))
        except OSError:
            logger.exception("What is being deleted could not be written down")

    def end(self, event_log: EventLog) -> list[str]:
        """Records what is gone, and is over.

        Returns:
          What was deleted, as a sentence for people; none if nothing was.
        """
        # What a config keeps by now, after the deletion was killed, is still there.
        versions = [found for path, found in self.versions.items() if not Path(path).exists()]
        runs = {path: size for path, size in self.runs.items() if not Path(path).exists()}
        artifacts = {uri: size for uri, size in self.artifacts.items() if not Path(uri).exists()}
        lines = []
        if versions or runs or artifacts:
            freed = sum(found["bytes"] for found in versions) + self.bytes
            freed += sum(runs.values()) + sum(artifacts.values())
            numbers = [found["version"] for found in versions]
            message = _describe(numbers, len(runs), len(artifacts), freed)
            event_log.record(
                EventKind.DELETED,
                message,
                versions=numbers,
                lineage=versions,
                runs=[Path(path).name for path in runs],
                artifacts=len(artifacts),
                bytes=freed,
                began=self.began,
            )
            lines.append(message)
        self.file.unlink(missing_ok=True)
        return lines


def _describe(versions: list[int], runs: int, artifacts: int, freed: int) -> str:
    """Such as `1 version deleted (17), 2 runs and 24 artifacts deleted, 9.1 MB`."""
    parts = []
    if versions:
        names = ", ".join(map(str, versions))
        parts.append(f"{counted(len(versions), 'version')} deleted ({names})")
    if runs or artifacts:
        parts.append(f"{counted(runs, 'run')} and {counted(artifacts, 'artifact')} deleted")
    return f"{', '.join(parts)}, {freed / 1e6:.1f} MB"
