"""Checks for new data where a volume is mounted, and submits a run if one is due.

The check decides as the local scheduler does, but submits a run instead of starting a process.
Kubeflow's recurring run handles cron times. This module also creates the CronJob of the check.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import yaml

from pipeline.config.sections.data import span_kind
from pipeline.config.sections.kubeflow import KubeflowSettings
from pipeline.config.sections.notify import Occasion
from pipeline.config.settings import PipelineConfig
from pipeline.exit_codes import EXIT_FAILED
from pipeline.kubeflow.api.client import Kubeflow
from pipeline.kubeflow.api.steps import ENDED
from pipeline.kubeflow.cluster_layout import (
    cluster_layout,
    config_for_pods,
    kubernetes_name,
    settings_of,
    working_folder,
)
from pipeline.kubeflow.compiled import Parameters
from pipeline.layout import Layout
from pipeline.records.event_log import EventKind, EventLog
from pipeline.records.notify import check_secrets, deliveries, notify
from pipeline.schedule.decision import Due, NotDue, decide
from pipeline.schedule.health import check_staleness, last_push
from pipeline.schedule.history import read_history
from pipeline.schedule.record import note_decision
from trainer_module.errors import ConfigError
from trainer_module.typed_words import typed_kubeflow_command

if TYPE_CHECKING:
    import kfp_server_api as kfp_api

RECENT_RUNS = 50
"""The number of latest runs that are searched for a run in progress."""
Submit = Callable[[Parameters], str]
"""A function that starts a run with parameters, and returns its id."""


@deliveries()
def check(
    config: PipelineConfig, kubeflow: Kubeflow, submit: Submit, once: bool, now: datetime
) -> str:
    """Returns the decision whether a run is due, with the reason; with `once`, submits the run.

    Args:
      config: a config that is checked for Kubeflow.
      submit: the function that starts a run.
      once: whether to submit a run that is due, and to record the decision.
      now: the current time, with its time zone.

    Raises:
      ConfigError: the config does not retrain on new data, a secret of notifications is not set, or
        the volume or the ledger cannot be used.
    """
    scheduled = _without_clock(config)
    if once:
        check_secrets(scheduled.notify)
    layout = _change_to_volume(config)
    event_log = EventLog(layout.event_log)
    runs = list(islice(kubeflow.runs_of(config), RECENT_RUNS))
    for run in runs:
        if run.state not in ENDED:
            return f"nothing to do: run {run.run_id} is under way"
    if runs and once:
        _record_lost_end(scheduled, event_log, runs[0])
    decision = decide(scheduled, layout, event_log, now)
    if not once:
        return f"{'due' if isinstance(decision, Due) else 'not due'}: {decision.reason}"
    note_decision(scheduled, decision, event_log, now)
    check_staleness(scheduled, event_log, now, last_push(event_log, now))
    if isinstance(decision, NotDue):
        return f"nothing to do: {decision.reason}"
    return f"run {submit(_parameters(scheduled, decision))} is submitted: {decision.reason}"


def _without_clock(config: PipelineConfig) -> PipelineConfig:
    """Returns the config for pods without cron times, which Kubeflow handles."""
    schedule = config.schedule
    if schedule is None or not schedule.on_new_data:
        raise ConfigError(
            "schedule.on_new_data: found false, so there is nothing to check; set it to true, or, "
            f"for `cron` alone, use `{typed_kubeflow_command('schedule apply')}`"
        )
    timeless = schedule.model_copy(update={"cron": None})
    return config_for_pods(config).model_copy(update={"schedule": timeless})


def _change_to_volume(config: PipelineConfig) -> Layout:
    """Changes to the folder in which relative paths of the config start.

    Raises:
      ConfigError: the volume is not mounted here.
    """
    folder, layout = working_folder(config), cluster_layout(config)
    volume = settings_of(config).volume
    try:
        os.chdir(folder)
        layout.root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        claim = volume.claim if volume else "a volume"
        raise ConfigError(
            f"{folder}: cannot be used ({error.strerror or error}); this command reads the data, "
            f"so it needs a pod that mounts `{claim}` there: "
            f"`{typed_kubeflow_command('schedule manifest')}` writes a CronJob for it"
        ) from None
    return layout


def _record_lost_end(config: PipelineConfig, event_log: EventLog, run: kfp_api.V2beta1Run) -> None:
    """Records the end of a run that was killed or never started, if the end is not recorded."""
    run_id, state = run.run_id, run.state
    if event_log.events(EventKind.FINISHED, EventKind.FAILED, run=run_id):
        return
    history = read_history(event_log)
    if history.due is None and history.started is None:
        return  # The run used another volume and event log.
    message = f"run {run_id} on Kubeflow ended as {state.lower()}, and left no report"
    event_log.record(EventKind.FAILED, message, run=run_id, exit_code=EXIT_FAILED, how="ended")
    notify(
        config.notify,
        config.name,
        Occasion.FAILED,
        message,
        {"how": "ended"},
        event_log,
        run=run_id,
    )


def _parameters(config: PipelineConfig, due: Due) -> Parameters:
    if due.through is None:
        return {}
    return {"span": span_kind(config.data).show(due.through)}


CONFIG_FOLDER = "/etc/scopeline"
"""The folder of the config in pods."""
SCRATCH_FOLDER = "/tmp"  # noqa: S108 - of a container: nobody else writes there
TOKEN_FOLDER = "/var/run/secrets/kubeflow/pipelines"  # noqa: S105
"""The folder of the token that kfp's client reads by default."""
TOKEN_AUDIENCE = "pipelines.kubeflow.org"  # noqa: S105
TOKEN_SECONDS = 7200
"""The lifetime of the token."""
CHECK_SECONDS = 900
"""The time limit of a check, of which compiling takes half a minute."""
MAX_NAME_LENGTH = 52
"""The maximum length of a CronJob's name, to which its Jobs append a time."""
MAX_CONFIG_BYTES = 2**20
"""The maximum size of a ConfigMap."""

Object = dict[str, Any]


def make_check_manifest(config: PipelineConfig, config_text: str) -> str:
    """Returns the manifest of a CronJob that checks whether a run is due and submits it.

    Args:
      config: a config with `kubeflow` and `schedule`.
      config_text: the config as YAML, for the pod to read.

    Returns:
      The YAML of a ConfigMap and a CronJob.

    Raises:
      ConfigError: no data ever makes a run due, or a setting that the pod needs is missing.
    """
    settings = config.kubeflow
    if settings is None or settings.image is None:
        missing = "kubeflow" if settings is None else "kubeflow.image"
        raise ConfigError(
            f"{missing}: this key is missing; the check runs in a container: write "
            "kubeflow: {image: registry.example.com/scopeline:0.1.0}"
        )
    if not config.schedule_or_default.on_new_data:
        raise ConfigError(
            "schedule.on_new_data: found false, so there is nothing to check; set it to true. "
            "`cron` alone needs no check: Kubeflow Pipelines runs it"
        )
    if len(config_text.encode()) > MAX_CONFIG_BYTES:
        raise ConfigError(
            f"the config has {len(config_text.encode()):,} bytes; a ConfigMap holds "
            f"at most {MAX_CONFIG_BYTES:,}"
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
    head = (
        f"# Checks whether a run of {config.name} is due, and submits it: kubectl apply -f FILE\n"
    )
    return head + yaml.dump_all(objects, Dumper=_Dumper, sort_keys=False, width=100)


def object_name(pipeline: str) -> str:
    """Returns the name of a pipeline's objects, such as `scopeline-taxi-daily-7bfd48`."""
    return kubernetes_name(pipeline, MAX_NAME_LENGTH, "scopeline-")


def poll_cron(poll: timedelta) -> str:
    """Returns a cron expression with even intervals of at most `poll`, but at least a minute."""
    minutes = int(poll.total_seconds()) // 60
    if minutes < 60:
        step = _largest_divisor(60, minutes)
        return "* * * * *" if step == 1 else f"*/{step} * * * *"
    step = _largest_divisor(24, minutes // 60)
    hour = {1: "*", 24: "0"}.get(step, f"*/{step}")
    return f"0 {hour} * * *"


def _largest_divisor(number: int, limit: int) -> int:
    return max(n for n in range(1, number + 1) if number % n == 0 and n <= max(limit, 1))


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
            # A sidecar would continue after the check, so the Job would never end.
            "metadata": {"labels": {"sidecar.istio.io/inject": "false"}},
            "spec": _pod(settings, name, f"{CONFIG_FOLDER}/{file_name}"),
        },
    }
    return {
        "schedule": poll_cron(schedule.poll),
        # Two checks at the same time could submit the same run twice.
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
        # Without an endpoint, kfp's client uses this token to detect that it is in a cluster.
        "automountServiceAccountToken": settings.endpoint is None or _is_port_forward(settings),
        "serviceAccountName": settings.service_account,
        "imagePullSecrets": [{"name": secret} for secret in settings.image_pull_secrets],
        "nodeSelector": placement.node_selector,
        "tolerations": [
            toleration.model_dump(mode="json", exclude_none=True)
            for toleration in placement.tolerations
        ],
        # The container runs as the image's user, like the steps that share the volume.
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [_container(settings, config_path, [mount for _, mount in volumes])],
        "volumes": [volume for volume, _ in volumes],
    }
    return {key: value for key, value in pod.items() if value not in (None, [], {})}


def _is_port_forward(settings: KubeflowSettings) -> bool:
    """Returns whether the endpoint is a port-forward on this machine, which a pod cannot use."""
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
            # With -P, files on the volume cannot shadow Scopeline's modules.
            *("python", "-P", "-m", "kubeflow_runner"),
            *("check", "--once", "--config", config_path),
            *(("--set", "kubeflow.endpoint=null") if _is_port_forward(settings) else ()),
        ],
        # Relative paths of the config start here.
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
    """Returns the pod's volumes, each with its mount."""
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
    """A YAML dumper that writes multi-line strings as blocks, and no aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)
