"""A new data format is a source and one line in `FORMATS`."""

from __future__ import annotations

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


def test_config_accepts_a_registered_format(pairs: Path) -> None:
    overrides = [f"data.path={pairs}", "data.format=pairs"]
    assert load_config(CONFIG, overrides).data.format == "pairs"
    with pytest.raises(ConfigError, match="`pairs`"):
        load_config(CONFIG, [f"data.path={pairs}", "data.format=pears"])


def test_example_gen_reads_a_registered_format(pairs: Path, generate) -> None:
    base, pattern = resolve_input(str(pairs), "pairs")
    assert posixpath.join(base, pattern) == f"{pairs}/*.pairs"
    splits = generate(pairs, "pairs", pattern=pattern, whole_columns=("size",))
    features = [e.features.feature for examples in splits.values() for e in examples]
    sizes = {f["size"].int64_list.value[0]: f["label"].bytes_list.value[0] for f in features}
    assert sizes == {n: b"odd" if n % 2 else b"even" for n in range(60)}
