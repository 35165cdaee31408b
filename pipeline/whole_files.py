"""Files that readers see whole: as they were before, or as they are now."""

from __future__ import annotations

from pathlib import Path


def write_whole(path: Path, content: str | bytes) -> None:
    """Writes a file, in the place of an earlier one, by a rename at the end.

    Raises:
      OSError: it cannot be written; an earlier one is as it was.
    """
    scratch = path.with_name(f".{path.name}.tmp")
    scratch.write_bytes(content.encode() if isinstance(content, str) else content)
    scratch.replace(path)
