"""Runs a compiled PipelineJob as Vertex AI does, on this machine.

Drivers and executors get what their containers' commands say, with the placeholder filled in, and
answer by the file that they are told; resolvers are answered from the artifacts of earlier tasks,
by the filters that the job has.
"""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

from google.protobuf import json_format
from kfp.pipeline_spec import pipeline_spec_pb2 as pb

Outputs = dict[str, dict[str, list[pb.RuntimeArtifact]]]
PLACEHOLDER = "{{$}}"
_FILTER = re.compile(r'schema_title="(?P<title>[^"]+)" AND state=LIVE(?: AND (?P<rest>.+))?')
_BLESSED = "metadata.blessed.number_value=1"


class VertexMachine:
    """One project's metadata, and the tasks that fill it."""

    def __init__(self) -> None:
        self.artifacts: list[pb.RuntimeArtifact] = []
        self._runs = 0
        self._names = 0

    def run(self, job: dict[str, Any], outputs: Outputs | None = None) -> Outputs:
        """Runs the tasks in order, but for those whose outputs are given.

        Args:
          job: the PipelineJob.
          outputs: of tasks that were done before, as caching gives them.

        Returns:
          The artifacts by task and key.
        """
        self._runs += 1
        spec, done = job["pipelineSpec"], dict(outputs or {})
        root = f"{job['runtimeConfig']['gcsOutputDirectory']}/run-{self._runs}"
        for name in topological(spec["root"]["dag"]["tasks"]):
            if name not in done:
                done[name] = self._run_task(spec, name, done, f"{root}/{name}")
        return done

    def _run_task(
        self, spec: dict[str, Any], name: str, done: Outputs, folder: str
    ) -> dict[str, list[pb.RuntimeArtifact]]:
        task = spec["root"]["dag"]["tasks"][name]
        component = spec["components"][task["componentRef"]["name"]]
        executor = spec["deploymentSpec"]["executors"][component["executorLabel"]]
        told = pb.ExecutorInput()
        for key, source in task.get("inputs", {}).get("artifacts", {}).items():
            producer = source["taskOutputArtifact"]
            found = done[producer["producerTask"]][producer["outputArtifactKey"]]
            told.inputs.artifacts[key].artifacts.extend(found)
        if "resolver" in executor:
            queries = executor["resolver"]["outputArtifactQueries"]
            return {key: self._query(query["filter"], told) for key, query in queries.items()}
        for key, value in task["inputs"]["parameters"].items():
            constant = value["runtimeValue"]["constant"]
            json_format.ParseDict(constant, told.inputs.parameter_values[key])
        for key, output in component["outputDefinitions"]["artifacts"].items():
            self._names += 1
            made = told.outputs.artifacts[key].artifacts.add()
            made.name, made.uri = f"artifacts/{self._names}", f"{folder}/{key}"
            json_format.ParseDict(output["artifactType"], made.type)
            Path(made.uri).mkdir(parents=True)  # A bucket has no folders that could be missing.
        told.outputs.output_file = f"{folder}/executor_output.json"
        return self._execute(executor["container"], told)

    def _execute(
        self, container: dict[str, Any], told: pb.ExecutorInput
    ) -> dict[str, list[pb.RuntimeArtifact]]:
        hook = container.get("lifecycle", {}).get("preCacheCheck")
        for execution in (hook, container) if hook else (container,):
            call(execution["command"], execution["args"], json_format.MessageToJson(told))
            answer = Path(told.outputs.output_file).read_text()
            output = json_format.Parse(answer, pb.ExecutorOutput())
            for key, artifacts in output.artifacts.items():
                made = told.outputs.artifacts[key].artifacts[0]
                made.metadata.MergeFrom(artifacts.artifacts[0].metadata)
        outputs = {key: list(made.artifacts) for key, made in told.outputs.artifacts.items()}
        self.artifacts += [artifact for artifacts in outputs.values() for artifact in artifacts]
        return outputs

    def _query(self, query: str, told: pb.ExecutorInput) -> list[pb.RuntimeArtifact]:
        """The newest artifact that a filter lets through, of those in the metadata."""
        found = _FILTER.fullmatch(query)
        assert found, query
        title = f"title: {found['title']}\n"
        fitting = [a for a in self.artifacts if title in a.type.instance_schema]
        if found["rest"] == _BLESSED:
            fitting = [a for a in fitting if a.metadata.fields["blessed"].number_value == 1]
        else:
            path = r"name=\"{{\$\.inputs\.artifacts\['input'\]\.metadata\['(\w+)'\]}}\""
            key = re.fullmatch(path, found["rest"])
            assert key, query
            names = [
                a.metadata.fields[key[1]].string_value
                for a in told.inputs.artifacts["input"].artifacts
            ]
            fitting = [a for a in fitting if a.name in names]
        return fitting[-1:]


def topological(tasks: dict[str, Any]) -> list[str]:
    """The tasks' names, each after those that it depends on or has its inputs from."""
    order: list[str] = []
    while len(order) < len(tasks):
        ready = [n for n, t in tasks.items() if n not in order and _needs(t) <= set(order)]
        assert ready, f"{set(tasks) - set(order)} wait for each other"
        order += sorted(ready)
    return order


def _needs(task: dict[str, Any]) -> set[str]:
    sources = task.get("inputs", {}).get("artifacts", {}).values()
    producers = {source["taskOutputArtifact"]["producerTask"] for source in sources}
    return producers | set(task.get("dependentTasks", []))


def call(command: list[str], args: list[str], told: str) -> None:
    """Calls the module that a container's command names, in this process: imports take long."""
    assert command[:2] == ["python", "-m"]
    module = importlib.import_module(command[2])
    flags = [arg.replace(PLACEHOLDER, told) for arg in args]
    module.main(module._parse_flags([command[2], *flags]))
