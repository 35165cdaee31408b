"""What cannot run on Kubeflow is refused before anything is compiled, with what would be right."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from components.processes.kubernetes.pod_settings import LABEL
from pipeline.config.settings import PipelineConfig
from pipeline.kubeflow.cluster_layout import (
    MAX_PIPELINE_NAME,
    cluster_layout,
    pipeline_name,
    variables_of,
)
from pipeline.kubeflow.kubeflow_rules import load_for_kubeflow
from trainer_module.errors import ConfigError
from trainer_module.settings import ModelSettings

GOOD = {
    "name": "digits",
    "data": {"format": "images", "path": "builtin:digits"},
    "task": "multiclass",
    "features": {"image": {"type": "image", "height": 8, "width": 8, "channels": 1}},
    "model": {"kind": "cnn"},
    "metadata": "mysql://scopeline@mysql.kubeflow/scopeline",
    "kubeflow": {
        "image": "registry.example.com/scopeline:0.1.0",
        "volume": {"claim": "scopeline"},
    },
}


def load(folder: Path, *overrides: str) -> PipelineConfig:
    path = folder / "digits.yaml"
    path.write_text(yaml.safe_dump(GOOD))
    return load_for_kubeflow(path, overrides)


def test_a_good_config_is_taken_and_knows_its_places(tmp_path: Path) -> None:
    layout = cluster_layout(load(tmp_path))
    assert layout.artifacts == "/mnt/scopeline/output/digits/pipeline_root"
    assert layout.serving == "/mnt/scopeline/output/digits/serving/digits"
    remote = cluster_layout(load(tmp_path, "kubeflow.pipeline_root=gs://bucket/a/"))
    assert remote.artifacts == "gs://bucket/a/digits/pipeline_root"
    assert remote.serving == "gs://bucket/a/digits/serving/digits"
    assert remote.kept_schema == "/mnt/scopeline/output/digits/schema.pbtxt"
    alone = cluster_layout(
        load(
            tmp_path,
            "kubeflow.pipeline_root=gs://bucket/a",
            "kubeflow.volume=null",
            "data.path=gs://bucket/digits/",
        )
    )
    assert alone.kept_schema == "gs://bucket/a/digits/schema.pbtxt"
    assert str(remote.event_log) == "/mnt/scopeline/output/digits/ledger.db"
    pushed = cluster_layout(load(tmp_path, "push.directory=models"))
    assert pushed.serving == "/mnt/scopeline/models"


def test_published_weights_lie_on_the_volume(tmp_path: Path) -> None:
    given = ("features.image={type: image, height: 32, width: 32}", "model.kind=resnet50")
    named = load(tmp_path, *given, "model.weights=imagenet", "kubeflow.environment={TZ: UTC}")
    assert variables_of(named) == {
        "KERAS_HOME": "/mnt/scopeline/.cache/keras",
        "HF_HOME": "/mnt/scopeline/.cache/huggingface",
        "TZ": "UTC",
    }
    bert = ModelSettings(kind="bert", weights="bert-base-uncased")
    assert len(variables_of(named.model_copy(update={"model": bert}))) == 3
    assert variables_of(load(tmp_path)) == {}


def test_every_name_is_one_of_its_own_that_kubernetes_takes(tmp_path: Path) -> None:
    names = ["taxi-daily", "taxi_daily", "taxi-daily_", "taxi-daily-", "a" * 57, "a" * 58, "a" * 63]
    made = {name: pipeline_name(load(tmp_path, f"name={name}")) for name in names}
    assert len(set(made.values())) == len(names)
    assert made["taxi-daily"] == "taxi-daily"
    assert made["a" * 57] == "a" * 57
    for name in made.values():
        assert LABEL.fullmatch(name)
        assert len(name) <= MAX_PIPELINE_NAME


def test_files_are_looked_for_on_the_cluster_not_here(tmp_path: Path) -> None:
    config = load(tmp_path, "data.path=images/of/digits", "schema=schema.pbtxt")
    assert config.data.path == "images/of/digits"
    assert load(tmp_path, "data.path=/mnt/scopeline/digits").data.path == "/mnt/scopeline/digits"
    strategies = ("{kind: tpu, name: local}", "{kind: tpu, name: pod}")
    for strategy, root in zip(strategies, ("null", "gs://bucket/a"), strict=True):
        load(tmp_path, f"train.strategy={strategy}", f"kubeflow.pipeline_root={root}")


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["kubeflow.image=null"], "kubeflow.image: this key is missing; every step runs in a"),
        (["kubeflow.image=https://x/y"], "kubeflow.image: found 'https://x/y'; "),
        (
            ["kubeflow.volume=null"],
            ("kubeflow.pipeline_root: steps need shared storage; give a volume"),
        ),
        (
            ["kubeflow.volume=null", "kubeflow.pipeline_root=/home/me/root"],
            "found '/home/me/root', a folder that is lost with its pod; also give a volume",
        ),
        (
            ["kubeflow.pipeline_root=/home/me/root"],
            "which is not on the volume; expected a folder below /mnt/scopeline",
        ),
        (
            [
                "kubeflow.volume=null",
                "kubeflow.pipeline_root=gs://b/r",
                "data.path=images",
            ],
            "data.path: found 'images', but pods do not have this path; give a volume",
        ),
        (
            ["data.path=/home/me/images"],
            "data.path: found '/home/me/images', which is not on the volume, so pods cannot read "
            "it; copy it to the volume, and give the path below /mnt/scopeline, such as 'images'",
        ),
        (
            ["data.labels={path: /home/me/labels.csv, key: file}"],
            "data.labels.path: found '/home/me/labels.csv', which is not on the volume, so pods "
            "cannot read it; copy it to the volume, and give the path below /mnt/scopeline",
        ),
        (["schema=../schema.pbtxt"], "schema: found '../schema.pbtxt', which is not on the volume"),
        (
            ["train.strategy={kind: tpu, name: pod}"],
            "kubeflow.pipeline_root: this key is missing; a TPU reads examples and keeps "
            "checkpoints only in a bucket: give gs://bucket/folder, or another train.strategy",
        ),
        (
            [
                "kubeflow.volume=null",
                "kubeflow.pipeline_root=gs://b/r",
                "model={kind: resnet50, weights: imagenet}",
            ],
            "model.weights: found 'imagenet', which the first step would fetch into its own pod; ",
        ),
        (
            ["model={kind: resnet50, weights: /home/me/top.h5}"],
            "model.weights: found '/home/me/top.h5', which is not on the volume",
        ),
        (
            ["metadata=null"],
            ("kubeflow.metadata: this key is missing, and pods cannot share a SQLite file"),
        ),
        (
            ["metadata=sqlite:///x.db"],
            "with the unsupported scheme 'sqlite'; expected one of grpc,",
        ),
        (["kubeflow.metadata=mysql://u:p@h/d"], "found a password in 'mysql://u:***@h/d'"),
        (
            ["kubeflow.metadata=grpc://metadata"],
            ("expected host and port, as in grpc://host:8080"),
        ),
        (
            ["kubeflow.metadata=mysql://me@localhost/meta"],
            "found mysql://me@localhost:3306/meta, which is a different machine in every pod",
        ),
        (["kubeflow.pipeline_root=s3://b/r"], "found 's3://b/r'; expected gs://bucket/folder"),
        (
            ["kubeflow.pipeline_root=gs://b/r", "push.directory=models"],
            "push.directory: found 'models', but models are at gs://b/r",
        ),
        (
            ["kubeflow.pipeline_root=gs://b/r", "schedule={keep: {runs: 3}}"],
            "schedule.keep: found {'runs': 3}, but in an object store nothing is deleted",
        ),
        (
            ["kubeflow.pipeline_root=gs://b/r", "push.approve=manual"],
            "push.approve: found 'manual', but models are at gs://b/r, and `approve` pushes only",
        ),
        (
            ["kubeflow.volume=null", "kubeflow.pipeline_root=gs://b/r"],
            "kubeflow.volume: this key is missing; the first step unpacks shipped data",
        ),
        (
            [
                "kubeflow.volume=null",
                "kubeflow.pipeline_root=gs://b/r",
                "data.path=gs://b/digits/",
                "schedule={on_new_data: true}",
            ],
            "kubeflow.volume: this key is missing; schedule.on_new_data needs a volume",
        ),
        (["kubeflow.namespace=My_Team"], "kubeflow.namespace: found 'My_Team'; Kubernetes accepts"),
        (["kubeflow.volume.claim=Claim"], "kubeflow.volume.claim: found 'Claim'; Kubernetes"),
        (["kubeflow.resources.default.memory=16"], "found 16; expected a whole number with a unit"),
        (["kubeflow.resources.default.memory=1.5Gi"], "found '1.5Gi'; expected a whole number"),
        (["kubeflow.resources.default.memory=512000K"], "found '512000K'; expected a whole"),
        (
            ["kubeflow.resources.Trainer={memory: 4Gi, memory_limit: 4000M}"],
            "kubeflow.resources.Trainer.memory_limit: found '4000M', less than the '4Gi' that",
        ),
        (
            ["kubeflow.resources.worker={cpu: 1.5, cpu_limit: 1250m}"],
            "kubeflow.resources.worker.cpu_limit: found '1250m', less than the '1.5' that",
        ),
        (["kubeflow.resources.default.cpu=0"], "found 0; expected a number of cores"),
        (
            ["kubeflow.resources.Trainr.memory=16Gi"],
            "kubeflow.resources.Trainr: there is no such step; did you mean `Trainer`?",
        ),
        (
            ["kubeflow.volume={claim: scopeline, path: mnt/data}"],
            "kubeflow.volume.path: found 'mnt/data'; expected an absolute path without",
        ),
        (
            ["kubeflow.secrets={TOKEN: {secret: scopeline, key: my key}}"],
            "not shown here; the key of a Secret may have only letters, digits,",
        ),
        (["kubeflow.environment={A-B: c}"], "may have only letters, digits and `_`"),
        (
            ["kubeflow.environment={SCOPELINE_METADATA_PASSWORD: x}"],
            "a password belongs in a Secret",
        ),
        (
            ["notify.webhook={url_variable: HOOK}", "kubeflow.environment={HOOK: 'https://a.b'}"],
            "kubeflow.environment.HOOK: notify.webhook.url_variable uses this variable as a secret",
        ),
        (["kubeflow.timeout=1 week"], "kubeflow.timeout: found '1 week'; a duration is a whole"),
        (
            ["kubeflow.endpoint=localhost:8080"],
            "'localhost:8080'; expected an address with",
        ),
        (
            [
                "data={format: csv, path: 'data/{SPAN}/x.csv'}",
                "features={}",
                "model.kind=mlp",
                "drift={on_drift: retrain, columns: {fare: {jensen_shannon: 0.1}}}",
            ],
            "drift.on_drift: found 'retrain', which only `scopeline schedule` supports",
        ),
        (
            [
                "data={format: csv, path: 'gs://b/{SPAN}/x.csv'}",
                "features={}",
                "model.kind=mlp",
                "kubeflow.volume=null",
                "kubeflow.pipeline_root=gs://b/r",
            ],
            "kubeflow.volume: this key is missing; data in spans needs a volume",
        ),
    ],
)
def test_what_cannot_run_there_is_refused(overrides: list[str], words: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, *overrides)
    assert words in str(caught.value)
