"""The CronJob that checks for new data on the cluster is valid, confined, and reads its config."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from pipeline.config.settings import PipelineConfig
from pipeline.kubeflow.data_check import (
    SCRATCH_FOLDER,
    TOKEN_FOLDER,
    make_check_manifest,
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


def test_check_reads_the_config_of_the_config_map() -> None:
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


def test_check_runs_at_the_configured_interval_and_never_twice_at_once() -> None:
    manifests = write(make_config())
    spec = manifests["CronJob"]["spec"]
    assert spec["schedule"] == "*/10 * * * *"
    assert spec["concurrencyPolicy"] == "Forbid"
    assert job(manifests)["backoffLimit"] == 0
    assert job(manifests)["activeDeadlineSeconds"] == 900


def test_check_is_confined_and_has_the_settings_of_the_steps() -> None:
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
    assert_confined(found)
    assert_volumes_match(found)
    assert container["image"] == IMAGE


def test_check_has_no_other_token_than_that_for_kubeflow_pipelines() -> None:
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
    here = {"image": IMAGE, "endpoint": "http://localhost:8888"}
    found = pod(write(make_config(kubeflow=here)))
    assert found["containers"][0]["command"][-2:] == ["--set", "kubeflow.endpoint=null"]


def test_cron_expression_comes_at_least_as_often_as_the_poll() -> None:
    for poll, cron in (
        (timedelta(seconds=1), "* * * * *"),
        (timedelta(minutes=5), "*/5 * * * *"),
        (timedelta(minutes=7), "*/6 * * * *"),
        (timedelta(minutes=59), "*/30 * * * *"),
        (timedelta(hours=5), "0 */4 * * *"),
        (timedelta(days=30), "0 0 * * *"),
    ):
        assert poll_cron(poll) == cron


@pytest.mark.parametrize(
    ("sections", "place"),
    [
        ({"kubeflow": {}}, "kubeflow.image"),
        ({"schedule": None}, "schedule.on_new_data"),
    ],
)
def test_config_without_data_to_check_is_refused(sections: dict[str, Any], place: str) -> None:
    with pytest.raises(ConfigError, match=place):
        make_check_manifest(make_config(**sections), "name: taxi_daily\n")
