"""How a model is made smaller and faster, and what each form of it has to reach.

The first part of the section is the Trainer's, the rest the Optimizer's: a change of `variants` or
`accept` trains nothing again.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field, PositiveInt, model_validator

from trainer_module.sections import Settings
from trainer_module.settings.model import NETWORKS, is_forest

EXTRA = "scopeline[optimize]"
"""What to install for this section."""

TWO_BY_FOUR: Literal["2by4"] = "2by4"
"""The pattern that the sparse tensor cores of NVIDIA's GPUs read."""

SPARSITY_OF_2BY4 = 0.5
"""Two of every four weights."""

NOT_QUANTISED = ("tabular", *NETWORKS)
"""Models whose weights are in layers of ours, or in a model that is a layer: TFMOT knows neither.
"""


class PruneSchedule(StrEnum):
    """How the share of weights that are zero grows."""

    POLYNOMIAL = "polynomial"
    """From 0 to `sparsity`, fast at first: cubic, as Zhu and Gupta have it (arXiv:1710.01878)."""
    CONSTANT = "constant"


class BlockStructure(Settings):
    """Weights that become zero together."""

    block: tuple[PositiveInt, PositiveInt]
    """Its height and width in a layer's matrix of weights, inputs by outputs, such as [1, 4]."""


class PruneSettings(Settings):
    """Make the smallest weights of a network zero while it is trained."""

    sparsity: float = Field(default=0.5, gt=0, lt=1)
    """The share of each layer's weights that are zero in the end."""
    schedule: PruneSchedule | None = None
    """`polynomial`: from 0 to `sparsity` between `begin` and `end`; `constant`: all of it from
    `begin` on. Default: `polynomial`, and `constant` for 2by4."""
    begin: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """When pruning begins: below 1 the share of the training's steps before it, from 2 on their
    number."""
    end: float = Field(default=0.5, gt=0, allow_inf_nan=False)
    """When `polynomial` has reached `sparsity`: up to 1 the share of the training's steps until
    then, from 2 on their number. Only epochs after it may become the model."""
    structure: Literal["2by4"] | BlockStructure | None = None
    """`2by4`: two of four neighbours in each column, as NVIDIA's sparse tensor cores read them;
    `{block: [1, 4]}`: whole blocks. Default: each weight by itself."""

    @property
    def is_constant(self) -> bool:
        """Whether the weights that become zero do so at once."""
        default = PruneSchedule.CONSTANT if self.is_2by4 else PruneSchedule.POLYNOMIAL
        return (self.schedule or default) is PruneSchedule.CONSTANT

    @property
    def is_2by4(self) -> bool:
        """Whether two weights of every four become zero."""
        return self.structure == TWO_BY_FOUR

    @model_validator(mode="after")
    def _ends_after_it_begins(self) -> PruneSettings:
        if self.is_2by4 and self.sparsity != SPARSITY_OF_2BY4:
            raise ValueError(
                f"structure 2by4 makes two of four weights zero, but sparsity is "
                f"{self.sparsity:g}; give {SPARSITY_OF_2BY4}, or leave structure out"
            )
        if self.is_2by4 and self.schedule is PruneSchedule.POLYNOMIAL:
            raise ValueError(
                "structure 2by4 has no sparsity between none and a half, to grow by polynomial; "
                "use schedule: constant"
            )
        for key, value in (("begin", self.begin), ("end", self.end)):
            if value > 1 and value != int(value):
                raise ValueError(
                    f"{key} is {value:g}; give a share of the steps, such as 0.5, or a whole "
                    f"number of steps, such as {value:.0f}"
                )
        if self.begin == 1:
            raise ValueError(
                "begin is 1, all of the training's steps; give a smaller share, or a number of "
                "steps from 2 on"
            )
        if not self.is_constant and self.begin and (self.begin > 1) != (self.end > 1):
            raise ValueError(
                f"begin is {_amount(self.begin)} and end {_amount(self.end)}; give both as shares, "
                "or both as numbers of steps"
            )
        if not self.is_constant and self.begin >= self.end:
            raise ValueError(
                f"begin is {self.begin:g} and end {self.end:g}; give an end that is after begin"
            )
        return self


def _amount(value: float) -> str:
    return f"{value:g} steps" if value > 1 else f"{value:g} of the steps"


class WhileTraining(Settings):
    """What is done to a network while it is trained; the Trainer is told no more."""

    prune: PruneSettings | None = None
    """Make the smallest weights zero, so that the model compresses well; default: none."""
    quantize: Literal["qat"] | None = None
    """`qat`: train as if weights and activations had 8 bits, which int8 variants then lose less by.
    """

    @property
    def changes_training(self) -> bool:
        """Whether the Trainer has something to do."""
        return self.prune is not None or self.quantize is not None

    def suits(self, kind: str) -> bool:
        """Returns whether a model of a kind can be trained so."""
        if self.changes_training and is_forest(kind):
            return False
        return self.quantize is None or kind not in NOT_QUANTISED


class VariantName(StrEnum):
    """A form of the model, beside the SavedModel, by its runtime and its numbers."""

    FLOAT = "float"
    FLOAT16 = "float16"
    DYNAMIC = "dynamic"
    INT8 = "int8"
    INT16X8 = "int16x8"
    ONNX = "onnx"
    ONNX_FLOAT16 = "onnx_float16"
    ONNX_INT8 = "onnx_int8"
    TENSORRT_FLOAT16 = "tensorrt_float16"
    TENSORRT_INT8 = "tensorrt_int8"

    @property
    def is_litert(self) -> bool:
        """Whether LiteRT runs it; ONNX Runtime the others."""
        return not self.startswith(("onnx", "tensorrt"))

    @property
    def weight_bits(self) -> int:
        """Of each weight in the file; TensorRT makes numbers smaller where it runs."""
        if self.is_for_gpu or self in (VariantName.FLOAT, VariantName.ONNX):
            return 32
        return 16 if "float16" in self else 8

    @property
    def is_for_gpu(self) -> bool:
        """Whether it is meant for NVIDIA's GPUs, so that a CPU's figures say nothing of it."""
        return self.startswith("tensorrt")


Limit = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class AcceptSettings(Settings):
    """What a variant has to reach on the eval split to be pushed."""

    max_metric_drop: float = Field(default=0.005, ge=0, allow_inf_nan=False)
    """How much worse than the model it may be, by the metric that decides: the first one with a
    threshold, or else the first of `evaluate.metrics`. Of errors in the label's unit, such as `mse`
    and `mae`, and of metrics of your own, a share of the model's value: 0.005 is half a percent."""
    max_size_ratio: Limit | None = None
    """The largest share that its file may have of the bytes that the model's weights take as
    float32."""
    max_latency_ratio: Limit | None = None
    """The largest share that its time for one example may have of the SavedModel's."""
    slices: bool = False
    """Whether it may not be worse than `max_metric_drop` on any of `evaluate.slices` either."""
    unmeasured: bool = False
    """Whether a variant for TensorRT is accepted that was not measured on a GPU, because the
    machine of the Optimizer has none: nobody knows then how quick it is, nor how exact."""


class OptimizeSettings(WhileTraining):
    """Smaller and faster forms of the model, each evaluated and measured as the model itself is."""

    variants: list[VariantName] = []
    """Forms to make after the training: of LiteRT `float`, `float16`, `dynamic` (weights of 8
    bits), `int8` and `int16x8`; of ONNX Runtime `onnx`, `onnx_float16`, `onnx_int8`,
    `tensorrt_float16` and `tensorrt_int8`."""
    accept: AcceptSettings = AcceptSettings()
    required: list[VariantName] | bool = []
    """Names of variants without which nothing is pushed; `true`: all of them."""

    @property
    def required_variants(self) -> list[VariantName]:
        """Without which nothing is pushed."""
        if isinstance(self.required, bool):
            return self.variants if self.required else []
        return self.required
