"""The command of a step's container: `python -m pipeline.kubeflow.step begin|run|conclude`.

Exit code: 0 done, 1 the step failed, 2 the config, a parameter or the data is unusable; Kubeflow
retries the step in both failures. `kubeflow_runner.py` reads the last line of the step's log.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext

from pydantic import ValidationError

from components.processes.local.fork_server import run_fork_server
from components.processes.stopping import attempt, exit_process, install_handlers
from components.user_errors import is_drift
from pipeline.component_ids import EVALUATING, PARALLEL, TRAINING, ComponentId
from pipeline.config.settings import PipelineConfig
from pipeline.exit_codes import EXIT_FAILED, EXIT_PUSHED
from pipeline.kubeflow.cluster_layout import cluster_layout, run_root, working_folder
from pipeline.kubeflow.compiled import (
    FINALIZE,
    REPORT_MARK,
    SETUP,
    SUMMARY_MARK,
    Parameters,
    StepReport,
    unpack,
)
from pipeline.kubeflow.run_parameters import default_parameters, read_parameter
from pipeline.kubeflow.steps.outputs import OutputWriter, describe_node
from pipeline.kubeflow.steps.run_record import RunFolder, RunRecord
from pipeline.records.summary import State, Status
from pipeline.runs.console import RunConsole
from pipeline.runs.imports import defer_evaluation, frozen_imports
from pipeline.runs.logs import redirected_output
from trainer_module.errors import ConfigError, ScopelineError

Work = Callable[[RunConsole], StepReport]
FORKING = (*TRAINING, *PARALLEL, ComponentId.INFRA_VALIDATOR)
"""The components that start child processes, which share the imports of the step."""


def main() -> None:
    """Runs the step that the arguments name."""
    # With these handlers, a pod that is deleted or times out writes its report and deletes its
    # workers.
    install_handlers()
    arguments = _parser().parse_args()
    commands = {"begin": _set_up_run, "run": _run_node, "conclude": _finalize_run}
    exit_process(commands[arguments.command](arguments))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="pipeline.kubeflow.step", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    begin = commands.add_parser("begin", help="check data and stores; read new spans")
    begin.add_argument("--code", required=True, help="hash of the code that compiled the pipeline")
    # The step parses these values later: argparse would end the process without a report.
    begin.add_argument("--epochs", required=True)
    begin.add_argument("--strategy", required=True)
    begin.add_argument("--span", required=True, help="the last span to train on; empty: the newest")
    run = commands.add_parser("run", help="run one TFX node")
    run.add_argument("--root", required=True, help="the pipeline's folder, or URI")
    run.add_argument("--node", required=True, help="the pipeline of this one node, packed")
    conclude = commands.add_parser("conclude", help="write the summary of the run")
    for command in (begin, conclude):
        command.add_argument("--config", required=True, help="the config, packed")
    for command in (begin, run, conclude):
        command.add_argument("--run-id", required=True)
    for command in (run, conclude):
        command.add_argument("--executor-input", help="the declared outputs, from the launcher")
        command.add_argument("--output", action="append", default=[], help="NAME=PATH of an output")
    return parser


def _set_up_run(arguments: argparse.Namespace) -> int:
    config = _read_config(SETUP, arguments.config)

    def work(console: RunConsole) -> StepReport:
        parameters = _read_parameters(config, arguments)
        from pipeline.kubeflow.steps.setup import set_up_run

        set_up_run(config, parameters, arguments.run_id, arguments.code, console)
        return StepReport(step=SETUP, state=State.RAN, seconds=0)

    return _execute(config, SETUP, arguments.run_id, work)


def _read_parameters(config: PipelineConfig, arguments: argparse.Namespace) -> Parameters:
    """Returns the checked parameters of the run."""
    parameters = Parameters()
    for name in default_parameters(config):
        text = getattr(arguments, name)
        try:
            parameters[name] = read_parameter(config, name, text)
        except ConfigError as error:
            raise ConfigError(f"the parameter {name} is {text!r}; {error}") from None
    return parameters


def import_node(packed: str) -> str:
    """Imports the modules that a node needs, and no other component of TFX.

    Args:
      packed: the pipeline of the node.

    Returns:
      The node's id.
    """
    with frozen_imports():
        from pipeline.kubeflow.nodes import read_node_id

        name = read_node_id(packed)
        if name not in EVALUATING:
            defer_evaluation()
        from pipeline.kubeflow.steps import node  # noqa: F401 - imported before a process is forked
    return name


def _run_node(arguments: argparse.Namespace) -> int:
    # The command line is parsed before TFX is imported, which takes seconds.
    name = import_node(arguments.node)
    # The fork comes before the first access to an object store, whose clients start threads.
    with run_fork_server() if name in FORKING else nullcontext():
        return _run_named(name, arguments)


def _run_named(name: str, arguments: argparse.Namespace) -> int:
    from pipeline.kubeflow.steps.node import run_node

    try:
        record = RunRecord.read(RunFolder(arguments.root, arguments.run_id))
    except ConfigError as error:
        sys.exit(f"{name}: {error}")
    if record is None:
        sys.exit(f"{arguments.root}: there is no record of run {arguments.run_id}")
    run_record = record

    def work(console: RunConsole) -> StepReport:
        report = run_node(arguments.node, run_record, arguments.run_id, console)
        OutputWriter.of(arguments.executor_input, arguments.output).write(
            lambda: describe_node(report)
        )
        return report

    return _execute(record.config, name, arguments.run_id, work)


def _finalize_run(arguments: argparse.Namespace) -> int:
    config = _read_config(FINALIZE, arguments.config)

    def work(console: RunConsole) -> StepReport:
        from pipeline.kubeflow.steps.finalize import describe_conclusion, finalize_run

        summary = finalize_run(config, arguments.run_id, console)
        # The log is for the client, which shows no details.
        console.write(SUMMARY_MARK + summary.model_dump_json(exclude={"details"}))
        OutputWriter.of(arguments.executor_input, arguments.output).write(
            lambda: describe_conclusion(config, arguments.run_id, summary)
        )
        return StepReport(step=FINALIZE, state=State.RAN, seconds=0, is_shown=False)

    return _execute(config, FINALIZE, arguments.run_id, work)


def _read_config(name: str, packed: str) -> PipelineConfig:
    """Returns the compiled config; ends the process if this code cannot read it."""
    try:
        return PipelineConfig.model_validate_json(unpack(packed))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(map(str, first["loc"]))
        sys.exit(
            f"{name}: the code of the image cannot read the config that was compiled ({key}: "
            f"{first['msg']}); build the image again, with the code that compiled the pipeline"
        )


def _execute(config: PipelineConfig, name: str, run_id: str, work: Work) -> int:
    """Runs a step, and writes its report into a file and the log, even on failure.

    Returns:
      The exit code.
    """
    started, layout = time.monotonic(), cluster_layout(config)
    files, folder = layout.run(run_id), RunFolder(run_root(layout), run_id)
    try:
        # Relative paths of the config start in this folder.
        working_folder(config).mkdir(parents=True, exist_ok=True)
        os.chdir(working_folder(config))
        files.root.mkdir(parents=True, exist_ok=True)
        with redirected_output(files.log_of(name), verbose=True) as stream:
            console = RunConsole(stream, verbose=True)
            # The last step must not read the report of an earlier attempt.
            folder.delete_report(name)
            reports: list[StepReport] = []

            def conclude(error: BaseException | None) -> None:
                console.stop()
                report = reports[0] if error is None else _describe_failure(config, name, error)
                seconds = round(time.monotonic() - started, 3)
                reports[:] = [report.model_copy(update={"seconds": seconds, "ended": time.time()})]
                if error is not None:
                    console.finished(name, State.FAILED, reports[0].seconds, report.detail)
                folder.write_report(reports[0])
                console.write(REPORT_MARK + reports[0].model_dump_json(exclude={"found"}))

            error = attempt(
                lambda: reports.append(work(console)),
                lambda: conclude(KeyboardInterrupt()),
                EXIT_FAILED,
            )
            conclude(error)
    except OSError as error:
        sys.exit(
            f"{name}: {error.filename or files.root}: {error.strerror or error}; the image runs as "
            "user and group 1000: check that they can write to the volume, and that it is not full"
        )
    except Exception as error:
        # TensorFlow raises its own errors for object stores.
        sys.exit(f"{name}: {run_root(layout)}: cannot be used ({type(error).__name__}: {error})")
    (report,) = reports
    if report.state is not State.FAILED:
        return EXIT_PUSHED
    return (report.status or Status.FAILED).exit_code


def _describe_failure(config: PipelineConfig, name: str, error: BaseException) -> StepReport:
    """Returns the report of a step that failed."""
    if isinstance(error, (KeyboardInterrupt, SystemExit)):
        # FAILED sends a notification: no user interrupts a pod at a keyboard.
        status, message = Status.FAILED, "the step was stopped by a user or by its time limit"
    elif isinstance(error, ScopelineError):
        # This branch does not import TFX, as the import of TFX may have failed.
        status, message = Status.after(error), str(error)
    else:
        from pipeline.config.user_code import own_sources
        from pipeline.runs.local import explain

        status, message = explain(error, own_sources(config.own_code.values()))
    return StepReport(
        step=name,
        state=State.FAILED,
        seconds=0,
        detail=message,
        status=status,
        has_drifted=is_drift(error),
    )


if __name__ == "__main__":
    main()
