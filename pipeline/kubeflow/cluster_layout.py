"""The layout of a pipeline's files on Kubeflow, and the names of its objects."""

from __future__ import annotations

import hashlib
from pathlib import Path

from components.example_gen.paths import is_remote
from pipeline.config.sections.kubeflow import KubeflowSettings
from pipeline.config.settings import PipelineConfig
from pipeline.layout import Layout
from trainer_module.published import is_named

CACHES = ".cache"
"""The folder of a volume with the caches of fetched weights, shared by all steps."""
OUTPUT = "output"
"""The folder of a volume for all output."""
SCRATCH = "/tmp/scopeline"  # noqa: S108 - a pod's own
"""The working folder without a volume; its files are lost with the pod."""
MAX_PIPELINE_NAME = 57
"""The maximum length of a name. A run adds 6 characters; the result is a label of its pods."""


def settings_of(config: PipelineConfig) -> KubeflowSettings:
    """Returns the config's section `kubeflow`, or its defaults."""
    return config.kubeflow or KubeflowSettings()


def pipeline_name(config: PipelineConfig) -> str:
    """Returns the name of the pipeline on Kubeflow, and its pods, such as `taxi-daily-7bfd48`."""
    return kubernetes_name(config.name, MAX_PIPELINE_NAME)


def kubernetes_name(pipeline: str, max_length: int, prefix: str = "") -> str:
    """Returns a name that Kubernetes accepts, without `_`, and unique for each pipeline.

    Args:
      pipeline: the name of the pipeline in the config.
      max_length: the maximum length of the name.
      prefix: the beginning of the name.
    """
    name = prefix + pipeline.replace("_", "-")
    if "_" in pipeline or not name[-1].isalnum() or len(name) > max_length:
        # The hash keeps names of different pipelines apart.
        mark = hashlib.sha256(pipeline.encode()).hexdigest()[:6]
        name = f"{name[: max_length - len(mark) - 1].rstrip('-')}-{mark}"
    return name


def working_folder(config: PipelineConfig) -> Path:
    """Returns the folder in which relative paths of the config start in every pod."""
    volume = settings_of(config).volume
    return Path(volume.path if volume else SCRATCH)


def variables_of(config: PipelineConfig) -> dict[str, str]:
    """Returns the environment variables of every step, which put caches on the volume."""
    kubeflow = settings_of(config)
    if kubeflow.volume is None or not is_named(config.model.kind, config.model.weights):
        return kubeflow.environment
    caches = f"{kubeflow.volume.path}/{CACHES}"
    homes = {"KERAS_HOME": f"{caches}/keras", "HF_HOME": f"{caches}/huggingface"}
    return homes | kubeflow.environment


def cluster_layout(config: PipelineConfig, is_elsewhere: bool = False) -> Layout:
    """Returns the layout of a pipeline on Kubeflow.

    Args:
      config: a config that is checked for Kubeflow.
      is_elsewhere: whether this process is outside of the cluster and cannot see the files.
    """
    root = settings_of(config).pipeline_root
    remote = root if root is not None and is_remote(root) else None
    is_folder = root is not None and remote is None
    output = Path(str(root)) if is_folder else working_folder(config) / OUTPUT
    push = config.push.directory
    if push is not None and not is_remote(push):
        push = str(working_folder(config) / push)
    return Layout(
        output,
        config.name,
        push,
        remote,
        is_kept=settings_of(config).volume is not None or remote is None,
        is_elsewhere=is_elsewhere,
    )


def cluster_metadata(config: PipelineConfig) -> str | None:
    """Returns the URL of the metadata store for pods."""
    return settings_of(config).metadata or config.metadata


def config_for_pods(config: PipelineConfig) -> PipelineConfig:
    """Returns the config with the metadata URL for pods."""
    return config.model_copy(update={"metadata": cluster_metadata(config)})


def run_root(layout: Layout) -> str:
    """Returns the folder or URI for files that the steps of a pipeline's runs share."""
    if layout.remote is None:
        return str(layout.root)
    return f"{layout.remote.rstrip('/')}/{layout.name}"
