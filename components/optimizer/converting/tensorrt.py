"""The conversion for TensorRT: an ONNX file, and the settings of ONNX Runtime's TensorRT provider.

TF-TRT is not used, because TensorFlow's builds lack it since 2.18. The first process that loads the
variant on a machine builds the engine. The ONNX file is checked and evaluated on the CPU; its
latency is measured only on a GPU.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from onnxruntime.quantization import CalibrationMethod, create_calibrator, write_calibration_table

from components.optimizer.converting.exported import Arrays, ConvertedFile, NumericModel
from components.optimizer.converting.onnx import FILE, CalibrationSample, write_float
from trainer_module.export.variants.running import CACHE_PATH, TENSORRT

BATCHES = (1, 32, 1024)
"""The smallest, the typical and the largest batch of an engine."""

TABLE = "calibration.flatbuffers"
"""The file with the ranges of all tensors, for ONNX Runtime's provider."""
TRTEXEC_TABLE = "trtexec.cache"
"""The file with the same ranges in TensorRT's own format."""
CPU_NOTE = "the metrics were measured on a CPU, with the ONNX file in float32"
"""The note on a variant in the report."""


def convert(model: NumericModel, precision: str, sample: Arrays, folder: Path) -> ConvertedFile:
    """Writes the model as an ONNX file, and for int8 also the ranges of all tensors.

    Args:
      precision: the precision of the engine: `float16` or `int8`.

    Raises:
      TrainingError: ONNX lacks an operation of the model.
    """
    path = folder / FILE
    write_float(model, path)
    tables = _calibrate(model, sample, path) if precision == "int8" else ()
    return ConvertedFile(
        "onnx",
        precision,
        path,
        extra_files=tables,
        provider={TENSORRT: _settings(model, precision)},
        trtexec=_command(model, precision),
        notes=(CPU_NOTE,),
    )


def _calibrate(model: NumericModel, sample: Arrays, path: Path) -> tuple[str, ...]:
    augmented = path.with_name("augmented.onnx")
    calibrator = create_calibrator(
        str(path),
        augmented_model_path=str(augmented),
        calibrate_method=CalibrationMethod.MinMax,
        extra_options={"symmetric": True},
    )
    calibrator.set_execution_providers(["CPUExecutionProvider"])
    calibrator.collect_data(CalibrationSample(model, sample))
    ranges = calibrator.compute_data()
    augmented.unlink()
    write_calibration_table(ranges.data, str(path.parent))
    for name in ("calibration.json", "calibration.cache"):  # These files hold the same table.
        path.with_name(name).unlink()
    path.with_name(TRTEXEC_TABLE).write_text(_native_table(ranges.data))
    return (TABLE, TRTEXEC_TABLE)


def _native_table(ranges: Mapping[str, Any]) -> str:
    """Returns the content of TensorRT's calibration cache.

    It has the int8 step of each tensor, as the hexadecimal bits of a float32.
    """
    lines = ["TRT-100000-MinMaxCalibration"]
    for name, tensor_range in sorted(ranges.items()):
        largest = max(float(np.abs(bound).max()) for bound in tensor_range.range_value)
        lines.append(f"{name}: {struct.pack('>f', largest / 127).hex()}")
    return "\n".join(lines) + "\n"


def _settings(model: NumericModel, precision: str) -> dict[str, Any]:
    names = ("min", "opt", "max")
    shapes = {
        f"trt_profile_{name}_shapes": _shapes(model, batch)
        for name, batch in zip(names, BATCHES, strict=True)
    }
    settings: dict[str, Any] = {
        "trt_fp16_enable": True,
        "trt_engine_cache_enable": True,
        "trt_timing_cache_enable": True,
        CACHE_PATH: ".",
        **shapes,
    }
    if precision == "int8":
        settings["trt_int8_enable"] = True
        settings["trt_int8_calibration_table_name"] = TABLE
        settings["trt_int8_use_native_calibration_table"] = False
    return settings


def _command(model: NumericModel, precision: str) -> str:
    """Returns the command that builds an engine without ONNX Runtime.

    Users run the command in the folder of the variant.
    """
    words = ["trtexec", f"--onnx={FILE}", "--saveEngine=model.engine", "--fp16"]
    if precision == "int8":
        words += ["--int8", f"--calib={TRTEXEC_TABLE}"]
    for name, batch in zip(("min", "opt", "max"), BATCHES, strict=True):
        words.append(f"--{name}Shapes={_shapes(model, batch)}")
    return " ".join(words)


def _shapes(model: NumericModel, batch: int) -> str:
    """Returns the shapes of the inputs, such as `image:32x28x28x1,area:32x1`."""
    return ",".join(
        f"{feature.request}:{'x'.join(map(str, (batch, *feature.shape)))}"
        for feature in model.interface.features
    )
