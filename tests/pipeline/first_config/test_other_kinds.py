"""Files of kinds that no format reads end in a sentence, whose command makes a table of them."""

from __future__ import annotations

import io
import json
import re
import shlex
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from pipeline.first_config.finding import find_data
from pipeline.first_config.proposing import propose
from tests.support.some_data import flowers, picture, text, written
from trainer_module.errors import DataError

FLOWERS = flowers()
COLUMNS = {name: [row[name] for row in FLOWERS] for name in FLOWERS[0]}


def archive(name: str) -> bytes:
    """A zip archive with one file."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as opened:
        opened.writestr(name, "text")
    return stream.getvalue()


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.xlsx", archive("xl/book.xml"), "is an Excel workbook"),
        ("a.zip", archive("rows.csv"), "`unzip a"),
        ("a.csv", b"\x1f\x8b\x08" + bytes(99), "rename it by `mv a.csv a.csv.gz`"),
        ("a.csv", "\n\n <!DOCTYPE html>\n<p>gone</p>", "is an HTML page, which cannot be read"),
        ("a.json", json.dumps(FLOWERS), "`jq -c '.[]' a.json > rows.jsonl`"),
    ],
)
def test_unreadable_file_is_refused(
    name: str,
    content: str | bytes,
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path, {name: content})
    assert words in refusal(name)


@pytest.mark.parametrize(
    ("path", "words"),
    [
        (
            "https://example.com/a.csv",
            "`curl -LO https://example.com/a",
        ),
        ("/dev/stdin", "is a pipe or a device"),
    ],
)
def test_remote_path_or_device_is_refused(path: str, words: str) -> None:
    assert words in refusal(path)


def refusal(path: str) -> str:
    with pytest.raises(DataError) as raised:
        find_data(path)
    assert str(raised.value).isprintable()
    return str(raised.value)


def texts(*folders: str) -> Callable[[str], object]:
    files = {
        f"{f}/{c}/{n}.txt": f"On {c} {n}, new" for f in folders for c in "ab" for n in range(9)
    }
    return lambda path: written(Path(), {f"{path}{name}": line for name, line in files.items()})


def ids(path: str) -> None:
    """Writes a table whose identifiers are the names of pictures without the ending."""
    names = [f"{n:04}" for n in range(24)]
    pictures: dict[str, Any] = {f"{path}/all/{n}.png": picture(int(n)) for n in names}
    table = text([{"id": n, "breed": "ab"[int(n) % 2]} for n in names])
    written(Path(), pictures | {f"{path}/labels.csv": table})


@pytest.mark.parametrize(
    ("name", "write", "table", "label"),
    [
        ("a.feather", lambda path: pd.DataFrame(COLUMNS).to_feather(path), "a.parquet", "species"),
        ("a.json", lambda path: pd.DataFrame(COLUMNS).to_json(path), "a.csv", "species"),
        ("news", texts(""), "texts.csv", "label"),
        ("dogs", ids, "dogs/pictures.csv", "breed"),
    ],
)
def test_suggested_command_makes_a_table(
    name: str,
    write: Callable[[str], object],
    table: str,
    label: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    write(name)
    *_, command = re.findall(r"`(python -c .+?)`", refusal(name))
    program, option, code = shlex.split(command)
    assert (program, option) == ("python", "-c")
    exec(compile(code, name, "exec"), {})  # noqa: S102 - the command of the message
    assert propose(table, None, lambda candidates: candidates[0]).config["data"]["label"] == label


def test_tables_beside_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pictures = {f"shop/{n}.png": picture(n) for n in range(4)}
    written(tmp_path, {"shop/rows.csv": text(FLOWERS), **pictures})
    assert "name the table alone by shop/rows.csv" in refusal("shop")
    names = [{"photo": f"{n}.png", "kind": "ab"[n % 2]} for n in range(6)]
    written(tmp_path, {"shop/rows.csv": text(names)})
    assert "names '4.png'" in refusal("shop")
    masks = {f"seg/{kind}/{n}.png": picture(n) for kind in ("images", "masks") for n in range(4)}
    written(tmp_path, masks)
    assert "no classes" in refusal("seg")
