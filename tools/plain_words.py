"""Finds docstrings and sentences of the documentation that break the rules of CONTRIBUTING.md.

The tool checks these rules, as `make lint` does:

- The first sentence of a docstring has at least four words.
- It does not begin with a word that depends on another sentence.
- The first sentence of a function's docstring begins with a verb.
- Pages and docstrings use the terms of the field.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

ROOTS = ("pipeline", "components", "trainer_module", "tools", "benchmarks")
RUNNERS = ("scopeline.py", "scopeline_programs.py", "local_runner.py", "kubeflow_runner.py")
MINIMUM_WORDS = 4
_DEPENDENT = """
what which where when why who whose one of from by that those these this it its such so as for if
with to in on at nothing none not no all each some
"""
DEPENDENT_WORDS = frozenset(_DEPENDENT.split())
"""The words that begin a first sentence without a subject."""
NOT_VERBS = frozenset(["the", "a", "an", "whether", "how"])
"""The words that begin a function's first sentence without a verb."""
TERMS = {
    r"\b(?:is|are|was|were) told\b": "is reported, is shown, is passed",
    r"\b(?:is|are|was|were|be) asked (?!to\b)": "is called, is evaluated, predicts",
    r"\bask(?:s|ed|ing)? (?:a|the|its|their) models?\b": "call the model, predict with the model",
    r"\bwhat c(?:omes|ame) of (?:it|them|each)\b": "the result",
    r"\bearn(?:s|ed)? (?:it|its|their)\b": "name what was measured",
    r"\bby heart\b": "memorised",
    r"\bso many\b(?! \w+ that\b)": "name the number",
    r"\bways of asking\b|\bway to ask\b": "interface",
    r"\bgoes for\b": "applies to",
}
"""The patterns to avoid in pages and docstrings, with the terms to use."""

_Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class Finding(NamedTuple):
    """A sentence that breaks a rule."""

    path: Path
    line: int
    rule: str

    def __str__(self) -> str:
        """Returns the finding with its path and line, in the form that editors open."""
        return f"{self.path}:{self.line}: {self.rule}"


def check_code(path: Path) -> Iterator[Finding]:
    """Yields the findings in the docstrings of a module."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, _Documented) and (text := ast.get_docstring(node)):
            line = getattr(node, "lineno", 1)
            for rule in [*summary_rules(text, needs_verb(node)), *term_rules(text)]:
                yield Finding(path, line, rule)
        for line, text in attribute_docstrings(node):
            for rule in [*summary_rules(text, False, minimum=1), *term_rules(text)]:
                yield Finding(path, line, rule)


def needs_verb(node: ast.AST) -> bool:
    """Returns whether a docstring describes an action: a function's docstring, but not a
    property's.
    """
    return isinstance(node, _FUNCTIONS) and not any(
        "property" in ast.unparse(decorator) for decorator in node.decorator_list
    )


def attribute_docstrings(node: ast.AST) -> Iterator[tuple[int, str]]:
    """Yields the line and the text of each string that follows an assignment in a body."""
    body = getattr(node, "body", None)
    if not isinstance(body, list):
        return
    for before, after in pairwise(body):
        match before, after:
            case ast.Assign() | ast.AnnAssign(), ast.Expr(value=ast.Constant(value=str(text))):
                yield after.lineno, text


def summary_rules(text: str, verb: bool, minimum: int = MINIMUM_WORDS) -> Iterator[str]:
    """Yields the rules that the first paragraph of a docstring breaks.

    Args:
      verb: whether the paragraph must begin with a verb.
      minimum: the minimum number of words in the paragraph.
    """
    words = text.strip().split("\n\n")[0].split()
    first = words[0].lower().strip(",.:;") if words else ""
    if len(words) < minimum:
        yield f"the first sentence has fewer than {minimum} words: {' '.join(words)!r}"
    if first in DEPENDENT_WORDS:
        yield f"the first sentence begins with {words[0]!r}: name its subject"
    elif verb and first in NOT_VERBS:
        yield f"the first sentence begins with {words[0]!r}: begin with a verb, such as 'Returns'"


def term_rules(text: str) -> Iterator[str]:
    """Yields a rule for each pattern of TERMS that occurs in a text."""
    for pattern, instead in TERMS.items():
        if found := re.search(pattern, text):
            yield f"{found[0]!r}: {instead}"


def check_page(path: Path) -> Iterator[Finding]:
    """Yields the findings in the prose of a Markdown page.

    The check ignores blocks of code, and the first column of tables whose heading is "instead of".
    """
    in_code = in_bad_examples = False
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if line.startswith("```"):
            in_code = not in_code
        elif not in_code:
            in_bad_examples = line.startswith("|") and (
                in_bad_examples or line.startswith("| instead of |")
            )
            text = line.split("|", 2)[-1] if in_bad_examples else line
            yield from (Finding(path, number, rule) for rule in term_rules(text))


def find(folder: Path) -> list[Finding]:
    """Returns all findings in a checkout, by file and line."""
    modules = [path for root in ROOTS for path in sorted((folder / root).rglob("*.py"))]
    modules += [folder / name for name in RUNNERS]
    pages = [folder / "README.md", folder / "CONTRIBUTING.md", *sorted(folder.glob("docs/*.md"))]
    found = [finding for path in modules for finding in check_code(path)]
    return found + [finding for path in pages for finding in check_page(path)]


def main() -> int:
    """Prints the findings; returns 1 if there are any."""
    found = find(Path())
    for finding in found:
        print(finding)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
