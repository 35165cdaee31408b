"""SavedModels of a known formula, and examples, as the Evaluator finds them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import tensorflow as tf
from tensorflow_metadata.proto.v0 import schema_pb2

from components.evaluator.dependence import INDEPENDENT, Dependence
from components.evaluator.explanation.explain import explain
from components.evaluator.explanation.record import Explanation, WorstExamples
from components.tfrecords import open_writer, write_all
from trainer_module.export.interface import INTERFACE_FILE, ModelInput, ModelInterface, RawColumn
from trainer_module.export.saving import (
    EVAL_LABEL,
    EVAL_LABEL_SIGNATURE,
    FROM_TRANSFORMED_SIGNATURE,
    SERVING_RAW_TRANSFORM_SIGNATURE,
)

Formula = Callable[[Mapping[str, tf.Tensor]], tf.Tensor]
PICTURE = (8, 8, 1)
_TYPES = {"string": schema_pb2.BYTES, "float32": schema_pb2.FLOAT, "int64": schema_pb2.INT}


class Evaluated:
    """A folder with a model of some columns, and a file with rows.

    A column whose name begins with `picture` is transformed to its pixels.
    """

    def __init__(
        self,
        folder: Path,
        formula: Formula,
        columns: Mapping[str, str],
        task: str = "binary",
        classes: tuple[str, ...] = ("no", "yes"),
        weight: str | None = None,
    ) -> None:
        self.folder, self.files = str(folder / "model"), [str(folder / "rows.gz")]
        self._label = "int64" if classes else "float32"
        self.columns = dict(columns)
        features = [
            ModelInput(n, n, d, PICTURE) if n.startswith("picture") else ModelInput(n, n, d, ())
            for n, d in columns.items()
        ]
        self.interface = ModelInterface(
            tuple(
                RawColumn(n, n, d, d == "int64", 1, "bytes" if n.startswith("picture") else "")
                for n, d in columns.items()
            ),
            "label",
            task=task,
            weight=weight,
            classes=classes,
            features=tuple(features),
        )
        self._save(formula)

    def _save(self, formula: Formula) -> None:
        raw = {name: tf.TensorSpec([None], dtype, name) for name, dtype in self.columns.items()}
        inputs = {
            n: tf.TensorSpec([None, *PICTURE], tf.float32, n) if n.startswith("picture") else spec
            for n, spec in raw.items()
        }
        shape = tf.io.FixedLenFeature([1], self._label)

        @tf.function(input_signature=[raw])
        def transform(columns: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
            return {name: _transform(name, value) for name, value in columns.items()}

        @tf.function(input_signature=[inputs])
        def predict(features: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
            return {"predictions": formula(features)}

        @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "examples")])
        def label(examples: tf.Tensor) -> dict[str, tf.Tensor]:
            return {EVAL_LABEL: tf.io.parse_example(examples, {"label": shape})["label"]}

        signatures = {
            SERVING_RAW_TRANSFORM_SIGNATURE: transform,
            FROM_TRANSFORMED_SIGNATURE: predict,
            EVAL_LABEL_SIGNATURE: label,
        }
        tf.saved_model.save(tf.Module(), self.folder, signatures)
        file = Path(self.folder, INTERFACE_FILE)
        file.parent.mkdir(parents=True)
        file.write_text(self.interface.to_json())

    @property
    def schema(self) -> schema_pb2.Schema:
        """The schema of all columns, and of a weight and a group."""
        types = self.columns | {"label": self._label, "weight": "float32", "group": "int64"}
        return schema_pb2.Schema(
            feature=[schema_pb2.Feature(name=n, type=_TYPES[d]) for n, d in types.items()]
        )

    def explain(
        self, rows: Mapping[str, np.ndarray], dependence: Dependence = INDEPENDENT
    ) -> tuple[Explanation, WorstExamples]:
        """Explains the model on rows; NaN and empty strings are missing values."""
        write_rows(self.files[0], rows)
        found = explain(self.files, self.folder, self.interface, self.schema, dependence)
        assert found is not None
        return found


def _transform(name: str, value: tf.Tensor) -> tf.Tensor:
    if not name.startswith("picture"):
        return value
    decode = lambda one: tf.cast(tf.io.decode_png(one, 1), tf.float32) / 255  # noqa: E731
    return tf.ensure_shape(tf.map_fn(decode, value, tf.float32), [None, *PICTURE])


def write_rows(file: str, rows: Mapping[str, np.ndarray]) -> None:
    """Writes rows as gzipped TFRecords."""
    examples = []
    for values in zip(*(column.tolist() for column in rows.values()), strict=True):
        example = tf.train.Example()
        for name, value in zip(rows, values, strict=True):
            feature = example.features.feature[name]
            if isinstance(value, bytes):
                feature.bytes_list.value.extend([value] if value else [])
            elif isinstance(value, int):
                feature.int64_list.value.append(value)
            elif not np.isnan(value):
                feature.float_list.value.append(value)
        examples.append(example.SerializeToString())
    with open_writer(file) as writer:
        write_all(writer, examples)
