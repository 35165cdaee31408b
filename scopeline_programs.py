"""The entry points of the programs `scopeline` and `scopeline-kubeflow`; imports nothing slow."""

from __future__ import annotations

import signal
import sys


def scopeline() -> None:
    """Runs the commands of local_runner.py."""
    _end_quietly_on_ctrl_c()
    from pipeline.cli.early_signals import exit_on_signals, runs_until_stopped

    if runs_until_stopped(sys.argv[1:]):
        exit_on_signals()
    from local_runner import main

    main()


def scopeline_kubeflow() -> None:
    """Runs the commands of kubeflow_runner.py."""
    _end_quietly_on_ctrl_c()
    from kubeflow_runner import main

    main()


def _end_quietly_on_ctrl_c() -> None:
    """Makes Ctrl-C end the process without a traceback during the imports, which take a second.

    Later `run_app` handles Ctrl-C.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
