"""Which docstrings and sentences the lint for plain words finds, and which it leaves alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.plain_words import check_code, check_page


@pytest.mark.parametrize(
    ("code", "lines"),
    [
        ('"""The parts of a request."""', []),
        ('"""What a request holds, by part."""', [1]),
        ('"""Parts of it."""', [1]),
        ('def size():\n    """Returns the number of rows."""', []),
        ('def size():\n    """The number of all rows."""', [1]),
        ('def size():\n    """Whether there are rows."""', [1]),
        ('def size():\n    """Of the rows of a file."""', [1]),
        ('class A:\n    @property\n    def size(self):\n        """The number of its rows."""', []),
        ('class A:\n    """A file that is read."""\n    size: int\n    """Bytes."""', []),
        ('class A:\n    """A file that is read."""\n    size: int\n    """Of the file."""', [4]),
        ('def load():\n    """Loads a file.\n\n    More words, and a result.\n    """', [1]),
        ('def warn():\n    """Warns with the rows; the user is told the file."""', [1]),
        ("def no_docstring():\n    return 1", []),
    ],
)
def test_docstrings_are_checked_by_what_they_describe(
    tmp_path: Path, code: str, lines: list[int]
) -> None:
    module = tmp_path / "module.py"
    module.write_text(code + "\n")
    assert [finding.line for finding in check_code(module)] == lines


def test_terms_are_checked_in_prose_and_not_in_code(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("The user is told.\n\n```\nis told\n```\n\nThe run reports the file.\n")
    findings = list(check_page(page))
    assert [finding.line for finding in findings] == [1]
    assert "is told" in str(findings[0])


def test_bad_examples_of_a_table_are_left_out(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "| instead of | write |\n| --- | --- |\n| is told | is reported |\n"
        "| is shown | is told |\n\n| key | text |\n| --- | --- |\n| a | is told |\n"
    )
    assert [finding.line for finding in check_page(page)] == [4, 8]
