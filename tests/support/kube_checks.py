"""What an API server would refuse: by its published schemas, its own checks, and the roles."""

from __future__ import annotations

import re
from typing import Any

import kubernetes_validate

Object = dict[str, Any]

VERSIONS = ("1.28", "1.37")
"""The oldest that is supported, and the newest that there are schemas of."""
_LABEL = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_LABEL_KEY = re.compile(r"([a-z0-9.-]+/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_DNS_LABEL = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_VARIABLE = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")


def problems(body: Object) -> list[str]:
    """Everything that is wrong with an object that is to be created."""
    return _by_schemas(body) or [*_names(body), *_job(body)]


def _by_schemas(body: Object) -> list[str]:
    found = []
    for version in VERSIONS:
        try:
            kubernetes_validate.validate(body, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            found.append(f"{version}: {'.'.join(map(str, error.path))}: {error.message}")
    return found


def _names(body: Object) -> list[str]:
    metadata = body["metadata"]
    found = []
    if not _DNS_LABEL.fullmatch(metadata["name"]):
        found.append(f"name {metadata['name']}")
    for key, value in metadata["labels"].items():
        if not _LABEL_KEY.fullmatch(key) or not _LABEL.fullmatch(value):
            found.append(f"label {key}: {value}")
    for owner in metadata.get("ownerReferences", []):
        if not (owner["apiVersion"] and owner["kind"] and owner["name"] and owner["uid"]):
            found.append(f"owner {owner}")
    return found


def _job(body: Object) -> list[str]:
    if body["kind"] != "Job":
        return []
    spec, pod = body["spec"], body["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    mounts = [mount["name"] for mount in container["volumeMounts"]]
    names = [variable["name"] for variable in container["env"]]
    longest = f"{body['metadata']['name']}-{spec['completions'] - 1}"
    wrong = {
        f"{longest} is too long for a host name": len(longest) > 63,
        "completionMode": spec["completionMode"] != "Indexed",
        "restartPolicy": pod["restartPolicy"] != "Never",
        "subdomain": not _DNS_LABEL.fullmatch(pod["subdomain"]),
        "volumes": sorted(mounts) != sorted(volume["name"] for volume in pod["volumes"]),
        "a variable twice": len(set(names)) < len(names),
        "a variable's name": not all(map(_VARIABLE.fullmatch, names)),
    }
    return [what for what, is_wrong in wrong.items() if is_wrong]


def is_allowed(rules: list[Object], verb: str, resource: str) -> bool:
    """Whether one of the rules of a role allows a request."""
    name, _, group = resource.partition(".")
    return any(
        verb in rule["verbs"] and name in rule["resources"] and group in rule["apiGroups"]
        for rule in rules
    )
