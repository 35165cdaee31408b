"""A stock TFX pipeline over a taxi CSV; prints the seconds of each component as JSON."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import tensorflow_model_analysis as tfma
from tfx import v1 as tfx
from tfx.orchestration import metadata

from benchmarks import stock_module


def create_pipeline(data: Path, root: Path, train_steps: int) -> tfx.dsl.Pipeline:
    """Returns the template's components with their defaults."""
    examples = tfx.components.CsvExampleGen(input_base=str(data))
    statistics = tfx.components.StatisticsGen(examples=examples.outputs["examples"])
    schema = tfx.components.SchemaGen(statistics=statistics.outputs["statistics"])
    validator = tfx.components.ExampleValidator(
        statistics=statistics.outputs["statistics"], schema=schema.outputs["schema"]
    )
    transform = tfx.components.Transform(
        examples=examples.outputs["examples"],
        schema=schema.outputs["schema"],
        preprocessing_fn=f"{stock_module.__name__}.preprocessing_fn",
    )
    trainer = tfx.components.Trainer(
        run_fn=f"{stock_module.__name__}.run_fn",
        examples=transform.outputs["transformed_examples"],
        transform_graph=transform.outputs["transform_graph"],
        schema=schema.outputs["schema"],
        train_args=tfx.proto.TrainArgs(num_steps=train_steps),
        eval_args=tfx.proto.EvalArgs(num_steps=max(1, train_steps // 10)),
    )
    resolver = tfx.dsl.Resolver(
        strategy_class=tfx.dsl.experimental.LatestBlessedModelStrategy,
        model=tfx.dsl.Channel(type=tfx.types.standard_artifacts.Model),
        model_blessing=tfx.dsl.Channel(type=tfx.types.standard_artifacts.ModelBlessing),
    ).with_id("latest_blessed_model_resolver")
    evaluator = tfx.components.Evaluator(
        examples=examples.outputs["examples"],
        model=trainer.outputs["model"],
        baseline_model=resolver.outputs["model"],
        eval_config=_eval_config(),
    )
    pusher = tfx.components.Pusher(
        model=trainer.outputs["model"],
        model_blessing=evaluator.outputs["blessing"],
        push_destination=tfx.proto.PushDestination(
            filesystem=tfx.proto.PushDestination.Filesystem(base_directory=str(root / "serving"))
        ),
    )
    return tfx.dsl.Pipeline(
        pipeline_name="stock",
        pipeline_root=str(root / "pipeline_root"),
        components=[
            examples,
            statistics,
            schema,
            validator,
            transform,
            trainer,
            resolver,
            evaluator,
            pusher,
        ],
        metadata_connection_config=metadata.sqlite_metadata_connection_config(
            str(root / "metadata.db")
        ),
    )


def _eval_config() -> tfma.EvalConfig:
    bound = tfma.MetricThreshold(
        value_threshold=tfma.GenericValueThreshold(lower_bound={"value": 0.1})
    )
    metrics = [
        tfma.MetricConfig(class_name="AUC"),
        tfma.MetricConfig(class_name="BinaryAccuracy", threshold=bound),
    ]
    return tfma.EvalConfig(
        model_specs=[
            tfma.ModelSpec(
                signature_name="serving_default",
                label_key=stock_module.LABEL,
                preprocessing_function_names=["transform_features"],
            )
        ],
        slicing_specs=[tfma.SlicingSpec(), tfma.SlicingSpec(feature_keys=["payment_type"])],
        metrics_specs=[tfma.MetricsSpec(metrics=metrics)],
    )


def seconds_per_component(root: Path) -> dict[str, float]:
    """Returns the seconds between the registration and publication of each execution."""
    config = metadata.sqlite_metadata_connection_config(str(root / "metadata.db"))
    with metadata.Metadata(config) as handle:
        kinds = {kind.id: kind.name for kind in handle.store.get_execution_types()}
        return {
            kinds[e.type_id].rsplit(".", 1)[-1]: (
                e.last_update_time_since_epoch - e.create_time_since_epoch
            )
            / 1000
            for e in handle.store.get_executions()
        }


def main() -> int:
    """Runs the pipeline once, and prints the seconds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, help="a folder with one CSV file")
    parser.add_argument("root", type=Path, help="the output folder")
    parser.add_argument("train_steps", type=int)
    arguments = parser.parse_args()
    pipeline = create_pipeline(arguments.data, arguments.root, arguments.train_steps)
    tfx.orchestration.LocalDagRunner().run(pipeline)
    print(json.dumps(seconds_per_component(arguments.root)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
