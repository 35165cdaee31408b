"""Which tf.distribute strategy the model is built and trained under, and the processes it needs."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, PositiveFloat, PositiveInt

from trainer_module.sections import Settings


class Strategy(StrEnum):
    """The tf.distribute strategies by name; `auto` picks one by the machine and TF_CONFIG."""

    AUTO = "auto"
    DEFAULT = "default"
    ONE_DEVICE = "one_device"
    MIRRORED = "mirrored"
    CENTRAL_STORAGE = "central_storage"
    MULTI_WORKER_MIRRORED = "multi_worker_mirrored"
    PARAMETER_SERVER = "parameter_server"
    TPU = "tpu"

    @property
    def is_multi_process(self) -> bool:
        """Whether it trains in several processes, which `train.cluster` counts."""
        return self in (Strategy.MULTI_WORKER_MIRRORED, Strategy.PARAMETER_SERVER)


class Reduction(StrEnum):
    """How mirrored replicas add up their gradients."""

    NCCL = "nccl"
    HIERARCHICAL_COPY = "hierarchical_copy"
    REDUCTION_TO_ONE = "reduction_to_one"


class Communication(StrEnum):
    """What workers exchange their gradients by; `auto` leaves it to TensorFlow."""

    AUTO = "auto"
    RING = "ring"
    NCCL = "nccl"


def _check_device(name: str) -> str:
    if not re.fullmatch(r"(cpu|gpu):[0-9]+", name):
        raise ValueError("right is a device such as `gpu:0` or `cpu:1`")
    return name


Device = Annotated[str, AfterValidator(_check_device)]


class AutoStrategy(Settings):
    """Picked by what TF_CONFIG, `train.cluster` and the machine show."""

    kind: Literal[Strategy.AUTO]


class DefaultStrategy(Settings):
    """TensorFlow's own: one replica, on the GPU where there is one."""

    kind: Literal[Strategy.DEFAULT]


class OneDeviceStrategy(Settings):
    """One replica on a device that you name."""

    kind: Literal[Strategy.ONE_DEVICE]
    device: Device | None = None
    """Such as `gpu:1`; default: the first GPU, or the CPU."""


class MirroredStrategy(Settings):
    """A replica on each device of this machine, in step with each other."""

    kind: Literal[Strategy.MIRRORED]
    devices: list[Device] = []
    """Such as `[gpu:0, gpu:1]`, or `[cpu:0, cpu:1]` for replicas that share the CPU; default: all
    GPUs, or the CPU."""
    reduction: Reduction | None = None
    """Default: nccl on GPUs, reduction_to_one otherwise."""


class CentralStorageStrategy(Settings):
    """A replica on each device, the variables in one place: on the CPU, or on the only GPU."""

    kind: Literal[Strategy.CENTRAL_STORAGE]
    devices: list[Device] = []
    """As for `mirrored`."""


class MultiWorkerMirroredStrategy(Settings):
    """Replicas in several processes, usually on several machines, in step with each other."""

    kind: Literal[Strategy.MULTI_WORKER_MIRRORED]
    communication: Communication = Communication.AUTO
    bytes_per_pack: int = Field(default=0, ge=0)
    """Gradients are sent in packs of so many bytes; 0 leaves it to TensorFlow."""
    timeout: PositiveFloat | None = None
    """Seconds until an exchange that a worker does not join fails; default: never."""


class ParameterServerStrategy(Settings):
    """Workers at their own pace, the variables on parameter servers: asynchronous training."""

    kind: Literal[Strategy.PARAMETER_SERVER]
    partitioner: Literal["none", "min_size", "max_size", "fixed_shards"] = "none"
    """Splits large variables among the parameter servers: into parts of at least `shard_bytes`
    (`min_size`), of at most `shard_bytes` (`max_size`), or one for each server."""
    shard_bytes: PositiveInt = 256 * 1024
    """For `min_size` and `max_size`."""


class TPUStrategy(Settings):
    """A replica on each core of a TPU."""

    kind: Literal[Strategy.TPU]
    name: str = ""
    """The TPU's name, `local` for one in this machine, or `grpc://host:port`; default: what
    TPU_NAME says."""
    zone: str | None = None
    """Its Google Cloud zone, where the machine's own does not say."""
    project: str | None = None
    """Its Google Cloud project, where the machine's own does not say."""


def _as_mapping(value: Any) -> Any:
    """The name alone stands for a strategy without options."""
    return {"kind": value} if isinstance(value, str) else value


AnyStrategy = (
    AutoStrategy
    | DefaultStrategy
    | OneDeviceStrategy
    | MirroredStrategy
    | CentralStorageStrategy
    | MultiWorkerMirroredStrategy
    | ParameterServerStrategy
    | TPUStrategy
)
_Tagged = Annotated[AnyStrategy, Field(discriminator="kind")]
StrategySettings = Annotated[
    _Tagged, BeforeValidator(_as_mapping, json_schema_input_type=Strategy | _Tagged)
]


class ClusterSettings(Settings):
    """The processes that `multi_worker_mirrored` and `parameter_server` train in."""

    workers: PositiveInt = 2
    """Processes that compute gradients."""
    parameter_servers: PositiveInt = 1
    """Processes that hold the variables, for `parameter_server`."""
    launcher: Literal["local", "kubernetes"] = "local"
    """Who starts them: `local` on this machine, `kubernetes` as pods of a pipeline on Kubeflow.
    Where TF_CONFIG is set, training joins the cluster that it describes instead."""
    start_timeout: PositiveFloat = 300.0
    """Seconds until a process that does not answer is given up, from when all run."""
