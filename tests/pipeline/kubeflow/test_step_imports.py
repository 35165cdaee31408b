"""What a step imports, in a Python of its own: what its component needs, and not all of TFX."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from pipeline.config.loading import load_config
from pipeline.kubeflow.nodes import compile_graph, split_into_nodes
from pipeline.layout import Layout
from pipeline.own_modules import ROOT
from pipeline.run_context import resolve_elsewhere

pytestmark = pytest.mark.slow

SCRIPT = """
import json, sys
from pipeline.kubeflow.step import import_node

import_node(sys.argv[1])
from tfx.orchestration.local import runner_utils
from tfx.proto.orchestration import pipeline_pb2
from tfx.utils.import_utils import import_class_by_path
from components.compat.speed import speed_up
from pipeline.kubeflow.compiled import unpack

pipeline = pipeline_pb2.Pipeline.FromString(unpack(sys.argv[1]))
deployment = runner_utils.extract_local_deployment_config(pipeline)
spec = runner_utils.extract_executor_spec(deployment, pipeline.nodes[0].pipeline_node.node_info.id)
import_class_by_path(getattr(spec, "python_executor_spec", spec).class_path)
speed_up()
print(json.dumps([name for name in sys.argv[2:] if name in sys.modules]))
"""
"""As far as a step comes before its component begins."""

TFMA, COMPONENTS = "tensorflow_model_analysis.evaluators", "tfx.components.bulk_inferrer"
TFDV, TFT = "tensorflow_data_validation", "tensorflow_transform"
LIBRARIES = (TFMA, COMPONENTS, TFDV, TFT, "keras_tuner", "tensorflow_text", "nltk")


@pytest.fixture(scope="module")
def packed() -> dict[str, str]:
    config = load_config(ROOT / "configs" / "digits.yaml")
    layout = Layout(ROOT / "output", config.name, is_elsewhere=True)
    return split_into_nodes(compile_graph(resolve_elsewhere(config, layout)))


@pytest.mark.parametrize(("node", "needed"), [("Pusher", set()), ("Transform", {TFDV, TFT})])
def test_a_step_imports_what_its_component_needs(
    packed: dict[str, str], node: str, needed: set[str]
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, packed[node], *LIBRARIES],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert set(json.loads(done.stdout)) == needed
