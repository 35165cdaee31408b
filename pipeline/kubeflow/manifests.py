"""The manifest of the CronJob that looks for new data."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import yaml

from pipeline.config.sections.kubeflow import KubeflowSettings
from pipeline.config.settings import PipelineConfig
from pipeline.kubeflow.cluster_layout import kubernetes_name
from trainer_module.errors import ConfigError

CONFIG_FOLDER = "/etc/scopeline"
"""Where pods find their config."""
SCRATCH_FOLDER = "/tmp"  # noqa: S108 - of a container: nobody else writes there
TOKEN_FOLDER = "/var/run/secrets/kubeflow/pipelines"  # noqa: S105
"""Where kfp's client looks for a token by itself."""
TOKEN_AUDIENCE = "pipelines.kubeflow.org"  # noqa: S105
TOKEN_SECONDS = 7200
CHECK_SECONDS = 900
"""How long one check may take; compiling takes half a minute of it."""
LONGEST_NAME = 52
"""Characters: a CronJob's name, which its Jobs add a time to."""
LARGEST_CONFIG = 2**20
"""Bytes that a ConfigMap holds."""

Object = dict[str, Any]


def make_check_manifest(config: PipelineConfig, config_text: str) -> str:
    """The objects that check on the cluster whether a run is due, and submit it.

    Args:
      config: one with `kubeflow` and `schedule`.
      config_text: the same as YAML, for the pod to read.

    Returns:
      The YAML of a ConfigMap and a CronJob.

    Raises:
      ConfigError: no data ever makes a run due, or something that the pod needs is missing.
    """
    settings = config.kubeflow
    if settings is None or settings.image is None:
        missing = "kubeflow" if settings is None else "kubeflow.image"
        raise ConfigError(
            f"{missing}: this is missing; the check runs in a container, so give it "
            "kubeflow: {image: registry.example.com/scopeline:0.1.0}"
        )
    if not config.schedule_or_default.on_new_data:
        raise ConfigError(
            "schedule.on_new_data: found false, so there is nothing to look for; set it to true. "
            "`cron` alone needs no check: Kubeflow Pipelines has a clock"
        )
    if len(config_text.encode()) > LARGEST_CONFIG:
        raise ConfigError(
            f"the config has {len(config_text.encode()):,} bytes; a ConfigMap holds "
            f"{LARGEST_CONFIG:,}"
        )
    name = object_name(config.name)
    file_name = f"{config.name}.yaml"
    metadata = _metadata(name, settings)
    objects: list[Object] = [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": metadata,
            "data": {file_name: config_text},
        },
        {
            "apiVersion": "batch/v1",
            "kind": "CronJob",
            "metadata": metadata,
            "spec": _cron_job(config, settings, name, file_name),
        },
    ]
    head = f"# Looks whether a run of {config.name} is due, and submits it: kubectl apply -f FILE\n"
    return head + yaml.dump_all(objects, Dumper=_Dumper, sort_keys=False, width=100)


def object_name(pipeline: str) -> str:
    """What the objects of a pipeline are called: `scopeline-taxi-daily-7bfd48`."""
    return kubernetes_name(pipeline, LONGEST_NAME, "scopeline-")


def poll_cron(poll: timedelta) -> str:
    """The cron expression with even intervals, at most `poll` long, but at least a minute."""
    minutes = int(poll.total_seconds()) // 60
    if minutes < 60:
        step = _largest_divisor(60, minutes)
        return "* * * * *" if step == 1 else f"*/{step} * * * *"
    step = _largest_divisor(24, minutes // 60)
    hour = {1: "*", 24: "0"}.get(step, f"*/{step}")
    return f"0 {hour} * * *"


def _largest_divisor(whole: int, limit: int) -> int:
    return max(n for n in range(1, whole + 1) if whole % n == 0 and n <= max(limit, 1))


def _metadata(name: str, settings: KubeflowSettings) -> Object:
    labels = {
        "app.kubernetes.io/name": "scopeline",
        "app.kubernetes.io/component": "check",
        "app.kubernetes.io/instance": name,
    }
    namespace = {"namespace": settings.namespace} if settings.namespace else {}
    return {"name": name, **namespace, "labels": labels}


def _cron_job(
    config: PipelineConfig, settings: KubeflowSettings, name: str, file_name: str
) -> Object:
    schedule = config.schedule_or_default
    job = {
        # The next check of the schedule is the retry.
        "backoffLimit": 0,
        "activeDeadlineSeconds": CHECK_SECONDS,
        "template": {
            # A sidecar would go on after the check, so the Job would never end.
            "metadata": {"labels": {"sidecar.istio.io/inject": "false"}},
            "spec": _pod(settings, name, f"{CONFIG_FOLDER}/{file_name}"),
        },
    }
    return {
        "schedule": poll_cron(schedule.poll),
        # Two checks at once could submit the same run twice.
        "concurrencyPolicy": "Forbid",
        "startingDeadlineSeconds": 300,
        "successfulJobsHistoryLimit": 1,
        "failedJobsHistoryLimit": 3,
        "jobTemplate": {"spec": job},
    }


def _pod(settings: KubeflowSettings, name: str, config_path: str) -> Object:
    volumes = _volumes(settings, name)
    placement = settings.resources_of("default")
    pod: Object = {
        "restartPolicy": "Never",
        # Without an endpoint, kfp's client takes this token as the sign that it is in a cluster.
        "automountServiceAccountToken": settings.endpoint is None or _is_port_forward(settings),
        "serviceAccountName": settings.service_account,
        "imagePullSecrets": [{"name": secret} for secret in settings.image_pull_secrets],
        "nodeSelector": placement.node_selector,
        "tolerations": [
            toleration.model_dump(mode="json", exclude_none=True)
            for toleration in placement.tolerations
        ],
        # The user is the image's, as it is in the steps that share the volume.
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [_container(settings, config_path, [mount for _, mount in volumes])],
        "volumes": [volume for volume, _ in volumes],
    }
    return {key: value for key, value in pod.items() if value not in (None, [], {})}


def _is_port_forward(settings: KubeflowSettings) -> bool:
    """Whether the endpoint is this machine, as of a port-forward: for a pod that is itself."""
    return urlsplit(settings.endpoint or "").hostname in ("localhost", "127.0.0.1", "::1")


def _container(settings: KubeflowSettings, config_path: str, mounts: list[Object]) -> Object:
    environment = {"HOME": SCRATCH_FOLDER, **settings.environment}
    secrets = {
        variable: {"secretKeyRef": {"name": key.secret, "key": key.key}}
        for variable, key in settings.secrets.items()
    }
    folder = SCRATCH_FOLDER if settings.volume is None else settings.volume.path
    return {
        "name": "check",
        "image": settings.image,
        "command": [
            # -P: what is on the volume hides no module of ours.
            *("python", "-P", "-m", "kubeflow_runner"),
            *("check", "--once", "--config", config_path),
            *(("--set", "kubeflow.endpoint=null") if _is_port_forward(settings) else ()),
        ],
        # Relative paths of the config begin here.
        "workingDir": folder,
        "env": [
            *({"name": name, "value": value} for name, value in environment.items()),
            *({"name": name, "valueFrom": source} for name, source in secrets.items()),
        ],
        "resources": {
            "requests": {"cpu": "500m", "memory": "1Gi"},
            "limits": {"memory": "4Gi"},
        },
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": mounts,
    }


def _volumes(settings: KubeflowSettings, name: str) -> list[tuple[Object, Object]]:
    """The pod's volumes, each with its mount."""
    token = {
        "path": "token",
        "audience": TOKEN_AUDIENCE,
        "expirationSeconds": TOKEN_SECONDS,
    }
    sources: dict[str, Object] = {
        "config": {"configMap": {"name": name}},
        "token": {"projected": {"sources": [{"serviceAccountToken": token}]}},
        "tmp": {"emptyDir": {}},
    }
    mounts: dict[str, Object] = {
        "config": {"mountPath": CONFIG_FOLDER, "readOnly": True},
        "token": {"mountPath": TOKEN_FOLDER, "readOnly": True},
        "tmp": {"mountPath": SCRATCH_FOLDER},
    }
    if settings.volume is not None:
        sources["data"] = {"persistentVolumeClaim": {"claimName": settings.volume.claim}}
        mounts["data"] = {"mountPath": settings.volume.path}
    return [({"name": key, **sources[key]}, {"name": key, **mounts[key]}) for key in sources]


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as such, and nothing by reference."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)
