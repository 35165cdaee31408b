"""Which steps of a run have begun, and which pods are theirs."""

from __future__ import annotations

import json
from types import SimpleNamespace

import kfp_server_api

from pipeline.kubeflow.api.steps import read_steps
from tests.support.played_runs import HANDLER, WORKFLOW, Frame, Play, node_id

RUNNING = Frame("RUNNING", {"begin": "SUCCEEDED", "trainer": "RUNNING"})


def look(play: Play) -> kfp_server_api.V2beta1Run:
    state, tasks = play.look("run")
    details = {"state": state, "run_details": {"task_details": tasks}}
    answer = SimpleNamespace(data=json.dumps(details))
    return kfp_server_api.ApiClient().deserialize(answer, "V2beta1Run")


def pod(name: str, template: str) -> str:
    return node_id(name).replace(WORKFLOW, f"{WORKFLOW}-{template}")


def test_the_pod_is_that_of_the_latest_attempt() -> None:
    frame = Frame("RUNNING", RUNNING.steps, {"trainer": 3})
    steps = read_steps(look(Play([frame])))
    name = f"{HANDLER}.trainer.executor(2)"
    assert steps["trainer"].pods[0] == pod(name, "retry-system-container-impl")


def test_a_step_that_could_not_be_started_has_failed_without_a_pod() -> None:
    frame = Frame("RUNNING", {"begin": "SUCCEEDED", "driver:trainer": "FAILED"})
    step = read_steps(look(Play([frame])))["trainer"]
    assert (step.state, step.pods) == ("FAILED", ())
