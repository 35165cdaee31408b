"""How the backend finds the values of inputs, and puts them into commands."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from google.protobuf import json_format
from kfp.pipeline_spec import pipeline_spec_pb2
from kfp_spec import BackendError

Values = dict[str, Any]
"""Parameters by name; None where an optional one of the pipeline has no value."""

ParameterType = pipeline_spec_pb2.ParameterType
_PYTHON_TYPES: dict[int, tuple[type, ...]] = {
    ParameterType.NUMBER_DOUBLE: (int, float),
    ParameterType.NUMBER_INTEGER: (int, float),
    ParameterType.STRING: (str,),
    ParameterType.BOOLEAN: (bool,),
    ParameterType.LIST: (list,),
    ParameterType.STRUCT: (dict,),
}
_INPUT = re.compile(r"\{\{\$\.inputs\.parameters\['(.+?)'\]\}\}")
_EXECUTOR_INPUT = "{{$}}"
_REFERENCE = re.compile(r"\$(\$|\(([^)]+)\))")
_OUTPUT_FILE = "/tmp/kfp_outputs/output_metadata.json"  # noqa: S108  the launcher's own


def fits(value: Any, kind: int) -> bool:
    """Whether a value has the type of a parameter."""
    if isinstance(value, bool):
        return kind == ParameterType.BOOLEAN
    return isinstance(value, _PYTHON_TYPES.get(kind, ()))


def text_of(value: Any) -> str:
    """A value as the driver and the launcher write it: 3.0 becomes 3."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return format(Decimal(repr(value)).normalize(), "f")
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))


def root_inputs(root: Any, given: Mapping[str, Any]) -> Values:
    """The parameters of a run, as the API server takes them.

    Args:
      root: The root component.
      given: What the request sets.

    Returns:
      The values; those that the request leaves out have their default.

    Raises:
      BackendError: A parameter is unknown, missing or of another type.
    """
    known = root.input_definitions.parameters
    unknown = sorted(set(given) - set(known))
    if unknown:
        raise BackendError(
            f"parameter(s) provided are not required by pipeline: {', '.join(unknown)}"
        )
    values: Values = {}
    for name, parameter in known.items():
        if name in given:
            if not fits(given[name], parameter.parameter_type):
                kind = ParameterType.ParameterTypeEnum.Name(parameter.parameter_type)
                raise BackendError(f"parameter {name} requires {kind}, found {given[name]!r}")
            values[name] = given[name]
        elif parameter.HasField("default_value"):
            values[name] = json_format.MessageToDict(parameter.default_value)
        elif parameter.is_optional:
            values[name] = None
        else:
            raise BackendError(f"parameter {name} has neither default value nor user value")
    return values


def task_inputs(
    task: Any, component: Any, parent: Values, job: Mapping[str, str], *, is_dag: bool
) -> Values:
    """What a task gets: the driver's part.

    Args:
      task: The task.
      component: What it runs.
      parent: The inputs of the DAG that the task is in.
      job: By placeholder, what the driver knows of the run.
      is_dag: Whether the task is a DAG of its own: such get defaults from the driver.

    Returns:
      The values by input.

    Raises:
      BackendError: The driver would fail.
    """
    known = component.input_definitions.parameters
    values: Values = {}
    for name, parameter in known.items():
        if is_dag and parameter.is_optional and name not in task.inputs.parameters:
            has_default = parameter.HasField("default_value")
            values[name] = (
                json_format.MessageToDict(parameter.default_value) if has_default else None
            )
    for name, source in task.inputs.parameters.items():
        value = resolve(name, source, parent, job)
        if value is not None:
            values[name] = value
        elif name not in known or not known[name].is_optional:
            raise BackendError(f"input parameter {name} is null, and not optional")
    for name, parameter in known.items():
        _check_type(name, parameter, values)
    return values


def resolve(name: str, source: Any, parent: Values, job: Mapping[str, str]) -> Any:
    """The value of one input, from where the task takes it; None if it has none."""
    kind = source.WhichOneof("kind")
    if kind == "component_input_parameter":
        outer = source.component_input_parameter
        if outer not in parent:
            raise BackendError(f"parent DAG does not have input parameter {outer}")
        return parent[outer]
    if kind == "runtime_value" and source.runtime_value.WhichOneof("value") == "constant":
        value = json_format.MessageToDict(source.runtime_value.constant)
        return job.get(value, value) if isinstance(value, str) else value
    raise BackendError(f"input parameter {name}: {kind} is not supported here")


def _check_type(name: str, parameter: Any, values: Values) -> None:
    if name not in values:
        if not parameter.is_optional and not parameter.HasField("default_value"):
            raise BackendError(f"neither value nor default value for parameter {name}")
    elif values[name] is not None and not fits(values[name], parameter.parameter_type):
        if parameter.parameter_type != ParameterType.STRING:
            kind = ParameterType.ParameterTypeEnum.Name(parameter.parameter_type)
            raise BackendError(f"input parameter {name}: expected {kind}, found {values[name]!r}")
        values[name] = text_of(values[name])


def command_of(container: Any, component: Any, inputs: Values) -> list[str]:
    """The command and arguments of a container, with values for placeholders.

    Args:
      container: PipelineContainerSpec.
      component: Its component, whose defaults the launcher fills in.
      inputs: What the driver resolved.

    Returns:
      The words to execute.

    Raises:
      BackendError: A placeholder has no value. Drivers are stricter than launchers: an input
          that is left to its default has none for them.
    """
    words = [*container.command, *container.args]
    for word in words:
        rest = _INPUT.sub("", word).replace(_EXECUTOR_INPUT, "")
        if "{{" in rest or rest.lstrip().startswith(('{"IfPresent"', '{"Concat"')):
            raise BackendError(f"nothing replaces the placeholder in {word[:200]!r}")
        missing = [name for name in _INPUT.findall(word) if name not in inputs]
        if missing:
            raise BackendError(f"parameter {missing[0]} not found in executor input")
    known = component.input_definitions.parameters
    defaults = {
        name: json_format.MessageToDict(parameter.default_value)
        for name, parameter in known.items()
        if parameter.HasField("default_value")
    }
    whole = {
        "inputs": {"parameterValues": {**defaults, **inputs}},
        "outputs": {"outputFile": _OUTPUT_FILE},
    }
    text = json.dumps(whole)
    return [
        _INPUT.sub(lambda match: text_of(inputs[match[1]]), word).replace(_EXECUTOR_INPUT, text)
        for word in words
    ]


def expand(words: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """Replaces $(NAME) as Kubernetes does in commands, arguments and variables.

    Args:
      words: The texts; `$$` stands for `$`.
      environment: Variables of the container; others stay as they are.

    Returns:
      The texts that the container sees.
    """

    def value(match: re.Match[str]) -> str:
        return "$" if match[1] == "$" else environment.get(match[2], match[0])

    return [_REFERENCE.sub(value, word) for word in words]
