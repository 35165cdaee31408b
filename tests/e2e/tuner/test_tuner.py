"""A search on the command line: killed, gone on with, shown, and used by the run after it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import psutil
import pytest
import yaml

from tests.support.killing import survivors
from tests.support.project import Project, plain, wait_until
from tests.support.searching import (
    TRIALS,
    ended,
    ends,
    journal_lines,
    kept_journal,
    measured_again,
    write_rooms,
)

pytestmark = pytest.mark.slow

COMMAND = ("--config", "rooms.yaml", "--set", "tune.parallel=2")
"""More trials at a time go on with the search of one that was killed."""


@dataclass(frozen=True)
class Searched:
    """What became of a search that was killed, and of the one that went on."""

    project: Project
    before: list[int]
    """The trials that had ended when it was killed."""
    left: list[psutil.Process]
    """Processes of the one that was killed."""
    output: str
    errors: str
    code: int
    summary: dict[str, Any]


@pytest.fixture(scope="module")
def searched(project: Project) -> Searched:
    write_rooms(project)
    search = project.start("tune", "--config", "rooms.yaml")
    wait_until(lambda: len(ended(project)) >= 2, search)
    processes = psutil.Process(search.pid).children(recursive=True)
    search.kill()
    search.communicate()
    time.sleep(1)  # What it has started ends with it, not at the same moment.
    before = ended(project)
    done = project.scopeline("tune", *COMMAND)
    summary = project.summary("rooms")
    return Searched(project, before, processes, done.stdout, done.stderr, done.returncode, summary)


def test_kill_leaves_no_process_and_no_trial_is_lost_or_done_twice(searched: Searched) -> None:
    assert searched.code == 0, searched.output + searched.errors
    assert not survivors(searched.left)
    assert len(searched.before) >= 2
    trials = searched.summary["tuning"]["trials"]
    assert sorted(trial["number"] for trial in trials) == list(range(TRIALS))
    found = ends(kept_journal(searched.project))
    assert sorted(found) == list(range(TRIALS))
    assert searched.before == found[: len(searched.before)]
    assert f"resumes after {len(searched.before)} trials" in searched.output
    assert not list(searched.project.output.glob("rooms/pipeline_root/Tuner/backups/*"))


def test_trial_that_is_killed_has_failed_and_the_search_goes_on(searched: Searched) -> None:
    trials = searched.summary["tuning"]["trials"]
    killed = [t for t in trials if t["values"]["model.options.memory"] == "too much"]
    assert 0 < len(killed) < TRIALS
    for trial in killed:
        assert trial["state"] == "failed"
        assert trial["cause"] == "was killed by SIGKILL (out of memory?)"
    assert all(t["state"] == "done" for t in trials if t not in killed)


def test_search_prints_the_best_values_as_lines_of_a_config(searched: Searched) -> None:
    output, tuning = plain(searched.output), searched.summary["tuning"]
    assert searched.summary["status"] == "tuned"
    assert [c["name"] for c in searched.summary["components"]][-1] == "Tuner"
    best = tuning["trials"][0]
    assert tuning["objective"] == "val_auc"
    assert best["value"] == max(t["value"] for t in tuning["trials"] if "value" in t)
    assert f"trial {best['number']} has val_auc {best['value']:.4g}" in output
    lines = output.partition("in the config:\n")[2].partition("\nsummary:")[0]
    values = yaml.safe_load(lines)
    assert values["train"]["batch_size"] == best["values"]["train.batch_size"]
    assert values["model"]["options"]["memory"] == best["values"]["model.options.memory"]


def test_run_trains_with_what_was_found_and_another_only_confirms(searched: Searched) -> None:
    project, best = searched.project, searched.summary["tuning"]["trials"][0]
    done = project.scopeline("run", *COMMAND)
    assert done.returncode == 0, done.stdout + done.stderr
    summary = project.summary("rooms")
    assert project.states("rooms")["Tuner"] == "cached"
    assert summary["training"]["global_batch_size"] == best["values"]["train.batch_size"]
    assert summary["tuning"]["values"] == best["values"]
    plan = project.scopeline("plan", *COMMAND).stdout
    assert "nothing to do: a run would change nothing" in plan


def test_best_of_a_search_by_itself_are_measured_again_also_after_a_kill(
    searched: Searched,
) -> None:
    project = searched.project
    # Half as many measurements as trials: the config and the best one, on two parts each.
    command = (
        "tune",
        "--config",
        "rooms.yaml",
        "--set",
        "tune={trials: 8, prune: false, space: {}}",
    )
    search = project.start(*command)
    wait_until(lambda: measured_again(journal_lines(project)), search)
    before = measured_again(journal_lines(project))
    search.kill()
    search.communicate()
    (project.folder / "out of memory").touch()
    done = project.scopeline(*command)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "trains the config and 1 trial again on other folds" in plain(done.stdout)
    lines = kept_journal(project)
    assert sorted(ends(lines)) == list(range(8))
    found = measured_again(lines)
    assert found[: len(before)] == before
    assert len(found) == len(set(found)) == 4
    tuning = project.summary("rooms")["tuning"]
    again = [(t["number"], int(part)) for t in tuning["trials"] for part in t.get("again", {})]
    assert sorted(again) == sorted(set(found) - {found[len(before)]}), "that was killed"
    assert tuning["best"] in {number for number, _ in found} > {0}
