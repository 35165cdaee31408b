"""Families of tasks, which share their inputs, their training and their evaluation.

The config names a task, see `TASKS`; the class of the task names its family. The family defines the
config sections, the training, the evaluation and the serving of its tasks. Importing this package
does not import TensorFlow, so that a config can be checked first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from trainer_module.sections import import_registered
from trainer_module.settings.tasks import LearningTask

FAMILIES = {
    "supervised": "trainer_module.families.SupervisedFamily",
    "control": "trainer_module.families.control.family.ControlFamily",
    "generation": "trainer_module.families.generation.family.GenerationFamily",
}
"""The import paths of the families by name."""

DATA_FILES_KEY = "data"
"""The key of the data's files in the `custom_config` of a family's code."""


def read_data_files(custom_config: Mapping[str, Any]) -> list[str]:
    """Returns the paths of the data's files, with those of the newest span last."""
    return list(custom_config[DATA_FILES_KEY]["files"])


def read_data_source(custom_config: Mapping[str, Any]) -> dict[str, Any] | None:
    """Returns the keys `path`, `episodes` and `policy` of data without files; None for files."""
    source = custom_config[DATA_FILES_KEY].get("source")
    return None if source is None else dict(source)


EXAMPLES_KEY = "examples"
"""The key of the files of ExampleGen's splits in the `custom_config` of a family's `measure`."""


def read_example_files(custom_config: Mapping[str, Any], split: str) -> list[str]:
    """Returns the paths of a split's gzipped TFRecord files, for families whose nodes read the
    data.
    """
    return list(custom_config[EXAMPLES_KEY][split])


@dataclass(frozen=True)
class SampleRequest:
    """The samples that `predict --n` requests from a generative model."""

    count: int
    """The number of samples, at least 1."""
    seed: int
    """The seed, which determines the samples."""
    label: str | None
    """The class of all samples; None leaves the choice to the model."""


class Family:
    """The hooks of a family of tasks; each layer of the project reads its own hooks.

    Import paths name the code that a higher layer runs. That code receives the settings and the
    data's files in TFX's `custom_config`: see `TrainerSettings.from_custom_config` and
    `read_data_files`.
    """

    has_label: ClassVar[bool] = False
    """Whether the data consists of rows with a label, so that all sections of a config apply."""
    reads_rows: ClassVar[bool] = False
    """Whether ExampleGen reads the data although `has_label` is false, so that its sections are
    checked.
    """
    reads: ClassVar[frozenset[str]] = frozenset({"train"})
    """The optional config keys that the family reads if `has_label` is false.

    The keys are those that not every family reads, such as `data.label`, `features` and `model`; of
    `model` and `train`, the whole section or single keys, such as `train.epochs`. Other keys are
    rejected.
    """

    graph: ClassVar[str] = "pipeline.graph.families.wire"
    """The function that returns the nodes of the pipeline, see
    `pipeline.graph.families.GraphInputs`.
    """
    search_graph: ClassVar[str] = ""
    """The function that returns the nodes up to a search for better settings; empty if there is no
    search.
    """
    data_graph: ClassVar[str] = ""
    """The function that returns the nodes that read and check the data; empty if training does so.
    """

    run_fn: ClassVar[str] = ""
    """The function that Trainer calls with TFX's `fn_args`.

    The function exports a model by `export_plain`, or another one with an interface. Empty if the
    family's own graph names it.
    """

    measure: ClassVar[str] = ""
    """The function that measures an exported model.

    The function takes the model's folder (a Path) and the `custom_config`, and returns the values
    of metrics by name, or a `trainer_module.families.measured.Measured` with intervals, notes and
    failures.
    """
    sample: ClassVar[str] = ""
    """The function that `predict --n` calls; empty if the model only answers rows.

    The function takes a pushed version's folder (a Path), a `SampleRequest` and an empty folder for
    the output (a Path), and returns a line for the screen.
    """
    golden_rows: ClassVar[str] = ""
    """The function that chooses the rows that a model is tested with before it is pushed.

    The function takes the model's folder and the `custom_config`, and returns pairs of a
    description and the row's values by column. By default, the rows have extreme values of each
    column.
    """

    @property
    def code(self) -> dict[str, str]:
        """The import paths of all code that the family names, by the hook."""
        functions = ("run_fn", "measure", "sample", "golden_rows")
        hooks = ("graph", "search_graph", "data_graph", *functions)
        named = {f"task ({hook})": path for hook in hooks if (path := getattr(self, hook))}
        return {"task": f"{type(self).__module__}.{type(self).__qualname__}", **named}

    def own_code(self, config: Any) -> dict[str, str]:
        """Returns the import paths of the user's code that the family's functions run, by config
        key.

        The paths in `model`, `features`, `train` and `evaluate` are not included.

        Args:
          config: a `PipelineConfig` whose single values are valid.
        """
        del config
        return {}

    def problems(self, config: Any) -> Iterator[tuple[str, str]]:
        """Yields contradictions between the values of a config: the path of a key, and a message.

        Args:
          config: a `PipelineConfig` whose single values are valid.
        """
        del config
        return iter(())


class SupervisedFamily(Family):
    """The family that predicts a label from columns with ExampleGen, Transform, TFMA and a network
    or trees.

    The class of a task, `BaseTask`, defines everything that depends on the label.
    """

    has_label = True
    graph = "pipeline.graph.supervised.wire"
    search_graph = "pipeline.graph.supervised.wire_search"
    data_graph = "pipeline.graph.supervised.wire_data"


def family_of(task: LearningTask) -> Family:
    """Returns the family of a task."""
    return family_named(task.family)


def family_named(name: str) -> Family:
    """Returns the family with a name in `FAMILIES`."""
    found: type[Family] = import_registered(FAMILIES[name])
    return found()
