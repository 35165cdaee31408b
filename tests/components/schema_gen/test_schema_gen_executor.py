"""SchemaGen's executor where a column becomes names after the schema was inferred."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
import tensorflow as tf
import tensorflow_data_validation as tfdv
from PIL import Image
from tensorflow_metadata.proto.v0 import schema_pb2
from tfx.types import artifact_utils, standard_artifacts

from components.column_types.choice import read_choices
from components.schema_gen.component import Executor
from components.schema_gen.files import keep_schema, schema_revision
from components.schema_gen.inference import infer_schema
from trainer_module.errors import DataError
from trainer_module.settings import Task

Run = Callable[..., dict[str, int]]


def statistics_of(**columns: list):
    return tfdv.generate_statistics_from_dataframe(pd.DataFrame(columns))


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """The schema of a first day, when `day` and `size` were quantities."""
    first = statistics_of(day=[2.0, 3.0], size=[1.5, 2.5], label=[0, 1])
    path = tmp_path / "schema.pbtxt"
    keep_schema(str(path), infer_schema([first], "label", Task.BINARY, []))
    return path


@pytest.fixture
def generate(tmp_path: Path, kept: Path) -> Run:
    """Runs the executor on later data; returns the types of the columns in the schema it gives."""

    def run(names: list[str], curated: str = "") -> dict[str, int]:
        statistics, schema = standard_artifacts.ExampleStatistics(), standard_artifacts.Schema()
        statistics.uri, schema.uri = str(tmp_path / "statistics"), str(tmp_path)
        statistics.split_names = artifact_utils.encode_split_names(["train"])
        Path(statistics.uri, "Split-train").mkdir(parents=True)
        later = statistics_of(day=[20230101, 20230102], size=[1.5, 2.5], label=[0, 1])
        Path(statistics.uri, "Split-train/FeatureStats.pb").write_bytes(later.SerializeToString())
        Path(schema.uri, "schema").mkdir()
        schema.uri += "/schema"
        properties = {"curated": curated, "kept": str(kept), "label": "label", "task": "binary"}
        properties |= {"images": "[]", "aside": "", "names": json.dumps(names), "unsized": "[]"}
        Executor().Do({"statistics": [statistics]}, {"schema": [schema]}, properties)
        given = tfdv.load_schema_text(str(Path(schema.uri, "schema.pbtxt")))
        return {feature.name: feature.type for feature in given.feature}

    return run


def test_an_inferred_schema_follows_what_the_config_says_later(kept: Path, generate: Run) -> None:
    types = generate(["day", "size", "label"])
    assert types == {"day": schema_pb2.INT, "size": schema_pb2.FLOAT, "label": schema_pb2.INT}
    assert tfdv.get_feature(tfdv.load_schema_text(str(kept)), "day").type == schema_pb2.INT
    assert schema_revision(None, str(kept)) == ""


def test_another_type_of_a_quantity_is_an_anomaly_as_ever(generate: Run) -> None:
    assert generate(["label"])["day"] == schema_pb2.FLOAT


@pytest.mark.parametrize("is_curated", [True, False])
def test_what_a_user_wrote_is_not_changed_but_said(
    is_curated: bool, kept: Path, generate: Run
) -> None:
    kept.write_text(kept.read_text() + "# mine\n")
    said = r"schema\.pbtxt: column 'day' is `type: FLOAT`.*write `type: INT` there\.$"
    with pytest.raises(DataError, match=said):
        generate(["day", "size"], curated=str(kept) if is_curated else "")
    assert kept.read_text().endswith("# mine\n")


def test_the_size_of_pictures_is_kept_with_the_schema(tmp_path: Path) -> None:
    pictures = []
    for width in (8, 9, 9):
        written = io.BytesIO()
        Image.new("L", (width, 7)).save(written, "PNG")
        pictures.append(written.getvalue())
    kept = tmp_path / "schema.pbtxt"

    def size_of(*pictures: bytes, aside: str, day: str) -> dict[str, object]:
        statistics, examples = standard_artifacts.ExampleStatistics(), standard_artifacts.Examples()
        schema = standard_artifacts.Schema()
        for artifact in (statistics, examples, schema):
            artifact.uri = str(tmp_path / day / artifact.type_name)
            Path(artifact.uri, "Split-train").mkdir(parents=True)
        for artifact in (statistics, examples):
            artifact.split_names = artifact_utils.encode_split_names(["train"])
        found = statistics_of(photo=list(pictures), label=[0] * len(pictures))
        Path(statistics.uri, "Split-train/FeatureStats.pb").write_bytes(found.SerializeToString())
        file = f"{examples.uri}/Split-train/data_tfrecord-00000-of-00001.gz"
        with tf.io.TFRecordWriter(file, "GZIP") as writer:
            for picture in pictures:
                example = tf.train.Example()
                example.features.feature["photo"].bytes_list.value.append(picture)
                writer.write(example.SerializeToString())
        properties = {"curated": "", "kept": str(kept), "label": "label", "task": "binary"}
        properties |= {"images": '["photo"]', "aside": aside, "names": "[]"}
        inputs = {"statistics": [statistics], "examples": [examples]}
        Executor().Do(inputs, {"schema": [schema]}, {**properties, "unsized": '["photo"]'})
        return read_choices(tfdv.load_schema_text(f"{schema.uri}/schema.pbtxt"))["photo"].settings

    size = {"type": "image", "height": 7, "width": 9, "channels": 1}
    assert size_of(*pictures, aside='["label"]', day="first") == size
    # Later data is resized as the first, also where a function of the user's makes the features.
    assert size_of(pictures[0], aside="", day="second") == size
    kept.unlink()
    assert size_of(pictures[0], aside='["label"]', day="third") == {**size, "width": 8}
    kept.unlink()
    with pytest.raises(DataError, match=r"Column 'photo' holds no picture.*give one, such as"):
        size_of(b"text", aside='["label"]', day="fourth")
