"""Compares the cost and the accuracy of each variant with the SavedModel: `make bench-optimize`.

The benchmark runs pipelines, or reuses the runs of an earlier call with `--output`. It creates all
variants of each pushed model, evaluates them on the whole eval split, and times each in a separate
process. The SavedModel is timed through its signature in a process with TensorFlow. Ratios of bytes
refer to the float32 weights of the network.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf
import tensorflow_transform as tft
import yaml
from sklearn.metrics import accuracy_score, roc_auc_score

from components.optimizer.converting.conversion import KINDS, convert_in_child
from components.optimizer.converting.exported import Arrays, NumericModel, load_numeric_model
from components.optimizer.making import MAX_SAMPLE_ROWS
from trainer_module.errors import ScopelineError
from trainer_module.export.variants.measuring import (
    load_sample,
    measure,
    measure_in_process,
    save_sample,
)
from trainer_module.export.variants.running import open_variant

ROOT = Path(__file__).parents[1]
SAMPLE = MAX_SAMPLE_ROWS
"""The number of train examples for the calibration of variants."""
RESNET: dict[str, Any] = {
    "name": "resnet50",
    "data": {"format": "images", "path": "builtin:digits", "splits": {"train": 8, "eval": 2}},
    "task": "multiclass",
    "features": {"image": {"type": "image", "height": 64, "width": 64, "channels": 3}},
    "model": {"kind": "resnet50"},
    "train": {
        "epochs": 4,
        "batch_size": 32,
        "learning_rate": {"schedule": "cosine", "initial": 0.001},
    },
    "evaluate": {"metrics": ["accuracy", "log_loss"], "thresholds": {"accuracy": {"min": 0.5}}},
}
"""The config of a network of 23 million weights for pictures of 64x64 pixels, the
shipped digits.
"""
PRUNED = "_pruned"
"""The suffix of the pipelines whose network is pruned to 80 % zeros."""
MNIST = ROOT.parent / "shared/data/mnist"
"""The default folder of MNIST's files."""
PIPELINES = ("digits", "mnist", f"digits{PRUNED}", f"mnist{PRUNED}", "taxi", "reviews", "resnet50")


@dataclass
class Line:
    """The measurements of a variant, which are a line of the table."""

    pipeline: str
    variant: str
    bytes: int = 0
    bytes_ratio: float = 0.0
    gzipped_ratio: float = 0.0
    accuracy: float = 0.0
    auc: float | None = None
    max_difference: float = 0.0
    """The maximum difference from a score of the SavedModel on the eval split."""
    failure: str = ""
    figures: dict[str, Any] = field(default_factory=dict)
    speedup: float = 0.0
    """The speed relative to the SavedModel's signature, for batches of one row."""


@dataclass(frozen=True)
class TrainedModel:
    """A pushed model, and the transformed examples of its pipeline."""

    saved_model: Path
    train: Arrays
    evaluation: Arrays
    labels: np.ndarray
    """The labels of the eval split, [rows]."""


def train(name: str, output: Path, mnist: Path) -> Path:
    """Runs a pipeline unless its output exists; returns the output folder."""
    folder = output / name
    if list(folder.glob(f"{name}/serving/{name}/*/saved_model.pb")):
        return folder
    base = name.removesuffix(PRUNED)
    content = RESNET if name == "resnet50" else None
    if content is None:
        content = yaml.safe_load((ROOT / "configs" / f"{base}.yaml").read_text())
    if base == "mnist":
        content["data"]["path"] = str(mnist)
    if name != base:
        content |= {"name": name, "optimize": {"prune": {"sparsity": 0.8}}}
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "config.yaml"
    config.write_text(yaml.safe_dump(content))
    command = [sys.executable, str(ROOT / "local_runner.py"), "run", "--config", str(config)]
    subprocess.run([*command, "--output", str(folder)], check=True)
    return folder


def read_trained(folder: Path) -> TrainedModel:
    """Returns the model and the examples of a pipeline's latest run."""
    name = folder.name
    saved_model = _latest(folder.glob(f"{name}/serving/{name}/*/saved_model.pb")).parent
    transform = folder / name / "pipeline_root" / "Transform"
    graph = tft.TFTransformOutput(str(_latest(transform.glob("transform_graph/*"))))
    examples = _latest(transform.glob("transformed_examples/*"))
    spec = graph.transformed_feature_spec()
    features, label = load_numeric_model(saved_model).interface.features, _label(saved_model)

    def read(split: str, max_rows: int | None) -> Arrays:
        files = sorted(map(str, examples.glob(f"Split-{split}/*.gz")))
        records = list(
            tf.data.TFRecordDataset(files, "GZIP").take(max_rows or -1).as_numpy_iterator()
        )
        return {n: v.numpy() for n, v in tf.io.parse_example(records, spec).items()}

    evaluation, sample = read("eval", None), read("train", SAMPLE)
    names = [feature.name for feature in features]
    return TrainedModel(
        saved_model,
        {name: sample[name] for name in names},
        {name: evaluation[name] for name in names},
        evaluation[label].ravel(),
    )


def _label(saved_model: Path) -> str:
    from trainer_module.export.interface import read_interface

    return read_interface(saved_model).label


def _latest(paths: Iterable[Path]) -> Path:
    return max(paths, key=lambda path: path.stat().st_mtime)


def predict_all(model: NumericModel, features: Arrays) -> Arrays:
    """Returns TensorFlow's predictions for many rows, in batches."""
    rows = len(next(iter(features.values())))
    parts = [
        model.predict({name: values[begin : begin + 256] for name, values in features.items()})
        for begin in range(0, rows, 256)
    ]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def score(line: Line, scores: np.ndarray, expected: np.ndarray, labels: np.ndarray) -> None:
    """Sets the accuracy and AUC of scores, and their maximum difference from the SavedModel's
    scores.

    Args:
      line: the line to change.
      scores: the scores of the variant, [rows, classes].
      expected: the scores of the SavedModel, [rows, classes].
      labels: the labels, [rows].
    """
    line.accuracy = float(accuracy_score(labels, scores.argmax(1)))
    if scores.shape[1] == 2:
        line.auc = float(roc_auc_score(labels, scores[:, 1]))
    line.max_difference = float(np.abs(scores - expected).max())


def compare(name: str, trained: TrainedModel, variants: list[str], scratch: Path) -> list[Line]:
    """Returns the measurements of the SavedModel and of each variant, in this order."""
    model = load_numeric_model(trained.saved_model)
    weights = sum(v.dtype.size * v.shape.num_elements() for v in model.function.variables)
    expected = predict_all(model, trained.evaluation)["scores"]
    sample = scratch / "sample.npz"
    save_sample({n: v[:32] for n, v in trained.evaluation.items()}, sample)
    first = Line(name, "SavedModel", weights, 1.0)
    score(first, expected, expected, trained.labels)
    first.figures = _measure_saved_model(trained.saved_model, sample)
    lines = [first]
    for variant in variants:
        line = Line(name, variant)
        lines.append(line)
        try:
            variant_file = convert_in_child(
                variant, trained.saved_model, trained.train, scratch / variant
            )
            line.figures = measure_in_process(scratch / variant, sample)
        except ScopelineError as error:
            line.failure = str(error)
            continue
        line.bytes, line.bytes_ratio = variant_file.bytes, variant_file.bytes / weights
        line.gzipped_ratio = variant_file.gzipped_bytes / weights
        line.speedup = first.figures["p50_ms_batch_1"] / line.figures["p50_ms_batch_1"]
        outputs = open_variant(scratch / variant).predict(trained.evaluation)
        score(line, outputs["scores"], expected, trained.labels)
    return lines


def _measure_saved_model(saved_model: Path, sample: Path) -> dict[str, Any]:
    """Returns the measurements of `--time-saved-model`, which runs in a separate process."""
    command = [sys.executable, "-m", "benchmarks.optimize", "--time-saved-model"]
    done = subprocess.run(
        [*command, str(saved_model), str(sample)], check=True, capture_output=True, text=True
    )
    return dict(json.loads(done.stdout.splitlines()[-1]))


def time_saved_model(saved_model: Path, sample: Path) -> None:
    """Prints the measurements of the signature `from_transformed`."""
    model = load_numeric_model(saved_model)
    requests = {feature.name: feature.request for feature in model.interface.features}

    def predict(features: Arrays) -> dict[str, Any]:
        tensors = {requests[name]: tf.constant(values) for name, values in features.items()}
        return {name: value.numpy() for name, value in model.function(**tensors).items()}

    print(json.dumps(measure(predict, load_sample(sample))))


COLUMNS = (
    ("pipeline", lambda line: line.pipeline),
    ("variant", lambda line: line.variant),
    ("bytes", lambda line: f"{line.bytes:,}"),
    ("ratio", lambda line: f"{line.bytes_ratio:.3f}"),
    ("gzipped", lambda line: f"{line.gzipped_ratio:.3f}" if line.gzipped_ratio else ""),
    ("accuracy", lambda line: f"{line.accuracy:.4f}"),
    ("AUC", lambda line: "" if line.auc is None else f"{line.auc:.4f}"),
    ("largest difference", lambda line: f"{line.max_difference:.1g}"),
    ("p50 ms", lambda line: f"{line.figures['p50_ms_batch_1']:.3f}"),
    ("p99 ms", lambda line: f"{line.figures['p99_ms_batch_1']:.3f}"),
    ("speedup", lambda line: f"{line.speedup:.1f}" if line.speedup else ""),
    ("rows/s at 32", lambda line: f"{line.figures['rows_per_second_batch_32']:,.0f}"),
    ("MB", lambda line: f"{line.figures['peak_memory_bytes'] / 1e6:.0f}"),
)


def as_markdown(lines: list[Line]) -> str:
    """Returns the lines as a Markdown table."""
    rows = [[title for title, _ in COLUMNS], ["---"] * len(COLUMNS)]
    rows += [
        [line.pipeline, line.variant, line.failure]
        if line.failure
        else [show(line) for _, show in COLUMNS]
        for line in lines
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def main() -> None:
    """Prints the table, and writes the files that the options specify."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pipelines", nargs="+", choices=PIPELINES, default=list(PIPELINES))
    parser.add_argument("--variants", nargs="+", choices=list(KINDS), default=list(KINDS))
    parser.add_argument("--output", type=Path, help="the folder of new or finished runs")
    parser.add_argument("--mnist", type=Path, default=MNIST, help="the folder of MNIST's files")
    parser.add_argument("--json", type=Path, help="the file to write as JSON")
    parser.add_argument("--markdown", type=Path, help="the file to write as Markdown")
    parser.add_argument("--time-saved-model", nargs=2, type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.time_saved_model:
        time_saved_model(*options.time_saved_model)
        return
    lines = []
    with tempfile.TemporaryDirectory(prefix="scopeline-") as temporary:
        output = options.output or Path(temporary, "output")
        for name in options.pipelines:
            if name.startswith("mnist") and not options.mnist.is_dir():
                print(f"{name} is skipped: {options.mnist} does not exist; give --mnist FOLDER")
                continue
            trained = read_trained(train(name, output, options.mnist))
            scratch = Path(temporary, name)
            scratch.mkdir(exist_ok=True)
            lines += compare(name, trained, options.variants, scratch)
            print(as_markdown([line for line in lines if line.pipeline == name]), flush=True)
            if options.json:
                options.json.write_text(json.dumps([asdict(line) for line in lines], indent=2))
            if options.markdown:
                options.markdown.write_text(as_markdown(lines) + "\n")


if __name__ == "__main__":
    main()
