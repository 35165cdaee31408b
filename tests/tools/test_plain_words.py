"""The lint for docstrings and pages finds sentences that break the rules of CONTRIBUTING.md."""

from __future__ import annotations

from pathlib import Path

from tools.plain_words import check_code, check_page

DOCSTRINGS = {
    '"""The parts of a request."""': [],
    '"""What a request holds, by part."""': [1],
    '"""Parts of it."""': [1],
    'def size():\n    """Returns the number of rows."""': [],
    'def size():\n    """The number of all rows."""': [1],
    'class A:\n    @property\n    def size(self):\n        """The number of its rows."""': [],
    'class A:\n    """A file that is read."""\n    size: int\n    """Of the file."""': [4],
    'def warn():\n    """Warns with the rows; the user is told the file."""': [1],
    "def no_docstring():\n    return 1": [],
}


def test_docstrings_are_checked_by_the_object_they_describe(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    for code, lines in DOCSTRINGS.items():
        module.write_text(code + "\n")
        assert [finding.line for finding in check_code(module)] == lines, code


def test_terms_are_checked_in_prose_but_not_in_code_or_bad_examples(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "The user is told.\n\n```\nis told\n```\n\nThe run reports the file.\n\n"
        "| instead of | write |\n| --- | --- |\n| is told | is reported |\n| is shown | is told |\n"
    )
    assert [finding.line for finding in check_page(page)] == [1, 12]
