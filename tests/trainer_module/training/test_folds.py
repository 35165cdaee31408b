"""Cross-validation: every example is held out once, and the model is trained as without it."""

from __future__ import annotations

import functools
import statistics
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from tfx.components.trainer.fn_args_utils import FnArgs

from tests.support.trainer_data import Transformed, read_record
from trainer_module import trainer
from trainer_module.data.dealing import divide_records, make_fold
from trainer_module.data.examples import Content, Reader
from trainer_module.data.input_pipeline import Split
from trainer_module.errors import TrainingError
from trainer_module.settings import CrossValidation, Loop
from trainer_module.trainer import run_fn, train
from trainer_module.training import folds
from trainer_module.training.building import make_network
from trainer_module.training.folds import cross_validate, train_best_length
from trainer_module.training.plan import TrainingInputs, TrainingPlan, TrainingResult, open_inputs
from trainer_module.training.reuse import Reuse

FOLDS = 2


def open_split(data: Transformed, name: str, max_bytes: int | None) -> Split:
    """A split in memory, or in files where it may take no bytes."""
    problem = data.problem
    reader = Reader(data.files(name), data.tft_output.transformed_feature_spec(), problem)
    content = reader.read(name, max_bytes)
    return Split(reader, content, 32, shuffle_seed=1 if name == "train" else None)


def fares(split: Split) -> list[float]:
    """A column of an evaluation's examples, in order."""
    batches = split.batches(tf.distribute.InputContext())
    return [float(x) for features, _ in batches for x in features["fare"].numpy().ravel()]


@pytest.mark.slow
@pytest.mark.parametrize("max_bytes", [None, 0])
def test_every_example_is_held_out_once(trips: Transformed, max_bytes: int | None) -> None:
    train, evaluation = (open_split(trips, name, max_bytes) for name in ("train", "eval"))
    everything = fares(replace(train, shuffle_seed=None))
    fold_of = divide_records(train, FOLDS, "evaluate.folds: 2 folds")
    folds = [make_fold(train, evaluation, fold_of, fold) for fold in range(FOLDS)]
    held_out = [fares(held) for _, held in folds]
    assert [len(fold) for fold in held_out] == [225, 224], "one row has no label"
    assert sorted(held_out[0] + held_out[1]) == sorted(everything)
    for (learnt, held), out in zip(folds, held_out, strict=True):
        assert learnt.source == held.source == train.source
        assert (learnt.examples, held.examples) == (449 - len(out), len(out))
        rest = fares(replace(learnt, shuffle_seed=None))
        assert sorted(rest + out) == sorted(everything)
        batches = learnt.batches(tf.distribute.InputContext()).take(16)
        seen = {float(x) for features, _ in batches for x in features["fare"].numpy().ravel()}
        assert seen == set(rest), "a training comes to all of them, and to no other"


@pytest.mark.slow
def test_more_folds_than_examples(trips: Transformed) -> None:
    train = open_split(trips, "train", None)
    few = replace(train, content=Content(np.array([True, False])))
    with pytest.raises(TrainingError, match=r"evaluate\.folds: 2 folds"):
        divide_records(few, FOLDS, "evaluate.folds: 2 folds")


@pytest.mark.slow
@pytest.mark.parametrize("max_bytes", [None, 0])
def test_each_fold_has_its_part_of_every_class(trips: Transformed, max_bytes: int | None) -> None:
    train = open_split(trips, "train", max_bytes)
    labels = open_split(trips, "train", None).content.tensors[train.reader.problem.label]
    dealt = divide_records(train, 40, "test").part_of[train.content.usable]
    for counts in (np.bincount(dealt[labels.numpy().ravel() == label]) for label in (0, 1)):
        assert len(counts) == 40
        assert max(counts) - min(counts) <= 1


@pytest.mark.slow
def test_early_stopping_without_held_out_examples_is_noted(
    trips: Transformed, tmp_path: Path
) -> None:
    options = {"epochs": 3, "early_stopping": {"patience": 1}}
    inputs = open_inputs(trips.fn_args(tmp_path, train=options))
    content = inputs.data.train.content
    one_group = replace(content, groups=np.zeros(content.examples, np.int64))
    data = replace(inputs.data, train=replace(inputs.data.train, content=one_group))
    plans: list[TrainingPlan] = []

    def planned(inputs: TrainingInputs, plan: TrainingPlan) -> TrainingResult:
        plans.append(plan)
        split = inputs.data.train
        return TrainingResult(tf_keras.Sequential(), split, split, {}, plan.last_epoch, [], plan)

    train_best_length(planned, replace(inputs, data=data))
    (plan,) = plans
    assert (plan.last_epoch, plan.chooses_epoch) == (3, False)
    assert plan.notes[0].startswith("early stopping")


@pytest.mark.slow
def test_a_second_training_resets_the_network_of_the_first(
    trips: Transformed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {
        "epochs": 4,
        "early_stopping": {"patience": 4},
        "learning_rate": {"schedule": "cosine", "initial": 0.01},
    }

    def train_twice(folder: str) -> tuple[TrainingResult, int]:
        made = []
        monkeypatch.setattr(trainer, "make_network", lambda *a: made.append(a) or make_network(*a))
        inputs = open_inputs(trips.fn_args(tmp_path / folder, train=options))
        return train_best_length(train, inputs), len(made)

    reset, networks = train_twice("reset")
    assert networks == 1
    monkeypatch.setattr(Reuse, "fits", lambda *_: False)
    anew, networks = train_twice("anew")
    assert networks == 2
    assert reset.plan == anew.plan
    assert reset.history["learning_rate"] == pytest.approx(anew.history["learning_rate"])
    assert reset.history["loss"] == pytest.approx(anew.history["loss"], rel=1e-5)
    for one, other in zip(reset.model.get_weights(), anew.model.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)
    rate = reset.model.optimizer.get_config()["learning_rate"]["config"]
    assert rate == anew.model.optimizer.get_config()["learning_rate"]["config"]


@pytest.fixture(scope="module")
def folded(trips: Transformed) -> Transformed:
    evaluate = CrossValidation(folds=FOLDS)
    settings = trips.settings.model_copy(update={"evaluate": evaluate})
    return replace(trips, settings=settings)


@pytest.mark.slow
def test_folds_do_not_change_the_trained_model(
    folded: Transformed, trips_model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fn_args = folded.fn_args(tmp_path)
    fn_args.base_model = None
    run_fn(fn_args)
    alone, record = read_record(trips_model), read_record(fn_args.serving_model_dir)
    assert record["history"] == alone["history"]
    assert "folds" not in alone
    assert set(record["folds"]) == {"loss", "accuracy", "auc"}
    for found in record["folds"].values():
        assert len(set(found["values"])) == FOLDS
        assert found["mean"] == pytest.approx(statistics.fmean(found["values"]))
        assert found["deviation"] == pytest.approx(statistics.stdev(found["values"]))
    assert record["folds"]["accuracy"]["mean"] > 0.7

    # With the backups that an interruption would leave, nothing is trained again.
    run_fn(fn_args)
    again = read_record(fn_args.serving_model_dir)
    assert again == record | {"resumed_at_step": record["steps"]}
    options = {"loop": Loop.CUSTOM, "strategy": "mirrored", "batch_size": 16}
    by_other = cross_validated(folded.fn_args(tmp_path / "other", train=options), monkeypatch)
    for name, found in record["folds"].items():
        assert by_other[name]["values"] == pytest.approx(found["values"], rel=1e-4)


def cross_validated(fn_args: FnArgs, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The folds of a training, without the training itself; only one at a time is in memory."""
    made: list[weakref.ref] = []

    def watched(*arguments: Any) -> tuple[Split, Split]:
        assert not [content for content in made if content() is not None]
        fold = make_fold(*arguments)
        made.extend(weakref.ref(x) for split in fold for x in split.content.tensors.values())
        return fold

    monkeypatch.setattr(folds, "make_fold", watched)
    train_network = functools.partial(train_best_length, train)
    return cross_validate(FOLDS, train_network, open_inputs(fn_args))
