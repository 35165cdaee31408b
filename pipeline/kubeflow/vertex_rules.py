"""What a config must not say where Vertex AI Pipelines is to run it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from components.example_gen.formats import FORMATS
from components.example_gen.paths import is_remote
from pipeline.config.issues import Issue
from pipeline.config.sections.data import BUILTIN_PREFIX, has_spans
from pipeline.config.sections.kubeflow import KubeflowSettings
from pipeline.config.settings import PipelineConfig
from trainer_module.published import is_named

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,127}")
_BUCKET = re.compile(r"gs://[a-z0-9][-a-z0-9_.]+[a-z0-9](/.*)?")
_ACCELERATOR = re.compile(r"[A-Z][A-Z0-9_]*")
_TASKS = ("chief", "worker", "ps")
"""Those of a cluster of pods, as `kubeflow.resources` names them."""
_NO_PODS = "a step on Vertex AI cannot start pods"
_INSTEAD = "target: kubeflow can do it"
_FOREIGN_KEYS = {
    "endpoint": "it is submitted by Google's own client, which is told a project and a location",
    "namespace": "it has no namespaces",
    "experiment": "it is submitted by Google's own client, which may be told an experiment",
    "service_account": "it is submitted by Google's own client, which may be told an account",
    "volume": "its steps share a bucket, pipeline_root",
    "metadata": "it keeps its own metadata",
    "secrets": "it reads no Secrets of Kubernetes",
    "image_pull_secrets": "it pulls images by the rights of its service account",
    "timeout": "its steps have no timeout",
}
"""Keys of `kubeflow` that mean nothing there, and what is there instead."""
_DEFAULTS = KubeflowSettings()


def check_for_vertex(config: PipelineConfig) -> Iterator[Issue]:
    """All that keeps a config from being compiled for Vertex AI; every problem at once."""
    yield from _check_name(config)
    yield from _check_kubeflow(config.kubeflow or _DEFAULTS)
    yield from _check_data(config)
    yield from _check_training(config)
    yield from _check_surroundings(config)


def _check_name(config: PipelineConfig) -> Iterator[Issue]:
    if not _NAME.fullmatch(config.name):
        yield Issue(
            "name",
            f"found {config.name!r}; Vertex AI takes small letters, digits and `-`, such as "
            f"{config.name.replace('_', '-')!r}",
        )


def _check_kubeflow(kubeflow: KubeflowSettings) -> Iterator[Issue]:
    if kubeflow.image is None:
        yield Issue(
            "kubeflow.image",
            "this key is missing; right is an image in a registry that Vertex AI can read, such as "
            "europe-docker.pkg.dev/project/repository/scopeline:0.1.0",
        )
    if kubeflow.pipeline_root is None:
        yield Issue(
            "kubeflow.pipeline_root",
            "this key is missing; the steps on Vertex AI share a bucket: gs://...",
        )
    else:
        yield from _check_bucket("kubeflow.pipeline_root", kubeflow.pipeline_root)
    for key, instead in _FOREIGN_KEYS.items():
        if getattr(kubeflow, key) != getattr(_DEFAULTS, key):
            yield Issue(f"kubeflow.{key}", f"Vertex AI has no use for it: {instead}; leave it out")
    yield from _check_resources(kubeflow)


def _check_resources(kubeflow: KubeflowSettings) -> Iterator[Issue]:
    for name, resources in kubeflow.resources.items():
        path = f"kubeflow.resources.{name}"
        if name in _TASKS:
            yield Issue(path, f"{_NO_PODS}; all processes share what Trainer is given")
        for key in ("node_selector", "tolerations"):
            if getattr(resources, key):
                yield Issue(
                    f"{path}.{key}",
                    "Vertex AI chooses the machine by cores, memory and accelerator; leave it out",
                )
        accelerator = resources.accelerator
        if accelerator is not None and not _ACCELERATOR.fullmatch(accelerator.type):
            yield Issue(
                f"{path}.accelerator.type",
                f"found {accelerator.type!r}; Vertex AI has names of its own, such as "
                "NVIDIA_TESLA_T4 or NVIDIA_L4",
            )


def _check_data(config: PipelineConfig) -> Iterator[Issue]:
    path = config.data.path
    if path.startswith(BUILTIN_PREFIX):
        yield Issue(
            "data.path",
            f"found {path!r}; Vertex AI cannot read shipped data, copy it to a bucket: gs://...",
        )
    elif FORMATS[config.data.format].has_files:
        yield from _check_bucket("data.path", path)
    if has_spans(config.data):
        yield Issue(
            "data.path",
            f"found {path!r}; Vertex AI has no way to choose among spans, {_INSTEAD}; name one "
            "span's files",
        )
    schema = config.schema_file
    if schema is not None:
        yield from _check_bucket("schema", schema)
    if config.push.directory is not None:
        yield from _check_bucket("push.directory", config.push.directory)


def _check_training(config: PipelineConfig) -> Iterator[Issue]:
    if config.train.cluster is not None and config.train.cluster.launcher == "kubernetes":
        yield Issue(
            "train.cluster.launcher",
            f"found 'kubernetes', but {_NO_PODS}; `local` starts the processes within the step",
        )
    if is_named(config.model.kind, config.model.weights):
        yield Issue(
            "model.weights",
            f"found {config.model.weights!r}, but no step on Vertex AI fetches weights for the "
            f"others, {_INSTEAD}; name a file in the image or on gs://",
        )
    if config.schedule_or_default.warm_start:
        yield Issue(
            "schedule.warm_start",
            f"Vertex AI cannot find the model that training would begin with, {_INSTEAD}; leave it "
            "out",
        )
    if config.drift.columns:
        yield Issue(
            "drift.columns",
            f"Vertex AI cannot find the data that drift is measured from, {_INSTEAD}; leave it out",
        )


def _check_surroundings(config: PipelineConfig) -> Iterator[Issue]:
    if config.schedule_or_default.keep.model_fields_set:
        yield Issue(
            "schedule.keep",
            f"Vertex AI has no step that would delete old runs or versions, {_INSTEAD}; leave it "
            "out",
        )
    if config.metadata is not None:
        yield Issue("metadata", "Vertex AI keeps its own metadata; leave it out")
    for key in ("webhook", "email"):
        if getattr(config.notify, key) is not None:
            yield Issue(
                f"notify.{key}",
                f"Vertex AI has no step that would tell anybody, {_INSTEAD}; leave it out",
            )


def _check_bucket(path: str, found: str) -> Iterator[Issue]:
    if _BUCKET.fullmatch(found):
        return
    why = "is no bucket of Google Cloud" if is_remote(found) else "is a path of one machine"
    yield Issue(
        path, f"found {found!r}, which {why}; the steps on Vertex AI share a bucket: gs://..."
    )
