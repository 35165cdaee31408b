"""The CronJob that looks for new data on the cluster: written from a config, valid, confined."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import yaml

from pipeline.config.settings import PipelineConfig
from pipeline.kubeflow.data_check import (
    MAX_CONFIG_BYTES,
    MAX_NAME_LENGTH,
    SCRATCH_FOLDER,
    TOKEN_FOLDER,
    make_check_manifest,
    object_name,
    poll_cron,
)
from tests.support.kubernetes_schemas import assert_confined, assert_volumes_match, read_valid
from trainer_module.errors import ConfigError

IMAGE = "registry.example.com:5000/scopeline:0.1.0"


def make_config(**sections: Any) -> PipelineConfig:
    raw = {
        "name": "taxi_daily",
        "data": {"format": "csv", "path": "days/{YYYY}-{MM}-{DD}/*.csv"},
        "task": "binary",
        "schedule": {"on_new_data": True, "poll": "10m", "timeout": "2h"},
        "kubeflow": {"image": IMAGE},
    }
    return PipelineConfig.model_validate(raw | sections)


def write(config: PipelineConfig, text: str = "name: taxi_daily\n") -> dict[str, dict[str, Any]]:
    return read_valid(make_check_manifest(config, text))


def job(manifests: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return dict(manifests["CronJob"]["spec"]["jobTemplate"]["spec"])


def pod(manifests: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return dict(job(manifests)["template"]["spec"])


def test_the_check_reads_the_config_that_the_config_map_holds() -> None:
    text = "# every night\nname: taxi_daily   \n\tdata: \u00e9 {YYYY}\n"
    manifests = write(make_config(), text)
    assert manifests["ConfigMap"]["data"] == {"taxi_daily.yaml": text}
    container = pod(manifests)["containers"][0]
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    path = f"{mounts['config']}/taxi_daily.yaml"
    command = "python -P -m kubeflow_runner check --once --config"
    assert container["command"] == [*command.split(), path]
    volumes = {volume["name"]: volume for volume in pod(manifests)["volumes"]}
    assert volumes["config"]["configMap"]["name"] == manifests["ConfigMap"]["metadata"]["name"]


def test_a_config_is_written_as_lines_that_people_can_read() -> None:
    text = make_check_manifest(make_config(), "name: taxi_daily\ntask: binary\n")
    assert "  taxi_daily.yaml: |\n    name: taxi_daily\n    task: binary\n" in text
    assert "&id" not in text


def test_the_check_looks_as_often_as_the_config_says_and_one_at_a_time() -> None:
    manifests = write(make_config())
    spec = manifests["CronJob"]["spec"]
    assert spec["schedule"] == "*/10 * * * *"
    assert spec["concurrencyPolicy"] == "Forbid"
    assert job(manifests)["backoffLimit"] == 0
    assert job(manifests)["activeDeadlineSeconds"] == 900


def test_the_check_is_confined() -> None:
    manifests = write(make_config(kubeflow={"image": IMAGE, "volume": {"claim": "data"}}))
    assert_confined(pod(manifests))
    assert_volumes_match(pod(manifests))
    assert pod(manifests)["containers"][0]["image"] == IMAGE


def test_the_check_has_what_the_steps_have() -> None:
    toleration = {"key": "pool", "operator": "Equal", "value": "ml", "effect": "NoSchedule"}
    settings = {
        "image": IMAGE,
        "namespace": "team",
        "service_account": "pipeline-runner",
        "image_pull_secrets": ["registry"],
        "volume": {"claim": "data", "path": "/mnt/data"},
        "environment": {"TZ": "Europe/Paris"},
        "secrets": {"SCOPELINE_METADATA_PASSWORD": {"secret": "scopeline", "key": "password"}},
        "resources": {"default": {"node_selector": {"pool": "ml"}, "tolerations": [toleration]}},
    }
    manifests = write(make_config(kubeflow=settings))
    found, container = pod(manifests), pod(manifests)["containers"][0]
    assert {m["metadata"]["namespace"] for m in manifests.values()} == {"team"}
    assert found["serviceAccountName"] == "pipeline-runner"
    assert found["imagePullSecrets"] == [{"name": "registry"}]
    assert found["nodeSelector"] == {"pool": "ml"}
    assert found["tolerations"] == [toleration]
    assert container["workingDir"] == "/mnt/data"
    assert {"name": "data", "mountPath": "/mnt/data"} in container["volumeMounts"]
    assert {"name": "data", "persistentVolumeClaim": {"claimName": "data"}} in found["volumes"]
    source = {"secretKeyRef": {"name": "scopeline", "key": "password"}}
    assert container["env"] == [
        {"name": "HOME", "value": SCRATCH_FOLDER},
        {"name": "TZ", "value": "Europe/Paris"},
        {"name": "SCOPELINE_METADATA_PASSWORD", "valueFrom": source},
    ]


def test_without_a_volume_or_an_account_nothing_of_them_is_said() -> None:
    found = pod(write(make_config()))
    assert not {"serviceAccountName", "imagePullSecrets", "nodeSelector", "tolerations"} & set(
        found
    )
    assert {volume["name"] for volume in found["volumes"]} == {"config", "token", "tmp"}
    assert found["containers"][0]["workingDir"] == SCRATCH_FOLDER


def test_the_check_has_a_token_for_kubeflow_pipelines_and_no_other_where_it_needs_none() -> None:
    from kfp.client.set_volume_credentials import ServiceAccountTokenVolumeCredentials

    address = "http://ml-pipeline.kubeflow:8888"
    found = pod(write(make_config(kubeflow={"image": IMAGE, "endpoint": address})))
    assert found["automountServiceAccountToken"] is False
    assert "--set" not in found["containers"][0]["command"]
    token = next(volume for volume in found["volumes"] if volume["name"] == "token")
    account = token["projected"]["sources"][0]["serviceAccountToken"]
    path = f"{TOKEN_FOLDER}/{account['path']}"
    assert ServiceAccountTokenVolumeCredentials()._token_path == path
    assert pod(write(make_config()))["automountServiceAccountToken"] is True


def test_a_port_forward_is_none_in_a_pod() -> None:
    here = {"image": IMAGE, "endpoint": "http://localhost:8888"}
    found = pod(write(make_config(kubeflow=here)))
    assert found["containers"][0]["command"][-2:] == ["--set", "kubeflow.endpoint=null"]
    assert found["automountServiceAccountToken"] is True


def test_names_are_ones_that_kubernetes_takes_and_differ() -> None:
    names = ["digits", "a_b", "a-b", "a_b-", "a-b-", "x" * 63, "x" * 62 + "y", "x" * 42, "x" * 43]
    made = {name: object_name(name) for name in names}
    assert len(set(made.values())) == len(names)
    assert made["digits"] == "scopeline-digits"
    assert made["a-b"] == "scopeline-a-b"
    for name in names:
        assert len(made[name]) <= MAX_NAME_LENGTH
        assert write(make_config(name=name))["CronJob"]["metadata"]["name"] == made[name]


@pytest.mark.parametrize(
    ("poll", "cron"),
    [
        (timedelta(seconds=1), "* * * * *"),
        (timedelta(seconds=119), "* * * * *"),
        (timedelta(minutes=5), "*/5 * * * *"),
        (timedelta(minutes=7), "*/6 * * * *"),
        (timedelta(minutes=59), "*/30 * * * *"),
        (timedelta(minutes=60), "0 * * * *"),
        (timedelta(hours=5), "0 */4 * * *"),
        (timedelta(hours=24), "0 0 * * *"),
        (timedelta(days=30), "0 0 * * *"),
    ],
)
def test_polls_become_cron_expressions_that_come_at_least_as_often(
    poll: timedelta, cron: str
) -> None:
    assert poll_cron(poll) == cron


def test_the_same_config_gives_the_same_bytes() -> None:
    assert make_check_manifest(make_config(), "a: 1\n") == make_check_manifest(
        make_config(), "a: 1\n"
    )
    assert len(list(yaml.safe_load_all(make_check_manifest(make_config(), "a: 1\n")))) == 2


@pytest.mark.parametrize(
    ("sections", "said"),
    [
        ({"kubeflow": None}, "kubeflow: this key is missing.*image: registry.example.com"),
        ({"kubeflow": {}}, "kubeflow.image: this key is missing"),
        ({"schedule": None}, "there is nothing to check; set it to true"),
        ({"schedule": {"cron": "0 3 * * *"}}, "`cron` alone needs no check"),
    ],
)
def test_a_config_with_nothing_to_look_for_is_refused(sections: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        make_check_manifest(make_config(**sections), "name: taxi_daily\n")


def test_a_config_that_no_config_map_holds_is_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"has 1,048,577 bytes; a ConfigMap holds at most 1,048,576"
    ):
        make_check_manifest(make_config(), "#" * (MAX_CONFIG_BYTES + 1))
