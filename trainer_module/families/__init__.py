"""Families of tasks; the tasks of a family share their inputs, training and evaluation.

The config names a task in `TASKS`, and the class of the task names its family. The family defines
the config sections, the training, the evaluation and the serving of its tasks. Importing this
package does not import TensorFlow, so the check of a config is fast.
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
"""The key in the `custom_config` of a family's code that contains the data's files or source."""


def read_data_files(custom_config: Mapping[str, Any]) -> list[str]:
    """Returns the paths of the data's files; the files of the newest span are last."""
    return list(custom_config[DATA_FILES_KEY]["files"])


def read_data_source(custom_config: Mapping[str, Any]) -> dict[str, Any] | None:
    """Returns `path`, `episodes` and `policy` of the section `data`, or None if files hold the
    data.
    """
    source = custom_config[DATA_FILES_KEY].get("source")
    return None if source is None else dict(source)


EXAMPLES_KEY = "examples"
"""The key of the files of ExampleGen's splits in the `custom_config` of a family's `measure`."""


def read_example_files(custom_config: Mapping[str, Any], split: str) -> list[str]:
    """Returns the paths of a split's gzipped TFRecord files, if ExampleGen reads the data."""
    return list(custom_config[EXAMPLES_KEY][split])


@dataclass(frozen=True)
class SampleRequest:
    """The samples that `predict --n` requests from a generative model."""

    count: int
    """The number of samples, at least 1."""
    seed: int
    """The seed, which determines the samples."""
    label: str | None
    """The class of all samples, or None for all classes in turn."""


class Family:
    """The base class of families: the hooks by which a family defines its part of the pipeline.

    Hooks that are code are import paths, so that importing a family does not import TensorFlow. The
    code receives the settings and the data's files in TFX's `custom_config`, from which
    `TrainerSettings.from_custom_config` and `read_data_files` read them.
    """

    has_label: ClassVar[bool] = False
    """Whether the data consists of rows with a label. All sections of a config then apply."""
    reads_rows: ClassVar[bool] = False
    """Whether ExampleGen reads the data, if `has_label` is false."""
    reads: ClassVar[frozenset[str]] = frozenset({"train"})
    """The family-specific config keys that the family reads, if `has_label` is false.

    Family-specific keys are for example `data.label`, `features` and `model`. A section such as
    `train` can be given as a whole, or as single keys such as `train.epochs`. A config with other
    family-specific keys is rejected.
    """

    graph: ClassVar[str] = "pipeline.graph.families.wire"
    """The function that returns the nodes of the pipeline from a
    `pipeline.graph.families.GraphInputs`.
    """
    search_graph: ClassVar[str] = ""
    """The function that returns the nodes up to the hyperparameter search.

    The string is empty if the family has no search.
    """
    data_graph: ClassVar[str] = ""
    """The function that returns the nodes that read and check the data.

    The string is empty if the training reads the data itself.
    """

    run_fn: ClassVar[str] = ""
    """The function that Trainer calls with TFX's `fn_args`.

    The function has to export a model, for example by `export_plain`. The hook is empty if the
    function in `graph` names the function for Trainer.
    """

    measure: ClassVar[str] = ""
    """The function that measures an exported model.

    The function takes the model's folder (a Path) and the `custom_config`, and returns the values
    of metrics by name, or a `trainer_module.families.measured.Measured` with intervals, notes and
    failures.
    """
    sample: ClassVar[str] = ""
    """The function that `predict --n` calls.

    The function takes a pushed version's folder (a Path), a `SampleRequest` and an empty folder for
    the output (a Path), and returns a line for the screen. The string is empty if the model does
    not generate samples.
    """
    golden_rows: ClassVar[str] = ""
    """The function that chooses the golden rows, with which all interfaces of a model are tested.

    The function takes the model's folder and the `custom_config`, and returns pairs of a
    description and the row's values by column. Without this function, the golden rows have extreme
    values of each column.
    """

    @property
    def code(self) -> dict[str, str]:
        """The import paths of the family and its hooks, by a description such as "task (graph)"."""
        functions = ("run_fn", "measure", "sample", "golden_rows")
        hooks = ("graph", "search_graph", "data_graph", *functions)
        paths = {f"task ({hook})": path for hook in hooks if (path := getattr(self, hook))}
        return {"task": f"{type(self).__module__}.{type(self).__qualname__}", **paths}

    def own_code(self, config: Any) -> dict[str, str]:
        """Returns the import paths of the user's code that the family runs, by config key.

        The paths in `model`, `features`, `train` and `evaluate` are not included.

        Args:
          config: a `PipelineConfig` whose values are valid one by one.
        """
        del config
        return {}

    def problems(self, config: Any) -> Iterator[tuple[str, str]]:
        """Yields contradictions between the values of a config: the path of a key, and a message.

        Args:
          config: a `PipelineConfig` whose values are valid one by one.
        """
        del config
        return iter(())


class SupervisedFamily(Family):
    """The family whose models predict a label from the other columns of a row.

    The task, a subclass of `BaseTask`, defines everything that depends on the label.
    """

    has_label = True
    graph = "pipeline.graph.supervised.wire"
    search_graph = "pipeline.graph.supervised.wire_search"
    data_graph = "pipeline.graph.supervised.wire_data"


def family_of(task: LearningTask) -> Family:
    """Returns the family of a task."""
    return family_named(task.family)


def family_named(name: str) -> Family:
    """Returns the family of a name in `FAMILIES`."""
    family: type[Family] = import_registered(FAMILIES[name])
    return family()
