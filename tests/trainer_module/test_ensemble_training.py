"""Trainings of ensembles: the exported model, the record, failing members and a warm start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.support.trainer_data import Transformed, read_record, to_example
from tests.support.warm_data import export, using
from trainer_module import ensemble_trainer
from trainer_module.errors import TrainingError
from trainer_module.export.reference import KerasReference

MEMBERS = ["tabular", "boosted", "extra", "linear"]


def short(trips: Transformed, **model: Any) -> Transformed:
    return using(trips, "ensemble", trees=20, **model)


@pytest.fixture(scope="module")
def trained(trips: Transformed, tmp_path_factory: pytest.TempPathFactory) -> str:
    return export(short(trips), tmp_path_factory.mktemp("ensemble"), epochs=2)


@pytest.mark.slow
def test_training_exports_the_mean_and_records_its_members(
    trips: Transformed, trained: str
) -> None:
    record = read_record(trained)
    assert record["model"] == "ensemble"
    members = record["members"]
    assert sorted(members) == sorted(MEMBERS)
    assert sum(member["weight"] for member in members.values()) == pytest.approx(1)
    assert all(member["unseen_loss"] > 0 for member in members.values())
    # The log loss is convex, so on the same rows the mean is no worse than its members on average.
    average = sum(m["weight"] * m["unseen_loss"] for m in members.values())
    assert record["unseen_loss"] <= average * 1.0001
    assert 0 <= record["calibration_error"] < 0.2
    assert record["temperature"] > 0
    assert set(list(record["importances"])[:2]) == {"fare", "company"}
    assert any(note.startswith("ensemble: ") for note in record["notes"])
    serve = tf.saved_model.load(trained).signatures["serving_default"]
    rows = [row for row in trips.evaluation if row["tipped"] is not None]
    serialised = [to_example(row) for row in rows]
    scores = serve(tf.constant(serialised))["scores"].numpy()
    reference = KerasReference(trained, str(trips.root / "graph"), short(trips).settings)
    np.testing.assert_allclose(reference.answer(serialised)["scores"], scores, atol=1e-6)
    label = np.array([row["tipped"] for row in rows])
    assert np.mean((scores[:, 1] > 0.5) == label) > 0.93


@pytest.mark.slow
def test_network_of_an_ensemble_starts_from_that_of_an_earlier_ensemble(
    trips: Transformed, trained: str, tmp_path: Path
) -> None:
    again = export(short(trips), tmp_path, trained, epochs=1)
    (headline, *_) = [n for n in read_record(again)["notes"] if n.startswith("warm start: ")]
    assert "100%" in headline or "all" in headline, headline


@pytest.mark.slow
def test_failed_member_is_left_out(
    trips: Transformed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise MemoryError("cannot allocate 40 GiB")

    monkeypatch.setattr(ensemble_trainer, "fit_linear", fail)
    members = ["linear", "extra"]
    record = read_record(export(short(trips, members=members), tmp_path, epochs=1))
    assert record["members"]["extra"]["weight"] == 1
    assert any("linear" in note and "40 GiB" in note for note in record["notes"])
    monkeypatch.setattr(ensemble_trainer, "grow_averaged", fail)
    with pytest.raises(TrainingError, match="linear: "):
        export(short(trips, members=members), tmp_path / "none", epochs=1)


@pytest.mark.slow
def test_finished_members_are_not_trained_again_after_a_kill(
    trips: Transformed, trained: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(data: Transformed, done: tuple[str, ...], killed_in: str = "") -> str:
        """Trains; the functions of members that are done fail, and another one is interrupted."""

        def raise_error(error: BaseException) -> None:
            raise error

        with monkeypatch.context() as patch:
            for name in done:
                again = AssertionError(f"{name} was called again")
                patch.setattr(ensemble_trainer, name, lambda *_, error=again: raise_error(error))
            if killed_in:
                patch.setattr(
                    ensemble_trainer, killed_in, lambda *_: raise_error(KeyboardInterrupt())
                )
            return export(data, tmp_path, epochs=2)

    with pytest.raises(KeyboardInterrupt):
        run(short(trips), done=(), killed_in="fit_linear")
    with pytest.raises(KeyboardInterrupt):
        run(short(trips), done=("grow_boosted", "grow_averaged"), killed_in="_fit_network")
    (stored,) = tmp_path.rglob("boosted-*.npz")
    content = stored.read_bytes()
    stored.write_bytes(content[: len(content) // 2])
    with pytest.raises(KeyboardInterrupt):  # A damaged member is trained again.
        run(short(trips), done=("grow_averaged", "fit_linear"), killed_in="grow_boosted")
    stored.write_bytes(content)
    resumed = run(short(trips), done=("grow_boosted", "grow_averaged", "fit_linear"))
    rows = tf.constant([to_example(row) for row in trips.evaluation])
    expected, found = (
        tf.saved_model.load(path).signatures["serving_default"](rows)["scores"].numpy()
        for path in (trained, resumed)
    )
    np.testing.assert_array_equal(found, expected)
    records = [read_record(path) for path in (trained, resumed)]
    for key in ("unseen_loss", "temperature", "importances", "notes"):
        assert records[1][key] == records[0][key]
    with pytest.raises(KeyboardInterrupt):  # Other settings are other members.
        run(short(trips, max_depth=2), done=(), killed_in="grow_averaged")
