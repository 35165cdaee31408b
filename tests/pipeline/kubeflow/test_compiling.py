"""What a config is compiled to: the same bytes, whole, and nothing that is secret."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipeline.config.settings import PipelineConfig
from pipeline.graph.create import create_pipeline
from pipeline.kubeflow.cluster_layout import cluster_layout
from pipeline.kubeflow.compiled import MAX_BYTES, CompiledPipeline, pack_argument, unpack
from pipeline.kubeflow.kubeflow_rules import load_for_kubeflow
from pipeline.run_context import resolve_elsewhere
from tests.support import warm
from tests.support.kfp_rules import RULES, check_backend_rules, compile_shallow, parse
from trainer_module.errors import ConfigError

ROOT = Path(__file__).parents[3]
CONFIGS = ROOT / "configs"
COMPONENTS = {
    *("ExampleGen", "StatisticsGen", "SchemaGen", "ExampleValidator", "Transform"),
    *("Trainer", "Evaluator", "InfraValidator", "Pusher"),
}
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


@pytest.fixture(scope="session")
def config(tmp_path_factory: pytest.TempPathFactory) -> PipelineConfig:
    path = tmp_path_factory.mktemp("config") / "taxi.yaml"
    path.write_text(yaml.safe_dump(CONFIG))
    return load_for_kubeflow(path)


@pytest.fixture(scope="session")
def compiled(config: PipelineConfig) -> CompiledPipeline:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SCOPELINE_METADATA_PASSWORD", PASSWORD)
        return compile_shallow(config)


@pytest.fixture(scope="module")
def documents(compiled: CompiledPipeline) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(compiled.yaml))


@pytest.mark.slow
def test_compiling_in_another_process_gives_the_same_bytes(
    compiled: CompiledPipeline, tmp_path: Path
) -> None:
    (tmp_path / "taxi.yaml").write_text(yaml.safe_dump(CONFIG))
    command = [sys.executable, "-c", COMPILE, "taxi.yaml", "out.yaml"]
    # What it is forked from has hashes of its own, as PYTHONHASHSEED is not set.
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    assert "PYTHONHASHSEED" not in environment
    warm.run(command, cwd=tmp_path, env=environment, capture_output=True).check_returncode()
    assert (tmp_path / "out.yaml").read_text() == compiled.yaml


def test_compiled_pipeline_keeps_the_backend_rules(compiled: CompiledPipeline) -> None:
    assert check_backend_rules(compiled.yaml) == []


def _container(spec: Any) -> Any:
    return spec["deploymentSpec"]["executors"]["exec-trainer"]["container"]


def _task(spec: Any) -> Any:
    return spec["components"]["comp-exit-handler-1"]["dag"]["tasks"]["trainer"]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda s, _: _task(s).update(cachingOptions={"enableCache": True}), "is cached"),
        (
            lambda s, _: _task(s)["retryPolicy"].update(backoffMaxDuration="300s"),
            "backoffMaxDuration, 300 s",
        ),
        (
            lambda s, _: _container(s)["env"].append(
                {"name": "SCOPELINE_METADATA_PASSWORD", "value": "x"}
            ),
            "SCOPELINE_METADATA_PASSWORD is set twice",
        ),
    ],
)
def test_broken_backend_rule_is_found(
    compiled: CompiledPipeline, change: Any, problem: str
) -> None:
    broken = list(yaml.safe_load_all(compiled.yaml))
    change(*broken)
    found = check_backend_rules(yaml.safe_dump_all(broken))
    assert any(problem in one for one in found), found


@pytest.mark.parametrize("name", [path.stem for path in sorted(CONFIGS.glob("*.yaml"))])
def test_shipped_config_is_compiled_with_a_step_for_each_component(name: str) -> None:
    settings = [
        "kubeflow.image=registry.example.com/scopeline:0.1.0",
        "kubeflow.volume={claim: shared, path: /mnt/shared}",
        "kubeflow.metadata=grpc://metadata:8080",
    ]
    settings += ["data.path=mnist"] if name == "mnist" else []
    config = load_for_kubeflow(CONFIGS / f"{name}.yaml", settings)
    compiled = compile_shallow(config)
    spec = parse(compiled.yaml)
    assert [problem for rule in RULES for problem in rule(spec)] == []
    context = resolve_elsewhere(config, cluster_layout(config))
    components = {node.id for node in create_pipeline(context).components}
    steps = [*compiled.steps.values()]
    assert {"Trainer", "Evaluator", "Pusher"} <= components
    assert components - set(steps) == set()
    assert set(compiled.steps) <= {name for name, _ in spec.tasks()}
    assert (steps[0], steps[-1]) == ("Begin", "Conclude")


def test_every_node_is_a_step_after_its_dependencies(
    compiled: CompiledPipeline, documents: list[dict[str, Any]]
) -> None:
    tasks = documents[0]["components"]["comp-exit-handler-1"]["dag"]["tasks"]
    assert next(iter(compiled.steps)) == "begin"
    assert list(compiled.steps)[-1] == "conclude"
    assert set(tasks) | {"conclude"} == set(compiled.steps)
    assert set(compiled.steps.values()) >= COMPONENTS
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


def test_resources_secrets_and_volumes_are_those_of_the_config(
    documents: list[dict[str, Any]],
) -> None:
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


def test_password_is_not_in_the_compiled_pipeline(
    compiled: CompiledPipeline, documents: list[dict[str, Any]]
) -> None:
    assert PASSWORD not in compiled.yaml
    for executor in documents[0]["deploymentSpec"]["executors"].values():
        for argument in executor["container"]["args"]:
            if argument.startswith("H4sI"):
                assert len(argument) <= MAX_BYTES
                assert PASSWORD.encode() not in unpack(argument)


def test_step_with_too_large_arguments_is_refused(config: PipelineConfig) -> None:
    # Names that do not compress.
    names = [f"{hash((i, 'a')):x}{hash((i, 'b')):x}" for i in range(5000)]
    features = {name: {"type": "numeric"} for name in names}
    large = PipelineConfig.model_validate(
        config.model_dump(mode="json", by_alias=True) | {"features": features}
    )
    with pytest.raises(ConfigError, match=r"the packed arguments of this step have [\d,]+ bytes"):
        compile_shallow(large)
    assert len(pack_argument(b"x" * 1_000_000, "small")) < MAX_BYTES
