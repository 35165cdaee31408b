"""Reads TF_CONFIG, which describes a cluster and the task of this process, without TensorFlow."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainer_module.errors import ConfigError

VARIABLE = "TF_CONFIG"

_EXAMPLE = (
    '{"cluster": {"worker": ["host1:2222", "host2:2222"]}, "task": {"type": "worker", "index": 0}}'
)
_CHIEFS = ("chief", "master")
_NAMES = {"ps": "parameter server"}


def task_name(kind: str, index: int) -> str:
    """Returns the name of a task for messages: `worker 1`, `parameter server 0`, `the chief`."""
    return "the chief" if kind in _CHIEFS else f"{_NAMES.get(kind, kind)} {index}"


@dataclass(frozen=True)
class TFConfig:
    """A cluster, and the task of this process in the cluster."""

    cluster: dict[str, list[str]]
    """The addresses, `host:port`, by task type."""
    task_type: str
    task_index: int

    @property
    def is_chief(self) -> bool:
        """Whether this task exports the model."""
        if any(chief in self.cluster for chief in _CHIEFS):
            return self.task_type in _CHIEFS
        return self.task_type == "worker" and self.task_index == 0

    @property
    def address(self) -> str:
        """The address of this task, `host:port`."""
        return self.cluster[self.task_type][self.task_index]

    @property
    def has_parameter_servers(self) -> bool:
        """Whether parameter servers store the variables."""
        return bool(self.cluster.get("ps"))

    @property
    def workers(self) -> int:
        """The number of tasks that compute gradients; the chief is one of these tasks unless the
        cluster has parameter servers.
        """
        return self._chiefs_that_train + len(self.cluster.get("worker", []))

    @property
    def peers(self) -> list[tuple[str, str]]:
        """The names and addresses of all other tasks."""
        return [
            (task_name(kind, index), address)
            for kind, addresses in self.cluster.items()
            for index, address in enumerate(addresses)
            if (kind, index) != (self.task_type, self.task_index)
        ]

    def to_json(self) -> dict[str, Any]:
        """Returns the content of TF_CONFIG as a JSON object."""
        return {
            "cluster": self.cluster,
            "task": {"type": self.task_type, "index": self.task_index},
        }

    @property
    def _chiefs_that_train(self) -> int:
        if self.has_parameter_servers:
            return 0
        return sum(len(self.cluster.get(chief, [])) for chief in _CHIEFS)


def read_tf_config(environ: Mapping[str, str]) -> TFConfig | None:
    """Returns the cluster in TF_CONFIG, or None if TF_CONFIG is unset or empty, or has one task.

    Raises:
      ConfigError: TF_CONFIG is invalid; the message names the problem and the fix.
    """
    text = environ.get(VARIABLE, "").strip()
    value = _parse(text) if text else {}
    if not value:
        return None
    cluster = _read_cluster(_section(value, "cluster"))
    config = TFConfig(cluster, *_read_task(_section(value, "task"), cluster))
    return config if config.peers or config.has_parameter_servers else None


def _parse(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError(
            f"TF_CONFIG is not JSON ({error.msg}, column {error.colno}); expected, for example, "
            f"{_EXAMPLE}."
        ) from None
    if not isinstance(value, dict):
        raise ConfigError(
            f"TF_CONFIG is {text}, not a JSON object; expected, for example, {_EXAMPLE}."
        )
    return value


def _section(value: dict[str, Any], key: str) -> dict[str, Any]:
    if key not in value:
        raise ConfigError(
            f"TF_CONFIG has no `{key}`, only {', '.join(value)}; expected, for example, {_EXAMPLE}."
        )
    if not isinstance(value[key], dict) or not value[key]:
        raise ConfigError(
            f"TF_CONFIG: found {value[key]!r} as `{key}`; it must be a JSON object, as in "
            f"{_EXAMPLE}."
        )
    return value[key]


def _read_cluster(section: dict[str, Any]) -> dict[str, list[str]]:
    names: dict[str, str] = {}
    for kind, addresses in section.items():
        if not isinstance(addresses, list):
            raise ConfigError(
                f"TF_CONFIG: found {addresses!r} as the addresses of `{kind}`; they must be a "
                'list, such as ["host1:2222"].'
            )
        for index, address in enumerate(addresses):
            name = task_name(kind, index)
            _check_address(name, address)
            if address in names:
                raise ConfigError(
                    f"TF_CONFIG names {address} twice, as {names[address]} and as {name}; each "
                    "task needs its own address."
                )
            names[address] = name
    return section


def _check_address(name: str, address: Any) -> None:
    host, _, port = address.rpartition(":") if isinstance(address, str) else ("", "", "")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise ConfigError(
            f"TF_CONFIG: found {address!r} as the address of {name}; expected host:port, such as "
            "host1:2222."
        )


def _read_task(section: dict[str, Any], cluster: dict[str, list[str]]) -> tuple[str, int]:
    kind, index = section.get("type"), section.get("index")
    if kind not in cluster:
        near = difflib.get_close_matches(str(kind), cluster, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"the cluster has {', '.join(cluster)}."
        raise ConfigError(f"TF_CONFIG: the cluster lacks the type of this task, {kind!r}; {hint}")
    count = len(cluster[kind])
    if not isinstance(index, int) or not 0 <= index < count:
        expected = "0" if count == 1 else f"a number from 0 to {count - 1}"
        raise ConfigError(
            f"TF_CONFIG: found {index!r} as the index of this task, of type {kind!r}; expected "
            f"{expected}, because the number of {kind!r} tasks in its cluster is {count}."
        )
    return kind, index
