"""How many processes Beam may use here, as its options say it.

Beam's own options are used, which its runner in this process would understand, too.
"""

from __future__ import annotations

from typing import Literal

_RUNNER = "components.beam_workers.runner.WorkersRunner"
# Without the name of an image, which nothing here uses, TFX would package its sources for workers.
_IMAGE = "--sdk_container_image=local"
IN_PROCESS_ARGS = (
    "--runner=apache_beam.runners.portability.fn_api_runner.FnApiRunner",
    _IMAGE,
)
"""Beam in this process. DirectRunner would try to download another runner for every pipeline."""
AUTO = 0
"""Beam's number for as many workers as there are cores; here, as many as pay."""


def local_args(workers: int | Literal["auto"] = "auto") -> list[str]:
    """The options of a component's Beam pipeline on this machine.

    Args:
      workers: the most processes that share its work; 1 for this process alone.
    """
    most = AUTO if workers == "auto" else workers
    several = ["--direct_running_mode=multi_processing", f"--direct_num_workers={most}"]
    return [f"--runner={_RUNNER}", _IMAGE, *(several if most != 1 else ())]
