"""Each rule of the backend for graphs finds what breaks it, and nothing where it is kept."""

import copy

import pytest
from kfp_rules import RULES, check_backend_rules
from kfp_spec import parse
from ruled_pipeline import (
    Case,
    Change,
    Document,
    broken,
    container,
    root_tasks,
    ruled,
    tasks,
    to_text,
)


def _rename(spec: Document, new: str) -> None:
    inner = tasks(spec)
    inner[new] = inner.pop("second")


def _other_interface(spec: Document) -> None:
    executors = spec["deploymentSpec"]["executors"]
    executors["exec-second"] = copy.deepcopy(executors["exec-first"])
    word = spec["components"]["comp-second"]["inputDefinitions"]["parameters"]["word"]
    word["isOptional"] = True


def _second_exit_task(spec: Document) -> None:
    outer = root_tasks(spec)
    outer["end-2"] = copy.deepcopy(outer["end"])


CASES: list[Case] = [
    (
        "name_is_one_of_kubernetes",
        lambda spec, _: spec["pipelineInfo"].update(name="Digits_2"),
        "pipelineInfo.name: 'Digits_2' begins no name of a workflow",
    ),
    (
        "name_is_one_of_kubernetes",
        lambda spec, _: spec["pipelineInfo"].update(name="d" * 58),
        "begins no name of a workflow",
    ),
    (
        "tasks_have_usable_names",
        lambda spec, _: _rename(spec, "first-driver"),
        "comp-exit-handler-1.first-driver: is what the driver of first is called",
    ),
    (
        "tasks_have_usable_names",
        lambda spec, _: _rename(spec, "Second"),
        "comp-exit-handler-1.Second: is no name of a task",
    ),
    (
        "components_are_containers_or_dags",
        lambda spec, _: spec["deploymentSpec"]["executors"].update(
            {"exec-first": {"resolver": {}}}
        ),
        "comp-first: a resolver executor is not supported",
    ),
    (
        "components_are_containers_or_dags",
        lambda spec, _: spec["components"]["comp-first"].update(executorLabel="exec-x"),
        "comp-first: executor 'exec-x' not found",
    ),
    (
        "components_are_containers_or_dags",
        lambda spec, _: tasks(spec)["first"]["componentRef"].update(name="comp-x"),
        "comp-exit-handler-1.first: component 'comp-x' not found",
    ),
    (
        "components_with_one_container_have_one_interface",
        lambda spec, _: _other_interface(spec),
        "comp-second: has the container of comp-first, but other inputs",
    ),
    (
        "dependencies_are_in_the_dag",
        lambda spec, _: tasks(spec)["second"].update(dependentTasks=["third"]),
        "comp-exit-handler-1.second: depends on 'third', which is not there",
    ),
    (
        "dependencies_are_in_the_dag",
        lambda spec, _: tasks(spec)["first"].update(dependentTasks=["second"]),
        "comp-exit-handler-1: tasks depend on each other: ",
    ),
    (
        "exit_tasks_hang_on_one_dag",
        lambda spec, _: root_tasks(spec)["end"].update(dependentTasks=[]),
        "root.end: an exit task depends on one task that is none, found []",
    ),
    (
        "exit_tasks_hang_on_one_dag",
        lambda spec, _: _second_exit_task(spec),
        "root.end-2: exit-handler-1 has the exit task end already",
    ),
    (
        "exit_tasks_hang_on_one_dag",
        lambda spec, _: root_tasks(spec).pop("exit-handler-1"),
        "root: must contain one or more non-exit tasks",
    ),
    (
        "exit_tasks_hang_on_one_dag",
        lambda spec, _: root_tasks(spec)["exit-handler-1"].update(dependentTasks=["end"]),
        "root.exit-handler-1: depends on end, an exit task",
    ),
    (
        "tasks_are_plain",
        lambda spec, _: tasks(spec)["second"].update(triggerPolicy={"condition": "true"}),
        "comp-exit-handler-1.second: has a condition",
    ),
    (
        "tasks_are_plain",
        lambda spec, _: tasks(spec)["second"].update(parameterIterator={"itemInput": "word"}),
        "comp-exit-handler-1.second: has a parameter_iterator",
    ),
    (
        "tasks_are_plain",
        lambda spec, _: tasks(spec)["second"]["inputs"].update(
            artifacts={"model": {"componentInputArtifact": "model"}}
        ),
        "comp-exit-handler-1.second.model: is an artifact",
    ),
    (
        "inputs_are_constants_or_parameters",
        lambda spec, _: tasks(spec)["second"]["inputs"]["parameters"]["word"].update(
            runtimeValue={"constant": "run {{$.pipeline_job_uuid}}"}
        ),
        "comp-exit-handler-1.second.word: nothing replaces 'run {{$.pipeline_job_uuid}}'",
    ),
    (
        "inputs_are_constants_or_parameters",
        lambda spec, _: tasks(spec)["second"]["inputs"]["parameters"].update(
            word={"taskOutputParameter": {"producerTask": "first", "outputParameterKey": "x"}}
        ),
        "comp-exit-handler-1.second.word: is neither a constant nor a parameter",
    ),
    (
        "inputs_are_constants_or_parameters",
        lambda spec, _: tasks(spec)["second"]["inputs"]["parameters"].update(
            word={"componentInputParameter": "epochs"}
        ),
        "comp-exit-handler-1.second.word: 'epochs' is no input of the DAG",
    ),
    (
        "inputs_are_constants_or_parameters",
        lambda spec, _: tasks(spec)["second"]["inputs"]["parameters"].pop("word"),
        "comp-exit-handler-1.second.word: newer drivers want a value for every input",
    ),
    (
        "inputs_are_constants_or_parameters",
        lambda spec, _: spec["components"]["comp-second"]["inputDefinitions"]["parameters"].pop(
            "word"
        ),
        "comp-exit-handler-1.second.word: its component has no such input",
    ),
    (
        "steps_are_not_cached",
        lambda spec, _: tasks(spec)["second"].update(cachingOptions={"enableCache": True}),
        "comp-exit-handler-1.second: is cached",
    ),
    (
        "retries_reach_to_the_end",
        lambda spec, _: tasks(spec)["second"]["retryPolicy"].update(backoffMaxDuration="300s"),
        "2 retries of up to 600 s do not fit into backoffMaxDuration, 300 s",
    ),
    (
        "retries_reach_to_the_end",
        lambda spec, _: tasks(spec)["second"]["retryPolicy"].update(maxRetryCount=1),
        "have different retry policies",
    ),
    (
        "retries_reach_to_the_end",
        lambda spec, _: tasks(spec)["second"]["retryPolicy"].update(backoffFactor=1.5),
        "backoffFactor 1.5 is no whole number",
    ),
    (
        "retries_reach_to_the_end",
        lambda spec, _: tasks(spec)["second"]["retryPolicy"].pop("backoffDuration"),
        "comp-exit-handler-1.second: a retry policy needs both of its durations",
    ),
    (
        "the_workflow_fits_into_one_object",
        lambda spec, _: [
            one["container"]["args"].append("x" * 60_000)
            for one in spec["deploymentSpec"]["executors"].values()
        ],
        "a run would take 1,8",
    ),
]


def test_a_pipeline_that_keeps_the_rules() -> None:
    assert check_backend_rules(to_text(*ruled())) == []


@pytest.mark.parametrize(("rule", "change", "message"), CASES)
def test_a_pipeline_that_breaks_a_rule(rule: str, change: Change, message: str) -> None:
    text = broken(change)
    found = list({one.__name__: one for one in RULES}[rule](parse(text)))
    assert any(message in one for one in found), found
    assert set(found) <= set(check_backend_rules(text))


def test_every_rule_is_broken_once() -> None:
    assert {rule for rule, _, _ in CASES} == {one.__name__ for one in RULES}


def test_what_cannot_be_read_is_one_problem() -> None:
    found = check_backend_rules(broken(lambda spec, _: container(spec).update(entrypoint="x")))
    assert len(found) == 1
    assert 'no field named "entrypoint"' in found[0]
