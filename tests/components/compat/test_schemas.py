"""Who reads the same schema again gets it without another parse, and a copy of their own."""

from __future__ import annotations

from pathlib import Path

import pytest
from google.protobuf import text_format
from tfx.utils import io_utils

from components.compat.tfx import remember_schemas


def test_a_schema_is_parsed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(io_utils.SchemaReader, "read", io_utils.SchemaReader.read)
    remember_schemas()
    remember_schemas()
    file = tmp_path / "schema.pbtxt"
    file.write_text(f'feature {{ name: "{tmp_path}" type: FLOAT }}')
    parse, parsed = text_format.Parse, []
    monkeypatch.setattr(text_format, "Parse", lambda *a: parsed.append(a) or parse(*a))
    first = io_utils.SchemaReader().read(str(file))
    assert first.feature[0].name == str(tmp_path)
    first.feature[0].name = "mine"
    assert io_utils.SchemaReader().read(str(file)).feature[0].name == str(tmp_path)
    assert len(parsed) == 1
    file.write_text('feature { name: "other" }')
    assert io_utils.SchemaReader().read(str(file)).feature[0].name == "other"
    assert len(parsed) == 2


def test_a_file_that_is_no_schema_is_an_error(tmp_path: Path) -> None:
    remember_schemas()
    file = tmp_path / "schema.pbtxt"
    file.write_text("feature {")
    with pytest.raises(text_format.ParseError):
        io_utils.SchemaReader().read(str(file))
