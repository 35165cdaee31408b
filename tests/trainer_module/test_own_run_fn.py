"""A `run_fn` of a user's: TFX's arguments, and the example of the page on it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from tfx.components.trainer.fn_args_utils import FnArgs
from tfx_bsl.tfxio import dataset_options

from components.trainer.component import _ARGUMENTS
from components.trainer.worker import _make_arguments
from tests.support.trainer_data import Transformed, to_example
from trainer_module.export.saving import EVAL_LABEL_SIGNATURE, EVAL_SIGNATURE
from trainer_module.runtime import StrategyChoice, WorkerContext
from trainer_module.strategies.synchronous import DefaultStrategy

PAGE = Path(__file__).parents[2] / "docs" / "your-code.md"


def fn_args_of(data: Transformed, directory: Path, **sections: Any) -> FnArgs:
    """As a process that trains makes them of what it is sent."""
    sent = data.fn_args(directory, train={"run_fn": "my_training.run_fn"}, **sections)
    choice = StrategyChoice(strategy=DefaultStrategy(kind="default"))
    plain = {name: getattr(sent, name) for name in _ARGUMENTS}
    return _make_arguments(plain, WorkerContext(choice=choice))


@pytest.mark.slow
def test_own_run_fn_gets_the_arguments_of_tfx(trips: Transformed, tmp_path: Path) -> None:
    fn_args = fn_args_of(trips, tmp_path)
    assert isinstance(fn_args, FnArgs)
    options = dataset_options.TensorFlowDatasetOptions(batch_size=7, label_key="tipped")
    dataset = fn_args.data_accessor.tf_dataset_factory(
        fn_args.train_files, options, trips.tft_output.transformed_metadata.schema
    )
    features, label = next(iter(dataset))
    assert features["fare"].shape == (7, 1)
    assert label.shape == (7, 1)


@pytest.mark.slow
def test_documented_run_fn_trains_and_exports(
    trips: Transformed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (code,) = re.findall(r"```python\n# my_training.py\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (tmp_path / "my_training.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    import my_training

    options = {"options": {"epochs": 2}}
    my_training.run_fn(fn_args_of(trips, tmp_path, model=options))
    served = tf.saved_model.load(str(tmp_path / "Format-Serving")).signatures
    assert {EVAL_SIGNATURE, EVAL_LABEL_SIGNATURE} <= set(served)
    rows = tf.constant([to_example(row) for row in trips.evaluation[:3]])
    assert served["serving_default"](examples=rows)["scores"].shape == (3, 2)
