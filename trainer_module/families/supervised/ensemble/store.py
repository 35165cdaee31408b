"""The files of an ensemble's trained members, from which an interrupted training resumes."""

from __future__ import annotations

import hashlib
import io
import json
import logging
import os
import zipfile
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from trainer_module.data.dealing import Folds
from trainer_module.families.supervised.ensemble.linear import build_linear
from trainer_module.families.supervised.ensemble.member import Build, Member, build_forest
from trainer_module.families.supervised.trees.forest import Forest, TreeColumn
from trainer_module.families.supervised.trees.growing import TreeExamples
from trainer_module.problem import Problem
from trainer_module.runtime import MEMBERS_FOLDER
from trainer_module.settings import TrainerSettings
from trainer_module.settings.model import LINEAR_MEMBER

logger = logging.getLogger(__name__)

_UNSEEN, _REST = "unseen predictions", "rest"


def fingerprint(examples: TreeExamples, folds: Folds, settings: TrainerSettings) -> str:
    """Returns a hash of all that determines the members: the data, the folds and the settings."""
    digest = hashlib.sha256(
        json.dumps(settings.to_custom_config(), sort_keys=True, default=str).encode()
    )
    inputs = (*examples.values, *examples.bags.values())
    for values in (*inputs, examples.label, examples.weight, folds.parts.part_of):
        if values is not None:
            digest.update(str(values.dtype).encode())
            digest.update(np.ascontiguousarray(values).data)
    return digest.hexdigest()[:16]


class MemberStore:
    """The members that are trained, in files that are complete or absent."""

    def __init__(self, directory: str, fingerprint: str) -> None:
        """Stores the place of the files.

        Args:
          directory: the folder of the training's checkpoints.
          fingerprint: the result of `fingerprint`; members of another one are not read.
        """
        self._folder = os.path.join(directory, MEMBERS_FOLDER)
        self._fingerprint = fingerprint

    def resume(
        self,
        name: str,
        train: Callable[[], Member],
        problem: Problem,
        columns: Sequence[TreeColumn],
    ) -> Member:
        """Returns a member of an interrupted training, or trains it and writes its file.

        A member whose file is damaged is trained again.

        Args:
          name: the name of the member.
          train: the function that trains it.
          problem: the features and the label, as the member learns them.
          columns: the columns from which the member learns.
        """
        path = os.path.join(self._folder, f"{name}-{self._fingerprint}.npz")
        if tf.io.gfile.exists(path):
            try:
                return _read(path, name, problem, columns)
            except (ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error) as error:
                logger.warning("%s is damaged (%r): the member is trained again", path, error)
        member = train()
        tf.io.gfile.makedirs(self._folder)
        _write(path, member)
        return member


def _write(path: str, member: Member) -> None:
    rest = json.dumps({"notes": member.notes, "measured": member.measure()})
    content = io.BytesIO()
    arrays: dict[str, Any] = {_UNSEEN: member.unseen, _REST: np.array(rest), **member.arrays}
    np.savez(content, **arrays)
    with tf.io.gfile.GFile(f"{path}.new", "wb") as file:
        file.write(content.getvalue())
    tf.io.gfile.rename(f"{path}.new", path, overwrite=True)


def _read(path: str, name: str, problem: Problem, columns: Sequence[TreeColumn]) -> Member:
    with tf.io.gfile.GFile(path, "rb") as file:
        content = io.BytesIO(file.read())
    with np.load(content, allow_pickle=False) as stored:
        arrays = dict(stored)
    unseen, rest = arrays.pop(_UNSEEN), json.loads(str(arrays.pop(_REST)))
    measured: dict[str, Any] = rest["measured"]
    build = _builder(name, problem, columns, arrays)
    return Member(build, unseen, tuple(rest["notes"]), arrays, lambda: measured)


def _builder(
    name: str, problem: Problem, columns: Sequence[TreeColumn], arrays: dict[str, np.ndarray]
) -> Build:
    if name == LINEAR_MEMBER:
        return build_linear(problem, columns, arrays)
    return build_forest(problem, Forest.from_arrays(tuple(columns), arrays), name)
