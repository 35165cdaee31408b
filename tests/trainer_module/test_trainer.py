"""`run_fn` from transformed examples to a SavedModel that clients and TFMA can use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_model_analysis as tfma
import tf_keras
from google.protobuf import text_format
from tfx.components.trainer.fn_args_utils import FnArgs

from tests.support.trainer_data import Row, Transformed, read_record, strategy_settings, to_example
from trainer_module.data.examples import Reader
from trainer_module.data.input_pipeline import Split
from trainer_module.errors import TrainingError
from trainer_module.export import saving
from trainer_module.features.raw_columns import MISSING_INTEGER, dense_numbers, dense_strings
from trainer_module.settings import TrainerSettings
from trainer_module.strategies import build_strategy
from trainer_module.trainer import run_fn


def train(data: Transformed, directory: Path, **sections: Any) -> FnArgs:
    fn_args = data.fn_args(directory, **sections)
    run_fn(fn_args)
    return fn_args


def record_of(fn_args: FnArgs) -> dict[str, Any]:
    return read_record(fn_args.serving_model_dir)


def serve(fn_args: FnArgs, signature: str, rows: list[Row]) -> dict[str, np.ndarray]:
    """Serialized examples through a signature of the exported model."""
    model = tf.saved_model.load(fn_args.serving_model_dir)
    outputs = model.signatures[signature](tf.constant([to_example(row) for row in rows]))
    return {name: value.numpy() for name, value in outputs.items()}


@pytest.fixture(scope="module")
def trips_run(trips: Transformed, trips_model: str) -> FnArgs:
    return trips.fn_args(Path(trips_model).parent)


@pytest.fixture(scope="module")
def shades_run(shades: Transformed, shades_model: str) -> FnArgs:
    return shades.fn_args(Path(shades_model).parent)


@pytest.mark.slow
def test_record_of_a_training(trips_run: FnArgs) -> None:
    record = record_of(trips_run)
    history = record.pop("history")
    seconds, step_seconds = record.pop("seconds"), record.pop("step_seconds")
    assert 0 < step_seconds < seconds / (3 * 15), "the first epoch, which traces, must not count"
    assert record.pop("examples_per_second") == pytest.approx(32 / step_seconds, rel=0.01)
    assert record == {
        "model": "mlp",
        "strategy": "default",
        "loop": "fit",
        "precision": "float32",
        "replicas": 1,
        "workers": 1,
        "global_batch_size": 32,
        "epochs": 3,
        "best_epoch": int(np.argmin(history["val_loss"])) + 1,
        "examples": {"train": 449, "eval": 150},
        "examples_per_worker": [3 * 15 * 32],
        "source": "memory",
        "steps": 3 * 15,
        "warm_start": None,
        "resumed_at_step": 0,
        "restarts": [],
        "notes": [],
    }
    assert {"loss", "accuracy", "auc", "val_loss", "val_accuracy", "val_auc"} < set(history)
    assert history["learning_rate"] == pytest.approx([0.01] * 3)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["mirrored", "central_storage"])
def test_exported_model_predicts_the_same_in_the_scope_of_a_strategy(
    trips: Transformed, trips_run: FnArgs, strategy: str
) -> None:
    expected = serve(trips_run, "eval", trips.evaluation)["predictions"]
    transformed = trips.transform(trips.evaluation)
    transformed.pop("tipped")
    with build_strategy(strategy_settings(strategy)).scope():
        model = tf_keras.models.load_model(trips_run.serving_model_dir)
    np.testing.assert_allclose(model.predict(transformed, verbose=0), expected, rtol=1e-4)


@pytest.mark.slow
def test_named_columns_give_the_same_predictions(trips: Transformed, trips_run: FnArgs) -> None:
    serving_raw = tf.saved_model.load(trips_run.serving_model_dir).signatures["serving_raw"]
    _, inputs = serving_raw.structured_input_signature
    assert set(inputs) == {"fare", "constant", "miles", "area", "company"}
    missing = {"miles": np.nan, "area": np.nan, "company": ""}
    columns = {
        name: tf.constant(
            [missing[name] if row[name] is None else row[name] for row in trips.evaluation],
            inputs[name].dtype,
        )
        for name in inputs
    }
    expected = serve(trips_run, "serving_default", trips.evaluation)["scores"]
    np.testing.assert_allclose(serving_raw(**columns)["scores"], expected, rtol=1e-5)
    as_matrix = {name: column[:, tf.newaxis] for name, column in columns.items()}
    np.testing.assert_allclose(serving_raw(**as_matrix)["scores"], expected, rtol=1e-5)


@pytest.mark.slow
def test_request_may_lack_a_column_that_training_always_had(
    trips: Transformed, trips_run: FnArgs
) -> None:
    rows = [row | {"fare": None} for row in trips.evaluation[:3]]
    expected = serve(trips_run, "serving_default", rows)["scores"]
    serving_raw = tf.saved_model.load(trips_run.serving_model_dir).signatures["serving_raw"]
    columns = {
        "miles": [np.nan if row["miles"] is None else row["miles"] for row in rows],
        "area": [np.nan if row["area"] is None else row["area"] for row in rows],
        "company": [row["company"] or "" for row in rows],
    }
    # Python's numbers, and NumPy's of any type, for any column of numbers.
    for ones in ([1] * 3, [1.0] * 3, np.ones(3, np.int32), np.ones(3), np.ones((3, 1), np.float16)):
        served = serving_raw(fare=ones, constant=ones, **columns)["scores"]
        alike = serving_raw(fare=[1.0] * 3, constant=[1.0] * 3, **columns)["scores"]
        np.testing.assert_array_equal(served, alike)
    constant = [row["constant"] for row in rows]
    served = serving_raw(fare=[np.nan] * 3, constant=constant, **columns)["scores"]
    np.testing.assert_allclose(served, expected, rtol=1e-5)


def test_whole_numbers_are_requested_as_float64() -> None:
    spec = {"rooms": tf.io.FixedLenFeature([1], tf.int64, MISSING_INTEGER)}
    (inputs,) = saving.raw_tensor_specs(
        spec, TrainerSettings(label="y", task="regression")
    ).values()
    assert inputs.dtype == tf.float64
    (rooms,) = saving.to_raw_features(
        {"rooms": tf.constant([3, np.nan], tf.float64)}, spec
    ).values()
    np.testing.assert_array_equal(dense_numbers(rooms), [[3], [np.nan]])
    assert dense_strings(rooms).numpy().tolist() == [[b"3"], [b""]]


@pytest.mark.slow
def test_images_are_served_as_bytes(shades: Transformed, shades_run: FnArgs) -> None:
    serving_raw = tf.saved_model.load(shades_run.serving_model_dir).signatures["serving_raw"]
    _, inputs = serving_raw.structured_input_signature
    assert inputs["image"].shape.as_list() == [None]
    images = tf.constant([row["image"] for row in shades.evaluation])
    expected = serve(shades_run, "serving_default", shades.evaluation)["scores"]
    np.testing.assert_allclose(serving_raw(image=images)["scores"], expected, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fixture", "metrics", "slices"),
    [
        ("trips", {"BinaryAccuracy": "accuracy", "AUC": "auc"}, "company"),
        ("houses", {"MeanSquaredError": "loss", "MeanAbsoluteError": "mae"}, "side"),
    ],
)
def test_tfma_agrees_with_keras(
    request: pytest.FixtureRequest, fixture: str, metrics: dict[str, str], slices: str
) -> None:
    data: Transformed = request.getfixturevalue(fixture)
    fn_args: FnArgs = request.getfixturevalue(f"{fixture}_run")
    found = analyse(data, fn_args.serving_model_dir, list(metrics), slices)
    reader = Reader(data.files("eval"), data.tft_output.transformed_feature_spec(), data.problem)
    batches = Split(reader, reader.read("eval"), 32).batches(tf.distribute.InputContext())
    model = tf_keras.models.load_model(fn_args.serving_model_dir)
    expected = model.evaluate(batches, verbose=0, return_dict=True)
    for name, keras_name in metrics.items():
        # AUC: TFMA uses more thresholds than Keras.
        tolerance = 0.01 if name == "AUC" else 1e-4
        assert found[()][name] == pytest.approx(expected[keras_name], rel=tolerance)
    values = {row[slices] or "" for row in data.evaluation} - {""}
    assert {key[0][1] for key in found if key} == values, "slices by the raw column"


def analyse(
    data: Transformed, model_path: str, metrics: list[str], slices: str
) -> dict[tuple, dict[str, float]]:
    config = text_format.Parse(
        f"""
        model_specs {{
          signature_name: "{saving.EVAL_SIGNATURE}"
          label_key: "{saving.EVAL_LABEL}"
          preprocessing_function_names: "{saving.EVAL_LABEL_SIGNATURE}"
        }}
        slicing_specs {{}}
        slicing_specs {{ feature_keys: "{slices}" }}
        metrics_specs {{ {" ".join(f'metrics {{ class_name: "{m}" }}' for m in metrics)} }}
        options {{ include_default_metrics {{ value: false }} }}
        """,
        tfma.EvalConfig(),
    )
    result = tfma.run_model_analysis(
        eval_shared_model=tfma.default_eval_shared_model(model_path, eval_config=config),
        eval_config=config,
        data_location=str(data.root / "raw" / "Split-eval" / "*"),
        output_path=f"{model_path}_tfma",
    )
    snake = {tf_keras.metrics.get(m).name if m != "AUC" else "auc": m for m in metrics}
    return {
        key: {snake[name]: value["doubleValue"] for name, value in found[""][""].items()}
        for key, found in result.slicing_metrics
    }


@pytest.mark.slow
def test_diverged_model_is_not_exported(houses: Transformed, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"in epoch"):
        train(houses, tmp_path, train={"learning_rate": 1e30})
    assert not (tmp_path / "Format-Serving").exists()


def test_inputs_have_names_that_tensorflow_accepts() -> None:
    columns = ["class", "is", "fare", "Price (€)", "1st"]
    spec = {name: tf.io.FixedLenFeature([1], tf.float32) for name in columns}
    inputs = saving.raw_tensor_specs(spec, TrainerSettings(label="y", task="regression"))
    assert list(inputs) == ["column_class", "column_is", "fare", "Price____", "column_1st"]
    function = tf.function(lambda given: dict(given), autograph=False, input_signature=[inputs])
    given = {name: tf.constant([1.0]) for name in inputs}
    assert list(function.get_concrete_function()(**given)) == list(inputs)
