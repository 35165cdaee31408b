"""The container image of the steps, and the comparison of its code with this checkout."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
from dataclasses import dataclass

from pipeline.own_modules import PACKAGES, ROOT
from trainer_module.errors import ConfigError

CODE_LABEL = "scopeline.code"
"""The image's label with the hash of its code."""
INSPECT_SECONDS = 10
"""The time limit of `docker image inspect`."""

# The grammar of image references, as registries and Kubernetes read them.
_LABEL = r"[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?"
_HOST = rf"(?:{_LABEL}(?:\.{_LABEL})*|\[[0-9a-fA-F:]+\])"
_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_REFERENCE = re.compile(
    rf"(?P<name>(?:{_HOST}(?::\d+)?/)?{_PART}(?:/{_PART})*)"
    r"(?::(?P<tag>\w[\w.-]{0,127}))?"
    r"(?:@(?P<digest>[a-z0-9]+(?:[+._-][a-z0-9]+)*:[0-9a-f]{32,}))?",
    re.ASCII,
)


@dataclass(frozen=True)
class ImageReference:
    """The name of an image, such as `registry.example.com:5000/team/scopeline:0.1.0`."""

    name: str
    """The registry, if there is one, and the repository."""
    tag: str | None
    digest: str | None
    """The digest, such as `sha256:...`, which identifies the content."""


def parse_image(image: str) -> ImageReference:
    """Parses the name of an image.

    Raises:
      ConfigError: the name is invalid.
    """
    match = _REFERENCE.fullmatch(image)
    if match is None:
        raise ConfigError(
            f"found {image!r}, which is not the name of an image; expected "
            "[registry[:port]/]name:tag in lower case, such as registry.example.com/scopeline:0.1.0"
        )
    return ImageReference(match["name"], match["tag"], match["digest"])


def code_hash() -> str:
    """Returns the hash of Scopeline's own code, for comparing an image with a checkout.

    Only the source files of the packages count, so that image and checkout have
    equal hashes.
    """
    digest = hashlib.sha256()
    sources = (path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    for name, source in sorted((path.relative_to(ROOT).as_posix(), path) for path in sources):
        digest.update(name.encode() + b"\0")
        digest.update(hashlib.sha256(source.read_bytes()).digest())
    return digest.hexdigest()[:16]


def check_image(image: str, allow_latest: bool = False) -> list[str]:
    """Checks the image of a config before anything is compiled for it.

    Args:
      allow_latest: whether to accept a tag whose image may change.

    Returns:
      Warnings that the image may not contain the code of this checkout.

    Raises:
      ConfigError: the name is invalid, or has no fixed tag.
    """
    try:
        reference = parse_image(image)
    except ConfigError as error:
        raise ConfigError(f"kubeflow.image: {error}") from None
    may_change = reference.digest is None and reference.tag in (None, "latest")
    if may_change and not allow_latest:
        tag = "the tag `latest`" if reference.tag else "no tag, which means `latest`"
        raise ConfigError(
            f"kubeflow.image: found {image!r} with {tag}: the image behind this tag may change; "
            f"give a separate tag for each build, such as {reference.name}:0.1.0, or a "
            "digest; --allow-latest accepts this tag"
        )
    try:
        image_code = _read_code_label(image)
    except _UnknownError as reason:
        return [
            f"the code in the image {image} cannot be compared with the code on this machine: "
            f"{reason}; the steps compare the code when they run"
        ]
    if image_code == code_hash():
        return []
    return [
        f"the image {image} contains other code ({image_code}) than this machine ({code_hash()}): "
        "rebuild the image with `make image`"
    ]


class _UnknownError(Exception):
    """An image whose code cannot be determined here; the message gives the reason."""


def _read_code_label(image: str) -> str:
    """Returns the hash of an image's code, from the local docker.

    Raises:
      _UnknownError: there is no docker, it does not respond, or the image has no label.
    """
    docker = shutil.which("docker")
    if docker is None:
        raise _UnknownError("docker is not installed")
    command = [docker, "image", "inspect", "--format", "{{json .Config.Labels}}", image]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSPECT_SECONDS)
    except subprocess.TimeoutExpired:
        raise _UnknownError(f"docker did not answer within {INSPECT_SECONDS} s") from None
    except OSError as error:
        raise _UnknownError(f"docker cannot be run ({error.strerror})") from None
    if done.returncode:
        output = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise _UnknownError(f"docker reports {output[-1].removeprefix('Error: ')!r}")
    try:
        labels = json.loads(done.stdout)
    except ValueError:
        raise _UnknownError("the answer of docker cannot be read") from None
    if not labels or not labels.get(CODE_LABEL):
        raise _UnknownError("the image was not built by `make image`")
    return str(labels[CODE_LABEL])
