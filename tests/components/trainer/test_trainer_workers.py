"""The processes of a strategy and their payloads."""

from __future__ import annotations

from typing import Any

import pytest

from components.processes.supervisor import Policy
from components.trainer.workers import Training, make_workers, restart_policy
from trainer_module.errors import ConfigError
from trainer_module.runtime import StrategyChoice, WorkerContext
from trainer_module.settings import DefaultStrategy, Strategy, TrainerSettings
from trainer_module.strategies import STRATEGIES, strategies_of_several_processes
from trainer_module.tf_config import TFConfig

ADDRESSES = {"worker": ["a:1", "b:2"]}
SERVERS = {"chief": ["c:1"], "ps": ["p:1"], **ADDRESSES}
CHOICE = StrategyChoice(strategy=DefaultStrategy(kind=Strategy.DEFAULT), reason="why")
RUNTIME = WorkerContext(choice=CHOICE)


def training(model: str = "mlp", **cluster: int) -> Training:
    sections: dict[str, Any] = {"train": {"cluster": cluster or None}, "model": {"kind": model}}
    settings = TrainerSettings.model_validate({"label": "y", "task": "binary", **sections})
    arguments = {"serving_model_dir": "/m/serving", "model_run_dir": "/run/7", "train_files": ["t"]}
    return Training("my.run_fn", arguments, settings, RUNTIME, "/scratch")


@pytest.mark.parametrize(
    "strategy", sorted(set(STRATEGIES) - set(strategies_of_several_processes()))
)
def test_one_process_for_strategies_of_one_machine(strategy: str) -> None:
    (spec,) = make_workers(training(), strategy, TFConfig(ADDRESSES, "worker", 0))
    assert spec.place.name == "the trainer"
    assert spec.payload == {
        "run_fn": "my.run_fn",
        "arguments": training().arguments,
        "runtime": RUNTIME.model_dump(mode="json"),
    }


def test_other_workers_write_to_scratch_folders() -> None:
    specs = make_workers(training(workers=3), Strategy.MULTI_WORKER_MIRRORED, None)
    assert [spec.place.name for spec in specs] == ["worker 0", "worker 1", "worker 2"]
    first, _, third = (spec.payload for spec in specs)
    assert first["arguments"] == training().arguments
    assert third["arguments"] == {
        "serving_model_dir": "/scratch/worker-2/serving",
        "eval_model_dir": "/scratch/worker-2/eval",
        "model_run_dir": "/run/7/worker-2",
        "train_files": ["t"],
    }
    assert WorkerContext.model_validate(first["runtime"]) == WorkerContext(choice=CHOICE, workers=3)
    assert WorkerContext.model_validate(third["runtime"]) == WorkerContext(
        choice=CHOICE, workers=3, writes_backup=False
    )


def test_parameter_servers_and_workers_serve_the_chief() -> None:
    own = training("my.build", workers=2, parameter_servers=1)
    chief, *servers = make_workers(own, Strategy.PARAMETER_SERVER, None)
    assert chief.place.name == "the chief"
    assert chief.payload["runtime"]["workers"] == 2
    assert [s.place.name for s in servers] == ["worker 0", "worker 1", "parameter server 0"]
    assert all(s.payload == {"serve": True, "model": "my.build"} for s in servers)


def test_restart_policy() -> None:
    assert restart_policy(Strategy.PARAMETER_SERVER) is Policy.COORDINATOR
    assert restart_policy(Strategy.MULTI_WORKER_MIRRORED) is Policy.GANG
    assert restart_policy(Strategy.MIRRORED) is Policy.GANG


def test_joining_a_cluster_of_others() -> None:
    config = TFConfig(ADDRESSES, "worker", 1)
    (spec,) = make_workers(training(), Strategy.MULTI_WORKER_MIRRORED, config)
    assert spec.place.name == "worker 1"
    assert spec.payload["arguments"] == training().arguments
    assert spec.payload["tf_config"] == config.to_json()
    assert spec.payload["check_address"] == "b:2"
    runtime = WorkerContext.model_validate(spec.payload["runtime"])
    assert (runtime.workers, runtime.writes_backup) == (2, True)
    assert spec.environment == {}
    (spec,) = make_workers(training(), Strategy.PARAMETER_SERVER, TFConfig(SERVERS, "chief", 0))
    assert spec.place.name == "the chief"
    assert spec.environment == {"GRPC_FAIL_FAST": "use_caller"}


@pytest.mark.parametrize(
    ("strategy", "config", "message"),
    [
        (
            Strategy.PARAMETER_SERVER,
            TFConfig(SERVERS, "ps", 0),
            "parameter server 0",
        ),
        (
            Strategy.PARAMETER_SERVER,
            TFConfig(ADDRESSES, "worker", 0),
            r"multi_worker_mirrored\.$",
        ),
        (
            Strategy.MULTI_WORKER_MIRRORED,
            TFConfig(SERVERS, "worker", 0),
            "train.strategy: parameter_server",
        ),
    ],
)
def test_clusters_that_do_not_fit_the_strategy_are_refused(
    strategy: Strategy, config: TFConfig, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        make_workers(training(), strategy, config)
