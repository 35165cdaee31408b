"""A user's own data, model builder and preprocessing: the page about it, followed."""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.project import ROOT, Project

pytestmark = pytest.mark.slow

PAGE = ROOT / "docs" / "your-code.md"


def page_files() -> dict[str, str]:
    """The files that the page shows, each block's first line naming it."""
    blocks = re.findall(r"```(?:python|yaml)\n# (\S+)\n(.*?)```", PAGE.read_text(), re.DOTALL)
    return dict(blocks)


@pytest.fixture(scope="module")
def trained(project: Project) -> Project:
    areas = [float(i % 97) for i in range(600)]
    table = pa.table({"area": areas, "price": [area / 50 for area in areas]})
    pq.write_table(table, project.folder / "houses.parquet")
    for name, text in page_files().items():
        (project.folder / name).write_text(text)
    # As in a TFX project of the user's own.
    for foreign in ("pipeline/__init__.py", "components/__init__.py", "local_runner.py"):
        (project.folder / foreign).parent.mkdir(exist_ok=True)
        (project.folder / foreign).write_text("raise SystemExit('foreign')\n")
    # In a Python of its own, which has imported nothing under those names.
    done = project.cold("run", "--config", "houses.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    return project


def test_own_model_learns(trained: Project) -> None:
    metrics = trained.summary("houses")["metrics"]
    assert metrics["mae"]["value"] < 0.5
    assert metrics["rmse"]["value"] ** 2 == pytest.approx(metrics["mse"]["value"], rel=1e-3)


def test_own_model_serves_values(trained: Project) -> None:
    import tensorflow as tf

    (version,) = trained.versions("houses")
    model = tf.saved_model.load(str(trained.output / "houses/serving/houses" / version))
    answer = model.signatures["serving_raw"](area=tf.constant([0.0, 50.0]))
    assert answer["value"].shape == (2,)
    low, high = answer["value"].numpy()
    assert high - low == pytest.approx(1.0, abs=0.4)


def test_edited_builder_is_not_served_from_cache(trained: Project) -> None:
    own = trained.folder / "my_model.py"
    own.write_text(page_files()["my_model.py"].replace('"relu"', '"tanh"'))
    plan = trained.scopeline("plan", "--config", "houses.yaml").stdout
    assert "Transform         cached" in plan
    assert "Trainer           runs    changed: the code that it runs\n" in plan


def test_builder_that_fails_is_named(trained: Project) -> None:
    (trained.folder / "my_model.py").write_text(
        "def build_model(problem, settings):\n    return 3\n"
    )
    done = trained.scopeline("run", "--config", "houses.yaml")
    assert done.returncode == 1
    assert "Trainer failed: " in done.stdout
    assert "my_model.build_model" in done.stdout
    assert "run.log" in done.stdout
    assert trained.summary("houses")["status"] == "failed"
