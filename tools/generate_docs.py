"""Writes the generated documentation: the references of the config and the Python API."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from pipeline.config.json_schema import config_schema  # noqa: E402
from pipeline.config.reference import config_reference  # noqa: E402
from tools.api_reference import api_reference  # noqa: E402

PAGES = {
    "docs/api.md": api_reference,
    "docs/config.md": config_reference,
    "configs/config.schema.json": config_schema,
}

if __name__ == "__main__":
    for name, make in PAGES.items():
        (ROOT / name).write_text(make())
        print(f"written to {name}")
