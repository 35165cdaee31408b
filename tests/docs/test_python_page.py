"""The page of the Python API names functions, arguments and properties that exist."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

import scopeline

PAGE = (Path(__file__).parents[2] / "docs" / "python.md").read_text()


def test_documented_signatures_are_those_of_the_functions() -> None:
    listed = dict(re.findall(r"^\| `(\w+)\((.*?)\)` \|", PAGE, re.MULTILINE))
    functions = {name for name in scopeline.__all__ if name.islower()}
    assert listed.keys() == functions
    for name, arguments in listed.items():
        parameters = inspect.signature(getattr(scopeline, name)).parameters.values()
        signature = inspect.Signature(
            [p.replace(annotation=inspect.Parameter.empty) for p in parameters]
        )
        assert f"({arguments})" == str(signature).replace("'", '"'), name


def test_documented_calls_and_properties_exist() -> None:
    for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        for call in (node for node in ast.walk(ast.parse(block)) if isinstance(node, ast.Call)):
            if isinstance(call.func, ast.Attribute) and ast.unparse(call.func.value) == "scopeline":
                keywords = {str(keyword.arg): None for keyword in call.keywords}
                signature = inspect.signature(getattr(scopeline, call.func.attr))
                signature.bind(*call.args, **keywords)
    for owner, name in re.findall(r"`(Model|Server)\.(\w+)", PAGE):
        assert hasattr(getattr(scopeline, owner), name) or (owner, name) == ("Server", "url")
    table = PAGE.partition("## Results of a run")[2].partition("##")[0]
    for name in re.findall(r"`\.(\w+)`", table.partition("with fields")[0]):
        assert hasattr(scopeline.RunResult, name) or name == "folder"
