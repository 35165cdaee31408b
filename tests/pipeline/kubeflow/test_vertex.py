"""Vertex AI: what TFX's own runner compiles, and what is refused because it could not run there."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import vertex_machine
import yaml
from google.auth.credentials import AnonymousCredentials
from google.protobuf import json_format
from kfp.pipeline_spec import pipeline_spec_pb2 as pb
from tfx.utils import import_utils

from components.optimizer.artifacts import ModelVariants
from pipeline.config.loading import load_config
from pipeline.kubeflow.compiling.vertex import compile_for_vertex
from pipeline.kubeflow.vertex_rules import check_for_vertex
from trainer_module.errors import ConfigError

ROOT = Path(__file__).parents[3]
IMAGE = "europe-docker.pkg.dev/project/repository/scopeline:0.1.0"
ON_VERTEX = [
    "data.path=gs://bucket/data/",
    "kubeflow.target=vertex",
    f"kubeflow.image={IMAGE}",
    "kubeflow.pipeline_root=gs://bucket/scopeline",
]
EQUIPPED = [
    "kubeflow.environment={LANGUAGE: en}",
    "kubeflow.retries=4",
    "kubeflow.resources={default: {cpu: 2}, Trainer: {cpu: 1, cpu_limit: 7500m, memory: 4Gi, "
    "accelerator: {type: NVIDIA_TESLA_T4, count: 2}}}",
    "train.retries=7",
]
RESOLVERS = {
    "BaselineResolver-model-blessing-resolver_executor",
    "BaselineResolver-model-resolver_executor",
}


def compile_digits(*overrides: str) -> str:
    config = load_config(ROOT / "configs" / "digits.yaml", [*ON_VERTEX, *overrides])
    return compile_for_vertex(config)


@pytest.fixture(scope="module")
def text() -> str:
    return compile_digits(*EQUIPPED)


@pytest.fixture
def job(text: str) -> dict[str, Any]:
    return json.loads(text)


@pytest.fixture
def deployment(job: dict[str, Any]) -> pb.PipelineDeploymentConfig:
    spec = job["pipelineSpec"]["deploymentSpec"]
    return json_format.ParseDict(spec, pb.PipelineDeploymentConfig())


def test_same_config_gives_the_same_bytes(text: str) -> None:
    assert compile_digits(*EQUIPPED) == text
    assert compile_digits(*EQUIPPED, "train.epochs=3") != text


def test_every_field_is_one_of_the_format(job: dict[str, Any]) -> None:
    parsed = json_format.ParseDict(job, pb.PipelineJob())
    spec = json_format.ParseDict(job["pipelineSpec"], pb.PipelineSpec())
    assert (
        parsed.runtime_config.gcs_output_directory == "gs://bucket/scopeline/digits/pipeline_root"
    )
    assert spec.schema_version == "2.1.0"
    assert spec.pipeline_info.name == "digits"


def test_googles_client_takes_the_job(text: str, tmp_path: Path) -> None:
    from google.cloud.aiplatform import PipelineJob

    (tmp_path / "pipeline.json").write_text(text)
    job = PipelineJob(
        display_name="digits",
        template_path=str(tmp_path / "pipeline.json"),
        project="project",
        location="europe-west4",
        credentials=AnonymousCredentials(),
    )
    assert job.job_id.startswith("digits-")


def test_only_resolvers_that_vertex_knows_are_left(
    deployment: pb.PipelineDeploymentConfig,
) -> None:
    kinds = {name: e.WhichOneof("spec") for name, e in deployment.executors.items()}
    assert {name for name, kind in kinds.items() if kind == "resolver"} == RESOLVERS
    assert {kind for name, kind in kinds.items() if name not in RESOLVERS} == {"container"}


def test_containers_run_executors_that_exist(deployment: pb.PipelineDeploymentConfig) -> None:
    for name, executor in deployment.executors.items():
        if name in RESOLVERS:
            continue
        container = executor.container
        assert container.image == IMAGE
        assert list(container.command[:2]) == ["python", "-m"]
        module, _, executor_class = container.args[1].rpartition(".")
        assert callable(getattr(import_module(module), executor_class))


def test_order_is_that_of_the_data(job: dict[str, Any]) -> None:
    tasks = job["pipelineSpec"]["root"]["dag"]["tasks"]
    order = [n for n in vertex_machine.topological(tasks) if not n.startswith("BaselineResolver")]
    assert order == [
        "ExampleGen",
        "StatisticsGen",
        "SchemaGen",
        "ExampleValidator",
        "Transform",
        "Trainer",
        "Evaluator",
        "InfraValidator",
        "Pusher",
    ]


def test_variants_go_from_optimizer_to_pusher() -> None:
    spec = json.loads(compile_digits("optimize={variants: [float]}"))["pipelineSpec"]
    tasks = spec["root"]["dag"]["tasks"]
    given = tasks["Pusher"]["inputs"]["artifacts"]["variants"]["taskOutputArtifact"]
    assert given == {"producerTask": "Optimizer", "outputArtifactKey": "variants"}
    # The container imports the class of the artifact by what the job calls it.
    component = spec["components"][tasks["Optimizer"]["componentRef"]["name"]]
    schema = component["outputDefinitions"]["artifacts"]["variants"]["artifactType"]
    title = yaml.safe_load(schema["instanceSchema"])["title"]
    assert import_utils.import_class_by_path(title) is ModelVariants


def test_containers_get_what_the_config_gives_them(
    job: dict[str, Any], deployment: pb.PipelineDeploymentConfig
) -> None:
    trainer = deployment.executors["Trainer_executor"].container
    variables = {variable.name: variable.value for variable in trainer.env}
    assert variables["LANGUAGE"] == "en"
    assert json.loads(variables["SCOPELINE_TRAINER_OPTIONS"])["retries"] == 7
    assert trainer.resources.cpu_limit == 7.5
    assert trainer.resources.memory_limit == pytest.approx(4.295, abs=0.001)
    assert trainer.resources.accelerator.type == "NVIDIA_TESLA_T4"
    assert trainer.resources.accelerator.count == 2
    generator = deployment.executors["ExampleGen_executor"].container
    assert [(v.name, v.value) for v in generator.env] == [("LANGUAGE", "en")]
    assert generator.resources.cpu_limit == 2
    tasks = job["pipelineSpec"]["root"]["dag"]["tasks"]
    retried = {name for name, task in tasks.items() if "retryPolicy" in task}
    assert {f"{name}_executor" for name in tasks.keys() - retried} == RESOLVERS
    assert {tasks[name]["retryPolicy"]["maxRetryCount"] for name in retried} == {4}


def test_files_are_looked_for_where_the_config_says(job: dict[str, Any]) -> None:
    tasks = job["pipelineSpec"]["root"]["dag"]["tasks"]

    def given(task: str, parameter: str) -> Any:
        return tasks[task]["inputs"]["parameters"][parameter]["runtimeValue"]["constant"]

    assert given("ExampleGen", "input_base") == "gs://bucket/data"
    assert json.loads(given("ExampleGen", "input_config"))["splits"][0]["pattern"] == "*/*"
    assert given("SchemaGen", "kept") == "gs://bucket/scopeline/digits/schema.pbtxt"
    pushed = json.loads(given("Pusher", "push_destination"))
    serving = "gs://bucket/scopeline/digits/serving/digits"
    assert pushed["filesystem"]["base_directory"] == serving


USELESS = "Vertex AI has no use for it"
REFUSED = {
    "name=my_digits": "name: found 'my_digits'; Vertex AI takes small letters, digits and `-`, "
    "such as 'my-digits'",
    "kubeflow.image=null": "kubeflow.image: this key is missing; right is an image in a registry",
    "kubeflow.pipeline_root=null": "kubeflow.pipeline_root: this key is missing; the steps on "
    "Vertex AI share a bucket: gs://...",
    "kubeflow.pipeline_root=/mnt/output": "kubeflow.pipeline_root: found '/mnt/output', which is a "
    "path of one machine; the steps on Vertex AI share a bucket: gs://...",
    "kubeflow.pipeline_root=s3://bucket/x": "kubeflow.pipeline_root: found 's3://bucket/x', which "
    "is no bucket of Google Cloud",
    "kubeflow.endpoint=https://kubeflow.example.com": f"kubeflow.endpoint: {USELESS}: it is "
    "submitted by Google's own client, which is told a project and a location; leave it out",
    "kubeflow.namespace=me": f"kubeflow.namespace: {USELESS}: it has no namespaces",
    "kubeflow.experiment=first": f"kubeflow.experiment: {USELESS}",
    "kubeflow.service_account=runner": f"kubeflow.service_account: {USELESS}",
    "kubeflow.volume={claim: data}": f"kubeflow.volume: {USELESS}: its steps share a bucket, "
    "pipeline_root; leave it out",
    "kubeflow.metadata=mysql://me@db/meta": f"kubeflow.metadata: {USELESS}: it keeps its own "
    "metadata",
    "kubeflow.secrets={TOKEN: {secret: s, key: k}}": f"kubeflow.secrets: {USELESS}",
    "kubeflow.image_pull_secrets=[pull]": f"kubeflow.image_pull_secrets: {USELESS}",
    "kubeflow.timeout=1h": f"kubeflow.timeout: {USELESS}: its steps have no timeout",
    "kubeflow.resources={Trainer: {node_selector: {a: b}}}": "kubeflow.resources.Trainer."
    "node_selector: Vertex AI chooses the machine by cores, memory and accelerator",
    "kubeflow.resources={default: {tolerations: [{key: a, operator: Exists}]}}": "kubeflow."
    "resources.default.tolerations: Vertex AI chooses the machine",
    "kubeflow.resources={Trainer: {accelerator: {count: 1}}}": "kubeflow.resources.Trainer."
    "accelerator.type: found 'nvidia.com/gpu'; Vertex AI has names of its own, such as "
    "NVIDIA_TESLA_T4",
    "kubeflow.resources={worker: {cpu: 2}}": "kubeflow.resources.worker: a step on Vertex AI "
    "cannot start pods; all processes share what Trainer is given",
    "data.path=builtin:digits": "data.path: found 'builtin:digits'; Vertex AI cannot read shipped "
    "data, copy it to a bucket: gs://...",
    "data.path=tests": "data.path: found 'tests', which is a path of one machine",
    "data.path=gs://bucket/{SPAN}/*": "data.path: found 'gs://bucket/{SPAN}/*'; Vertex AI has no "
    "way to choose among spans, target: kubeflow can do it; name one span's files",
    "schema=README.md": "schema: found 'README.md', which is a path of one machine",
    "push.directory=/models": "push.directory: found '/models', which is a path of one machine",
    "train.cluster={launcher: kubernetes, workers: 1}": "train.cluster.launcher: found "
    "'kubernetes', but a step on Vertex AI cannot start pods; `local` starts the processes within "
    "the step",
    "model={kind: resnet50, weights: imagenet}": "model.weights: found 'imagenet', but no step on "
    "Vertex AI fetches weights for the others",
    "schedule={cron: 0 3 * * *, warm_start: true}": "schedule.warm_start: Vertex AI cannot find "
    "the model that training would begin with",
    "schedule={cron: 0 3 * * *, keep: {runs: 3}}": "schedule.keep: Vertex AI has no step that "
    "would delete old runs or versions",
    "metadata=mysql://me@db/meta": "metadata: Vertex AI keeps its own metadata; leave it out",
    "notify.webhook={url: https://example.com}": "notify.webhook: Vertex AI has no step that would "
    "tell anybody",
    "notify.email={server: mail, sender: a@b, to: [c@d]}": "notify.email: Vertex AI has no step",
}


@pytest.mark.parametrize("override", REFUSED)
def test_what_vertex_cannot_do_is_refused(override: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    with pytest.raises(ConfigError) as caught:
        compile_digits("features.image.height=32", "features.image.width=32", override)
    (problem,) = str(caught.value).splitlines()
    assert problem.startswith(REFUSED[override])
    assert "Vertex AI" in problem


def test_drift_is_refused_besides_its_spans() -> None:
    config = load_config(
        ROOT / "configs" / "digits.yaml",
        [*ON_VERTEX, "data.path=gs://bucket/{SPAN}/*", "drift.columns={a: {infinity_norm: 0.1}}"],
    )
    paths = [problem.path for problem in check_for_vertex(config)]
    assert paths == ["data.path", "drift.columns"]


@pytest.mark.e2e
def test_the_job_trains_and_finds_the_blessed_model_again(tmp_path: Path) -> None:
    bucket = tmp_path / "bucket"
    write_fares(bucket / "data" / "fares.csv")
    (bucket / "scopeline" / "fares").mkdir(parents=True)
    (tmp_path / "fares.yaml").write_text(
        "name: fares\ntask: binary\nmodel: {kind: mlp}\ntrain: {epochs: 1, batch_size: 16}\n"
        "data: {format: csv, path: 'gs://bucket/data/fares.csv', label: tips}\n"
    )
    config = load_config(tmp_path / "fares.yaml", ON_VERTEX[1:])
    job = json.loads(compile_for_vertex(config).replace("gs://bucket", str(bucket)))
    vertex = vertex_machine.VertexMachine()

    first = vertex.run(job)
    asked_anew = ("BaselineResolver-model-blessing-resolver", "BaselineResolver-model-resolver")
    cached = {n: o for n, o in first.items() if n not in (*asked_anew, "Evaluator")}
    again = vertex.run(job, cached)

    (examples,), (pushed,) = first["ExampleGen"]["examples"], first["Pusher"]["pushed_model"]
    assert "input_fingerprint" in examples.metadata
    serving = bucket / "scopeline" / "fares" / "serving" / "fares"
    (version,) = serving.iterdir()
    assert pushed.metadata["pushed_destination"] == str(version)
    assert (version / "saved_model.pb").exists()
    assert (bucket / "scopeline" / "fares" / "schema.pbtxt").exists()
    (model,), (blessing,) = first["Trainer"]["model"], first["Evaluator"]["blessing"]
    assert "baseline_model_id" not in blessing.metadata
    assert again["BaselineResolver-model-resolver"]["model"] == [model]
    assert again["Evaluator"]["blessing"][0].metadata["baseline_model_id"] == model.name


def write_fares(path: Path) -> None:
    path.parent.mkdir(parents=True)
    rows = [f"{row % 100 / 10},{'abc'[row % 3]},{int(row % 100 > 50)}" for row in range(400)]
    path.write_text("\n".join(["fare,kind,tips", *rows, ""]))
