"""Summaries of runs for the tests of the report; every part of a summary has content."""

from __future__ import annotations

import base64
import io
import math
from typing import Any

from PIL import Image

from components.evaluator.explanation.record import WorstExamples
from pipeline.records.summary import RunSummary
from pipeline.report.slice_differences import COUNT

HOSTILE = "<script>window.hit=1</script><img src=x onerror=window.hit=2>\"'`\u202e\x1b]0;x\x07"
"""A text that would run scripts, turn the order of characters, or write to a terminal."""


def _bins(shift: float) -> dict[str, Any]:
    counts = [round(1000 * math.exp(-((i - 8 - shift) ** 2) / 18)) for i in range(20)]
    return {"edges": [i / 2 for i in range(21)], "counts": counts}


def _statistics(rows: int, shift: float) -> dict[str, Any]:
    whole = {"rows": rows, "missing": 0.02, "unique": 800, "mean": 4 + shift, "std": 1.5}
    return whole | {"min": 0.0, "median": 4.0, "max": 10.0, "histogram": _bins(shift)}


def _categories(rows: int, cash: float) -> dict[str, Any]:
    top = [("Cash", cash), ("Credit Card", 0.97 - cash), ("No Charge", 0.03)]
    return {"rows": rows, "missing": 0.0, "unique": 3, "top": top}


_SPLITS = {"train": 12000, "eval": 3000, "last span": 500}
_COLUMNS = [
    {
        "name": "trip_miles",
        "type": "numeric",
        "splits": {name: _statistics(n, i / 3) for i, (name, n) in enumerate(_SPLITS.items())},
        "distance": 0.04,
        "drift": 0.21,
    },
    {
        "name": "payment_type",
        "type": "categorical",
        "splits": {
            name: _categories(n, 0.6 - i / 20) for i, (name, n) in enumerate(_SPLITS.items())
        },
        "distance": 0.05,
        "drift": 0.05,
    },
    {"name": "tips", "type": "ignored", "splits": {"train": _statistics(12000, 0.0)}},
    {"name": "driver", "type": "categorical", "splits": {"train": _categories(12000, 0.5)}},
]
_CURVE = [i / 20 for i in range(21)]
_EXPLANATION = {
    "rows": 2000,
    "of": 3000,
    "task": "binary",
    "output": "probability of yes",
    "loss": "log_loss",
    "loss_value": 0.21,
    "classes": ["no", "yes"],
    "roc": [{"label": "yes", "x": _CURVE, "y": [x**0.2 for x in _CURVE], "area": 0.949}],
    "precision_recall": [
        {"label": "yes", "x": _CURVE, "y": [1 - x**4 / 2 for x in _CURVE], "area": 0.9}
    ],
    "calibration": {
        "predicted": [0.05, 0.25, 0.5, 0.75, 0.95],
        "observed": [0.04, 0.28, 0.47, 0.78, 0.96],
        "low": [0.02, 0.22, 0.4, 0.7, 0.92],
        "high": [0.07, 0.34, 0.54, 0.84, 0.98],
        "rows": [400] * 5,
        "expected_error": 0.021,
    },
    "confusion": {"classes": ["no", "yes"], "counts": [[1350, 90], [130, 430]]},
    "residuals": {
        "errors": _bins(2),
        "predicted": [float(i) for i in range(50)],
        "actual": [i + math.sin(i) * 3 for i in range(50)],
    },
    "importances": [
        {"column": "payment_type", "increase": 0.6, "low": 0.55, "high": 0.65, "share": 0.93},
        {"column": "trip_miles", "increase": 0.04, "low": 0.03, "high": 0.05, "share": 0.06},
        {"column": "driver", "increase": -0.001, "low": -0.003, "high": 0.001, "share": 0.0},
    ],
    "effects": [
        {
            "column": "trip_miles",
            "is_numeric": True,
            "values": [0.5, 1.0, 2.0, 5.0, 10.0],
            "answers": [0.1, 0.2, 0.3, 0.45, 0.5],
            "low": [0.05, 0.1, 0.2, 0.3, 0.4],
            "high": [0.2, 0.3, 0.4, 0.6, 0.7],
            "rows": [400] * 5,
        },
        {
            "column": "payment_type",
            "is_numeric": False,
            "values": ["Cash", "Credit Card", None],
            "answers": [0.01, 0.6, 0.2],
            "low": [0.0, 0.4, 0.1],
            "high": [0.02, 0.8, 0.3],
            "rows": [1200, 760, 40],
        },
        {
            "column": "driver",
            "is_numeric": False,
            "values": ["Jane Private"],
            "answers": [0.2],
            "low": [0.1],
            "high": [0.3],
            "rows": [2000],
        },
    ],
    "suspected_leak": "payment_type",
    "notes": ["the effects of 12 further columns were not computed"],
}
_STEPS = ["ExampleGen", "StatisticsGen", "SchemaGen", "Transform", "Trainer", "Evaluator", "Pusher"]
_EDGES = [
    ("ExampleGen", "StatisticsGen"),
    ("StatisticsGen", "SchemaGen"),
    ("ExampleGen", "Transform"),
    ("SchemaGen", "Transform"),
    ("Transform", "Trainer"),
    ("ExampleGen", "Evaluator"),
    ("Trainer", "Evaluator"),
    ("Trainer", "Pusher"),
    ("Evaluator", "Pusher"),
]
_DETAILS = {
    "config": {
        "name": "taxi",
        "data": {"path": "trips/*.csv", "label": "big_tipper"},
        "features": {"tips": {"type": "ignore"}},
        "evaluate": {"thresholds": {"auc": {"min": 0.93}}, "slices": ["payment_type"]},
        "report": {"private": ["driver"]},
    },
    "columns": _COLUMNS,
    "explanation": _EXPLANATION,
    "slice_intervals": {
        "payment_type=Cash": {"auc": (0.75, 0.87), "accuracy": (0.99, 1.0)},
        "payment_type=Credit Card": {"auc": (0.60, 0.70), "accuracy": (0.64, 0.72)},
    },
    "costs": {
        name: {"cpu_seconds": 3.0 + i, "peak_bytes": 900_000_000, "written_bytes": 40_000 * i}
        | {"price": 0.002 * i}
        for i, name in enumerate(_STEPS)
        if name != "SchemaGen"
    },
    "lineage": {
        "artifacts": [
            {"id": 1, "type": "Examples", "uri": "/out/ExampleGen/1", "producer": "ExampleGen"}
            | {"consumers": ["StatisticsGen", "Transform"], "bytes": 1_200_000},
            {"id": 2, "type": "Model", "uri": "/out/Trainer/2", "producer": None},
        ],
        "edges": _EDGES,
        "config": "3f2a9c",
        "code": "e29c7ea",
        "versions": {"tensorflow": "2.21.0", "python": "3.11.9"},
        "machine": {"system": "Linux", "cores": "2", "memory": "16 GB"},
    },
    "model": {"bytes": 51_000, "parameters": 8_700},
}
_EPOCHS = range(1, 13)
_TRAINING = {
    "model": "ensemble",
    "strategy": "mirrored",
    "workers": 2,
    "replicas": 2,
    "epochs": 12,
    "best_epoch": 11,
    "seconds": 31.5,
    "examples_per_second": 4192.1,
    "global_batch_size": 64,
    "steps": 276,
    "loop": "fit",
    "precision": "float32",
    "restarts": ["worker 1 was killed"],
    "notes": ["ensemble: tabular 50%, boosted 46%, linear 4%"],
    "history": {
        "loss": [1.5 / i for i in _EPOCHS],
        "auc": [0.95 - 0.1 / i for i in _EPOCHS],
        "val_loss": [0.2 + 1 / i for i in _EPOCHS],
        "val_auc": [0.93 - 0.1 / i for i in _EPOCHS],
        "learning_rate": [0.001 * (13 - i) for i in _EPOCHS],
    },
    "members": {
        "boosted": {"weight": 0.46, "unseen_loss": 0.186, "seconds": 3.6},
        "random": {"weight": 0.0, "unseen_loss": 0.194, "seconds": 8.9},
        "tabular": {"weight": 0.54, "unseen_loss": 0.188, "seconds": 32.4},
    },
    "unseen_loss": 0.184,
    "folds": {"auc": {"values": [0.94, 0.95], "mean": 0.945, "deviation": 0.005}},
    "importances": {"payment_type": 0.96, "trip_miles": 0.03},
}


def _trials() -> list[dict[str, Any]]:
    trials = []
    for i in range(14):
        values = {"train.learning_rate": 10 ** (-4 + i / 6), "model.kind": ["mlp", "trees"][i % 2]}
        trials.append(
            {"number": i, "state": "complete", "value": 0.95 - (i - 6) ** 2 / 900, "epochs": 5}
            | {"values": values}
        )
    trials.append({"number": 14, "state": "pruned", "value": None, "values": {}})
    return sorted(trials, key=lambda trial: -(trial["value"] or 0))


def _variant(name: str, size: int, milliseconds: float, *, accepted: bool) -> dict[str, Any]:
    reasons = [] if accepted else ["auc drops by 0.02"]
    whole = {"name": name, "accepted": accepted, "reasons": reasons, "bytes": size}
    measured = {"p50_ms_batch_1": milliseconds, "p99_ms_batch_1": 3 * milliseconds}
    return whole | {"drop": 0.001, "metrics": {"auc": 0.948}, "measured": measured}


_SUMMARY = {
    "run_id": "2026-11-27T03-40-43.612503",
    "pipeline": "taxi",
    "status": "pushed",
    "started": "2026-11-27T03:40:43+00:00",
    "seconds": 117.3,
    "strategy": "mirrored",
    "components": [
        {"name": name, "state": "cached" if name == "SchemaGen" else "ran", "seconds": 1.5 * i}
        for i, name in enumerate(_STEPS)
    ],
    "window": {"spans": ["2026-11-25", "2026-11-26"], "newest": "2026-11-26"},
    "examples": {"train": 12000, "eval": 3000},
    "columns": {"trip_miles": {"settings": {"type": "numeric"}, "reason": "numbers from 0 to 10"}},
    "anomalies": ["trip_miles of eval has values above 10; features: {trip_miles: {max: 12}}"],
    "drift": ["trip_miles: Jensen-Shannon divergence 0.21 is above 0.2"],
    "notes": ["auc is undefined on payment_type=No Charge, and has no threshold there"],
    "tuning": {
        "objective": "val_auc",
        "best": 6,
        "values": {"train.learning_rate": 0.001},
        "trials": _trials(),
    },
    "training": _TRAINING,
    "metrics": {
        "auc": {"value": 0.949, "in_service": 0.944, "needs": "at least 0.93", "ok": True}
        | {"interval": (0.9415, 0.9567), "difference": (0.001, 0.009)},
        "accuracy": {"value": 0.8907, "in_service": 0.8899, "needs": "", "ok": True}
        | {"interval": (0.879, 0.903)},
    },
    "slices": {
        "payment_type=Cash": {"example_count": 1959, "auc": 0.813, "accuracy": 0.9995},
        "payment_type=Credit Card": {"example_count": 1017, "auc": 0.65, "accuracy": 0.679},
        "payment_type=No Charge": {"example_count": 12, "auc": None, "accuracy": 1.0},
        "driver=Jane Private": {"example_count": 90, "auc": 0.9, "accuracy": 0.9},
    },
    "certificate": {
        "tolerance": 0.001,
        "rows": 283,
        "expected_by": "transform_and_keras",
        "ways": {"rest": {"largest_difference": 3.6e-7, "row": "row 145", "output": "scores"}},
        "failure": "",
    },
    "variants": {
        "metric": "auc",
        "weight_bytes": 34_900,
        "measured": {"p50_ms_batch_1": 0.9, "p99_ms_batch_1": 8.9},
        "variants": [
            _variant("float", 51_200, 0.057, accepted=True),
            _variant("int8", 31_300, 0.058, accepted=False),
        ],
        "unmet": [],
        "skipped": "",
    },
    "blessed": True,
    "reason": "every threshold is met, and the model is not worse than the model in service",
    "pushed": "/out/taxi/serving/taxi/1795750975",
    "details": _DETAILS,
}


def full_run(**changes: Any) -> RunSummary:
    """Returns the summary of a run whose report has all sections, with changes."""
    return RunSummary.model_validate(_SUMMARY | changes)


def _png() -> str:
    file = io.BytesIO()
    Image.radial_gradient("L").resize((28, 28)).save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()


def worst_examples() -> WorstExamples:
    """Returns worst examples with columns that must not be shown, pictures and words."""
    row = {
        "label": "yes",
        "prediction": "no (0.98)",
        "loss": 3.9,
        "values": {"trip_miles": "0.4", "tips": "ignored 7.5", "driver": "Jane Private"},
        "shares": [
            {"column": "payment_type", "value": "Cash", "share": -0.2},
            {"column": "driver", "value": "Jane Private", "share": 0.01},
        ],
        "images": {"picture": _png()},
        "saliency": {"picture": _png()},
        "words": [("a", 0.01), ("dreadful", -0.4), ("film", 0.1)],
    }
    return WorstExamples.model_validate({"base": 0.26, "rows": [row] * 10})


_NAMED = ("splits", "columns", "metrics", "slices", "slice_intervals", "costs", "ways", "versions")
_NAMED += ("machine", "values", "images", "saliency", "examples", "members", "history")
"""The mappings whose keys are names of the data."""
_KEPT = ("status", "state", "started", "images", "saliency")
"""Enumerations, times and pictures, which are not changed."""


def as_hostile(value: Any, key: str = "") -> Any:
    """Returns a value of JSON in which HOSTILE is part of every text and of every name.

    Args:
      value: the value.
      key: the key of the value in its mapping.
    """
    if isinstance(value, dict):
        suffix = HOSTILE if key in _NAMED else ""
        inner = key if key in _KEPT else ""
        # The metrics of a slice have names, too.
        inner = "metrics" if key in ("slices", "slice_intervals") else inner
        return {
            name if name == COUNT else f"{name}{suffix}": as_hostile(item, inner or name)
            for name, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [as_hostile(item) for item in value]
    return f"{value}{HOSTILE}" if isinstance(value, str) and key not in _KEPT else value
