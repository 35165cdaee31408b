"""Which steps of a run have begun, and which pods are theirs."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from types import SimpleNamespace

import kfp_server_api
import pytest

from pipeline.kubeflow.api.steps import read_steps
from tests.support import played_runs
from tests.support.played_runs import HANDLER, WORKFLOW, Frame, Play, node_id

RUNNING = Frame("RUNNING", {"begin": "SUCCEEDED", "trainer": "RUNNING"})


def look(play: Play) -> kfp_server_api.V2beta1Run:
    state, tasks = play.look("run")
    details = {"state": state, "run_details": {"task_details": tasks}}
    answer = SimpleNamespace(data=json.dumps(details))
    return kfp_server_api.ApiClient().deserialize(answer, "V2beta1Run")


def pod(name: str, template: str) -> str:
    return node_id(name).replace(WORKFLOW, f"{WORKFLOW}-{template}")


def test_the_played_nodes_are_named_as_on_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    # From a workflow that Kubeflow's own tests of its user interface keep.
    monkeypatch.setattr(played_runs, "WORKFLOW", "retry-random-failures-p9snt")
    name = "retry-random-failures-p9snt.random-failure"
    assert node_id(f"{name}(0)") == "retry-random-failures-p9snt-310421839"
    assert node_id(name) == "retry-random-failures-p9snt-3193641316"


def test_steps_are_those_of_containers_in_their_order() -> None:
    steps = read_steps(look(Play([RUNNING])))
    assert [(s.name, s.state) for s in steps.values()] == [
        ("begin", "SUCCEEDED"),
        ("trainer", "RUNNING"),
    ]
    now = datetime(2026, 1, 5, 3, 3, tzinfo=UTC)
    assert steps["begin"].seconds(now) == 30
    assert steps["trainer"].seconds(now) == 120
    assert steps["trainer"].ended is None


def test_the_pod_is_that_of_the_latest_attempt() -> None:
    frame = Frame("RUNNING", RUNNING.steps, {"trainer": 3})
    steps = read_steps(look(Play([frame])))
    name = f"{HANDLER}.trainer.executor(2)"
    assert steps["trainer"].pods[0] == pod(name, "retry-system-container-impl")


def test_pods_without_retries_and_of_the_exit_handler() -> None:
    frame = Frame("RUNNING", {"begin": "SUCCEEDED", "conclude": "RUNNING"})
    steps = read_steps(look(Play([frame], with_retries=False)))
    for name, node in {"begin": HANDLER, "conclude": f"{HANDLER}.onExit"}.items():
        executor = f"{node}.{name}.executor"
        assert pod(executor, "system-container-impl") in steps[name].pods
        assert node_id(executor) in steps[name].pods


def test_a_step_that_could_not_be_started_has_failed_without_a_pod() -> None:
    frame = Frame("RUNNING", {"begin": "SUCCEEDED", "driver:trainer": "FAILED"})
    step = read_steps(look(Play([frame])))["trainer"]
    assert (step.state, step.pods) == ("FAILED", ())


def test_a_run_that_has_not_begun_has_no_steps() -> None:
    assert read_steps(look(Play())) == {}
    assert read_steps(kfp_server_api.V2beta1Run(state="PENDING")) == {}
