"""The rules for configs that run on open-source Kubeflow Pipelines."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from pathlib import Path, PurePosixPath

from components.example_gen.formats import FORMATS
from components.example_gen.paths import is_remote
from components.processes.kubernetes.pod_settings import bytes_of, cores_of
from pipeline.component_ids import ComponentId
from pipeline.config.issues import Issue, near_match
from pipeline.config.loading import check_rules, load_config
from pipeline.config.metadata_url import (
    EXAMPLE,
    PASSWORD_VARIABLE,
    MetadataServer,
    parse_metadata_url,
)
from pipeline.config.sections.data import BUILTIN_PREFIX, has_spans
from pipeline.config.sections.kubeflow import DEFAULT_RESOURCES
from pipeline.config.sections.push import Approve
from pipeline.config.sections.schedule import OnDrift
from pipeline.config.settings import PipelineConfig
from pipeline.kubeflow.cluster_layout import cluster_metadata, settings_of
from pipeline.kubeflow.compiled import FINALIZE, SETUP
from trainer_module.published import is_named
from trainer_module.strategies.tpu import LOCAL, TPUStrategy
from trainer_module.typed_words import typed_program

COMPONENTS = (
    SETUP,
    *ComponentId,
    FINALIZE,
)

"""The steps that may have an entry in `kubeflow.resources`."""
TASKS = ("chief", "worker", "ps")
"""The tasks of a training cluster that may have an entry in `kubeflow.resources`."""
_BUCKET = "gs://"
_VOLUME = "{claim: scopeline}"


def load_for_kubeflow(path: Path, overrides: Iterable[str] = ()) -> PipelineConfig:
    """Loads a config file, and checks it for Kubeflow Pipelines.

    Raises:
      ConfigError: lists all problems, each with its path in the file.
    """
    return load_config(path, overrides, check_for_kubeflow)


def check_for_kubeflow(config: PipelineConfig) -> Iterator[Issue]:
    """Yields all problems except problems of files, which are on the cluster."""
    yield from check_rules(config, checks_files=False)
    for rule in KUBEFLOW_RULES:
        yield from rule(config)


def image_is_given(config: PipelineConfig) -> Iterator[Issue]:
    """Checks that there is an image for the steps."""
    if settings_of(config).image is None:
        yield Issue(
            "kubeflow.image",
            "this key is missing; every step runs in a container image, such as "
            "registry.example.com/scopeline:0.1.0; `make image` builds an image",
        )


def artifacts_are_on_shared_storage(config: PipelineConfig) -> Iterator[Issue]:
    """Checks that steps share a volume or an object store for artifacts."""
    kubeflow = settings_of(config)
    root, volume = kubeflow.pipeline_root, kubeflow.volume
    if root is None and volume is None:
        yield Issue(
            "kubeflow.pipeline_root",
            f"steps need shared storage; give a volume, `volume: {_VOLUME}`, or an object store, "
            "`pipeline_root: gs://bucket/folder`",
        )
    elif root is not None and not is_remote(root):
        if volume is None:
            yield Issue(
                "kubeflow.pipeline_root",
                f"found {root!r}, a folder that is lost with its pod; also give a volume, "
                f"`volume: {_VOLUME}`, or an object store, such as gs://bucket/folder",
            )
        elif not PurePosixPath(root).is_relative_to(volume.path):
            yield Issue(
                "kubeflow.pipeline_root",
                f"found {root!r}, which is not on the volume; expected a folder below "
                f"{volume.path}, such as {volume.path}/output",
            )


def paths_are_on_the_cluster(config: PipelineConfig) -> Iterator[Issue]:
    """Checks that local paths are on the volume."""
    volume, labels = settings_of(config).volume, config.data.labels
    weights, is_published = config.model.weights, is_named(config.model.kind, config.model.weights)
    paths = {
        "data.path": config.data.path if FORMATS[config.data.format].has_files else None,
        "data.labels.path": None if labels is None else labels.path,
        "schema": config.schema_file,
        "push.directory": config.push.directory,
        "model.weights": None if is_published else weights,
    }
    for key, path in paths.items():
        if path is None or is_remote(path) or path.startswith(BUILTIN_PREFIX):
            continue
        # Files of labels and weights cannot be in an object store.
        store = (
            ""
            if key in ("data.labels.path", "model.weights")
            else ", or the URI of an object store"
        )
        if volume is None:
            yield Issue(
                key,
                f"found {path!r}, but pods do not have this path; give a volume that contains it, "
                f"`kubeflow.volume: {_VOLUME}`{store}",
            )
        elif not _is_below(path, volume.path):
            yield Issue(
                key,
                f"found {path!r}, which is not on the volume, so pods cannot read it; copy it to "
                f"the volume, and give the path below {volume.path}, such as "
                f"{PurePosixPath(path).name!r}{store}",
            )
    if volume is None and is_published:
        yield Issue(
            "model.weights",
            f"found {weights!r}, which the first step would fetch into its own pod; give a "
            f"volume, `kubeflow.volume: {_VOLUME}`, which all steps mount",
        )


def _is_below(path: str, folder: str) -> bool:
    """Returns whether a path, relative to a folder or absolute, is in the folder."""
    return Path(posixpath.normpath(posixpath.join(folder, path))).is_relative_to(folder)


def tpus_read_a_bucket(config: PipelineConfig) -> Iterator[Issue]:
    """Checks that TPUs use a bucket, as a Cloud TPU mounts no volume of the cluster."""
    strategy, root = config.train.strategy, settings_of(config).pipeline_root
    if not isinstance(strategy, TPUStrategy) or strategy.name == LOCAL:
        return
    if root is None or not root.startswith(_BUCKET):
        yield Issue(
            "kubeflow.pipeline_root",
            f"{'this key is missing' if root is None else f'found {root!r}'}; a TPU reads "
            f"examples and keeps checkpoints only in a bucket: give {_BUCKET}bucket/folder, or "
            "another train.strategy",
        )


def metadata_is_a_server(config: PipelineConfig) -> Iterator[Issue]:
    """Checks that the metadata is on a server, as pods cannot share a SQLite file."""
    url = cluster_metadata(config)
    if url is None:
        yield Issue(
            "kubeflow.metadata",
            "this key is missing, and pods cannot share a SQLite file; name a MySQL or MariaDB "
            f"server, {EXAMPLE}, or a metadata service, grpc://host:8080",
        )
        return
    try:
        server = parse_metadata_url(url)
    except ValueError as error:
        # Another rule checks the config's own `metadata`.
        if settings_of(config).metadata is not None:
            yield Issue("kubeflow.metadata", str(error))
        return
    if server.host in ("localhost", "127.0.0.1", "::1"):
        yield Issue(
            "kubeflow.metadata",
            f"found {server}, which is a different machine in every pod; name the server's "
            "service, such as mysql.kubeflow",
        )
    if isinstance(server, MetadataServer) and PASSWORD_VARIABLE in settings_of(config).environment:
        yield Issue(
            f"kubeflow.environment.{PASSWORD_VARIABLE}",
            "a password belongs in a Secret: kubeflow.secrets: "
            f"{{{PASSWORD_VARIABLE}: {{secret: scopeline, key: password}}}}",
        )


def notifications_have_secrets(config: PipelineConfig) -> Iterator[Issue]:
    """Checks that secrets of notifications are not plain environment variables of pods."""
    for key, variable in config.notify.variables.items():
        if variable in settings_of(config).environment:
            yield Issue(
                f"kubeflow.environment.{variable}",
                f"{key} uses this variable as a secret, which belongs in a Secret: "
                f"kubeflow.secrets: {{{variable}: {{secret: scopeline, key: webhook}}}}",
            )


def resources_name_components(config: PipelineConfig) -> Iterator[Issue]:
    """Checks that resources name existing steps."""
    names = (DEFAULT_RESOURCES, *COMPONENTS, *TASKS)
    for name in settings_of(config).resources:
        if name not in names:
            yield Issue(
                f"kubeflow.resources.{name}", f"there is no such step; {near_match(name, names)}"
            )


def limits_cover_requests(config: PipelineConfig) -> Iterator[Issue]:
    """Checks that limits are at least the requests; otherwise Kubernetes rejects the pod."""
    for name, resources in settings_of(config).resources.items():
        path = f"kubeflow.resources.{name}"
        yield from _check_limit(path, "cpu", resources.cpu, resources.cpu_limit, cores_of)
        yield from _check_limit(path, "memory", resources.memory, resources.memory_limit, bytes_of)


def _check_limit(
    path: str,
    kind: str,
    request: str | None,
    limit: str | None,
    measure: Callable[[str], Decimal | int],
) -> Iterator[Issue]:
    if request is not None and limit is not None and measure(limit) < measure(request):
        yield Issue(
            f"{path}.{kind}_limit",
            f"found {limit!r}, less than the {request!r} that `{kind}` requests; increase the "
            "limit, or leave out one of the two keys",
        )


def spans_have_a_volume(config: PipelineConfig) -> Iterator[Issue]:
    """Checks that data in spans has a volume, which holds the ledger of spans."""
    if settings_of(config).volume is not None:
        return
    features = {
        "data in spans": has_spans(config.data),
        "schedule.on_new_data": config.schedule_or_default.on_new_data,
    }
    for feature in (feature for feature, is_used in features.items() if is_used):
        yield Issue(
            "kubeflow.volume",
            f"this key is missing; {feature} needs a volume for the ledger: {_VOLUME}",
        )
    if config.data.path.startswith(BUILTIN_PREFIX):
        yield Issue(
            "kubeflow.volume",
            f"this key is missing; the first step unpacks shipped data onto a volume: {_VOLUME}",
        )


def retraining_by_drift_is_local(config: PipelineConfig) -> Iterator[Issue]:
    """Checks that drift does not trigger runs, as only a run can measure drift."""
    if config.drift.on_drift is OnDrift.RETRAIN:
        yield Issue(
            "drift.on_drift",
            f"found 'retrain', which only `{typed_program()} schedule` supports; on Kubeflow, use "
            "warn or fail with schedule.on_new_data: true",
        )


def object_store_is_on_google_cloud(config: PipelineConfig) -> Iterator[Issue]:
    """Checks that an object store is Google Cloud Storage, the only installed one."""
    root = settings_of(config).pipeline_root
    if root is None or not is_remote(root):
        return
    if not root.startswith(_BUCKET):
        yield Issue("kubeflow.pipeline_root", f"found {root!r}; expected {_BUCKET}bucket/folder")
    push = config.push.directory
    if push is not None and not is_remote(push):
        yield Issue(
            "push.directory",
            f"found {push!r}, but models are at {root}; leave out this key, or give a URI, too",
        )
    if config.push.approve is Approve.MANUAL:
        yield Issue(
            "push.approve",
            f"found 'manual', but models are at {root}, and `approve` pushes only to folders; "
            "leave out this key, or keep artifacts on kubeflow.volume",
        )
    keep = config.schedule_or_default.keep
    if keep.model_fields_set:
        yield Issue(
            "schedule.keep",
            f"found {keep.model_dump(exclude_unset=True)}, but in an object store nothing is "
            "deleted; leave out this key, and use the bucket's lifecycle rules",
        )


KUBEFLOW_RULES: tuple[Callable[[PipelineConfig], Iterator[Issue]], ...] = (
    image_is_given,
    artifacts_are_on_shared_storage,
    paths_are_on_the_cluster,
    tpus_read_a_bucket,
    metadata_is_a_server,
    notifications_have_secrets,
    resources_name_components,
    limits_cover_requests,
    spans_have_a_volume,
    retraining_by_drift_is_local,
    object_store_is_on_google_cloud,
)
