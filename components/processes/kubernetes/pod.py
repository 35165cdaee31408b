"""The communication of a launcher with its pods.

The launcher passes payloads in an environment variable. The pods write events to their logs.
"""

from __future__ import annotations

import base64
import gzip
import json
import os
import sys
from collections.abc import MutableMapping, Sequence
from typing import Any, NamedTuple

from components.processes.launcher import WorkerEvent, WorkerSpec
from components.processes.local.process import INTEROP_THREADS, without_proxy
from components.processes.worker import Channel, load_main, run_worker
from trainer_module.errors import ConfigError
from trainer_module.machine import count_cores

WORKERS_VARIABLE = "SCOPELINE_TASKS"
"""The environment variable with the packed payloads of a Job's workers."""
INDEX_VARIABLE = "JOB_COMPLETION_INDEX"
"""The environment variable with the index of a pod's worker, which the Job controller sets."""
MARK = "scopeline-event: "
"""The text that precedes an event in a line of a pod's log. The event is JSON."""
MAX_CHARACTERS = 100_000
"""The most characters of `WORKERS_VARIABLE`. Linux allows 131,071 bytes for a variable."""


class PodPayload(NamedTuple):
    """The payload and the environment of one pod."""

    payload: dict[str, Any]
    environment: dict[str, str]


def pack(specs: Sequence[WorkerSpec]) -> str:
    """Returns the payloads of a Job's workers, in the order of their indices, as plain text.

    Raises:
      ConfigError: the text exceeds the size of an environment variable.
    """
    payloads = [[dict(spec.payload), dict(spec.environment)] for spec in specs]
    packed = base64.b64encode(gzip.compress(json.dumps(payloads).encode(), mtime=0)).decode()
    if len(packed) > MAX_CHARACTERS:
        raise ConfigError(
            f"the payloads of {len(specs)} workers take {len(packed):,} characters of an"
            f" environment variable, expected at most {MAX_CHARACTERS:,}; use fewer workers, or"
            " shorter settings of the model and the features."
        )
    return packed


def unpack(packed: str, index: int) -> PodPayload:
    """Returns the payload of a worker."""
    return PodPayload(*json.loads(gzip.decompress(base64.b64decode(packed)))[index])


def split_line(line: str) -> tuple[str | None, WorkerEvent | None]:
    """Returns the text and the event in a line of a pod's log, each None if missing.

    An event may follow text on the same line, as a progress bar does not end its line.
    """
    text, mark, content = line.partition(MARK)
    if not mark:
        return line, None
    try:
        event = WorkerEvent(**json.loads(content))
    except (ValueError, TypeError):  # Another process wrote into the line.
        return line, None
    return text or None, event


def enter_pod(environ: MutableMapping[str, str] = os.environ) -> dict[str, Any]:
    """Applies the environment that the launcher has passed, and returns the payload."""
    # The variable is removed, as child processes of this process are not workers.
    worker = unpack(environ.pop(WORKERS_VARIABLE), int(environ[INDEX_VARIABLE]))
    environ.update(worker.environment)
    cluster = worker.payload.get("tf_config", {}).get("cluster", {})
    hosts = {address.rpartition(":")[0] for workers in cluster.values() for address in workers}
    environ["no_grpc_proxy"] = without_proxy(environ, sorted(hosts))
    # Inter-op threads wait for other workers. Fewer threads than workers would cause a deadlock.
    threads = max(len(cluster.get("worker", [])) + 1, count_cores())
    environ.setdefault(INTEROP_THREADS, str(threads))
    return worker.payload


if __name__ == "__main__":
    payload = enter_pod()
    run_worker(load_main(sys.argv[1]), payload, Channel(os.dup(2), MARK))
