"""Checks objects of Kubernetes as its API server does, and refuses fields that it would drop."""

from __future__ import annotations

from typing import Any

import kubernetes_validate
import yaml

VERSION = "1.37"
"""Of Kubernetes."""


def assert_valid(manifest: dict[str, Any]) -> None:
    """Validates against the published JSON schema of the kind, unknown fields refused."""
    kubernetes_validate.validate(manifest, VERSION, strict=True)


def read_valid(text: str) -> dict[str, dict[str, Any]]:
    """The objects of a file by kind, each of them valid."""
    manifests = list(yaml.safe_load_all(text))
    for manifest in manifests:
        assert_valid(manifest)
    return {manifest["kind"]: manifest for manifest in manifests}


def assert_confined(pod: dict[str, Any]) -> None:
    """What Kubernetes' restricted profile asks of a pod, and a root file system that stays so."""
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in pod["containers"]:
        context = container["securityContext"]
        assert context["allowPrivilegeEscalation"] is False
        assert context["readOnlyRootFilesystem"] is True
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert "memory" in container["resources"]["limits"]


def assert_volumes_match(pod: dict[str, Any], *claimed: str) -> None:
    """Every mount has a volume and the other way round; `claimed` come from templates of claims."""
    mounts = {mount["name"] for part in pod["containers"] for mount in part["volumeMounts"]}
    assert mounts == {*claimed, *(volume["name"] for volume in pod["volumes"])}
