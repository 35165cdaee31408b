"""The test executor does what the backend does, on pipelines of shell scripts, and refuses it."""

import os
import time
import uuid
from pathlib import Path
from typing import Any

import pytest
import yaml
from kfp import dsl, kubernetes
from kfp_executor import Executor
from kfp_run import Run, State
from kfp_spec import BackendError
from small_pipelines import IMAGE_ENV, compiled, step

SECRETS = {"scopeline": {"password": "open sesame"}}


def run(text: str, folder: Path, parameters: dict | None = None, **cluster: Any) -> Run:
    executor = Executor(text, workdir=folder, image_env=IMAGE_ENV, **cluster)
    return executor.run(parameters)


def states(ended: Run) -> dict[str, str]:
    return {name: str(task.state) for name, task in ended.tasks.items()}


def test_independent_tasks_run_at_once_and_others_wait(tmp_path: Path) -> None:
    """Left and right each wait for a file that the other writes."""
    meet = f"cd {tmp_path}; touch $1; for i in $(seq 100); do [ -e $2 ] && exit; sleep .1; done"

    def pipeline() -> None:
        left = step("left", meet.replace("$2", "1.seen") + "; exit 1", word="0.seen")
        right = step("right", meet.replace("$2", "0.seen") + "; exit 1", word="1.seen")
        step("last", f"ls {tmp_path}").after(left, right)

    ended = run(compiled(pipeline), tmp_path)
    assert ended.state == State.SUCCEEDED, ended.report()
    assert {"0.seen", "1.seen"} <= set(ended.tasks["last"].log.split())


def test_inputs_come_from_parameters_constants_and_the_run(tmp_path: Path) -> None:
    def pipeline(epochs: int = 3, strategy: str = "default") -> None:
        say = 'echo "<$1> <$2>"'
        with dsl.ExitHandler(step("end", say, word=dsl.PIPELINE_JOB_ID_PLACEHOLDER, number=epochs)):
            step("job", say, word=dsl.PIPELINE_JOB_ID_PLACEHOLDER, number=epochs)
            step("chosen", say, word=strategy, number=7)

    run_id = str(uuid.uuid4())
    executor = Executor(compiled(pipeline), workdir=tmp_path, image_env=IMAGE_ENV)
    ended = executor.run({"strategy": "a b"}, run_id=run_id)
    logs = {name: task.log for name, task in ended.tasks.items() if task.attempts}
    assert logs == {
        "job": f"<{run_id}> <3>\n",
        "end": f"<{run_id}> <3>\n",
        "chosen": "<a b> <7>\n",
    }
    assert executor.run({"epochs": 12}).tasks["job"].log.endswith("<12>\n")


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"epoch": 3}, "parameter\\(s\\) provided are not required by pipeline: epoch"),
        ({"epochs": "3"}, "epochs requires NUMBER_INTEGER, found '3'"),
    ],
)
def test_parameters_that_the_api_server_refuses(
    tmp_path: Path, parameters: dict, message: str
) -> None:
    def pipeline(epochs: int = 3, strategy: str = "default") -> None:
        step("one", "true", word=strategy, number=epochs)

    with pytest.raises(BackendError, match=message):
        run(compiled(pipeline), tmp_path, parameters)


def test_only_what_is_declared_is_in_the_environment(tmp_path: Path) -> None:
    os.environ["OF_THE_TEST"] = "no"

    def pipeline() -> None:
        task = step("one", "env; echo $(GREETING) $(OF_THE_TEST_)")
        task.set_env_variable("NAME", "Ada").set_env_variable("GREETING", "Hello, $(NAME)")
        kubernetes.use_secret_as_env(task, "scopeline", {"password": "PASSWORD"})
        kubernetes.use_field_path_as_env(task, "POD", "metadata.name")

    ended = run(
        compiled(pipeline).replace("$(OF_THE_TEST_)", "'$$(NAME)'"),
        tmp_path,
        secrets=SECRETS,
    )
    lines = ended.tasks["one"].log.splitlines()
    assert lines[-1] == "Hello, Ada $(NAME)", ended.report()
    found = dict(line.split("=", 1) for line in lines[:-1])
    assert found["PASSWORD"] == SECRETS["scopeline"]["password"]
    assert found["POD"] == found["HOSTNAME"] == found["KFP_POD_NAME"]
    assert set(found) - {"PWD", "SHLVL", "_"} == {
        *("PATH", "NAME", "GREETING", "PASSWORD", "POD", "HOSTNAME", "KFP_POD_NAME", "KFP_POD_UID"),
        *("METADATA_GRPC_SERVICE_HOST", "METADATA_GRPC_SERVICE_PORT"),
    }


def _with_secret_and_claim(mount: str) -> str:
    def pipeline() -> None:
        with dsl.ExitHandler(step("end", "echo over")):
            task = step("one", "true").set_retry(2)
            kubernetes.use_secret_as_env(task, "scopeline", {"password": "PASSWORD"})
            kubernetes.mount_pvc(task, "volume", mount)
            step("two", "true").after(task)

    return compiled(pipeline)


@pytest.mark.parametrize(
    ("cluster", "message"),
    [
        ({"secrets": {}, "claims": {"volume": Path("/mnt/a")}}, "no key password in secret"),
        ({"secrets": {"scopeline": {"password": ""}}}, '"volume" not found'),
        (
            {"secrets": {"scopeline": {"password": ""}}, "claims": {"volume": Path("/mnt/b")}},
            "volume is /mnt/b here, mounted at /mnt/a",
        ),
    ],
)
def test_a_pod_that_cannot_start_fails_its_task(
    tmp_path: Path, cluster: dict, message: str
) -> None:
    ended = run(_with_secret_and_claim("/mnt/a"), tmp_path, **cluster)
    assert message in ended.tasks["one"].error
    assert not ended.tasks["one"].attempts
    assert ended.tasks["end"].log == "over\n"
    assert states(ended)["two"] == "SKIPPED"
    assert ended.state == State.FAILED


def test_a_failed_step_is_tried_again_as_often_as_it_says(tmp_path: Path) -> None:
    def pipeline() -> None:
        again = f"echo x >> {tmp_path}/$1; [ $(wc -l < {tmp_path}/$1) -gt $2 ]"
        step("once", again, word="once", number=1).set_retry(2)
        step("never", again, word="never", number=9).set_retry(2)

    ended = run(compiled(pipeline), tmp_path)
    codes = {name: [one.exit_code for one in task.attempts] for name, task in ended.tasks.items()}
    assert codes == {"once": [1, 0], "never": [1, 1, 1]}
    assert states(ended) == {"once": "SUCCEEDED", "never": "FAILED"}
    assert ended.tasks["once"].attempts[0].log_path != ended.tasks["once"].attempts[1].log_path


def test_a_failure_skips_what_depends_on_it_and_ends_with_the_exit_task(tmp_path: Path) -> None:
    def pipeline() -> None:
        with dsl.ExitHandler(step("end", "echo over; exit 5")):
            bad = step("bad", "echo reason; exit 3")
            step("after_bad", "true").after(bad)
            slow = step("slow", "sleep 0.3")
            step("after_slow", "echo went on").after(slow)

    ended = run(compiled(pipeline), tmp_path)
    assert states(ended) == {
        "exit-handler-1": "FAILED",
        "bad": "FAILED",
        "after-bad": "SKIPPED",
        "slow": "SUCCEEDED",
        "after-slow": "SUCCEEDED",
        "end": "FAILED",
    }
    assert ended.tasks["end"].log == "over\n"
    assert ended.tasks["end"].started >= ended.tasks["after-slow"].ended
    assert ended.state == State.FAILED
    assert "    reason" in ended.report()


def test_a_step_that_takes_too_long_is_stopped_with_what_it_started(tmp_path: Path) -> None:
    def pipeline() -> None:
        task = step("long", f"sleep 60 & echo $! > {tmp_path}/child; wait")
        kubernetes.set_timeout(task, 1)

    ended = run(compiled(pipeline), tmp_path)
    assert ended.tasks["long"].attempts[0].timed_out
    assert ended.state == State.FAILED
    child = Path(f"/proc/{(tmp_path / 'child').read_text().strip()}/cmdline")
    until = time.monotonic() + 5
    while child.exists() and child.read_bytes() and time.monotonic() < until:
        time.sleep(0.05)
    assert not child.exists() or not child.read_bytes(), "it outlived its pod"


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


def test_tasks_that_wait_for_each_other(tmp_path: Path) -> None:
    def itself(one: dict) -> None:
        one["root"]["dag"]["tasks"]["one"]["dependentTasks"] = ["one"]

    with pytest.raises(BackendError, match="wait for each other, or for nothing: \\['one'\\]"):
        run(_broken(itself), tmp_path)
