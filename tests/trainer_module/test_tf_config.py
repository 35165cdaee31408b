"""TF_CONFIG: the cluster that it describes, and the errors of malformed ones."""

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


def test_worker_0_is_the_chief_without_another() -> None:
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


def test_chief_of_parameter_servers_is_no_worker() -> None:
    config = read({"chief": ["c:1"], "ps": ["p:1"], **WORKERS}, "chief", 0)
    assert config is not None
    assert (config.is_chief, config.workers) == (True, 2)
    assert config.has_parameter_servers
    assert config.peers[0] == ("parameter server 0", "p:1")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{cluster}", "TF_CONFIG is not JSON"),
        (
            '{"cluster": {"worker": ["a:1"]}}',
            "TF_CONFIG has no `task`",
        ),
        ('{"cluster": 5}', "TF_CONFIG: found 5 as `cluster`"),
    ],
)
def test_malformed_tf_config_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_tf_config({"TF_CONFIG": text})
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("cluster", "kind", "index", "message"),
    [
        (
            WORKERS,
            "workr",
            0,
            "'workr'",
        ),
        (
            WORKERS,
            "worker",
            2,
            "found 2 as the index",
        ),
        (
            {"worker": ["a:1", "b"]},
            "worker",
            0,
            "found 'b' as the address of worker 1",
        ),
        (
            {"chief": ["a:1"], "worker": ["b:1", "a:1"]},
            "chief",
            0,
            "a:1 twice, as the chief and as worker 1",
        ),
    ],
)
def test_unusable_cluster_is_refused(cluster: Any, kind: str, index: Any, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(cluster, kind, index)
    assert str(caught.value).startswith("TF_CONFIG")
    assert message in str(caught.value)


def test_names() -> None:
    assert [task_name(kind, 1) for kind in ("worker", "ps", "chief", "evaluator")] == [
        "worker 1",
        "parameter server 1",
        "the chief",
        "evaluator 1",
    ]
