"""Finds uses of private parts of other libraries outside of `compat`.

The tool reports these uses in our packages:

- an import of a private name, or of a name in a private package, including `import_module`;
- a read of a private attribute that our code does not define, including `getattr`, `attrgetter` and
  similar functions;
- a change of an attribute of an imported module or class, by `=`, `del`, `setattr`, `delattr`,
  `patch.object` or `__dict__`, including changes through another variable;
- an override, which is a private method of a class with a direct or indirect base in a library. The
  method calls the method of the base, or our code does not call it.

The tool analyses only the source code. A private name that both a library and our code define
counts as ours. A comment `# no inside` with a reason marks a line with a false positive.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

ROOTS = ("pipeline", "components", "trainer_module")
COMPAT = "compat"
"""The name of the packages and modules that may use private parts of libraries."""
FALSE_POSITIVE = "# no inside"
"""The beginning of the comment that marks a false positive."""
_RUNNERS = ("local_runner", "kubeflow_runner")
_NOT_PUBLIC = ("tensorflow.python.", "tensorflow.lite.python.", "tf_keras.src.", "keras.src.")
"""The undocumented packages of libraries."""
_BY_NAME = ("getattr", "setattr", "hasattr", "delattr")
_PATCH = "patch.object"
_SETTING = ("setattr", "delattr", _PATCH)
_GETTERS = ("attrgetter", "methodcaller")
_IMPORTERS = ("import_module", "__import__", "find_spec")


@dataclass(frozen=True)
class Touch:
    """A use of a private part of a library."""

    path: Path
    line: int
    use: str

    def __str__(self) -> str:
        """Returns the use with its path and line, in the form that editors open."""
        return f"{self.path}:{self.line}: {self.use}"


def find_touches(folder: Path, roots: tuple[str, ...] = ROOTS) -> list[Touch]:
    """Returns the uses outside of `compat`, by file and line.

    Args:
      roots: the names of our packages.
    """
    files = sorted(path for root in roots for path in (folder / root).rglob("*.py"))
    texts = {path.relative_to(folder): path.read_text() for path in files}
    trees = {path: ast.parse(text) for path, text in texts.items()}
    names = _Names.of(trees)
    modules = {path: _Module.of(tree, (*roots, *_RUNNERS)) for path, tree in trees.items()}
    names.find_foreign(trees, modules)
    found = []
    for path, tree in trees.items():
        if COMPAT in path.parts or path.stem == COMPAT:
            continue
        lines = texts[path].splitlines()
        uses = {
            (n, w)
            for n, w in _touches(tree, modules[path], names)
            if FALSE_POSITIVE not in lines[n - 1]
        }
        found += [Touch(path, line, use) for line, use in sorted(uses)]
    return found


@dataclass
class _Names:
    """The private names in our code."""

    defined: set[str] = field(default_factory=set)
    read: Counter[str] = field(default_factory=Counter)
    """The number of reads of each name from an object other than `super()`."""
    bases: dict[str, set[str]] = field(default_factory=dict)
    """The last names of the bases of each of our classes."""
    foreign: set[str] = field(default_factory=set)
    """Our classes with a foreign base."""

    @classmethod
    def of(cls, trees: Mapping[Path, ast.Module]) -> _Names:
        names = cls()
        for node in (node for tree in trees.values() for node in ast.walk(tree)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                names.defined.add(node.name)
                if isinstance(node, ast.ClassDef):
                    names.bases.setdefault(node.name, set()).update(map(_last_name, node.bases))
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names.defined.add(node.id)
            elif isinstance(node, ast.Attribute):
                holder = node.value.id if isinstance(node.value, ast.Name) else ""
                if holder in ("self", "cls") and isinstance(node.ctx, ast.Store):
                    names.defined.add(node.attr)
                if isinstance(node.ctx, ast.Load) and not _is_super(node.value):
                    names.read[node.attr] += 1
        return names

    def find_foreign(
        self, trees: Mapping[Path, ast.Module], modules: Mapping[Path, _Module]
    ) -> None:
        """Finds our classes with a direct or indirect foreign base."""
        for path, tree in trees.items():
            classes = (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
            foreign = modules[path].foreign
            self.foreign |= {
                c.name for c in classes if any(_first_name(b) in foreign for b in c.bases)
            }
        while more := {c for c, bases in self.bases.items() if bases & self.foreign} - self.foreign:
            self.foreign |= more


@dataclass
class _Module:
    """The meanings of the names in a file."""

    foreign: dict[str, str] = field(default_factory=dict)
    """The full names of imported modules, classes and functions of other libraries."""
    private: list[tuple[int, str]] = field(default_factory=list)
    """The line and the name of each private import."""

    @classmethod
    def of(cls, tree: ast.Module, ours: tuple[str, ...]) -> _Module:
        module = cls()
        for node in ast.walk(tree):
            for source, name, bound in _imported(node):
                top = source.split(".")[0]
                if top in ours or top == "__future__" or top in sys.stdlib_module_names:
                    continue
                is_top = not name and bound == top
                module.foreign[bound] = top if is_top else f"{source}.{name}".rstrip(".")
                is_private = any(map(_is_private, [*source.split("."), name]))
                if is_private or f"{source}.{name}.".startswith(_NOT_PUBLIC):
                    module.private.append((_line(node), f"import of {source} {name}".rstrip()))
        # An assignment gives an import another name, such as `module: Any = stats_impl`.
        for node in ast.walk(tree):
            for target, value in _assignments(node):
                module._bind(target, value)
        return module

    def _bind(self, target: ast.expr, value: ast.expr | None) -> None:
        """Records the variable if its value is a foreign object."""
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            for target_item, value_item in zip(target.elts, value.elts, strict=False):
                self._bind(target_item, value_item)
        elif (
            isinstance(target, ast.Name)
            and value is not None
            and _first_name(value) in self.foreign
        ):
            self.foreign[target.id] = self.full_name(value)

    def full_name(self, value: ast.expr) -> str:
        """Returns the full name of `a.b.c`, or an empty string if `a` is not foreign."""
        root = _first_name(value)
        is_foreign = root in self.foreign
        return self.foreign[root] + ast.unparse(value).removeprefix(root) if is_foreign else ""


def _touches(tree: ast.Module, module: _Module, names: _Names) -> Iterator[tuple[int, str]]:
    yield from module.private
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            is_set = not isinstance(node.ctx, ast.Load) and _first_name(node) in module.foreign
            is_foreign = _first_name(node) in module.foreign or node.attr not in names.defined
            is_hidden = node.attr == "__internal__" or f"{module.full_name(node)}." in _NOT_PUBLIC
            if is_set:
                yield node.lineno, f"sets {ast.unparse(node)}"
            elif is_hidden or (_is_private(node.attr) and is_foreign):
                yield node.lineno, f".{node.attr}"
        elif isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
            if _dictionary_owner(node.value) in module.foreign:
                yield node.lineno, f"sets {ast.unparse(node)}"
        elif isinstance(node, ast.Call):
            yield from _by_name(node, module)
        elif isinstance(node, ast.ClassDef) and (
            node.name in names.foreign or any(_first_name(b) in module.foreign for b in node.bases)
        ):
            yield from _overrides(node, names)


def _by_name(node: ast.Call, module: _Module) -> Iterator[tuple[int, str]]:
    """Yields uses through `getattr`, `attrgetter`, `patch.object` and similar functions."""
    if module_name := _imported_module(node):
        if f"{module_name}.".startswith(_NOT_PUBLIC) or any(
            map(_is_private, module_name.split("."))
        ):
            yield node.lineno, f"import of {module_name}"
        return
    called = ast.unparse(node.func)
    texts = [str(arg.value) if isinstance(arg, ast.Constant) else "" for arg in node.args]
    if called.endswith(_GETTERS):
        is_touch = any(map(_is_private, ".".join(texts).split(".")))
    elif len(texts) > 1 and (called in _BY_NAME or called.endswith(_PATCH)):
        sets_theirs = called.endswith(_SETTING) and _first_name(node.args[0]) in module.foreign
        is_touch = sets_theirs or _is_private(texts[1])
    else:
        return
    if is_touch:
        yield node.lineno, f"{called} {' '.join(map(ast.unparse, node.args[:2]))}"


def _overrides(node: ast.ClassDef, names: _Names) -> Iterator[tuple[int, str]]:
    """Yields the private methods of a class that its foreign base may define or call."""
    for method in node.body:
        if not isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        inside = (n for n in ast.walk(method) if isinstance(n, ast.Attribute))
        calls_base = any(n.attr == method.name and _is_super(n.value) for n in inside)
        # A library calls a method with a decorator call, such as a validator, by design.
        if any(isinstance(decorator, ast.Call) for decorator in method.decorator_list):
            continue
        if _is_private(method.name) and (calls_base or not names.read[method.name]):
            yield method.lineno, f"overrides {node.name}.{method.name}"


def _imported(node: ast.AST) -> Iterator[tuple[str, str, str]]:
    """Yields the module, the imported name and the local name of each import."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield alias.name, "", alias.asname or alias.name.split(".")[0]
    elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
        for alias in node.names:
            yield node.module, alias.name, alias.asname or alias.name


def _assignments(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr | None]]:
    """Yields the target and the value of each assignment by `=`, `:=` or a loop."""
    if isinstance(node, ast.Assign):
        yield from ((target, node.value) for target in node.targets)
    elif isinstance(node, ast.AnnAssign | ast.NamedExpr):
        yield node.target, node.value
    elif isinstance(node, ast.For | ast.comprehension):
        values = node.iter.elts if isinstance(node.iter, ast.Tuple | ast.List) else [node.iter]
        yield from ((node.target, value) for value in values)


def _first_name(node: ast.expr) -> str:
    """Returns the first name of an expression: `a` of `a.b[c].d`."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _dictionary_owner(node: ast.expr) -> str:
    """Returns the name `a` of `a.b.__dict__` and `vars(a.b)`, or an empty string."""
    if isinstance(node, ast.Call) and _last_name(node.func) == "vars" and node.args:
        return _first_name(node.args[0])
    return _first_name(node) if _last_name(node) == "__dict__" else ""


def _last_name(node: ast.expr) -> str:
    """Returns the last name of an expression: `c` of `a.b.c` and `a.b.c[d]`."""
    node = node.value if isinstance(node, ast.Subscript) else node
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _imported_module(node: ast.Call) -> str:
    """Returns the name of the module that a call imports, or an empty string for other calls."""
    name = node.args[0] if node.args and _last_name(node.func) in _IMPORTERS else None
    return str(name.value) if isinstance(name, ast.Constant) else ""


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name != "_"


def _is_super(node: ast.expr) -> bool:
    is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    return is_call and node.func.id == "super"  # type: ignore[attr-defined]


def _line(node: ast.AST) -> int:
    return int(getattr(node, "lineno", 0))


def main() -> None:
    """Prints the uses; exits with 1 if there are any."""
    touches = find_touches(Path())
    for touch in touches:
        print(touch)
    if touches:
        sys.exit(
            f"{len(touches)} uses of private parts of libraries outside of compat; move each use"
            " into a function in compat that checks the private part (CONTRIBUTING.md)."
        )


if __name__ == "__main__":
    main()
