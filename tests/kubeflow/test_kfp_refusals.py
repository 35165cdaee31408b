"""The test executor refuses what the API server and the driver refuse."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from kfp_executor import Executor
from kfp_run import Run, State
from kfp_spec import BackendError
from small_pipelines import IMAGE_ENV, compiled, step


def run(text: str, folder: Path) -> Run:
    return Executor(text, workdir=folder, image_env=IMAGE_ENV).run()


def _broken(change: Any) -> str:
    """A pipeline of one task, changed by a function of its document."""

    def pipeline() -> None:
        step("one", "true")

    document = yaml.safe_load(compiled(pipeline))
    change(document)
    return yaml.safe_dump(document)


def _argument(value: str) -> Any:
    return lambda one: one["deploymentSpec"]["executors"]["exec-one"]["container"]["args"].append(
        value
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda one: one["root"].update(kind="dag"), 'no field named "kind"'),
        (lambda one: one.update(schemaVersion="2.0.0"), "only schema 2.1.0"),
        (
            lambda one: one["deploymentSpec"]["executors"]["exec-one"].update(box={}),
            'no field named "box"',
        ),
        (lambda one: one.pop("pipelineInfo"), "found 1 documents, of which 0 pipelines"),
    ],
)
def test_what_the_api_server_refuses(tmp_path: Path, change: Any, message: str) -> None:
    with pytest.raises(BackendError, match=message):
        run(_broken(change), tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_argument("{{$.pipeline_job_uuid}}"), "nothing replaces the placeholder"),
        (_argument("{{$.inputs.artifacts['a'].uri}}"), "nothing replaces the placeholder"),
        (_argument('{"Concat": ["a", "b"]}'), "nothing replaces the placeholder"),
        (_argument("{{$.inputs.parameters['other']}}"), "other not found in executor input"),
        (
            lambda one: one["root"]["dag"]["tasks"]["one"]["inputs"]["parameters"].pop("word"),
            "neither value nor default value for parameter word",
        ),
        (
            lambda one: one["root"]["dag"]["tasks"]["one"]["componentRef"].update(name="comp-x"),
            '"comp-x" not found',
        ),
        (
            lambda one: one["root"]["dag"]["tasks"]["one"]["inputs"]["parameters"]["number"].update(
                runtimeValue={"constant": "three"}
            ),
            "expected NUMBER_INTEGER, found 'three'",
        ),
    ],
)
def test_what_the_driver_refuses(tmp_path: Path, change: Any, message: str) -> None:
    ended = run(_broken(change), tmp_path)
    assert message in ended.tasks["one"].error
    assert ended.state == State.FAILED


def test_an_input_left_to_its_default_is_unknown_to_newer_drivers(tmp_path: Path) -> None:
    """They replace placeholders before the launcher fills in defaults."""

    def left_out(one: dict) -> None:
        one["root"]["dag"]["tasks"]["one"]["inputs"]["parameters"].pop("word")
        word = one["components"]["comp-one"]["inputDefinitions"]["parameters"]["word"]
        word.update(isOptional=True, defaultValue="x")

    ended = run(_broken(left_out), tmp_path)
    assert "parameter word not found in executor input" in ended.tasks["one"].error


def test_a_program_that_the_image_lacks(tmp_path: Path) -> None:
    def missing(one: dict) -> None:
        one["deploymentSpec"]["executors"]["exec-one"]["container"]["command"] = ["/no/program"]

    ended = run(_broken(missing), tmp_path)
    assert ended.tasks["one"].attempts[0].exit_code == 128
    assert "cannot start /no/program" in ended.tasks["one"].log


def test_tasks_that_wait_for_each_other(tmp_path: Path) -> None:
    def itself(one: dict) -> None:
        one["root"]["dag"]["tasks"]["one"]["dependentTasks"] = ["one"]

    with pytest.raises(BackendError, match="wait for each other, or for nothing: \\['one'\\]"):
        run(_broken(itself), tmp_path)
