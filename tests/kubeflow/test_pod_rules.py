"""Each rule of the backend for containers and pods finds what breaks it."""

import pytest
from kfp_pod_rules import POD_RULES
from kfp_rules import check_backend_rules
from kfp_spec import parse
from ruled_pipeline import Case, Change, broken, config, container

CASES: list[Case] = [
    (
        "placeholders_are_whole_inputs",
        lambda spec, _: container(spec)["args"].append("{{$.inputs.parameters['other']}}"),
        "exec-first: 'other' is no input of its component",
    ),
    (
        "placeholders_are_whole_inputs",
        lambda spec, _: container(spec)["args"].append("--id={{$.pipeline_job_uuid}}"),
        "exec-first: nothing replaces the placeholder in '--id={{$.pipeline_job_uuid}}'",
    ),
    (
        "placeholders_are_whole_inputs",
        lambda spec, _: container(spec)["args"].append('{"Concat": ["a", "b"]}'),
        "is no text to older versions",
    ),
    (
        "placeholders_are_whole_inputs",
        lambda spec, _: container(spec).update(command=["{{$.inputs.parameters['word']}}"]),
        "replace nothing in the name of a program",
    ),
    (
        "nothing_is_expanded_by_accident",
        lambda spec, _: container(spec)["args"].append("costs $$5"),
        "exec-first: Kubernetes changes '$$'",
    ),
    (
        "nothing_is_expanded_by_accident",
        lambda spec, _: container(spec)["env"][0].update(value="$(HOME)/x"),
        "exec-first: Kubernetes changes '$(HOME)'",
    ),
    (
        "nothing_is_expanded_by_accident",
        lambda spec, _: container(spec)["env"][0].update(value="{{workflow.name}}"),
        "exec-first: Argo changes '{{workflow.name}}'",
    ),
    (
        "arguments_are_short_enough",
        lambda spec, _: container(spec)["args"].append("é" * 65_536),
        "exec-first: an argument takes 131,072 bytes",
    ),
    (
        "arguments_are_short_enough",
        lambda spec, _: container(spec)["args"].extend(["x" * 40_000] * 2),
        "exec-first: takes 80,",
    ),
    (
        "images_are_plain",
        lambda spec, _: container(spec).update(image="argostub/createpvc"),
        "exec-first: 'argostub/createpvc' is no image of ours",
    ),
    (
        "images_are_plain",
        lambda spec, _: container(spec).pop("command"),
        "exec-first: has no command",
    ),
    (
        "variables_are_named_once",
        lambda spec, _: container(spec)["env"].append({"name": "PASSWORD", "value": "x"}),
        "exec-first: PASSWORD is set twice",
    ),
    (
        "variables_are_named_once",
        lambda spec, _: container(spec)["env"].append({"name": "KFP_POD_NAME", "value": "x"}),
        "exec-first: 'KFP_POD_NAME' is no variable of ours",
    ),
    (
        "resources_are_quantities",
        lambda spec, _: container(spec)["resources"].update(resourceMemoryLimit="2Gb"),
        "exec-first: memory_limit '2Gb' is no quantity of Kubernetes",
    ),
    (
        "resources_are_quantities",
        lambda spec, _: container(spec)["resources"].update(resourceMemoryRequest="3Gi"),
        "exec-first: requests more memory than its limit",
    ),
    (
        "resources_are_quantities",
        lambda spec, _: container(spec)["resources"].pop("resourceCpuLimit"),
        "exec-first: cpu_limit is not told to all versions",
    ),
    (
        "resources_are_quantities",
        lambda spec, _: container(spec)["resources"]["accelerator"].update(resourceCount="0"),
        "exec-first: an accelerator has a type and a whole number",
    ),
    (
        "the_driver_knows_the_config",
        lambda _, platform: config(platform).update(securityContext={"runAsUser": "1000"}),
        "exec-first: security_context is unknown to drivers of 2.5",
    ),
    (
        "the_driver_knows_the_config",
        lambda _, platform: platform["platforms"]["kubernetes"]["deploymentSpec"][
            "executors"
        ].update({"exec-x": {}}),
        "exec-x: there is no such executor",
    ),
    (
        "names_are_the_same_for_all_drivers",
        lambda _, platform: config(platform)["secretAsEnv"][0].update(secretName="other"),
        "exec-first: older drivers read 'other', newer ones 'scopeline'",
    ),
    (
        "names_are_the_same_for_all_drivers",
        lambda _, platform: config(platform)["pvcMount"][0].update(
            pvcNameParameter={"componentInputParameter": "claim"}
        ),
        "exec-first: parent DAG does not have input parameter claim",
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
        "volumes_can_be_mounted",
        lambda _, platform: config(platform)["pvcMount"][0].update(mountPath="/s3"),
        "exec-first: nothing can be mounted at '/s3'",
    ),
    (
        "volumes_can_be_mounted",
        lambda _, platform: config(platform)["pvcMount"].append(
            {**config(platform)["pvcMount"][0], "mountPath": "/mnt/other"}
        ),
        "exec-first: shared is mounted twice",
    ),
    (
        "tolerations_are_complete",
        lambda _, platform: config(platform)["tolerations"][0].update(operator="Exists"),
        "exec-first: a toleration with Exists has no value",
    ),
    (
        "tolerations_are_complete",
        lambda _, platform: config(platform)["tolerations"][0].pop("key"),
        "exec-first: a toleration without a key wants Exists",
    ),
    (
        "tolerations_are_complete",
        lambda _, platform: config(platform)["tolerations"][0].update(operator="In"),
        "exec-first: a toleration knows no operator 'In'",
    ),
]


@pytest.mark.parametrize(("rule", "change", "message"), CASES)
def test_a_pipeline_that_breaks_a_rule(rule: str, change: Change, message: str) -> None:
    text = broken(change)
    found = list({one.__name__: one for one in POD_RULES}[rule](parse(text)))
    assert any(message in one for one in found), found
    assert set(found) <= set(check_backend_rules(text))


def test_every_rule_is_broken_once() -> None:
    assert {rule for rule, _, _ in CASES} == {one.__name__ for one in POD_RULES}
