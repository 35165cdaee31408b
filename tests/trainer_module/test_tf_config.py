"""TF_CONFIG: what it says of a cluster, and what is wrong with it, in one sentence."""

from __future__ import annotations

import json
from typing import Any

import pytest

from trainer_module.errors import ConfigError
from trainer_module.tf_config import TFConfig, read_tf_config, task_name

WORKERS = {"worker": ["a:1", "b:2"]}


def read(cluster: Any, kind: str, index: Any = 0) -> TFConfig | None:
    value = {"cluster": cluster, "task": {"type": kind, "index": index}}
    return read_tf_config({"TF_CONFIG": json.dumps(value)})


@pytest.mark.parametrize("text", [None, "", " ", "{}"])
def test_no_cluster(text: str | None) -> None:
    assert read_tf_config({} if text is None else {"TF_CONFIG": text}) is None


def test_cluster_of_one_is_none() -> None:
    assert read({"worker": ["a:1"]}, "worker") is None
    assert read({"chief": ["a:1"]}, "chief") is None


def test_worker_0_is_the_chief_where_there_is_no_other() -> None:
    first, second = read(WORKERS, "worker", 0), read(WORKERS, "worker", 1)
    assert first is not None
    assert second is not None
    assert (first.is_chief, second.is_chief) == (True, False)
    assert (first.address, second.address) == ("a:1", "b:2")
    assert first.workers == 2
    assert first.peers == [("worker 1", "b:2")]
    assert not first.has_parameter_servers
    assert read_tf_config({"TF_CONFIG": json.dumps(first.to_json())}) == first


def test_chief_counts_as_a_worker() -> None:
    config = read({"chief": ["c:1"], **WORKERS}, "worker", 0)
    assert config is not None
    assert (config.is_chief, config.workers) == (False, 3)
    assert config.peers == [("the chief", "c:1"), ("worker 1", "b:2")]


def test_chief_of_parameter_servers_does_not() -> None:
    config = read({"chief": ["c:1"], "ps": ["p:1"], **WORKERS}, "chief", 0)
    assert config is not None
    assert (config.is_chief, config.workers) == (True, 2)
    assert config.has_parameter_servers
    assert config.peers[0] == ("parameter server 0", "p:1")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{cluster}", "TF_CONFIG is not JSON (Expecting property name enclosed in double quotes, "),
        ("[1]", "TF_CONFIG is [1], not a JSON object; expected, for example, {"),
        (
            '{"cluster": {"worker": ["a:1"]}}',
            "TF_CONFIG has no `task`, only cluster; expected, for",
        ),
        ('{"task": {}}', "TF_CONFIG has no `cluster`, only task; expected, for"),
        ('{"cluster": 5}', "TF_CONFIG: found 5 as `cluster`; it must be a JSON object, as in {"),
    ],
)
def test_what_is_no_tf_config(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_tf_config({"TF_CONFIG": text})
    assert str(caught.value).startswith(message)
    assert str(caught.value).endswith(".")


@pytest.mark.parametrize(
    ("cluster", "kind", "index", "message"),
    [
        (
            WORKERS,
            "workr",
            0,
            "TF_CONFIG: the cluster lacks the type of this task, 'workr'; did you mean 'worker'?",
        ),
        (
            {"chief": ["c:1"], **WORKERS},
            "evaluator",
            0,
            "TF_CONFIG: the cluster lacks the type of this task, 'evaluator'; the cluster has "
            "chief, worker.",
        ),
        (
            WORKERS,
            "worker",
            2,
            "TF_CONFIG: found 2 as the index of this task, of type 'worker'; expected a "
            "number from 0 to 1, because the number of 'worker' tasks in its cluster is 2.",
        ),
        (
            {"chief": ["c:1"], **WORKERS},
            "chief",
            "0",
            "TF_CONFIG: found '0' as the index of this task, of type 'chief'; expected 0, "
            "because the number of 'chief' tasks in its cluster is 1.",
        ),
        (
            {"worker": ["a:1", "b"]},
            "worker",
            0,
            "TF_CONFIG: found 'b' as the address of worker 1; expected host:port, such as "
            "host1:2222.",
        ),
        (
            {"worker": "a:1"},
            "worker",
            0,
            "TF_CONFIG: found 'a:1' as the addresses of `worker`; they must be a list, such as "
            '["host1:2222"].',
        ),
        (
            {"chief": ["a:1"], "worker": ["b:1", "a:1"]},
            "chief",
            0,
            "TF_CONFIG names a:1 twice, as the chief and as worker 1; each task needs its own "
            "address.",
        ),
    ],
)
def test_unusable_cluster_is_explained(cluster: Any, kind: str, index: Any, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(cluster, kind, index)
    assert str(caught.value) == message


def test_names() -> None:
    assert [task_name(kind, 1) for kind in ("worker", "ps", "chief", "evaluator")] == [
        "worker 1",
        "parameter server 1",
        "the chief",
        "evaluator 1",
    ]
