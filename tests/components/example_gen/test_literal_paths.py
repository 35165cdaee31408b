"""Wildcards in the names of files and folders that exist are no globs."""

from __future__ import annotations

import glob
from pathlib import Path

import pytest

from components.example_gen.paths import check_files_exist, resolve_input
from pipeline.layout import Layout
from pipeline.lock import make_root
from trainer_module.errors import ConfigError


@pytest.mark.parametrize("path", ["sales [2026].csv", "in [x]/t?.csv", "a*b/c/d.csv"])
def test_a_file_that_exists_is_read_whatever_its_name(tmp_path: Path, path: str) -> None:
    file = tmp_path / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("x\n1\n")
    (file.parent / "sales 2.csv").write_text("x\n1\n")
    base, pattern = resolve_input(str(file), "csv")
    check_files_exist(base, pattern)
    assert [*Path(base).glob(pattern)] == [file]


def test_a_folder_that_exists_is_read_whatever_its_name(tmp_path: Path) -> None:
    folder = tmp_path / "days [old]"
    folder.mkdir()
    (folder / "a.csv").write_text("x\n1\n")
    base, pattern = resolve_input(str(folder), "csv")
    assert base == str(folder)
    check_files_exist(base, pattern)


def test_a_glob_of_the_config_is_one(tmp_path: Path) -> None:
    for name in ("a1", "a2", "b1"):
        (tmp_path / f"{name}.csv").write_text("x\n1\n")
    base, pattern = resolve_input(f"{tmp_path}/a[12].csv", "csv")
    assert sorted(path.name for path in Path(base).glob(pattern)) == ["a1.csv", "a2.csv"]


def test_rows_below_a_folder_with_wildcards_are_read(tmp_path: Path, generate) -> None:
    folder = tmp_path / "data [1]"
    folder.mkdir()
    lines = [f"{number},{number % 2}" for number in range(40)]
    (folder / "a.csv").write_text("\n".join(["x,label", *lines]) + "\n")
    assert sum(map(len, generate(folder).values())) == 40
    assert glob.escape(str(folder)) != str(folder)


def test_an_output_folder_with_wildcards_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"\[1\]"):
        make_root(Layout(tmp_path / "out [1]", "name"))
    assert not (tmp_path / "out [1]").exists()


def test_changed_files_below_a_folder_with_wildcards_are_new_input(tmp_path: Path) -> None:
    from tfx.proto import example_gen_pb2

    from components.example_gen.component import Driver

    folder = tmp_path / "data [1]"
    folder.mkdir()
    split = example_gen_pb2.Input.Split(name="all", pattern="*.csv")
    fingerprints = []
    for text in ("x\n1\n", "x\n1\n2\n"):
        (folder / "a.csv").write_text(text)
        processor = Driver(None).get_input_processor([split], None, str(folder))
        span, version = processor.resolve_span_and_version()
        fingerprints.append(processor.get_input_fingerprint(span, version))
    assert fingerprints[0] != fingerprints[1]
    assert "num_files:1" in fingerprints[0]


def test_spans_below_a_folder_with_wildcards_are_found(tmp_path: Path) -> None:
    from pipeline.config.sections.data import DataSettings
    from pipeline.data.files import locate_data
    from pipeline.data.spans import list_spans

    path = f"{tmp_path}/data [1]/{{SPAN}}/*.csv"
    data = DataSettings.model_validate({"format": "csv", "path": path, "label": "y"})
    for number in (1, 2):
        (folder := tmp_path / "data [1]" / str(number)).mkdir(parents=True)
        (folder / "a.csv").write_text("x,y\n1,2\n")
    location = locate_data(data, Layout(tmp_path / "output", "name"))
    assert [span.number for span in list_spans(data, location)] == [1, 2]
