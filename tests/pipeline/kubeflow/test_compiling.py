"""What a config is compiled to: the same bytes, whole, and nothing that is secret."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from kfp import components
from tfx.orchestration.kubeflow.v2 import kubeflow_v2_dag_runner
from tfx.v1.dsl.experimental import LatestBlessedModelStrategy

from pipeline.config.loading import load_config
from pipeline.config.settings import PipelineConfig
from pipeline.graph.create import create_pipeline
from pipeline.kubeflow.cluster_layout import cluster_layout
from pipeline.kubeflow.compiled import MAX_BYTES, CompiledPipeline, pack_argument, unpack
from pipeline.kubeflow.kubeflow_rules import load_for_kubeflow
from pipeline.run_context import resolve_elsewhere
from tests.support import warm
from trainer_module.errors import ConfigError

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT / "tests" / "kubeflow"))

from tests.support.kfp_rules import check_backend_rules, compile_shallow  # noqa: E402

PASSWORD = "hush-it-is-a-password"  # noqa: S105
CONFIG = {
    "name": "taxi",
    "data": {"format": "csv", "path": "taxi/{SPAN}/*.csv", "label": "tips"},
    "task": "binary",
    "model": {"kind": "mlp"},
    "schedule": {"window": {"last": 3}, "warm_start": True},
    "drift": {"columns": {"fare": {"jensen_shannon": 0.1}}},
    "kubeflow": {
        "image": "registry.example.com/scopeline:0.1.0",
        "volume": {"claim": "shared", "path": "/mnt/shared"},
        "metadata": "mysql://scopeline@mysql.kubeflow/scopeline",
        "secrets": {"SCOPELINE_METADATA_PASSWORD": {"secret": "meta", "key": "password"}},
        "environment": {"TZ": "UTC"},
        "image_pull_secrets": ["registry"],
        "retries": 1,
        "timeout": "2h",
        "resources": {
            "default": {"cpu": 1, "memory": "2Gi", "memory_limit": "4Gi"},
            "ExampleGen": {"memory": "3Gi"},
            "Trainer": {
                "cpu": "500m",
                "accelerator": {"type": "nvidia.com/gpu", "count": 2},
                "node_selector": {"pool": "gpu"},
                "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
            },
        },
    },
}
COMPILE = """
import os
import sys
from pathlib import Path
from pipeline.kubeflow.kubeflow_rules import load_for_kubeflow
from pipeline.kubeflow.compiler import compile_pipeline
Path(sys.argv[2]).write_text(compile_pipeline(load_for_kubeflow(Path(sys.argv[1]))).yaml)
"""


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> PipelineConfig:
    path = tmp_path_factory.mktemp("config") / "taxi.yaml"
    path.write_text(yaml.safe_dump(CONFIG))
    return load_for_kubeflow(path)


@pytest.fixture(scope="module")
def compiled(config: PipelineConfig) -> CompiledPipeline:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SCOPELINE_METADATA_PASSWORD", PASSWORD)
        return compile_shallow(config)


@pytest.fixture(scope="module")
def documents(compiled: CompiledPipeline) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(compiled.yaml))


def test_another_process_in_another_folder_gives_the_same_bytes(
    compiled: CompiledPipeline, tmp_path: Path
) -> None:
    (tmp_path / "taxi.yaml").write_text(yaml.safe_dump(CONFIG))
    command = [sys.executable, "-c", COMPILE, "taxi.yaml", "out.yaml"]
    # What it is forked from has hashes of its own, as PYTHONHASHSEED is not set.
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    assert "PYTHONHASHSEED" not in environment
    warm.run(command, cwd=tmp_path, env=environment, capture_output=True).check_returncode()
    assert (tmp_path / "out.yaml").read_text() == compiled.yaml


def test_another_config_is_another_version(
    config: PipelineConfig, compiled: CompiledPipeline
) -> None:
    train = config.train.model_copy(update={"epochs": 99})
    other = compile_shallow(config.model_copy(update={"train": train}))
    assert other.version != compiled.version
    assert other.parameters["epochs"] == 99


def test_the_backend_would_take_it(compiled: CompiledPipeline) -> None:
    assert check_backend_rules(compiled.yaml) == []


def _container(spec: Any) -> Any:
    return spec["deploymentSpec"]["executors"]["exec-trainer"]["container"]


def _evaluator(spec: Any) -> Any:
    return spec["deploymentSpec"]["executors"]["exec-evaluator"]["container"]


def _task(spec: Any) -> Any:
    return spec["components"]["comp-exit-handler-1"]["dag"]["tasks"]["trainer"]


def _config(platform: Any) -> Any:
    return platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]["exec-trainer"]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda s, _: s["pipelineInfo"].update(name="Digits_2"), "'Digits_2' begins no name"),
        (
            lambda s, _: _task(s)["inputs"]["parameters"]["run_id"].update(
                runtimeValue={"constant": "run {{$.pipeline_job_uuid}}"}
            ),
            "nothing replaces 'run {{$.pipeline_job_uuid}}'",
        ),
        (lambda s, _: _task(s).update(cachingOptions={"enableCache": True}), "is cached"),
        (
            lambda s, _: _task(s)["retryPolicy"].update(backoffMaxDuration="300s"),
            "1 retries of up to 7200 s do not fit into backoffMaxDuration, 300 s",
        ),
        (lambda s, _: _container(s)["args"].append("x" * 120_000), "a run would take 1,"),
        (lambda s, _: _container(s)["args"].append("{{$.other}}"), "replaces the placeholder"),
        (
            lambda s, _: _evaluator(s)["args"].remove("{{$}}"),
            "exec-evaluator: cannot say the metadata of its outputs without {{$}}",
        ),
        (
            lambda s, _: s["components"]["comp-evaluator"].pop("outputDefinitions"),
            "the output 'metrics' is not both declared and given to the container",
        ),
        (lambda s, _: _container(s)["args"].append("costs $$5"), "Kubernetes changes '$$'"),
        (lambda s, _: _container(s)["args"].append("é" * 65_536), "argument takes 131,072 bytes"),
        (
            lambda s, _: _container(s)["env"].append(
                {"name": "SCOPELINE_METADATA_PASSWORD", "value": "x"}
            ),
            "SCOPELINE_METADATA_PASSWORD is set twice",
        ),
        (lambda _, p: _config(p).update(securityContext={"runAsUser": "1"}), "is unknown to driv"),
        (lambda _, p: _config(p)["secretAsEnv"][0].update(secretName="x"), "drivers read 'x'"),
    ],
)
def test_what_the_backend_would_not_take_is_found(
    compiled: CompiledPipeline, change: Any, problem: str
) -> None:
    broken = list(yaml.safe_load_all(compiled.yaml))
    change(*broken)
    found = check_backend_rules(yaml.safe_dump_all(broken))
    assert any(problem in one for one in found), found


def test_a_name_with_underscores_is_one_of_kubernetes(config: PipelineConfig) -> None:
    compiled = compile_shallow(config.model_copy(update={"name": "taxi_by_day"}))
    assert re.fullmatch("taxi-by-day-[0-9a-f]{6}", compiled.name)
    assert check_backend_rules(compiled.yaml) == []
    assert "/mnt/shared/output/taxi_by_day" in compiled.yaml


def test_kubeflow_loads_it_with_its_parameters(compiled: CompiledPipeline) -> None:
    loaded = components.load_component_from_text(compiled.yaml)
    assert set(loaded.component_spec.inputs) == set(compiled.parameters)
    assert compiled.parameters == {"epochs": 0, "strategy": "default", "span": ""}


def test_every_node_is_a_step_after_those_that_it_needs(
    compiled: CompiledPipeline, documents: list[dict[str, Any]]
) -> None:
    tasks = documents[0]["components"]["comp-exit-handler-1"]["dag"]["tasks"]
    assert next(iter(compiled.steps)) == "begin"
    assert list(compiled.steps)[-1] == "conclude"
    assert set(tasks) | {"conclude"} == set(compiled.steps)
    assert tasks["examplegen"]["dependentTasks"] == ["begin"]
    # No model learns from data that was refused.
    assert "examplevalidator" in tasks["transform"]["dependentTasks"]
    assert "baselineresolver" in tasks["evaluator"]["dependentTasks"]
    resolvers = {"windowresolver", "analyzercacheresolver", "warmstartresolver"}
    assert resolvers | {"previousstatisticsresolver"} <= set(tasks)
    assert all(task["cachingOptions"] == {} for task in tasks.values())
    for task in tasks.values():
        assert task["retryPolicy"]["maxRetryCount"] == 1
        # Two attempts of two hours, and the wait.
        assert task["retryPolicy"]["backoffMaxDuration"] == f"{2 * 7200 + 40}s"
        assert task["retryPolicy"]["backoffDuration"] == "10s"
        assert task["retryPolicy"]["backoffFactor"] == 2


def test_steps_declare_what_the_ui_shows(
    config: PipelineConfig, documents: list[dict[str, Any]]
) -> None:
    def declared(spec: dict[str, Any]) -> dict[str, dict[str, str]]:
        return {
            label.removeprefix("comp-"): {
                name: output["artifactType"]["schemaTitle"]
                for name, output in component["outputDefinitions"]["artifacts"].items()
            }
            for label, component in spec["components"].items()
            if "outputDefinitions" in component
        }

    evaluation = {"metrics": "system.Metrics", "classification": "system.ClassificationMetrics"}
    assert declared(documents[0]) == {
        "examplegen": {"examples": "system.Dataset"},
        "evaluator": evaluation,
        "pusher": {"model": "system.Model"},
        "conclude": {**evaluation, "report": "system.HTML"},
    }
    regression = PipelineConfig.model_validate(
        config.model_dump(mode="json", by_alias=True, exclude_unset=True) | {"task": "regression"}
    )
    spec = next(yaml.safe_load_all(compile_shallow(regression).yaml))
    assert declared(spec)["evaluator"] == {"metrics": "system.Metrics"}


def test_steps_are_given_what_the_config_says(documents: list[dict[str, Any]]) -> None:
    pipeline, platform = documents
    executors = pipeline["deploymentSpec"]["executors"]
    trainer = executors["exec-trainer"]["container"]
    assert trainer["image"] == "registry.example.com/scopeline:0.1.0"
    assert trainer["command"] == ["python", "-P", "-m", "pipeline.kubeflow.step"]
    assert trainer["resources"]["accelerator"]["resourceCount"] == "2"
    assert trainer["env"] == [{"name": "TZ", "value": "UTC"}]
    other = executors["exec-pusher"]["container"]["resources"]
    assert (other["resourceMemoryRequest"], other["resourceMemoryLimit"]) == ("2Gi", "4Gi")
    # The first step reads the older spans.
    for reader in ("exec-begin", "exec-examplegen"):
        assert executors[reader]["container"]["resources"]["resourceMemoryRequest"] == "3Gi"
    pods = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    assert set(pods) == set(executors)
    for pod in pods.values():
        assert pod["activeDeadlineSeconds"] == "7200"
        assert pod["pvcMount"][0]["mountPath"] == "/mnt/shared"
        assert pod["secretAsEnv"][0]["secretName"] == "meta"
        assert pod["imagePullSecret"][0]["secretName"] == "registry"
    assert pods["exec-trainer"]["nodeSelector"] == {"labels": {"pool": "gpu"}}
    (toleration,) = pods["exec-trainer"]["tolerations"]
    assert toleration == {"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}
    (field,) = pods["exec-trainer"]["fieldPathAsEnv"]
    assert field == {"name": "SCOPELINE_POD_NAME", "fieldPath": "metadata.name"}
    assert "fieldPathAsEnv" not in pods["exec-pusher"]


def test_password_is_nowhere(compiled: CompiledPipeline, documents: list[dict[str, Any]]) -> None:
    assert PASSWORD not in compiled.yaml
    for executor in documents[0]["deploymentSpec"]["executors"].values():
        for argument in executor["container"]["args"]:
            if argument.startswith("H4sI"):
                assert len(argument) <= MAX_BYTES
                assert PASSWORD.encode() not in unpack(argument)


def test_a_step_that_would_have_to_be_told_too_much_is_refused(config: PipelineConfig) -> None:
    # Names that do not compress.
    names = [f"{hash((i, 'a')):x}{hash((i, 'b')):x}" for i in range(5000)]
    features = {name: {"type": "numeric"} for name in names}
    large = PipelineConfig.model_validate(
        config.model_dump(mode="json", by_alias=True) | {"features": features}
    )
    with pytest.raises(ConfigError, match=r"the packed arguments of this step have [\d,]+ bytes"):
        compile_shallow(large)
    assert len(pack_argument(b"x" * 1_000_000, "small")) < MAX_BYTES


def test_a_generation_is_compiled_with_its_own_graph(tmp_path: Path) -> None:
    path, model = tmp_path / "faces.yaml", {"kind": "dcgan"}
    data = {"format": "images", "path": "faces/{SPAN}"}
    config = {**CONFIG, "name": "faces", "data": data, "task": "generation", "model": model}
    config |= {"schedule": {"window": {"last": 3}}}
    del config["drift"]
    path.write_text(yaml.safe_dump(config))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SCOPELINE_METADATA_PASSWORD", PASSWORD)
        compiled = compile_shallow(load_for_kubeflow(path))
    steps = [*compiled.steps.values()]
    assert "Transform" not in steps
    assert [name for name in steps if name in ("ExampleGen", "Trainer", "Evaluator", "Pusher")] == [
        *("ExampleGen", "Trainer", "Evaluator", "Pusher")
    ]


def test_the_runner_of_tfx_compiles_the_same_components() -> None:
    """As docs/kubeflow.md says."""
    places = ["data.path=gs://bucket/data/", "kubeflow={pipeline_root: gs://bucket/scopeline}"]
    config = load_config(ROOT / "configs" / "digits.yaml", places)
    context = resolve_elsewhere(config, cluster_layout(config, is_elsewhere=True))
    pipeline = create_pipeline(context, baseline_strategy=LatestBlessedModelStrategy)
    settings = kubeflow_v2_dag_runner.KubeflowV2DagRunnerConfig(
        default_image="registry.example.com/scopeline:0.1.0", use_pipeline_spec_2_1=True
    )
    runner = kubeflow_v2_dag_runner.KubeflowV2DagRunner(settings)
    job = runner.run(pipeline, write_out=False)
    assert {"ExampleGen", "Trainer", "Evaluator", "Pusher"} <= set(
        job["pipelineSpec"]["root"]["dag"]["tasks"]
    )
