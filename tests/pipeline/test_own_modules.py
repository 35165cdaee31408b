"""Another TFX project in the current folder: its modules are not taken for ours."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest

from pipeline.own_modules import LOCAL_RUNNER, ROOT

FOREIGN = ("pipeline", "components", "trainer_module")
SCRIPT = """
import json, subprocess, sys
from pathlib import Path
from pipeline.cli.options import find_modules_here
from pipeline.config.user_code import find_source
from pipeline.runs.imports import shared_module_path
from pipeline.schedule.scheduler import default_runner

find_modules_here()
import_all = "import components, pipeline, trainer_module, my_model, utils"
where = "print(*(m.__file__ for m in (components, pipeline, trainer_module, my_model, utils)))"
with shared_module_path():
    child = subprocess.run(
        [sys.executable, "-c", f"{import_all}; {where}"], capture_output=True, text=True
    )
print(json.dumps({
    "runner": default_runner()[1],
    "child": child.stdout.split() or child.stderr,
    "own": str(find_source("my_model")),
    "theirs": str(find_source("components.model")),
}))
"""


def installed_from() -> str:
    """The address of the checkout that the environment has installed, or an empty text."""
    try:
        content = distribution("scopeline").read_text("direct_url.json")
    except PackageNotFoundError:
        return ""
    return str(json.loads(content or "{}").get("url", ""))


@pytest.mark.slow
@pytest.mark.parametrize(
    "how",
    [
        "by its path",
    ],
)
def test_ours_are_found_in_another_project(tmp_path: Path, how: str) -> None:
    if how == "installed" and (place := installed_from()) != ROOT.as_uri():
        pytest.skip(f"the environment has the project from {place}, not from this checkout")
    for name in FOREIGN:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise SystemExit('foreign')")
    for name in ("local_runner", "my_model", "utils", "components/model"):
        (tmp_path / f"{name}.py").touch()
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    if how == "by its path":
        environment["PYTHONPATH"] = str(ROOT)
    done = subprocess.run(
        [sys.executable, "-P", "-c", SCRIPT],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "runner": str(LOCAL_RUNNER),
        "child": [
            *(str(ROOT / name / "__init__.py") for name in ("components", "pipeline")),
            str(ROOT / "trainer_module" / "__init__.py"),
            str(tmp_path / "my_model.py"),
            str(tmp_path / "utils.py"),
        ],
        "own": str(tmp_path / "my_model.py"),
        "theirs": "None",
    }
