"""kill -9 of a search at random moments, again and again: no trial is lost, none done twice.

`SCOPELINE_KILLS=10 make test ARGS=tests/e2e/tuner/test_tuner_kills.py`
"""

from __future__ import annotations

import random
import time

from e2e.conftest import Project
from e2e.faults.killing import KILLS, ON_REQUEST
from e2e.tuner.searching import ended, ends, journal, kept_journal, write_rooms

TRIALS = 20


@ON_REQUEST
def test_search_is_killed_again_and_again(project: Project) -> None:
    write_rooms(project, trials=TRIALS, space={"train.learning_rate": {"log": [0.003, 0.1]}})
    generator = random.Random(KILLS)  # noqa: S311
    seen: list[int] = []
    for kill in range(KILLS):
        search = project.start("tune", "--config", "rooms.yaml")
        lines = len(path.read_bytes()) if (path := journal(project)) else 0
        deadline = time.monotonic() + 240
        # From its first line on, whatever it does then.
        while time.monotonic() < deadline and search.poll() is None:
            if (path := journal(project)) and len(path.read_bytes()) > lines:
                break
            time.sleep(0.02)
        time.sleep(generator.uniform(0, 8))
        search.kill()
        search.communicate()
        time.sleep(1)
        found = ended(project) if journal(project) else ends(kept_journal(project))
        assert found[: len(seen)] == seen, f"kill {kill} has changed what had ended"
        seen = found
    done = project.scopeline("tune", "--config", "rooms.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    found = ends(kept_journal(project))
    assert found[: len(seen)] == seen
    assert sorted(found) == list(range(TRIALS))
    trials = project.summary("rooms")["tuning"]["trials"]
    assert sorted(trial["number"] for trial in trials) == list(range(TRIALS))
