"""Names of settings in other tools, with the corresponding keys and values of a config."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

KEYS = {
    "data.label": "target target_column label_column output_column outcome y dependent_variable",
    "data.path": "file filename filepath files csv_path input input_path source url",
    "data.format": "file_format file_type",
    "data.splits": "split test_size validation_split train_test_split val_size eval_split",
    "data.split_by": "group group_by groups group_column",
    "data.order_by": "time_column timestamp date_column time_order",
    "data.weight": "sample_weight weight_column example_weight",
    "data.csv.delimiter": "sep separator delimiter",
    "data.csv.missing_values": "na_values null_values",
    "features": "columns inputs feature_columns x",
    "model.kind": "algorithm architecture estimator network model_type classifier",
    "model.hidden_units": "hidden_layers layers_sizes hidden hidden_layer_sizes dense_units",
    "train.learning_rate": "lr eta learning_rate_init step_size",
    "train.batch_size": "batch batchsize minibatch_size",
    "train.epochs": "iterations max_epochs num_epochs n_epochs max_iter",
    "train.early_stopping": "patience early_stop stop_early",
    "train.strategy": "distribution distribute gpus devices num_gpus accelerator",
    "train.precision": "mixed_precision fp16 amp dtype",
    "train.class_weights": "class_weight balanced scale_pos_weight",
    "train.seed": "random_state random_seed rng",
    "train.cluster.workers": "workers num_workers n_workers",
    "train.loss": "loss_function criterion objective",
    "evaluate.metrics": "metric eval_metric scoring",
    "evaluate.thresholds": "threshold minimum quality_gate",
    "evaluate.folds": "cv cross_validation n_splits k_folds kfold",
    "schedule.cron": "every interval frequency crontab when",
    "schedule.poll": "poll_interval check_every",
    "tune": "hyperparameters search hparams tuner",
    "tune.trials": "n_trials max_trials num_trials",
    "push.directory": "output_dir serving_dir model_dir export_dir",
    "optimize.variants": "quantize quantization tflite onnx",
}
"""Names in other tools, separated by blanks, by the corresponding key of a config."""
VALUES = {
    "trees": "xgboost xgb lightgbm lgbm catboost gbm gbt gbdt gradient_boosting random_forest rf"
    " forest decision_forest decision_tree ydf",
    "mlp": "dnn nn neural_network dense feedforward fully_connected",
    "wide_deep": "wide_and_deep",
    "bert": "transformer encoder",
    "bag": "tfidf tf_idf bag_of_words bow",
    "resnet50": "resnet",
    "efficientnet_b0": "efficientnet",
    "mobilenet_v3": "mobilenet",
    "binary": "binary_classification",
    "multiclass": "multiclass_classification classification",
    "regression": "forecast forecasting time_series",
    "control": "reinforcement_learning rl",
    "generation": "gan generative",
    "mirrored": "ddp data_parallel multi_gpu",
    "multi_worker_mirrored": "horovod multi_node distributed",
    "parameter_server": "ps",
    "one_device": "single single_device cpu gpu",
    "auc": "roc_auc auroc",
    "average_precision": "pr_auc auprc",
    "f1": "f1_score",
    "mse": "mean_squared_error",
    "mae": "mean_absolute_error",
    "rmse": "root_mean_squared_error",
    "mape": "mean_absolute_percentage_error",
    "r2": "r2_score r_squared",
    "log_loss": "cross_entropy crossentropy logloss",
    "mixed_float16": "float16 fp16 half",
    "mixed_bfloat16": "bfloat16 bf16",
    "categorical": "category string str enum",
    "numeric": "number float int integer continuous",
    "ignore": "drop skip exclude",
    "images": "image pictures",
    "jsonl": "json ndjson",
}
"""Names in other tools, separated by blanks, by the corresponding value in a config."""


def _by_synonym(table: Mapping[str, str]) -> dict[str, str]:
    return {synonym: name for name, synonyms in table.items() for synonym in synonyms.split()}


_KEY_OF, _VALUE_OF = _by_synonym(KEYS), _by_synonym(VALUES)


def find_value(value: Any, known: Collection[str]) -> str | None:
    """Returns the allowed value for which an unknown value is a synonym, or None if there is none.

    Args:
      value: the unknown value.
      known: the allowed values.
    """
    match = _VALUE_OF.get(str(value).lower().replace("-", "_").replace(" ", "_"))
    return match if match in known else None


def find_keys(name: str, sections: Mapping[str, Collection[str]]) -> list[str]:
    """Returns the dotted keys that a user may mean by an unknown key.

    The result is the key for which the unknown key is a synonym, or else all keys of the same name
    in other sections.

    Args:
      name: the unknown key, without its section.
      sections: the keys of each section of a config, by the section's name.
    """
    plain = name.lower().replace("-", "_")
    if plain in _KEY_OF:
        return [_KEY_OF[plain]]
    return [f"{section}.{plain}" for section, keys in sections.items() if plain in keys]
