"""A new data format is a source and one line in `FORMATS`: everything else follows from it."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from components.example_gen.columns.encoded import Cell, ColumnKind
from components.example_gen.columns.type_inference import ColumnSurvey, encode_text, survey_text
from components.example_gen.formats import FORMATS, FormatSpec
from components.example_gen.paths import resolve_input
from components.example_gen.sources.base import Batch, Files, Source, Survey
from pipeline.config.json_schema import config_schema
from pipeline.config.loading import load_config
from trainer_module.errors import ConfigError

CONFIG = Path(__file__).parents[3] / "configs" / "taxi.yaml"


class PairsSource(Source):
    """Reads lines of a size and a label."""

    def _columns(self, file: str) -> dict[str, pa.Array]:
        pairs = [line.split() for line in Path(file).read_bytes().splitlines()]
        values = zip(*pairs, strict=True)
        return dict(zip(["size", self._settings.label], map(pa.array, values), strict=True))

    def survey(self, files: Files) -> Survey:
        """Types by value."""
        found = {
            name: ColumnSurvey().merge(survey_text(values, files[0], 1, ColumnKind.UNKNOWN))
            for name, values in self._columns(files[0]).items()
        }
        return Survey(files[0], found)

    def read(self, files: Files, kinds: dict[str, ColumnKind]) -> Iterator[Batch]:
        """All lines at once."""
        columns = {n: encode_text(v, kinds[n]) for n, v in self._columns(files[0]).items()}
        yield Batch(pa.record_batch(list(columns.values()), list(columns)), Cell(files[0], 1))


@pytest.fixture
def pairs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder of files of the format `pairs`, which is registered."""
    spec = FormatSpec(f"{__name__}.PairsSource", "*.pairs", guesses_types=True)
    monkeypatch.setitem(FORMATS, "pairs", spec)
    lines = [f"{number} {'odd' if number % 2 else 'even'}" for number in range(60)]
    (tmp_path / "a.pairs").write_text("\n".join(lines[:30]))
    (tmp_path / "b.pairs").write_text("\n".join(lines[30:]))
    (tmp_path / "notes.txt").write_text("no data")
    return tmp_path


def test_config_takes_the_format(pairs: Path) -> None:
    overrides = [f"data.path={pairs}", "data.format=pairs"]
    assert load_config(CONFIG, overrides).data.format == "pairs"
    schema = json.loads(config_schema())
    assert schema["$defs"]["DataFormat"]["enum"] == list(FORMATS)
    with pytest.raises(ConfigError, match=r"expected one of .*, pairs; did you mean `pairs`\?"):
        load_config(CONFIG, [f"data.path={pairs}", "data.format=pears"])


def test_config_refuses_what_is_not_registered() -> None:
    with pytest.raises(
        ConfigError,
        match=r"expected one of csv, jsonl, parquet, images, idx, tfrecord, environment$",
    ):
        load_config(CONFIG, ["data.format=pairs"])


def test_example_gen_reads_the_format(pairs: Path, generate) -> None:
    base, pattern = resolve_input(str(pairs), "pairs")
    assert posixpath.join(base, pattern) == f"{pairs}/*.pairs"
    splits = generate(pairs, "pairs", pattern=pattern, whole_columns=("size",))
    features = [e.features.feature for examples in splits.values() for e in examples]
    sizes = {f["size"].int64_list.value[0]: f["label"].bytes_list.value[0] for f in features}
    assert sizes == {n: b"odd" if n % 2 else b"even" for n in range(60)}


def test_the_schema_keeps_types_that_are_guessed(pairs: Path, read_rows) -> None:
    schema = pairs / "schema.pbtxt"
    schema.write_text('feature { name: "size" type: FLOAT }')
    rows = read_rows(pairs, "pairs", pattern="*.pairs", schema_file=str(schema))
    assert all(isinstance(row["size"][0], float) for row in rows)


def test_rules_of_images_follow(pairs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FORMATS, "pairs", FormatSpec("", holds_images=True))
    overrides = [f"data.path={pairs}", "data.format=pairs", "task=regression", "evaluate={}"]
    with pytest.raises(ConfigError) as caught:
        load_config(CONFIG, overrides)
    assert "task: found 'regression', but the labels of pairs data are" in str(caught.value)
    assert ("features.image: pairs data consists of pictures; remove `features`") in str(
        caught.value
    )
