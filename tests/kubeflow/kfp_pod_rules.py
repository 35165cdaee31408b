"""Rules of the backend for containers and their pods; `kfp_rules` has the others."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from google.protobuf import json_format
from kfp_spec import BackendError, Spec
from kfp_values import resolve
from kubernetes.utils import parse_quantity

Rule = Callable[[Spec], Iterator[str]]

INPUT = re.compile(r"\{\{\$\.inputs\.parameters\['([^']+)'\]\}\}")
REFERENCE = re.compile(r"\$\$|\$\([^)]*\)")
LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
MOST_ARGUMENT_BYTES = 131_071
"""Of one argument: Linux, MAX_ARG_STRLEN."""
MOST_CONTAINER_BYTES = MOST_ARGUMENT_BYTES // 2
"""Of a container as JSON: it stands twice in ARGO_TEMPLATE, which is one variable."""
DUMMY_IMAGES = ("argostub/createpvc", "argostub/deletepvc")
OF_THE_LAUNCHER = ("/kfp-launcher", "/gcs", "/s3", "/minio", "/.local", "/.cache", "/.config")
KNOWN_CONFIG = {
    *("secret_as_volume", "secret_as_env", "pvc_mount", "node_selector", "pod_metadata"),
    *("image_pull_secret", "image_pull_policy", "config_map_as_volume", "config_map_as_env"),
    *("active_deadline_seconds", "field_path_as_env", "tolerations", "empty_dir_mounts"),
}
"""What drivers from 2.5.0 on read, and what needs no more than they do with it."""


def containers(spec: Spec) -> Iterator[tuple[str, Any]]:
    """All containers, by the label of their executor."""
    for label, executor in spec.executors.items():
        if executor.HasField("container"):
            yield label, executor.container


def placeholders_are_whole_inputs(spec: Spec) -> Iterator[str]:
    """v2/driver/util.go (resolveContainerArgs), v2/component/launcher_v2.go (getPlaceholders).

    Launchers before 2.16 know neither IfPresent nor Concat, and leave them as they are.
    """
    inputs = {
        component.executor_label: set(component.input_definitions.parameters)
        for component in spec.pipeline.components.values()
    }
    for label, container in containers(spec):
        for word in (*container.command, *container.args):
            for name in sorted(set(INPUT.findall(word)) - inputs.get(label, set())):
                yield f"{label}: {name!r} is no input of its component"
            if "{{" in INPUT.sub("", word):
                yield f"{label}: nothing replaces the placeholder in {word[:100]!r}"
            if word.lstrip().startswith(('{"IfPresent"', '{"Concat"')):
                yield f"{label}: {word[:100]!r} is no text to older versions"
        if container.command and INPUT.search(container.command[0]):
            yield f"{label}: launchers before 2.16 replace nothing in the name of a program"


def nothing_is_expanded_by_accident(spec: Spec) -> Iterator[str]:
    """Kubernetes expands $(NAME) and $$ in commands, arguments and variables; Argo expands {{."""
    for label, container in containers(spec):
        values = [variable.value for variable in container.env]
        for word in (*container.command, *container.args, *values):
            if REFERENCE.search(word):
                yield f"{label}: Kubernetes changes {REFERENCE.search(word)[0]!r}"
        for value in values:
            if "{{" in value:
                yield f"{label}: Argo changes {value[:100]!r}"


def arguments_are_short_enough(spec: Spec) -> Iterator[str]:
    """v2/compiler/argocompiler/container.go: the driver is told the whole container at once."""
    for label, container in containers(spec):
        for word in (*container.command, *container.args):
            if len(word.encode()) > MOST_ARGUMENT_BYTES:
                yield f"{label}: an argument takes {len(word.encode()):,} bytes"
        size = len(json_format.MessageToJson(container, indent=None, ensure_ascii=False).encode())
        if size > MOST_CONTAINER_BYTES:
            yield f"{label}: takes {size:,} bytes, {MOST_CONTAINER_BYTES:,} are allowed"


def images_are_plain(spec: Spec) -> Iterator[str]:
    """v2/compiler/argocompiler/argo.go (dummyImages), v2/driver/driver.go."""
    for label, container in containers(spec):
        if not container.image or container.image in DUMMY_IMAGES or "{{" in container.image:
            yield f"{label}: {container.image!r} is no image of ours"
        if not container.command:
            yield f"{label}: has no command, and the launcher knows none of the image"


def variables_are_named_once(spec: Spec) -> Iterator[str]:
    """v2/driver/k8s.go (extendPodSpecPatch): variables of secrets and fields follow the others."""
    for label, container in containers(spec):
        config = spec.kubernetes.get(label)
        names = [variable.name for variable in container.env]
        if config is not None:
            names += [pair.env_var for one in config.secret_as_env for pair in one.key_to_env]
            names += [one.name for one in config.field_path_as_env]
        for name in sorted({name for name in names if names.count(name) > 1}):
            yield f"{label}: {name} is set twice"
        for name in names:
            if not VARIABLE.fullmatch(name) or name.startswith(("KFP_", "ARGO_")):
                yield f"{label}: {name!r} is no variable of ours"


def resources_are_quantities(spec: Spec) -> Iterator[str]:
    """v2/driver/driver.go (getPodResource): text since 2.4, numbers before and besides."""
    for label, container in containers(spec):
        resources = container.resources
        amounts = {}
        for key in ("cpu_request", "cpu_limit", "memory_request", "memory_limit"):
            text = getattr(resources, f"resource_{key}")
            if bool(text) != bool(getattr(resources, key)):
                yield f"{label}: {key} is not told to all versions"
            if text:
                amounts[key] = _quantity(text)
                if not amounts[key]:
                    yield f"{label}: {key} {text!r} is no quantity of Kubernetes"
        for kind in ("cpu", "memory"):
            request, limit = amounts.get(f"{kind}_request"), amounts.get(f"{kind}_limit")
            if request and limit and request > limit:
                yield f"{label}: requests more {kind} than its limit"
        accelerator = resources.accelerator
        if resources.HasField("accelerator") and not (
            accelerator.resource_type and re.fullmatch(r"[1-9]\d*", accelerator.resource_count)
        ):
            yield f"{label}: an accelerator has a type and a whole number"


def _quantity(text: str) -> Any:
    try:
        return parse_quantity(text)
    except ValueError:
        return None


def the_driver_knows_the_config(spec: Spec) -> Iterator[str]:
    """v2/driver/k8s.go, v2/compiler/visitor.go: configs of unknown executors are left out."""
    labels = {label for label, _ in containers(spec)}
    for label, config in spec.kubernetes.items():
        if label not in labels:
            yield f"{label}: there is no such executor"
        for field, _ in config.ListFields():
            if field.name not in KNOWN_CONFIG:
                yield f"{label}: {field.name} is unknown to drivers of 2.5"


def names_are_the_same_for_all_drivers(spec: Spec) -> Iterator[str]:
    """v2/driver/k8s.go: drivers since 2.5 read `secretNameParameter`, older ones `secretName`."""
    for label, config in spec.kubernetes.items():
        named = [
            *((one, "secret_name_parameter", one.secret_name) for one in config.secret_as_env),
            *((one, "secret_name_parameter", one.secret_name) for one in config.secret_as_volume),
            *((one, "secret_name_parameter", one.secret_name) for one in config.image_pull_secret),
            *((one, "pvc_name_parameter", one.constant) for one in config.pvc_mount),
        ]
        for source, key, plain in named:
            try:
                newer = resolve(key, getattr(source, key), {}, {})
            except BackendError as error:
                yield f"{label}: {error}"
                continue
            if not newer or newer != plain:
                yield f"{label}: older drivers read {plain!r}, newer ones {newer!r}"


def volumes_can_be_mounted(spec: Spec) -> Iterator[str]:
    """v2/driver/k8s.go (makeVolumeMountPatch): the volume is called like its claim."""
    for label, config in spec.kubernetes.items():
        names = [mount.constant for mount in config.pvc_mount]
        for mount in config.pvc_mount:
            if not LABEL.fullmatch(mount.constant):
                yield f"{label}: {mount.constant!r} is no name of a volume, only of a claim"
            if names.count(mount.constant) > 1:
                yield f"{label}: {mount.constant} is mounted twice"
            path = mount.mount_path
            if (
                not path.startswith("/")
                or ":" in path
                or path.rstrip("/") in ("", *OF_THE_LAUNCHER)
            ):
                yield f"{label}: nothing can be mounted at {path!r}"


def tolerations_are_complete(spec: Spec) -> Iterator[str]:
    """Kubernetes refuses pods whose tolerations contradict themselves."""
    for label, config in spec.kubernetes.items():
        for one in config.tolerations:
            operator = one.operator or "Equal"
            if operator not in ("Equal", "Exists"):
                yield f"{label}: a toleration knows no operator {operator!r}"
            if operator == "Exists" and one.value:
                yield f"{label}: a toleration with Exists has no value"
            if operator == "Equal" and not one.key:
                yield f"{label}: a toleration without a key wants Exists"


POD_RULES: tuple[Rule, ...] = (
    placeholders_are_whole_inputs,
    nothing_is_expanded_by_accident,
    arguments_are_short_enough,
    images_are_plain,
    variables_are_named_once,
    resources_are_quantities,
    the_driver_knows_the_config,
    names_are_the_same_for_all_drivers,
    volumes_can_be_mounted,
    tolerations_are_complete,
)
