"""The section `optimize` of a config: pruning, quantization, and variants of the trained model.

The Trainer reads `prune` and `quantize`, and the Optimizer reads the other keys. A change of
`variants` or `accept` therefore does not train the model again.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field, PositiveInt, model_validator

from trainer_module.sections import Settings
from trainer_module.settings.model import NETWORKS, is_forest

TWO_BY_FOUR: Literal["2by4"] = "2by4"
"""The sparsity pattern that the sparse tensor cores of NVIDIA's GPUs support."""

SPARSITY_OF_2BY4 = 0.5
"""The sparsity of the 2by4 pattern: two of every four weights are zero."""

NOT_QUANTISED = ("tabular", *NETWORKS)
"""The kinds of models that TFMOT cannot quantise, as their weights are in custom layers or in
nested models."""


class PruneSchedule(StrEnum):
    """The schedule of the sparsity over the steps of a training."""

    POLYNOMIAL = "polynomial"
    """A cubic curve from 0 to `sparsity`, steep at first (Zhu and Gupta, arXiv:1710.01878)."""
    CONSTANT = "constant"
    """The value `sparsity` from the beginning of pruning to the end of the training."""


class BlockStructure(Settings):
    """Blocks of weights that become zero together."""

    block: tuple[PositiveInt, PositiveInt]
    """The height and width of a block in a layer's matrix of weights, whose rows are inputs and
    whose columns are outputs, such as [1, 4]."""


class PruneSettings(Settings):
    """Pruning, which makes the smallest weights of a network zero during training."""

    sparsity: float = Field(default=0.5, gt=0, lt=1)
    """The share of each layer's weights that are zero at the end of the training."""
    schedule: PruneSchedule | None = None
    """`polynomial`: the share of zeros rises from 0 at `begin` to `sparsity` at `end`. `constant`:
    the share is `sparsity` after `begin`. Default: `constant` for `structure: 2by4`, otherwise
    `polynomial`."""
    begin: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """The beginning of pruning: a value less than 1 is a share of the training's steps, a value of
    2 or more is a number of steps."""
    end: float = Field(default=0.5, gt=0, allow_inf_nan=False)
    """The end of the `polynomial` schedule, at which the share of zeros is `sparsity`: a value of
    at most 1 is a share of the training's steps, a value of 2 or more is a number of steps. Only
    epochs after `end` can become the model."""
    structure: Literal["2by4"] | BlockStructure | None = None
    """The pattern of the zeros. `2by4`: two of every four neighbours in a column are zero, as the
    sparse tensor cores of NVIDIA's GPUs require. `{block: [1, 4]}`: whole blocks are zero. Default:
    no pattern."""

    @property
    def is_constant(self) -> bool:
        """Whether the sparsity is constant after the beginning of pruning."""
        default = PruneSchedule.CONSTANT if self.is_2by4 else PruneSchedule.POLYNOMIAL
        return (self.schedule or default) is PruneSchedule.CONSTANT

    @property
    def is_2by4(self) -> bool:
        """Whether two weights of every four become zero."""
        return self.structure == TWO_BY_FOUR

    @model_validator(mode="after")
    def _check_schedule(self) -> PruneSettings:
        if self.is_2by4 and self.sparsity != SPARSITY_OF_2BY4:
            raise ValueError(
                f"structure 2by4 makes two of four weights zero, but sparsity is "
                f"{self.sparsity:g}; give {SPARSITY_OF_2BY4}, or leave structure out"
            )
        if self.is_2by4 and self.schedule is PruneSchedule.POLYNOMIAL:
            raise ValueError(
                "found schedule: polynomial, but structure 2by4 has one sparsity, 0.5, which "
                "cannot grow; use schedule: constant"
            )
        for key, value in (("begin", self.begin), ("end", self.end)):
            if value > 1 and value != int(value):
                raise ValueError(
                    f"{key} is {value:g}; give a share of the steps, such as 0.5, or a whole "
                    f"number of steps, such as {value:.0f}"
                )
        if self.begin == 1:
            raise ValueError(
                "begin is 1, all of the training's steps; give a share less than 1, or a number of "
                "steps of 2 or more"
            )
        if not self.is_constant and self.begin and (self.begin > 1) != (self.end > 1):
            raise ValueError(
                f"begin is {_amount(self.begin)} and end is {_amount(self.end)}; give two shares "
                "of the steps, or two numbers of steps"
            )
        if not self.is_constant and self.begin >= self.end:
            raise ValueError(
                f"begin is {self.begin:g} and end is {self.end:g}; end must be greater than begin"
            )
        return self


def _amount(value: float) -> str:
    return f"{value:g} steps" if value > 1 else f"{value:g} of the steps"


class WhileTraining(Settings):
    """The part of the section that the Trainer reads: pruning and quantization-aware training."""

    prune: PruneSettings | None = None
    """Pruning, which makes the smallest weights zero, so that the model compresses well. Default:
    no pruning."""
    quantize: Literal["qat"] | None = None
    """`qat`: quantization-aware training, which simulates weights and activations of 8 bits, so
    that int8 variants lose less accuracy. Default: no quantization-aware training."""

    @property
    def changes_training(self) -> bool:
        """Whether the settings prune or quantise during training."""
        return self.prune is not None or self.quantize is not None

    def suits(self, kind: str) -> bool:
        """Returns whether a kind of model supports these settings."""
        if self.changes_training and is_forest(kind):
            return False
        return self.quantize is None or kind not in NOT_QUANTISED


class VariantName(StrEnum):
    """A converted form of the SavedModel, named by its runtime and its data type."""

    FLOAT = "float"
    """LiteRT with weights and activations in float32."""
    FLOAT16 = "float16"
    """LiteRT with weights in float16."""
    DYNAMIC = "dynamic"
    """LiteRT with weights in int8."""
    INT8 = "int8"
    """LiteRT with weights and activations in int8."""
    INT16X8 = "int16x8"
    """LiteRT with weights in int8 and activations in int16."""
    ONNX = "onnx"
    """ONNX Runtime with float32."""
    ONNX_FLOAT16 = "onnx_float16"
    """ONNX Runtime with float16."""
    ONNX_INT8 = "onnx_int8"
    """ONNX Runtime with weights and activations in int8."""
    TENSORRT_FLOAT16 = "tensorrt_float16"
    """ONNX Runtime with TensorRT in float16, on NVIDIA GPUs."""
    TENSORRT_INT8 = "tensorrt_int8"
    """ONNX Runtime with TensorRT in int8, on NVIDIA GPUs."""

    @property
    def is_litert(self) -> bool:
        """Whether LiteRT runs the variant; otherwise ONNX Runtime does."""
        return not self.startswith(("onnx", "tensorrt"))

    @property
    def weight_bits(self) -> int:
        """The bits per weight in the file: 32 for TensorRT, which reduces the precision when it
        loads the file.
        """
        if self.is_for_gpu or self in (VariantName.FLOAT, VariantName.ONNX):
            return 32
        return 16 if "float16" in self else 8

    @property
    def is_for_gpu(self) -> bool:
        """Whether the variant is for NVIDIA's GPUs; it cannot be measured on a CPU."""
        return self.startswith("tensorrt")


Limit = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class AcceptSettings(Settings):
    """The requirements that a variant has to meet on the eval split before its push."""

    max_metric_drop: float = Field(default=0.005, ge=0, allow_inf_nan=False)
    """The maximum decline of the deciding metric, compared with the model. The deciding metric is
    the first metric with a threshold, or else the first of `evaluate.metrics`. For errors in the
    label's unit, such as `mse` and `mae`, and for your own metrics, the decline is a share of the
    model's value: 0.005 is half a percent."""
    max_size_ratio: Limit | None = None
    """The maximum size of the file, as a share of the size of the model's weights in float32."""
    max_latency_ratio: Limit | None = None
    """The maximum latency of one example, as a share of the latency of the SavedModel."""
    slices: bool = False
    """Whether `max_metric_drop` also applies to each slice of `evaluate.slices`."""
    unmeasured: bool = False
    """Whether to accept a variant for TensorRT if the Optimizer's machine has no GPU to measure the
    variant. The latency and accuracy of the variant are then unknown."""


class OptimizeSettings(WhileTraining):
    """Pruning, quantization-aware training, and smaller and faster variants of the model."""

    variants: list[VariantName] = []
    """The variants to make after training. LiteRT runs `float`, `float16`, `dynamic` (weights of 8
    bits), `int8` and `int16x8`. ONNX Runtime runs `onnx`, `onnx_float16`, `onnx_int8`,
    `tensorrt_float16` and `tensorrt_int8`."""
    accept: AcceptSettings = AcceptSettings()
    required: list[VariantName] | bool = []
    """The variants that must be accepted; otherwise the model is not pushed. `true`: all
    variants."""

    @property
    def required_variants(self) -> list[VariantName]:
        """The variants that have to be accepted before the model is pushed."""
        if isinstance(self.required, bool):
            return self.variants if self.required else []
        return self.required
