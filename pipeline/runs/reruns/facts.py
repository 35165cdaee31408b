"""What a run rests on, as stamps: what it is given, and what the run before it has left.

Whoever compares them imports neither TFX nor TensorFlow. There is a stamp for everything that may
make a component run; where nobody can tell, as of a metadata server that others use as well, there
are none, and the run decides by itself.
"""

from __future__ import annotations

import os
from pathlib import Path

from components.example_gen.paths import is_remote
from pipeline.config.fingerprint import files_fingerprint, own_sources
from pipeline.data.ingestion import curated_schema, pictures_revision
from pipeline.graph.cache_keys import files_read
from pipeline.own_modules import PACKAGES, ROOT
from pipeline.records.event_log import EventKind, EventLog
from pipeline.run_context import RunContext
from pipeline.runs.reruns.stamps import (
    stamp_of,
    stamp_of_environment,
    stamp_of_files,
    stamp_of_packages,
)
from trainer_module.strategies.tpu import NAME_VARIABLE

Facts = dict[str, str]
"""Stamps, by what people call the thing."""

_PREFIXES = ("CUDA_", "KERAS_", "NVIDIA_", "OMP_", "TF_", "TFX_", "XLA_")
_VARIABLES = ("LD_LIBRARY_PATH", "PYTHONHASHSEED", NAME_VARIABLE)
"""What components, and the libraries that they call, read from the environment."""

_ONLY_TOLD = {
    EventKind.SKIPPED,
    EventKind.SKEW_CHECKED,
    EventKind.SKEW,
    EventKind.CLOCK_SET_BACK,
    EventKind.RECOVERED,
    EventKind.STALE,
    EventKind.LEFT_OUT,
    EventKind.NOTIFICATION_FAILED,
}
"""Events that no run looks at."""


def given_to(context: RunContext) -> Facts | None:
    """What a run is given; read before it begins: what changes meanwhile is new to the next.

    Returns:
      None where that cannot be told, as something is not on this machine.

    Raises:
      OSError: something of it cannot be looked at.
    """
    config, layout = context.config, context.layout
    curated = curated_schema(config.schema_file, layout)
    if config.metadata is not None or (curated is not None and is_remote(curated)):
        return None
    lock = ROOT / "uv.lock"
    window = context.window
    return {
        "the folder": stamp_of(layout, Path.cwd()),
        # Some settings count as left out, or not, though they have the same values.
        "the config": stamp_of(
            config.model_dump_json(), config.model_dump_json(exclude_unset=True)
        ),
        "Scopeline's code": files_fingerprint(
            source for name in PACKAGES for source in sorted((ROOT / name).rglob("*.py"))
        ),
        "code that the config names": stamp_of_files(own_sources(config.own_code.values())),
        "files that the config names": stamp_of_files(
            [*files_read(config.trainer_settings), *([Path(curated)] if curated else [])]
        ),
        "packages": stamp_of(stamp_of_packages(), stamp_of_files([lock])),
        "the environment": stamp_of_environment(os.environ, _PREFIXES, _VARIABLES),
        "the data": stamp_of(
            [(span.number, span.signature) for span in context.data],
            [(span.number, span.signature) for span in window.empty] if window else [],
        ),
        "pictures": pictures_revision(config.data, context.reading.pictures, layout),
    }


def left_by(context: RunContext, run: str) -> Facts | None:
    """What the pipeline's last run has left, as it is now.

    Args:
      context: of the run.
      run: the last run's id.

    Returns:
      None where nothing was written down of it.

    Raises:
      OSError: something of it cannot be looked at.
    """
    layout = context.layout
    event_log = EventLog(layout.event_log)
    last = event_log.last(*(kind for kind in EventKind if kind not in _ONLY_TOLD))
    if last is None:
        return None
    # Beside the file are those of a transaction that did not end.
    metadata = sorted(layout.root.glob(f"{layout.metadata.name}*"))
    served = [] if is_remote(layout.serving) else [Path(layout.serving)]
    return {
        "the history": stamp_of(last.id, last.at.isoformat(), last.kind.value, last.run),
        "the metadata": stamp_of_files(metadata),
        "artifacts": stamp_of_files([layout.pipeline_root]),
        "versions": stamp_of_files(served),
        "the kept schema": stamp_of_files([layout.schema]),
        "the summary": stamp_of_files([layout.run(run).summary]),
        "a deletion that was interrupted": stamp_of_files([layout.deletion]),
    }
