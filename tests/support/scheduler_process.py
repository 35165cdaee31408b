"""A scheduler that starts `fake_runner.py`, as a process: its arguments are those of `command`."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from pipeline.clock import system_clock
from pipeline.schedule.scheduled_pipeline import load_pipelines
from pipeline.schedule.scheduler import check_once, serve
from trainer_module.errors import ScopelineError

RUNNER = (sys.executable, str(Path(__file__).with_name("fake_runner.py")))


def command(mode: str, *configs: Path, output: Path) -> list[str]:
    """The command that starts one."""
    return [sys.executable, __file__, mode, *map(str, configs), str(output)]


def until(condition: Callable[[], object], seconds: float = 60) -> None:
    """Waits until a condition holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(0.05)


def main() -> int:
    mode, *files = sys.argv[1:]
    *configs, output = map(Path, files)
    pipelines, lock_file = load_pipelines(configs, [], output), output / "scheduler.lock"
    if mode == "once":
        return check_once(pipelines, lock_file, RUNNER, system_clock)
    try:
        serve(pipelines, lock_file, RUNNER)
    except ScopelineError as error:
        sys.exit(str(error))
    heavy = {"tensorflow", "tfx", "ml_metadata", "apache_beam", "sqlalchemy"} & set(sys.modules)
    print("heavy:", heavy)
    return 0


if __name__ == "__main__":
    sys.exit(main())
