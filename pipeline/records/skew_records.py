"""What the event log knows of requests that were compared with the training data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.config.sections.notify import Occasion
from pipeline.config.sections.skew import OnSkew
from pipeline.config.settings import PipelineConfig
from pipeline.data.request_files import count_rows, list_requests, show_files
from pipeline.data.span_files import File
from pipeline.records.event_log import EventKind, EventLog
from pipeline.records.notify import notify
from trainer_module.errors import counted


def new_requests(config: PipelineConfig, event_log: EventLog) -> list[File]:
    """The files of requests that have not been compared yet, oldest first.

    Empty until they have `skew.min_rows` rows together, or where nothing is to be compared.
    """
    skew = config.skew
    if not skew.is_watched or skew.requests is None or event_log.last(EventKind.PUSHED) is None:
        return []
    last = event_log.last(EventKind.SKEW_CHECKED)
    through = tuple(last.details["through"]) if last else (0.0, "")
    files = [f for f in list_requests(skew.requests) if (f.modified, f.path) > through]
    rows = count_rows(files)
    whole = [file for file in files if file.path in rows]
    return whole if sum(rows.values()) >= skew.min_rows else []


def record_skew(
    config: PipelineConfig,
    event_log: EventLog,
    files: Sequence[File],
    version: int,
    rows: int,
    skewed: Mapping[str, str],
) -> str:
    """Records what a comparison came to, and tells of it: of what lasts, once.

    Args:
      config: of the pipeline.
      event_log: of the pipeline.
      files: that were compared.
      version: that serves, with whose training data.
      rows: that were compared.
      skewed: by column, how far it is from the training data.

    Returns:
      What it came to, in a sentence.
    """
    before = event_log.last(EventKind.SKEW_CHECKED)
    is_same = before is not None and before.details["version"] == version
    known = set(before.details["columns"]) if before and is_same else set()
    new = {column: text for column, text in skewed.items() if column not in known}
    window = f"requests of {show_files(files)}, {counted(rows, 'row')}"
    said = f"{window}: {_outcome(skewed, new, known)}"
    newest = files[-1]
    event_log.record(
        EventKind.SKEW_CHECKED,
        said,
        through=[newest.modified, newest.path],
        version=version,
        rows=rows,
        columns=sorted(skewed),
    )
    if new:
        message = f"{window}: {'; '.join(f'{name}: {text}' for name, text in new.items())}"
        details: dict[str, Any] = {"columns": sorted(new), "version": version, "rows": rows}
        event_log.record(EventKind.SKEW, message, **details)
        if config.skew.on_skew is not OnSkew.WARN:
            notify(config.notify, config.name, Occasion.SKEW, message, details, event_log)
    return said


def _outcome(skewed: Mapping[str, str], new: Mapping[str, str], known: set[str]) -> str:
    lasting = [f"{name} is still skewed" for name in skewed if name not in new]
    over = [f"{name} is again like the training data" for name in sorted(known - skewed.keys())]
    found = [f"{name}: {text}" for name, text in new.items()]
    return "; ".join([*found, *lasting, *over]) or "like the training data"
