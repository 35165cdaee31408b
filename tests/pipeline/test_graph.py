"""The graph of a config: its components, their inputs and their settings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tfx.dsl.compiler import compiler
from tfx.dsl.components.base.base_node import BaseNode
from tfx.dsl.input_resolution.strategies.latest_blessed_model_strategy import (
    LatestBlessedModelStrategy,
)
from tfx.orchestration.pipeline import Pipeline

from components.beam_workers.options import LOCAL_ARGS
from components.resolvers import (
    LatestOtherBlessedModelStrategy,
    SpanWindowStrategy,
    StatisticsOfSpanStrategy,
    WarmStartModelStrategy,
)
from pipeline.config.settings import PipelineConfig
from pipeline.config.user_code import CODE_KEY
from pipeline.data.files import locate_data
from pipeline.graph.create import create_pipeline, create_search
from pipeline.graph.data import Spans
from pipeline.layout import Layout
from pipeline.run_context import RunContext
from trainer_module.settings import SETTINGS_KEY

INGESTION = ["ExampleGen", "StatisticsGen", "SchemaGen", "ExampleValidator"]
TRAINING = ["Transform", "Trainer", "BaselineResolver", "Evaluator", "InfraValidator", "Pusher"]
SPANS = Spans(newest=7, window=(5, 6, 7), compared_with=6)
DRIFT = {"columns": {"size": {"jensen_shannon": 0.1}}}
OWN_MODEL = "def build(problem, settings):\n    return None\n"


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    (tmp_path / "sizes.csv").write_text("size,label\n1.5,0\n2.5,1\n")
    return Layout(tmp_path / "output", "sizes")


def config_of(layout: Layout, path: str = "sizes.csv", **sections: Any) -> PipelineConfig:
    data = {"format": "csv", "path": str(layout.output.parent / path)}
    raw = {"name": "sizes", "data": data, "task": "binary", **sections}
    return PipelineConfig.model_validate(raw)


def context_of(config: PipelineConfig, layout: Layout) -> RunContext:
    return RunContext(config, layout, locate_data(config.data, layout))


def spans_config(layout: Layout, **sections: Any) -> PipelineConfig:
    for span in SPANS.window:
        folder = layout.output.parent / str(span)
        folder.mkdir(exist_ok=True)
        (folder / "sizes.csv").write_text("size,label\n1.5,0\n2.5,1\n")
    return config_of(layout, "{SPAN}/*.csv", **sections)


def ids(pipeline: Pipeline) -> list[str]:
    """In the order in which they run; what could be first in it is sorted by TFX."""
    return [component.id for component in pipeline.components]


def chain(pipeline: Pipeline, names: list[str]) -> list[str]:
    """Some of the components, in the order in which they run."""
    return [name for name in ids(pipeline) if name in names]


def node(pipeline: Pipeline, name: str) -> BaseNode:
    (found,) = [component for component in pipeline.components if component.id == name]
    return found


def source(pipeline: Pipeline, name: str, key: str) -> str:
    """The id of the node that an input of a component comes from."""
    return str(node(pipeline, name).inputs[key].producer_component_id)


def upstream(pipeline: Pipeline, name: str) -> set[str]:
    return {component.id for component in node(pipeline, name).upstream_nodes}


def custom_config(pipeline: Pipeline, name: str) -> dict[str, Any]:
    return dict(json.loads(node(pipeline, name).exec_properties["custom_config"]))


def parameters(pipeline: Pipeline, name: str) -> dict[str, Any]:
    return dict(node(pipeline, name).exec_properties)


def validation(pipeline: Pipeline) -> dict[str, Any]:
    return dict(json.loads(parameters(pipeline, "ExampleValidator")["settings"]))


def resolves_by(pipeline: Pipeline, name: str) -> tuple[str, dict[str, Any]]:
    """The strategy of a resolver, by its import path, and its settings, as they are compiled."""
    compiled = compiler.Compiler().compile(pipeline)
    (found,) = [n.pipeline_node for n in compiled.nodes if n.pipeline_node.node_info.id == name]
    (graph,) = found.inputs.input_graphs.values()
    strategy = graph.nodes[graph.result_node].op_node
    values = {key: setting.value.field_value for key, setting in strategy.kwargs.items()}
    settings = {key: getattr(value, value.WhichOneof("value")) for key, value in values.items()}
    return strategy.op_type, settings


def import_path(strategy: type) -> str:
    return f"{strategy.__module__}.{strategy.__qualname__}"


def test_plain_data_has_nine_components_and_a_baseline_resolver(layout: Layout) -> None:
    pipeline = create_pipeline(context_of(config_of(layout), layout))
    assert ids(pipeline) == [*INGESTION, *TRAINING]
    assert source(pipeline, "Transform", "examples") == "ExampleGen"
    assert source(pipeline, "Evaluator", "examples") == "ExampleGen"
    assert source(pipeline, "Evaluator", "baseline_model") == "BaselineResolver"
    assert upstream(pipeline, "BaselineResolver") == {"Trainer"}
    assert source(pipeline, "Pusher", "model_blessing") == "Evaluator"
    assert "base_model" not in node(pipeline, "Trainer").inputs
    assert "previous_statistics" not in node(pipeline, "ExampleValidator").inputs


def test_transform_waits_for_the_checks_of_the_data(layout: Layout) -> None:
    """None of their outputs is among its inputs: only the order keeps bad data from a model."""
    for spans, config in ((None, config_of(layout)), (SPANS, spans_config(layout))):
        pipeline = create_pipeline(context_of(config, layout), spans)
        assert "ExampleValidator" in upstream(pipeline, "Transform")
        names = [
            channel.producer_component_id for channel in node(pipeline, "Transform").inputs.values()
        ]
        assert "ExampleValidator" not in names


def test_a_window_is_trained_on_and_the_newest_span_is_evaluated_on(layout: Layout) -> None:
    pipeline = create_pipeline(context_of(spans_config(layout), layout), SPANS)
    resolvers = ["WindowResolver", "AnalyzerCacheResolver"]
    assert set(ids(pipeline)) == {*INGESTION, *resolvers, *TRAINING}
    assert chain(pipeline, [*INGESTION, *TRAINING]) == [*INGESTION, *TRAINING]
    assert chain(pipeline, ["Transform", *resolvers]) == [*resolvers, "Transform"]
    assert source(pipeline, "Transform", "examples") == "WindowResolver"
    assert source(pipeline, "Transform", "analyzer_cache") == "AnalyzerCacheResolver"
    assert upstream(pipeline, "AnalyzerCacheResolver") == {"WindowResolver"}
    assert source(pipeline, "Evaluator", "examples") == "ExampleGen"
    assert upstream(pipeline, "WindowResolver") == {"ExampleGen"}
    resolved = resolves_by(pipeline, "WindowResolver")
    assert resolved == (import_path(SpanWindowStrategy), {"spans": "[5, 6, 7]"})
    only = json.loads(parameters(pipeline, "ExampleGen")["range_config"])["static_range"]
    assert only == {"start_span_number": 7, "end_span_number": 7}


def test_warm_start_gives_training_a_model_to_begin_with(layout: Layout) -> None:
    warm = {"warm_start": True, "cron": "0 3 * * *"}
    spans = create_pipeline(context_of(spans_config(layout, schedule=warm), layout), SPANS)
    resolvers = ["WindowResolver", "AnalyzerCacheResolver", "WarmStartResolver"]
    assert set(ids(spans)) == {*INGESTION, *resolvers, *TRAINING}
    assert source(spans, "Trainer", "base_model") == "WarmStartResolver"
    assert upstream(spans, "WarmStartResolver") == {"WindowResolver"}
    plain = create_pipeline(context_of(config_of(layout, schedule=warm), layout))
    assert upstream(plain, "WarmStartResolver") == {"ExampleGen"}
    assert resolves_by(plain, "WarmStartResolver") == (import_path(WarmStartModelStrategy), {})
    cold = create_pipeline(
        context_of(config_of(layout, schedule=warm | {"warm_start": False}), layout)
    )
    assert "WarmStartResolver" not in ids(cold)
    assert "base_model" not in node(cold, "Trainer").inputs


def test_drift_is_measured_from_the_span_that_was_trained_on_last(layout: Layout) -> None:
    config = spans_config(layout, drift=DRIFT)
    pipeline = create_pipeline(context_of(config, layout), SPANS)
    assert chain(pipeline, INGESTION) == INGESTION
    assert "PreviousStatisticsResolver" in upstream(pipeline, "ExampleValidator")
    resolver = "PreviousStatisticsResolver"
    assert source(pipeline, "ExampleValidator", "previous_statistics") == resolver
    resolved = resolves_by(pipeline, resolver)
    assert resolved == (import_path(StatisticsOfSpanStrategy), {"span": 6})
    assert validation(pipeline)["drift"]["columns"]["size"]


def test_baseline_strategy_of_tfx_has_no_candidate(layout: Layout) -> None:
    pipeline = create_pipeline(
        context_of(config_of(layout), layout), baseline_strategy=LatestBlessedModelStrategy
    )
    assert chain(pipeline, [*INGESTION, *TRAINING[:2]]) == [*INGESTION, *TRAINING[:2]]
    assert set(ids(pipeline)) == {*INGESTION, *TRAINING}
    resolver = node(pipeline, "BaselineResolver")
    assert set(resolver.inputs) == {"model", "model_blessing"}
    assert resolves_by(pipeline, resolver.id)[0] == import_path(LatestBlessedModelStrategy)
    ours = create_pipeline(context_of(config_of(layout), layout))
    inputs = set(node(ours, "BaselineResolver").inputs)
    assert inputs == {"model", "model_blessing", "candidate", "baseline_examples"}
    assert source(ours, "Evaluator", "baseline_examples") == "BaselineResolver"
    assert "baseline_examples" not in node(pipeline, "Evaluator").inputs
    strategy, _ = resolves_by(ours, "BaselineResolver")
    assert strategy == import_path(LatestOtherBlessedModelStrategy)


def test_model_settings_are_not_in_the_key_of_transform(layout: Layout) -> None:
    first = create_pipeline(context_of(config_of(layout), layout))
    other = config_of(layout, model={"hidden_units": [3]}, train={"epochs": 99})
    second = create_pipeline(context_of(other, layout))
    assert custom_config(first, "Transform") == custom_config(second, "Transform")
    found = custom_config(second, "Trainer")[SETTINGS_KEY]
    assert (found["model"]["hidden_units"], found["train"]["epochs"]) == ([3], 99)
    features = config_of(layout, features={"size": {"type": "categorical"}})
    changed = create_pipeline(context_of(features, layout))
    assert custom_config(first, "Transform") != custom_config(changed, "Transform")


def test_own_model_code_is_in_the_key_of_trainer_alone(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = layout.output.parent
    monkeypatch.syspath_prepend(folder)
    (folder / "own_graph_model.py").write_text(OWN_MODEL)
    config = config_of(layout, model={"kind": "own_graph_model.build"})
    plain = create_pipeline(context_of(config_of(layout), layout))
    before = create_pipeline(context_of(config, layout))
    (folder / "own_graph_model.py").write_text(OWN_MODEL.replace("None", "1"))
    after = create_pipeline(context_of(config, layout))
    codes = [custom_config(pipeline, "Trainer")[CODE_KEY] for pipeline in (plain, before, after)]
    assert len(set(codes)) == 3
    assert custom_config(before, "Transform") == custom_config(after, "Transform")


def test_own_preprocessing_is_called_and_known_by_its_code(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = layout.output.parent
    monkeypatch.syspath_prepend(folder)
    (folder / "own_graph_features.py").write_text("def prepare(inputs, custom_config): ...\n")
    plain = create_pipeline(context_of(config_of(layout), layout))
    own = create_pipeline(
        context_of(config_of(layout, preprocessing="own_graph_features.prepare"), layout)
    )
    default = "trainer_module.preprocessing.preprocessing_fn"
    assert parameters(plain, "Transform")["preprocessing_fn"] == default
    assert parameters(own, "Transform")["preprocessing_fn"] == "own_graph_features.prepare"
    codes = [custom_config(pipeline, "Transform")[CODE_KEY] for pipeline in (plain, own)]
    assert codes[0] != codes[1]


def test_the_pipeline_is_that_of_the_layout(layout: Layout) -> None:
    pipeline = create_pipeline(context_of(config_of(layout), layout))
    assert pipeline.pipeline_info.pipeline_name == "sizes"
    assert pipeline.pipeline_info.pipeline_root == layout.artifacts
    assert pipeline.enable_cache
    assert pipeline.beam_pipeline_args == list(LOCAL_ARGS)
    assert pipeline.metadata_connection_config.sqlite.filename_uri == str(layout.metadata)
    destination = json.loads(parameters(pipeline, "Pusher")["push_destination"])
    assert destination["filesystem"]["base_directory"] == layout.serving


def test_number_of_beam_workers_is_in_no_cache_key(layout: Layout) -> None:
    args = [
        create_pipeline(
            context_of(config_of(layout, beam={"workers": workers}), layout)
        ).beam_pipeline_args
        for workers in ("auto", 1, 2)
    ]
    assert args == [list(LOCAL_ARGS)] * 3, "TFX runs a component again whose arguments are others"


def test_a_search_stands_between_transform_and_trainer(layout: Layout) -> None:
    tune = {"space": {"train.learning_rate": {"log": [1e-4, 1e-2]}}, "reuse": True}
    config = config_of(layout, tune=tune, model={"kind": "mlp"})
    pipeline = create_pipeline(context_of(config, layout))
    assert chain(pipeline, ["Transform", "Tuner", "Trainer"]) == ["Transform", "Tuner", "Trainer"]
    assert source(pipeline, "Tuner", "examples") == "Transform"
    assert source(pipeline, "Tuner", "anomalies") == "ExampleValidator"
    assert source(pipeline, "Trainer", "hyperparameters") == "Tuner"
    judged = node(pipeline, "Tuner").exec_properties["eval_args"]
    assert "eval" not in str(judged), "the Evaluator keeps that split for its verdict"
    found = json.loads(node(pipeline, "Trainer").exec_properties["custom_config"])
    assert found[SETTINGS_KEY]["model"] == {"kind": "mlp"}, "another kind has other defaults"
    search = create_search(context_of(config, layout))
    assert set(ids(search)) == {*INGESTION, "Transform", "Tuner"}
    compiler.Compiler().compile(search)


def test_variants_are_made_between_evaluator_and_pusher(layout: Layout) -> None:
    thresholds = {"auc": {"min": 0.5}}
    config = config_of(
        layout,
        optimize={"variants": ["int8"], "accept": {"max_metric_drop": 0.01}},
        evaluate={"metrics": ["log_loss", "auc"], "thresholds": thresholds},
    )
    pipeline = create_pipeline(context_of(config, layout))
    wired = ["Evaluator", "Optimizer", "Pusher"]
    assert chain(pipeline, wired) == wired
    assert source(pipeline, "Optimizer", "model") == "Trainer"
    assert source(pipeline, "Optimizer", "examples") == "ExampleGen"
    assert source(pipeline, "Optimizer", "transformed_examples") == "Transform"
    # Of its blessing a mark is changed where the model waits, which would make all variants anew.
    assert source(pipeline, "Optimizer", "evaluation") == "Evaluator"
    assert "model_blessing" not in node(pipeline, "Optimizer").inputs
    assert source(pipeline, "Pusher", "variants") == "Optimizer"
    found = json.loads(node(pipeline, "Optimizer").exec_properties["custom_config"])
    auc = {"name": "auc", "higher_is_better": True, "has_unit": False}
    assert found["metric"] == auc
    assert found["optimize"]["accept"]["max_metric_drop"] == 0.01
    compiler.Compiler().compile(pipeline)


def test_without_variants_there_is_no_optimizer(layout: Layout) -> None:
    config = config_of(layout, model={"kind": "mlp"}, optimize={"prune": {"sparsity": 0.5}})
    pipeline = create_pipeline(context_of(config, layout))
    assert "Optimizer" not in ids(pipeline)
    assert "variants" not in node(pipeline, "Pusher").inputs
