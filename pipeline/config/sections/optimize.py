"""The rules of `optimize`: its keys have to fit the model, the training and this machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.util import find_spec

from pipeline.config.issues import Issue, near_match, rules_of
from pipeline.config.sections.evaluate import EvaluateSettings
from pipeline.config.sections.schedule import ScheduleSettings
from trainer_module.errors import enumerate_names
from trainer_module.extras import install_command
from trainer_module.settings import (
    ModelSettings,
    Precision,
    TrainSettings,
)
from trainer_module.settings.model import ENSEMBLE, is_forest
from trainer_module.settings.optimize import NOT_QUANTISED, OptimizeSettings, VariantName
from trainer_module.strategies.base import Processes

FLOAT_BITS = 32

TRAINING_PACKAGES = ("tensorflow_model_optimization",)
LITERT_PACKAGES = ("ai_edge_litert",)
ONNX_PACKAGES = ("onnx", "onnxruntime", "tf2onnx")


def pruning_needs_an_optimizer(
    model: ModelSettings, train: TrainSettings, optimize: OptimizeSettings | None
) -> Iterator[Issue]:
    """Checks that only models with an optimizer are pruned or quantised while training."""
    for key, verb in _while_training(optimize).items():
        path = f"optimize.{key}"
        if train.run_fn:
            yield Issue(path, f"train.run_fn ({train.run_fn}) does not read this key; remove it")
        elif is_forest(model.kind):
            yield Issue(
                path,
                f"`model: {model.kind}` has no weights to {verb}; remove this key, or use a neural "
                "network, such as `model: tabular`",
            )
        elif model.kind == ENSEMBLE:
            yield Issue(
                path,
                f"most weights of an ensemble are those of trees, which no training can {verb}; "
                "remove this key, or use `model: tabular`",
            )


def constant_schedules_have_no_end(optimize: OptimizeSettings | None) -> Iterator[Issue]:
    """Checks that a constant pruning schedule has no end."""
    prune = _optimize(optimize).prune
    if prune and prune.is_constant and "end" in prune.model_fields_set:
        yield Issue(
            "optimize.prune.end",
            f"found {prune.end:g}, but a constant schedule reaches its sparsity at `begin`; leave "
            "it out, or use schedule: polynomial",
        )


def pruning_needs_trainable_network(
    model: ModelSettings, optimize: OptimizeSettings | None
) -> Iterator[Issue]:
    """Checks that a pruned network is not frozen, as frozen weights cannot adapt to pruning."""
    if _optimize(optimize).prune and model.begins_frozen:
        yield Issue(
            "optimize.prune",
            "a frozen network cannot adapt to pruning; write model.transfer.freeze: false, or "
            "remove this key",
        )


def pruning_has_steps_in_order(
    train: TrainSettings, optimize: OptimizeSettings | None
) -> Iterator[Issue]:
    """Checks that a model is not pruned or quantised with parameter servers."""
    strategy = train.strategy
    for key in _while_training(optimize):
        if strategy.processes is Processes.SERVERS:
            yield Issue(
                f"optimize.{key}",
                f"the workers of {strategy.kind} train asynchronously, so that their steps could "
                "undo each other's pruning; use multi_worker_mirrored or mirrored, or remove this "
                "key",
            )


def pruning_has_all_steps(
    train: TrainSettings, optimize: OptimizeSettings | None
) -> Iterator[Issue]:
    """Checks that a model is not pruned with loss scaling, which skips steps."""
    precision = train.precision
    if _optimize(optimize).prune and precision is Precision.MIXED_FLOAT16:
        yield Issue(
            "optimize.prune",
            f"the loss scaling of train.precision {precision} skips steps, so that training could "
            f"end before the sparsity is reached; use {Precision.MIXED_BFLOAT16}, or remove this "
            "key",
        )


def networks_can_be_quantised(
    model: ModelSettings,
    train: TrainSettings,
    optimize: OptimizeSettings | None,
    schedule_or_default: ScheduleSettings,
) -> Iterator[Issue]:
    """Checks that TensorFlow Model Optimization can train the model for 8 bits."""
    if not _optimize(optimize).quantize:
        return
    kind, precision = model.kind, train.precision
    if kind in NOT_QUANTISED:
        yield Issue(
            "optimize.quantize",
            f"tensorflow-model-optimization cannot train the layers of {kind} for 8 bits; remove "
            "this key (the variant int8 does not need it), or use the model mlp or cnn",
        )
    if precision is not Precision.FLOAT32:
        yield Issue(
            "optimize.quantize",
            f"found train.precision {precision}, but training for 8 bits computes with float32; "
            f"use train.precision: {Precision.FLOAT32}, or remove this key",
        )
    if schedule_or_default.warm_start:
        yield Issue(
            "optimize.quantize",
            "training for 8 bits begins from scratch, as it wraps layers, and their weights cannot "
            "be matched to those of an earlier model; remove this key or schedule.warm_start",
        )


def required_are_variants(optimize: OptimizeSettings | None) -> Iterator[Issue]:
    """Checks that `accept` and `required` apply to variants in `variants`."""
    optimize = _optimize(optimize)
    if not optimize.variants:
        for key in ("accept", "required"):
            if getattr(optimize, key) != type(optimize).model_fields[key].default:
                yield Issue(
                    f"optimize.{key}",
                    "there are no variants; add optimize.variants, such as [int8], or remove this "
                    "key",
                )
        return
    for name in optimize.required_variants:
        if name not in optimize.variants:
            yield Issue(
                "optimize.required",
                f"{name.value!r} is not in optimize.variants; "
                f"{near_match(name, optimize.variants)}",
            )


def variants_are_named_once(optimize: OptimizeSettings | None) -> Iterator[Issue]:
    """Checks that no variant is listed twice, as each has one folder."""
    variants = _optimize(optimize).variants
    for name in dict.fromkeys(n for n in variants if variants.count(n) > 1):
        yield Issue("optimize.variants", f"{name.value!r} is listed twice; list it once")


def limits_can_be_met(optimize: OptimizeSettings | None) -> Iterator[Issue]:
    """Checks that `max_size_ratio` allows at least the weights of each variant.

    Pruning does not make the weights smaller, as zeros are stored like other values.
    """
    optimize = _optimize(optimize)
    max_ratio = optimize.accept.max_size_ratio
    possible = [
        name for name in optimize.variants if max_ratio is None or _min_ratio(name) < max_ratio
    ]
    impossible = optimize.required_variants if possible else optimize.variants
    for name in impossible:
        if name not in possible and name in optimize.variants:
            yield Issue(
                "optimize.accept.max_size_ratio",
                f"found {max_ratio:g}, but a weight of {name.value} has {name.weight_bits} of "
                f"{FLOAT_BITS} bits, so that its file has at least {_min_ratio(name):g} of the "
                f"model's size; write a greater ratio, or remove {name.value} from "
                "optimize.variants",
            )


def slices_of_variants_are_measured(
    evaluate: EvaluateSettings, optimize: OptimizeSettings | None
) -> Iterator[Issue]:
    """Checks that `accept.slices` is set only with `evaluate.slices`."""
    if _optimize(optimize).accept.slices and not evaluate.slices:
        yield Issue(
            "optimize.accept.slices",
            "found true, but there are no evaluate.slices; add evaluate.slices, or remove this key",
        )


OPTIMIZE_RULES = rules_of(__name__)


def packages_are_installed(optimize: OptimizeSettings | None) -> Iterator[Issue]:
    """Checks that the optional packages for the keys of `optimize` are installed."""
    optimize = _optimize(optimize)
    needed: dict[str, Sequence[str]] = {"variants": _packages_of(optimize.variants)}
    needed |= dict.fromkeys(_while_training(optimize), TRAINING_PACKAGES)
    for key, packages in needed.items():
        missing = [name for name in packages if find_spec(name) is None]
        if missing:
            yield Issue(
                f"optimize.{key}",
                f"the package{'s' if len(missing) > 1 else ''} {enumerate_names(missing, 'and')} "
                f"cannot be imported; run `{install_command('optimize')}`, or remove this key",
            )


def _optimize(optimize: OptimizeSettings | None) -> OptimizeSettings:
    return optimize or OptimizeSettings()


def _while_training(optimize: OptimizeSettings | None) -> dict[str, str]:
    """Returns the keys of `optimize` that the Trainer reads and the config sets, with a verb."""
    settings = _optimize(optimize)
    verbs = {"prune": "prune", "quantize": "quantise"}
    return {key: verb for key, verb in verbs.items() if getattr(settings, key) is not None}


def _packages_of(variants: list[VariantName]) -> list[str]:
    litert = LITERT_PACKAGES if any(name.is_litert for name in variants) else ()
    onnx = ONNX_PACKAGES if not all(name.is_litert for name in variants) else ()
    return [*litert, *onnx]


def _min_ratio(name: VariantName) -> float:
    return name.weight_bits / FLOAT_BITS
