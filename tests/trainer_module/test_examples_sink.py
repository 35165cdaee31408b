"""Transform and StatisticsGen by batches leave what TFX's own way leaves."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_data_validation as tfdv
from tfx.components.statistics_gen.executor import Executor as StatisticsExecutor
from tfx.components.transform.executor import TransformProcessor
from tfx.components.util import tfxio_utils
from tfx.dsl.components.base.base_beam_executor import BaseBeamExecutor
from tfx.types import standard_artifacts

from components.beam_workers.options import IN_PROCESS_ARGS
from components.compat import tfx_transform
from components.compat.beam import remember_lookups
from components.compat.tfx_bsl import batch_by_bytes, read_by_batches
from components.compat.tfx_transform import write_by_batches
from tests.support.trainer_data import (
    Transformed,
    make_image,
    run_transform,
    to_example,
    write_examples,
)
from trainer_module.settings import TrainerSettings

ROWS: list[dict[str, Any]] = [
    {
        "number": None if row % 5 == 0 else row / 7,
        "category": ["a", "b", "", None, "\u00e9"][row % 5],
        "tags": [f"tag{tag}" for tag in range(row % 4)] or None,
        "picture": make_image(row % 256),
        "label": row % 2,
    }
    for row in range(90)
]
SETTINGS = {
    "task": "binary",
    "label": "label",
    "features": {
        "number": {"type": "numeric"},
        "category": {"type": "categorical"},
        "tags": {"type": "categorical", "many": True},
        "picture": {"type": "image", "height": 4, "width": 4, "channels": 1},
    },
}


@pytest.fixture
def switch(monkeypatch) -> Callable[[bool], None]:
    """Lets TFX's components work by batches, or in TFX's own way."""

    def to(batches: bool) -> None:
        # Sums of floats depend on the batches, of which TFX's source makes what it has time for.
        batch_by_bytes()
        monkeypatch.setattr(tfxio_utils, "make_tfxio", inspect.unwrap(tfxio_utils.make_tfxio))
        stock = staticmethod(tfx_transform._stock_encode_and_write)
        monkeypatch.setattr(TransformProcessor, "_EncodeAndWrite", stock)
        if batches:
            read_by_batches()
            write_by_batches()

    return to


def transform(root: Path) -> Transformed:
    root.mkdir()
    return run_transform(root, ROWS, [], TrainerSettings.model_validate(SETTINGS))


def read(transformed: Transformed, split: str) -> list[dict[str, np.ndarray]]:
    files = sorted((transformed.root / "transformed" / f"Split-{split}").iterdir())
    assert [file.name for file in files] == ["transformed_examples-00000-of-00001.gz"]
    spec = transformed.tft_output.transformed_feature_spec()
    records = tf.data.TFRecordDataset([str(file) for file in files], "GZIP")
    parsed = records.map(lambda record: tf.io.parse_single_example(record, spec))
    return list(parsed.as_numpy_iterator())


@pytest.mark.slow
def test_transformed_examples_equal_those_of_tfx(tmp_path, switch):
    switch(False)
    stock = transform(tmp_path / "stock")
    switch(True)
    ours = transform(tmp_path / "ours")
    expected, found = read(stock, "train"), read(ours, "train")
    assert len(found) == 90
    for one, other in zip(expected, found, strict=True):
        assert one.keys() == other.keys()
        for name, value in one.items():
            np.testing.assert_array_equal(other[name], value)
    # A split without rows has a file, too.
    assert read(ours, "eval") == read(stock, "eval") == []


def statistics(root: Path, raw: Path) -> dict[str, Any]:
    remember_lookups()
    examples, found = standard_artifacts.Examples(), standard_artifacts.ExampleStatistics()
    examples.uri, found.uri = str(raw), str(root)
    examples.split_names = '["train", "eval"]'
    context = BaseBeamExecutor.Context(
        beam_pipeline_args=list(IN_PROCESS_ARGS), tmp_dir=str(root / "tmp"), unique_id="1"
    )
    StatisticsExecutor(context).Do({"examples": [examples]}, {"statistics": [found]}, {})
    return {
        split: tfdv.load_stats_binary(str(root / f"Split-{split}" / "FeatureStats.pb"))
        for split in ("train", "eval")
    }


@pytest.mark.slow
def test_statistics_equal_those_of_tfx(tmp_path, switch):
    # Of one shard with all rows, one with some, and a split without any.
    for split, shard, rows in (
        ("train", 0, ROWS),
        ("train", 1, ROWS[7:20]),
        ("eval", 0, []),
    ):
        path = tmp_path / "raw" / f"Split-{split}" / f"data_tfrecord-0000{shard}-of-00002.gz"
        write_examples(path, map(to_example, rows))
    switch(False)
    expected = statistics(tmp_path / "stock", tmp_path / "raw")
    switch(True)
    found = statistics(tmp_path / "ours", tmp_path / "raw")
    assert found["train"].datasets[0].num_examples == 103
    assert found == expected
