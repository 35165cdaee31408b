"""Each rule of the backend, for graphs and for pods, finds what breaks it, and nothing else."""

import copy

import pytest
from kfp_pod_rules import POD_RULES
from kfp_rules import RULES, check_backend_rules
from kfp_spec import parse
from ruled_pipeline import (
    Case,
    Change,
    Document,
    broken,
    config,
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


EVERY_RULE = (*RULES, *POD_RULES)
CASES: list[Case] = [
    (
        "name_is_one_of_kubernetes",
        lambda spec, _: spec["pipelineInfo"].update(name="Digits_2"),
        "pipelineInfo.name: 'Digits_2' begins no name of a workflow",
    ),
    (
        "tasks_have_usable_names",
        lambda spec, _: _rename(spec, "first-driver"),
        "comp-exit-handler-1.first-driver: is what the driver of first is called",
    ),
    (
        "components_are_containers_or_dags",
        lambda spec, _: spec["deploymentSpec"]["executors"].update(
            {"exec-first": {"resolver": {}}}
        ),
        "comp-first: a resolver executor is not supported",
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
        "exit_tasks_hang_on_one_dag",
        lambda spec, _: root_tasks(spec)["end"].update(dependentTasks=[]),
        "root.end: an exit task depends on one task that is none, found []",
    ),
    (
        "tasks_are_plain",
        lambda spec, _: tasks(spec)["second"].update(triggerPolicy={"condition": "true"}),
        "comp-exit-handler-1.second: has a condition",
    ),
    (
        "inputs_are_constants_or_parameters",
        lambda spec, _: tasks(spec)["second"]["inputs"]["parameters"]["word"].update(
            runtimeValue={"constant": "run {{$.pipeline_job_uuid}}"}
        ),
        "comp-exit-handler-1.second.word: nothing replaces 'run {{$.pipeline_job_uuid}}'",
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
        "the_workflow_fits_into_one_object",
        lambda spec, _: [
            one["container"]["args"].append("x" * 60_000)
            for one in spec["deploymentSpec"]["executors"].values()
        ],
        "a run would take 1,8",
    ),
    (
        "placeholders_are_whole_inputs",
        lambda spec, _: container(spec)["args"].append("{{$.inputs.parameters['other']}}"),
        "exec-first: 'other' is no input of its component",
    ),
    (
        "nothing_is_expanded_by_accident",
        lambda spec, _: container(spec)["args"].append("costs $$5"),
        "exec-first: Kubernetes changes '$$'",
    ),
    (
        "arguments_are_short_enough",
        lambda spec, _: container(spec)["args"].append("é" * 65_536),
        "exec-first: an argument takes 131,072 bytes",
    ),
    (
        "images_are_plain",
        lambda spec, _: container(spec).update(image="argostub/createpvc"),
        "exec-first: 'argostub/createpvc' is no image of ours",
    ),
    (
        "variables_are_named_once",
        lambda spec, _: container(spec)["env"].append({"name": "PASSWORD", "value": "x"}),
        "exec-first: PASSWORD is set twice",
    ),
    (
        "resources_are_quantities",
        lambda spec, _: container(spec)["resources"].update(resourceMemoryLimit="2Gb"),
        "exec-first: memory_limit '2Gb' is no quantity of Kubernetes",
    ),
    (
        "the_driver_knows_the_config",
        lambda _, platform: config(platform).update(securityContext={"runAsUser": "1000"}),
        "exec-first: security_context is unknown to drivers of 2.5",
    ),
    (
        "names_are_the_same_for_all_drivers",
        lambda _, platform: config(platform)["secretAsEnv"][0].update(secretName="other"),
        "exec-first: older drivers read 'other', newer ones 'scopeline'",
    ),
    (
        "volumes_can_be_mounted",
        lambda _, platform: config(platform)["pvcMount"][0].update(
            constant="shared.data",
            pvcNameParameter={"runtimeValue": {"constant": "shared.data"}},
        ),
        "exec-first: 'shared.data' is no name of a volume, only of a claim",
    ),
    (
        "tolerations_are_complete",
        lambda _, platform: config(platform)["tolerations"][0].update(operator="Exists"),
        "exec-first: a toleration with Exists has no value",
    ),
]


def test_a_pipeline_that_keeps_the_rules() -> None:
    assert check_backend_rules(to_text(*ruled())) == []


@pytest.mark.parametrize(("rule", "change", "message"), CASES)
def test_a_pipeline_that_breaks_a_rule(rule: str, change: Change, message: str) -> None:
    text = broken(change)
    found = list({one.__name__: one for one in EVERY_RULE}[rule](parse(text)))
    assert any(message in one for one in found), found
    assert set(found) <= set(check_backend_rules(text))


def test_every_rule_is_broken_once() -> None:
    assert {rule for rule, _, _ in CASES} == {one.__name__ for one in EVERY_RULE}


def test_what_cannot_be_read_is_one_problem() -> None:
    found = check_backend_rules(broken(lambda spec, _: container(spec).update(entrypoint="x")))
    assert len(found) == 1
    assert 'no field named "entrypoint"' in found[0]
