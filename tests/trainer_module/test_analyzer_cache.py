"""What Transform remembers of the spans that it has analysed, and what it does not read again."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_transform as tft
import tensorflow_transform.beam as tft_beam
from tensorflow_transform.beam import analysis_graph_builder, analyzer_cache

from components.beam_workers.options import IN_PROCESS_ARGS
from components.compat.beam import remember_lookups
from trainer_module.features.vocabularies import CLASSES, CountsCoder
from trainer_module.preprocessing import preprocessing_fn
from trainer_module.settings import TrainerSettings

pytestmark = pytest.mark.slow

SPEC = {
    "fare": tf.io.FixedLenFeature([1], tf.float32),
    "company": tf.io.VarLenFeature(tf.string),
    "review": tf.io.VarLenFeature(tf.string),
    "tipped": tf.io.FixedLenFeature([1], tf.int64),
}
TYPES = {
    "fare": tf.TensorSpec([None, 1], tf.float32),
    "company": tf.SparseTensorSpec([None, None], tf.string),
    "review": tf.SparseTensorSpec([None, None], tf.string),
    "tipped": tf.TensorSpec([None, 1], tf.int64),
}
"""The same as they are in a batch."""
NOT_UTF8 = b"\xff\xfe caf\xe9"
COMPANIES = {1: b"One", 2: NOT_UTF8, 4: 'Zürich "quote" \\ {"x": 1}'.encode()}
"""Of a span each; besides, all have the same two."""
SPANS = {
    f"span-{number}": [
        {
            "fare": [number * 10.0 + row],
            "company": [
                COMPANIES[number] if row < 4 * number else (b"Ace", b"two\nlines")[row % 2]
            ],
            "review": [f"Ride {number} was good, row {row % 7} too".encode()],
            "tipped": [(row + number) % (2 if number < 4 else 3)],
        }
        for row in range(20)
    ]
    for number in (1, 2, 4)
}


def bind(**features: Any) -> Any:
    settings = TrainerSettings.model_validate(
        {
            "label": "tipped",
            "task": "multiclass",
            "features": {"review": {"type": "text"}, **features},
        }
    )
    return functools.partial(preprocessing_fn, custom_config=settings.to_custom_config())


PREPROCESS = bind(company={"type": "categorical"})


def read_cache(
    pipeline: beam.Pipeline, keys: list[analyzer_cache.DatasetKey], cache: Path
) -> tuple[Mapping[Any, Any], set[analyzer_cache.DatasetKey]]:
    """What is known of spans, and the spans that are to be read."""
    known = pipeline | analyzer_cache.ReadAnalysisCacheFromFS(str(cache), keys)
    needed = analysis_graph_builder.get_analysis_dataset_keys(
        PREPROCESS, TYPES, keys, known, force_tf_compat_v1=False
    )
    return known, set(needed)


def analyse(
    root: Path, names: list[str], cache: Path | None
) -> tuple[tft.TFTransformOutput, dict[str, int]]:
    """Analyses spans as TFX's Transform does; also counts the rows of each that were read."""
    remember_lookups()
    pipeline = beam.Pipeline(argv=list(IN_PROCESS_ARGS))
    keys = {analyzer_cache.DatasetKey(name): name for name in names}
    known, needed = None, set(keys)
    if cache is not None:
        known, needed = read_cache(pipeline, list(keys), cache)

    def count(row: dict[str, Any], name: str) -> dict[str, Any]:
        beam.metrics.Metrics.counter("read", name).inc()
        return row

    data = {
        key: pipeline
        | f"Create {name}" >> beam.Create(SPANS[name], reshuffle=False)
        | f"Read {name}" >> beam.Map(count, name)
        if key in needed
        else None
        for key, name in keys.items()
    }
    with tft_beam.Context(temp_dir=str(root / "tmp")):
        metadata = tft.DatasetMetadata.from_feature_spec(SPEC)
        transform_fn, added = (data, known, metadata) | tft_beam.AnalyzeDatasetWithCache(
            PREPROCESS, pipeline=pipeline
        )
        _ = transform_fn | tft_beam.WriteTransformFn(str(root / "graph"))
        if cache is not None:
            _ = added | analyzer_cache.WriteAnalysisCacheToFS(pipeline, str(cache), list(keys))
    result = pipeline.run()
    result.wait_until_finish()
    counters = result.metrics().query(beam.metrics.MetricsFilter().with_namespace("read"))
    read = {counter.key.metric.name: counter.committed for counter in counters["counters"]}
    return tft.TFTransformOutput(str(root / "graph")), read


def transform(output: tft.TFTransformOutput) -> dict[str, np.ndarray]:
    """Rows of all spans by the transform graph."""
    rows = [row for rows in SPANS.values() for row in rows]
    raw = {
        "fare": tf.constant([row["fare"] for row in rows]),
        "tipped": tf.constant([row["tipped"] for row in rows], tf.int64),
        **{
            name: tf.sparse.from_dense(tf.constant([row[name] for row in rows]))
            for name in ("company", "review")
        },
    }
    return {name: v.numpy() for name, v in output.transform_features_layer()(raw).items()}


def test_moved_window_reads_only_the_new_span(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    first, read = analyse(tmp_path / "first", ["span-1", "span-2"], cache)
    assert read == {"span-1": 20, "span-2": 20}
    window = ["span-2", "span-4"]
    moved, read = analyse(tmp_path / "moved", window, cache)
    assert read == {"span-4": 20}, "what is known of the others is in the cache"
    keys = [analyzer_cache.DatasetKey(name) for name in window]
    _, needed = read_cache(beam.Pipeline(argv=list(IN_PROCESS_ARGS)), keys, cache)
    assert needed == set()
    fresh, read = analyse(tmp_path / "fresh", window, cache=None)
    assert read == {"span-2": 20, "span-4": 20}

    for name in ("company", "review", CLASSES):
        vocabulary = moved.vocabulary_by_name(name)
        assert vocabulary == fresh.vocabulary_by_name(name)
        assert vocabulary != first.vocabulary_by_name(name), "the windows differ"
    assert NOT_UTF8 in moved.vocabulary_by_name("company")
    assert b"two\nlines" not in moved.vocabulary_by_name("company")
    assert moved.vocabulary_by_name(CLASSES) == [b"0", b"1", b"2"]

    expected = transform(fresh)
    assert expected.keys() == {"fare", "company", "review", "tipped"}
    for name, values in transform(moved).items():
        np.testing.assert_allclose(values, expected[name], rtol=1e-5, atol=1e-6)
    assert abs(transform(first)["fare"] - expected["fare"]).max() > 0.1
    fares = np.array([row["fare"] for name in window for row in SPANS[name]])
    np.testing.assert_allclose(
        expected["fare"][20:], (fares - fares.mean()) / fares.std(), rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize(
    ("features", "is_known"),
    [
        ({"company": {"type": "categorical", "vocabulary_size": 2}}, True),
        ({"company": {"type": "categorical"}, "fare": {"type": "categorical"}}, False),
    ],
)
def test_changed_columns_are_counted_again(features: dict[str, Any], is_known: bool) -> None:
    def counts(preprocess: Any) -> set[bytes]:
        keys = analysis_graph_builder.get_analysis_cache_entry_keys(
            preprocess, TYPES, [analyzer_cache.DatasetKey("span")], force_tf_compat_v1=False
        )
        return {key for key in keys if b"[count_values" in key}

    assert counts(PREPROCESS)
    assert (counts(bind(**features)) == counts(PREPROCESS)) is is_known


def test_counts_of_any_bytes_survive_the_cache() -> None:
    counts = [{bytes([byte]): byte + 1 for byte in range(256)}, {}, {"Zürich".encode(): 10**12}]
    coder = CountsCoder()
    assert coder.decode_cache(coder.encode_cache(counts)) == counts
    backwards = [dict(reversed(column.items())) for column in counts]
    assert coder.encode_cache(backwards) == coder.encode_cache(counts)
