"""What workers find in their environment, where several share this machine."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence

from trainer_module.machine import count_cores
from trainer_module.strategies.network import LOCALHOST
from trainer_module.tf_config import VARIABLE

INTEROP_THREADS = "TF_NUM_INTEROP_THREADS"


def module_path() -> dict[str, str]:
    """Variables by which a fresh interpreter finds the modules that this one finds, in its order.

    With the second, what is run by `python -m` does not look in the current folder first.
    """
    paths = os.pathsep.join(os.path.abspath(path) for path in sys.path)
    return {"PYTHONPATH": paths, "PYTHONSAFEPATH": "1"}


def worker_environment(computing: int) -> dict[str, str]:
    """What a worker on this machine gets of this process's environment.

    Args:
      computing: workers that compute on this machine's cores at the same time.
    """
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
    environment |= module_path()
    environment["no_grpc_proxy"] = without_proxy(environment, [LOCALHOST])
    if computing == 1:
        return environment
    shared = share_machine(computing)
    # Too few threads between operations are no choice, but a deadlock.
    return {**shared, **environment, INTEROP_THREADS: shared[INTEROP_THREADS]}


def without_proxy(environment: Mapping[str, str], hosts: Sequence[str]) -> str:
    """The value of `no_grpc_proxy` with which gRPC asks no proxy for the way to some hosts."""
    direct = environment.get("no_grpc_proxy") or environment.get("no_proxy")
    return ",".join([*([direct] if direct else []), *hosts])


def share_machine(processes: int) -> dict[str, str]:
    """TensorFlow's settings for each of several processes that compute on this machine."""
    share = max(1, count_cores() // processes)
    # Threads between operations also wait for other processes: with one, the workers of parameter
    # servers wait for ever; TensorFlow's guide asks for one more than there are workers.
    between = max(processes + 1, share)
    return {
        "TF_NUM_INTRAOP_THREADS": str(share),
        "OMP_NUM_THREADS": str(share),
        INTEROP_THREADS: str(between),
        # Else the first process takes all memory of a GPU.
        "TF_FORCE_GPU_ALLOW_GROWTH": "true",
    }
