"""The modules that a cache key depends on are those that the executor imports."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.config.user_code import MODELS, import_closure
from pipeline.own_modules import PACKAGES, ROOT
from tests.support.warm.processes import LIBRARIES

BEFORE_TRAINING = {
    "components.example_gen.executor",
    "components.statistics_gen.component",
    "components.schema_gen.component",
    "components.example_validator.component",
    "components.column_types.transform",
    "trainer_module.preprocessing",
}
EXECUTORS = BEFORE_TRAINING | {
    "components.tuner.component",
    "components.trainer.component",
    "components.evaluator.executor",
    "components.optimizer.component",
    "components.infra_validator.component",
    "components.infra_validator.worker",
    "trainer_module.trainer",
}
_IMPORTS = """
import importlib, json, os, sys
executors, libraries = map(json.loads, sys.argv[1:3])
for name in libraries:
    importlib.import_module(name)
for name in executors:
    if os.fork() == 0:
        importlib.import_module(name)
        print(json.dumps([name, [m for m in sys.modules if m.split(".")[0] in sys.argv[3:]]]))
        sys.stdout.flush()
        os._exit(0)
    os.wait()
"""


def write(folder: Path, **sources: str) -> None:
    for name, text in sources.items():
        path = folder / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    write(
        tmp_path,
        components__a="import numpy\ndef f():\n    from trainer_module.b import c\n",
        trainer_module__b="from . import names\nif TYPE_CHECKING:\n    import trainer_module.e\n",
        trainer_module__names="KINDS = 'trainer_module.kinds'\nMAIN = 'trainer_module.d.main'\n"
        "GRAPH = 'pipeline.graph.wire'\n",
        pipeline__graph="x = 1",
        trainer_module__kinds__first="x = 1",
        trainer_module__kinds__deep__second="x = 1",
        trainer_module__d="x = 1",
        trainer_module__e="x = 1",
    )
    (tmp_path / "trainer_module" / "kinds" / "__init__.py").touch()
    return tmp_path


def test_imports_and_names_in_strings_are_followed(tree: Path) -> None:
    assert sorted(import_closure(["components.a"], tree)) == [
        "components.a",
        "trainer_module.b",
        "trainer_module.d",
        "trainer_module.kinds",
        "trainer_module.kinds.deep.second",
        "trainer_module.kinds.first",
        "trainer_module.names",
    ]


def test_modules_never_loaded_by_name_are_left_out(tree: Path) -> None:
    found = import_closure(["components.a"], tree, never_loads=("trainer_module.names",))
    assert sorted(found) == ["components.a", "trainer_module.b", "trainer_module.names"]


@pytest.mark.parametrize("executor", sorted(BEFORE_TRAINING))
def test_components_before_training_do_not_depend_on_training_code(executor: str) -> None:
    found = import_closure([executor], ROOT, MODELS)
    assert "trainer_module.trainer" not in found
    assert "trainer_module.training" not in found
    assert "trainer_module.families.supervised.ensemble" not in found


@pytest.mark.slow
def test_executors_import_nothing_else() -> None:
    given = json.dumps(sorted(EXECUTORS)), json.dumps(LIBRARIES), *PACKAGES
    done = subprocess.run(
        [sys.executable, "-c", _IMPORTS, *given],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    imported = dict(json.loads(line) for line in done.stdout.splitlines() if line[:1] == "[")
    assert set(imported) == EXECUTORS
    for name, modules in imported.items():
        never_loads = MODELS if name in BEFORE_TRAINING else ()
        assert set(modules) - set(import_closure([name], ROOT, never_loads)) == set(), name
