"""The reference of the Python API, made from the docstrings of the names that users import.

The source is parsed, not imported, so that the page needs neither TensorFlow nor TFX.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parent.parent

PAGE = {
    "Programs": [
        ("scopeline", ["init", "plan", "run", "load_model", "serve"]),
        ("scopeline", ["Plan", "RunResult", "RunFailedError", "Model", "Server"]),
    ],
    "Models and losses": [
        ("trainer_module.problem", ["Problem"]),
        ("trainer_module.features.transformed", ["TransformedFeature"]),
        ("trainer_module.families.supervised.losses", ["make_loss"]),
    ],
    "Features": [
        ("trainer_module.features.base", ["BaseFeature", "free_name"]),
        ("trainer_module.features.raw_columns", ["dense_numbers", "dense_strings"]),
    ],
    "Tasks": [
        ("trainer_module.settings.tasks", ["Metric", "LearningTask", "BaseTask"]),
        (
            "trainer_module.families",
            ["Family", "read_data_files", "read_example_files", "SampleRequest"],
        ),
        ("trainer_module.families.measured", ["Measured", "Estimate"]),
    ],
    "Sources": [
        ("components.example_gen.sources.base", ["Source", "Batch", "Survey"]),
    ],
    "Training": [
        ("trainer_module.settings", ["TrainerSettings"]),
        ("trainer_module.trainer", ["open_strategy", "load_data", "build_model"]),
        ("trainer_module.export", ["export_model"]),
        ("trainer_module.export.plain", ["export_plain"]),
        ("trainer_module.export.interface", ["RawColumn"]),
        ("trainer_module.strategies.base", ["BaseStrategy"]),
        ("trainer_module.strategies.tpu", ["on_device"]),
        ("trainer_module.strategies.persistent", ["connect"]),
    ],
    "Predictions": [
        ("trainer_module.export.variants.running", ["open_variant", "RunnableVariant"]),
    ],
}
"""The modules and their public names by the title of a section."""

_INTRODUCTION = """\
# Python API

`make docs` generates this page from the docstrings of the names that
[programs and notebooks](python.md), [your own code](your-code.md) and
[feature types](features.md#your-own-type) import.
Names that this page does not list may change without notice.
"""
_SECTION = re.compile(r"^(Args|Returns|Yields|Raises|Example):$", re.MULTILINE)
_ITEM = re.compile(r"^(\S[^:]*): ", re.MULTILINE)


@dataclass
class _Members:
    """The public members of a class."""

    attributes: list[tuple[str, str, str]] = field(default_factory=list)
    """The name, the type and the description of each attribute."""
    methods: list[ast.FunctionDef] = field(default_factory=list)


def api_reference() -> str:
    """Returns the page of the Python API."""
    lines = [_INTRODUCTION]
    for title, modules in PAGE.items():
        lines.append(f"## {title}\n")
        for module, names in modules:
            for name in names:
                lines += _object(module, name)
    return "\n".join(lines).rstrip() + "\n"


def find_definition(module: str, name: str) -> ast.ClassDef | ast.FunctionDef:
    """Returns the definition of a name, also of a name that the module imports from another.

    Raises:
      LookupError: the module neither defines nor imports the name.
    """
    path = ROOT / module.replace(".", "/")
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    tree = ast.parse(file.read_text())
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name:
            return node
    for imported in (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)):
        if imported.module and name in [alias.name for alias in imported.names]:
            return find_definition(imported.module, name)
    raise LookupError(f"{module} has no {name}; correct PAGE in tools/api_reference.py")


def _object(module: str, name: str) -> Iterator[str]:
    node = find_definition(module, name)
    yield f"### {name}\n"
    yield f"```python\nfrom {module} import {name}\n```\n"
    if not isinstance(node, ast.ClassDef):
        yield f"`{_signature(node)}`\n"
        yield _markdown(ast.get_docstring(node))
        return
    yield _markdown(ast.get_docstring(node))
    members = _members(node)
    if members.attributes:
        yield "| attribute | type | |\n| --- | --- | --- |"
        yield from (
            f"| `{attribute}` | `{kind.replace(' | ', ' or ')}` | {_cell(text)} |"
            for attribute, kind, text in members.attributes
        )
        yield ""
    for method in members.methods:
        yield f"#### {name}.{method.name}\n"
        yield f"`{_signature(method)}`\n"
        yield _markdown(ast.get_docstring(method))


def _members(node: ast.ClassDef) -> _Members:
    members = _Members()
    for statement, following in zip(node.body, [*node.body[1:], None], strict=True):
        match statement:
            case ast.AnnAssign(target=ast.Name(id=name)) if not name.startswith("_"):
                text = _attribute_text(following)
                members.attributes.append((name, ast.unparse(statement.annotation), text))
            case ast.FunctionDef(name=name) if not name.startswith("_"):
                decorators = {ast.unparse(decorator) for decorator in statement.decorator_list}
                if decorators & {"property", "cached_property", "functools.cached_property"}:
                    kind = ast.unparse(statement.returns) if statement.returns else ""
                    members.attributes.append((name, kind, ast.get_docstring(statement) or ""))
                elif "overload" not in decorators:
                    members.methods.append(statement)
    return members


def _attribute_text(following: ast.stmt | None) -> str:
    """Returns the string after an attribute, which describes it; empty without a string."""
    match following:
        case ast.Expr(value=ast.Constant(value=str(text))):
            return text
    return ""


def _signature(node: ast.FunctionDef) -> str:
    arguments = ast.unparse(node.args)
    arguments = re.sub(r"^(self|cls)(, )?", "", arguments)
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return f"{node.name}({arguments}){returns}"


def _cell(text: str) -> str:
    """Returns a text on one line, for a cell of a table."""
    return " ".join(text.split()).replace("|", r"\|")


def _markdown(docstring: str | None) -> str:
    """Returns a docstring with lists in place of the sections of Google's style."""
    text, *sections = _SECTION.split(docstring or "")
    parts = [text.strip()]
    for title, content in zip(sections[::2], sections[1::2], strict=True):
        block = textwrap.dedent(content.strip("\n"))
        if title in ("Args", "Raises"):
            items = _ITEM.split(block)[1:]
            pairs = zip(items[::2], items[1::2], strict=True)
            parts += ["Raises:"] * (title == "Raises")
            parts.append("\n".join(f"- `{name}`: {' '.join(text.split())}" for name, text in pairs))
        elif title == "Example":
            parts.append(f"```python\n{block.rstrip()}\n```")
        else:
            parts.append(f"{title}: {' '.join(block.split())}")
    return "\n\n".join(filter(None, parts)) + "\n"
