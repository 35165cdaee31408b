"""The settings of pods, which compiled pipelines and the launcher of workers share."""

from __future__ import annotations

import re
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PositiveInt, WithJsonSchema

from trainer_module.sections import Matching, Settings

LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_SIZES = {"M": 10**6, "G": 10**9, "T": 10**12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
"""The bytes by unit, for the units that have the same name in kfp and in Kubernetes."""
_MEMORY = re.compile(rf"(\d+)({'|'.join(_SIZES)})")
_CPU = re.compile(r"\d+(\.\d+)?|\d+m")
_MOUNT = re.compile(r"/[^:]*[^:/]")
_SECRET_KEY = re.compile(r"[-._a-zA-Z0-9]{1,253}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def _check_memory(amount: Any) -> str:
    if not _MEMORY.fullmatch(str(amount)):
        raise ValueError(
            f"expected a whole number with a unit ({', '.join(_SIZES)}), such as 512Mi or 16Gi"
        )
    return str(amount)


def _check_cpu(amount: Any) -> str:
    if (
        isinstance(amount, bool)
        or not _CPU.fullmatch(str(amount))
        or not float(str(amount).rstrip("m"))
    ):
        raise ValueError("expected a number of cores, such as 2, 0.5 or 500m")
    return str(amount)


def bytes_of(memory: str) -> int:
    """Returns the number of bytes of an amount of memory such as 512Mi."""
    match = _MEMORY.fullmatch(memory)
    assert match is not None  # noqa: S101 - checked with the config
    return int(match[1]) * _SIZES[match[2]]


def cores_of(cpu: str) -> Decimal:
    """Returns the number of cores of a CPU amount such as 2, 0.5 or 1500m."""
    return Decimal(cpu[:-1]) / 1000 if cpu.endswith("m") else Decimal(cpu)


LabelName = Annotated[
    str,
    Matching(
        LABEL.pattern,
        "Kubernetes accepts only names of at most 63 lowercase letters, digits and `-`, such as"
        " `kubeflow-user`",
    ),
]
"""The name of a namespace or a container (RFC 1123 label)."""
ObjectName = Annotated[
    str,
    Matching(
        SUBDOMAIN.pattern,
        "Kubernetes accepts only names of lowercase letters, digits, `-` and `.`, such as"
        " `pipeline-runner`",
    ),
]
"""The name of a secret, a claim or a service account (RFC 1123 subdomain)."""
Memory = Annotated[
    str,
    BeforeValidator(_check_memory),
    WithJsonSchema({"type": "string", "pattern": f"^{_MEMORY.pattern}$"}),
]
Cpu = Annotated[
    str,
    BeforeValidator(_check_cpu),
    WithJsonSchema(
        {"type": ["string", "number"], "pattern": f"^(?:{_CPU.pattern})$", "exclusiveMinimum": 0}
    ),
]
VariableName = Annotated[
    str,
    Matching(
        _VARIABLE.pattern,
        "the name of an environment variable may have only letters, digits and `_`",
    ),
]


class Accelerator(Settings):
    """Accelerators of a type, such as GPUs."""

    type: str = Field(default="nvidia.com/gpu", min_length=1)
    """The resource's name, such as `nvidia.com/gpu` or `google.com/tpu`."""
    count: PositiveInt = 1
    """The number of accelerators."""


class Operator(StrEnum):
    """The comparison of a toleration."""

    EQUAL = "Equal"
    """The taint has the same key and value."""
    EXISTS = "Exists"
    """The taint has the same key, and any value."""


class Toleration(Settings):
    """A toleration, which allows pods on nodes with a taint."""

    key: str | None = None
    """The key of the taint. By default, all taints are tolerated."""
    operator: Operator = Operator.EQUAL
    """The comparison with the taint."""
    value: str | None = None
    """The value of the taint, for `operator: Equal`."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """The effect of the taint. By default, all effects are tolerated."""


class Resources(Settings):
    """The resources of a container, and the nodes on which its pod may run."""

    cpu: Cpu | None = None
    """The requested number of cores."""
    cpu_limit: Cpu | None = None
    """The most cores; default: no limit."""
    memory: Memory | None = None
    """The requested memory, such as 4Gi."""
    memory_limit: Memory | None = None
    """The most memory; default: no limit."""
    accelerator: Accelerator | None = None
    """The accelerators of the container; default: none."""
    node_selector: dict[str, str] = {}
    """Labels that the node of the pod must have."""
    tolerations: list[Toleration] = []
    """The taints of nodes that the pod tolerates."""


class Volume(Settings):
    """A PersistentVolumeClaim, and the folder at which pods mount it."""

    claim: LabelName
    """The name of the claim."""
    path: Annotated[
        str,
        Matching(_MOUNT.pattern, "expected an absolute path without `:`, such as /mnt/scopeline"),
    ] = "/mnt/scopeline"
    """The folder at which the volume is mounted."""


class SecretKey(Settings):
    """A key of a Secret."""

    secret: ObjectName
    """The name of the Secret."""
    key: Annotated[
        str,
        Matching(
            _SECRET_KEY.pattern,
            "the key of a Secret may have only letters, digits, `-`, `_` and `.`, such as"
            " `password`",
        ),
    ]
    """The key in the Secret."""


class PodSettings(Settings):
    """The settings of all pods of a cluster, which are passed to the Trainer as JSON."""

    image: str
    service_account: ObjectName | None = None
    """The service account of the pods. The default is the account of the pod that starts them."""
    image_pull_secrets: list[ObjectName] = []
    volume: Volume | None = None
    environment: dict[VariableName, str] = {}
    secrets: dict[VariableName, SecretKey] = {}
    """The environment variables whose values are in Secrets, by name."""
    resources: dict[str, Resources] = {}
    """The resources by type of worker: `chief`, `worker` or `ps`."""
