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
)
from pipeline.kubeflow.kubeflow_rules import load_for_kubeflow
from trainer_module.errors import ConfigError

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


def test_layout_of_a_valid_config(tmp_path: Path) -> None:
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


def test_pipeline_names_are_distinct_and_valid_in_kubernetes(tmp_path: Path) -> None:
    names = ["taxi-daily", "taxi_daily", "taxi-daily_", "taxi-daily-", "a" * 57, "a" * 58, "a" * 63]
    made = {name: pipeline_name(load(tmp_path, f"name={name}")) for name in names}
    assert len(set(made.values())) == len(names)
    assert made["taxi-daily"] == "taxi-daily"
    assert made["a" * 57] == "a" * 57
    for name in made.values():
        assert LABEL.fullmatch(name)
        assert len(name) <= MAX_PIPELINE_NAME


def test_files_on_the_volume_are_not_checked_here(tmp_path: Path) -> None:
    config = load(tmp_path, "data.path=images/of/digits", "schema=schema.pbtxt")
    assert config.data.path == "images/of/digits"
    assert load(tmp_path, "data.path=/mnt/scopeline/digits").data.path == "/mnt/scopeline/digits"
    strategies = ("{kind: tpu, name: local}", "{kind: tpu, name: pod}")
    for strategy, root in zip(strategies, ("null", "gs://bucket/a"), strict=True):
        load(tmp_path, f"train.strategy={strategy}", f"kubeflow.pipeline_root={root}")


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["kubeflow.image=null"], "kubeflow.image: this key is missing"),
        (
            ["data.path=/home/me/images"],
            "data.path: found '/home/me/images', which is not on the volume, so pods cannot read "
            "it; copy it to the volume, and give the path below /mnt/scopeline, such as 'images'",
        ),
        (["kubeflow.metadata=mysql://u:p@h/d"], "found a password in 'mysql://u:***@h/d'"),
        (
            ["kubeflow.metadata=mysql://me@localhost/meta"],
            "kubeflow.metadata: found mysql://me@localhost:3306/meta",
        ),
        (["kubeflow.resources.default.memory=1.5Gi"], "found '1.5Gi'; expected a whole number"),
    ],
)
def test_invalid_kubeflow_config_is_refused_at_its_key(
    overrides: list[str], words: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, *overrides)
    assert words in str(caught.value)
