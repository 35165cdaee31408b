"""A pipeline that keeps the backend's rules, and parts of it to break.

Without postponed annotations: kfp reads those of pipelines.
"""

import copy
from collections.abc import Callable
from functools import cache
from typing import Any

import yaml
from kfp import dsl, kubernetes
from small_pipelines import compiled, step

Document = dict[str, Any]
Change = Callable[[Document, Document], Any]
"""Of the pipeline and of the platform."""
Case = tuple[str, Change, str]
"""A rule, what breaks it, and what is said then."""


def _finish(task: Any) -> Any:
    task.set_retry(2, backoff_duration="10s").set_env_variable("NAME", "Ada")
    task.set_cpu_request("500m").set_cpu_limit("2").set_memory_request("1Gi")
    task.set_memory_limit("2Gi").set_accelerator_type("nvidia.com/gpu").set_accelerator_limit(1)
    kubernetes.use_secret_as_env(task, "scopeline", {"password": "PASSWORD"})
    kubernetes.use_field_path_as_env(task, "POD", "metadata.name")
    kubernetes.mount_pvc(task, "shared", "/mnt/scopeline")
    kubernetes.set_image_pull_secrets(task, ["registry"])
    kubernetes.add_node_selector(task, "pool", "training")
    kubernetes.add_toleration(task, key="gpu", operator="Equal", value="yes", effect="NoSchedule")
    kubernetes.set_timeout(task, 600)
    return task


@cache
def ruled() -> tuple[Document, Document]:
    """Its two documents; copy them before a change."""

    def pipeline(epochs: int = 3, strategy: str = "default") -> None:
        end = step("end", "true", word=dsl.PIPELINE_JOB_ID_PLACEHOLDER)
        with dsl.ExitHandler(_finish(end)):
            first = step("first", "true", word=strategy, number=epochs)
            _finish(step("second", "true", word="x").after(_finish(first)))

    spec, platform = yaml.safe_load_all(compiled(pipeline))
    return spec, platform


def to_text(*documents: Document) -> str:
    """As YAML."""
    return yaml.safe_dump_all(documents)


def tasks(spec: Document) -> Document:
    """Those within the exit handler: `first` and `second`."""
    return spec["components"]["comp-exit-handler-1"]["dag"]["tasks"]


def container(spec: Document) -> Document:
    """That of `first`."""
    return spec["deploymentSpec"]["executors"]["exec-first"]["container"]


def config(platform: Document) -> Document:
    """What Kubernetes is told of `first`."""
    return platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]["exec-first"]


def root_tasks(spec: Document) -> Document:
    """The exit handler, and `end`."""
    return spec["root"]["dag"]["tasks"]


def broken(change: Change) -> str:
    """The pipeline with a change, as YAML."""
    documents = copy.deepcopy(ruled())
    change(*documents)
    return to_text(*documents)
