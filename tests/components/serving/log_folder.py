"""What a request log leaves in its folder."""

from __future__ import annotations

from pathlib import Path


def written(folder: Path) -> list[Path]:
    """Its whole files, in the order of their times."""
    return sorted(folder.glob("*/*.parquet"))
