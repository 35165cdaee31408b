"""The files by which the steps of a run exchange data, on a volume or in an object store."""

from __future__ import annotations

import posixpath
import uuid
from functools import cached_property
from typing import Any

from tfx.dsl.io.plugins.local import LocalFilesystem

from components.example_gen.paths import is_remote
from pipeline.kubeflow.compiled import StepReport


class RunFolder:
    """The files of one run."""

    def __init__(self, root: str, run_id: str) -> None:
        """Names the files; reads and writes nothing.

        Args:
          root: the folder, or URI, of the pipeline.
          run_id: of the run.
        """
        self._folder = posixpath.join(root, "runs", run_id)

    def __str__(self) -> str:
        return self._folder

    def write_report(self, report: StepReport) -> None:
        """Writes how a step ended, in the place of an earlier attempt's report."""
        self.write(f"steps/{report.step}.json", report.model_dump_json())

    def delete_report(self, step: str) -> None:
        """Deletes the report of an earlier attempt at a step, as another one begins."""
        path = posixpath.join(self._folder, f"steps/{step}.json")
        if self._files.exists(path):
            self._files.remove(path)

    def read_report(self, step: str) -> StepReport | None:
        """How a step ended; None if it wrote no report."""
        text = self.read(f"steps/{step}.json")
        return None if text is None else StepReport.model_validate_json(text)

    def write(self, name: str, text: str) -> None:
        """Writes a file that is complete as soon as it is there."""
        path = posixpath.join(self._folder, name)
        self._files.makedirs(posixpath.dirname(path))
        scratch = f"{path}.{uuid.uuid4().hex}.tmp"
        with self._files.open(scratch, "w") as opened:
            opened.write(text)
        self._files.rename(scratch, path, overwrite=True)

    def read(self, name: str) -> str | None:
        """The text of a file; None if it is not there."""
        path = posixpath.join(self._folder, name)
        if not self._files.exists(path):
            return None
        with self._files.open(path, "r") as opened:
            return str(opened.read())

    @cached_property
    def _files(self) -> Any:
        """TFX's access to files: of this machine, or of object stores by way of TensorFlow."""
        if not is_remote(self._folder):
            return LocalFilesystem
        from tfx.dsl.io import fileio

        return fileio
