"""Families of tasks: what is learnt, from what, and how it is judged.

A task is what a config names, see `TASKS`; its class says which family it is of. A family says what
all its tasks need of a config, how they are trained, measured and served. Importing this package
does not import TensorFlow: a config is checked before that is paid for.
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
"""Import paths of the families by name."""

DATA_FILES_KEY = "data"
"""The key of the data's files in the `custom_config` of a family's code."""


def read_data_files(custom_config: Mapping[str, Any]) -> list[str]:
    """Returns the paths of the data's files, those of the newest span last."""
    return list(custom_config[DATA_FILES_KEY]["files"])


def read_data_source(custom_config: Mapping[str, Any]) -> dict[str, Any] | None:
    """Returns the keys `path`, `episodes` and `policy` of data that is in no files; else None."""
    source = custom_config[DATA_FILES_KEY].get("source")
    return None if source is None else dict(source)


EXAMPLES_KEY = "examples"
"""The key of the files of ExampleGen's splits in the `custom_config` of a family's `measure`."""


def read_example_files(custom_config: Mapping[str, Any], split: str) -> list[str]:
    """Returns the paths of a split's gzipped TFRecord files, where nodes of the family read the
    data.
    """
    return list(custom_config[EXAMPLES_KEY][split])


@dataclass(frozen=True)
class SampleRequest:
    """How many samples `predict --n` asks a model for that generates them."""

    count: int
    """At least 1."""
    seed: int
    """The same seed gives the same samples."""
    label: str | None
    """The class that all samples are of; None leaves the choice to the model."""


class Family:
    """What the tasks of a family need and do; each layer reads the hooks that are its own.

    Code that a layer above this one runs is named by its import path. It is told the settings and
    the data's files by TFX's `custom_config`: see `TrainerSettings.from_custom_config` and
    `read_data_files`.
    """

    has_label: ClassVar[bool] = False
    """Whether its data is rows with a label, which all sections of a config are about."""
    reads_rows: ClassVar[bool] = False
    """Else, whether ExampleGen reads its data, so that what is said of it has to fit together."""
    reads: ClassVar[frozenset[str]] = frozenset({"train"})
    """Else, of those keys of a config that not every family reads, as `data.label`, `features` and
    `model`, the ones that this one does; of `model` and `train` all, or some, as `train.epochs`.
    Others are refused."""

    graph: ClassVar[str] = "pipeline.graph.families.wire"
    """The function that gives the nodes of the pipeline, see `pipeline.graph.families.Given`."""
    search_graph: ClassVar[str] = ""
    """Likewise, as far as a search for better settings; empty where there is none."""
    data_graph: ClassVar[str] = ""
    """Likewise, as far as the data is read and checked; empty where that is a part of training."""

    run_fn: ClassVar[str] = ""
    """The function that Trainer calls with TFX's `fn_args`; it exports a model by
    `export_plain`, or another one with an interface. Empty where a graph of its own names it."""

    measure: ClassVar[str] = ""
    """The function that measures an exported model: of its folder (a Path) and the `custom_config`
    to the values of metrics by name, or to a `trainer_module.families.measured.Measured`, which
    also has intervals, notes and failures."""
    sample: ClassVar[str] = ""
    """The function that `predict --n` calls: of a pushed version's folder (a Path), a
    `SampleRequest` and the folder to write to (a Path, which exists and is empty) to a line for the
    screen. Empty where a model answers rows alone."""
    golden_rows: ClassVar[str] = ""
    """The function that chooses what a model is asked before it is pushed: of its folder and the
    `custom_config` to (what is special about a row, its values by column); default: every column at
    its edges."""

    @property
    def code(self) -> dict[str, str]:
        """Import paths of all code that it names, by the hook."""
        functions = ("run_fn", "measure", "sample", "golden_rows")
        hooks = ("graph", "search_graph", "data_graph", *functions)
        named = {f"task ({hook})": path for hook in hooks if (path := getattr(self, hook))}
        return {"task": f"{type(self).__module__}.{type(self).__qualname__}", **named}

    def own_code(self, config: Any) -> dict[str, str]:
        """Import paths of the user's code that its functions run, by the key that names each.

        Those of `model`, `features`, `train` and `evaluate` are known without it.

        Args:
          config: a `PipelineConfig` whose values are fine one by one.
        """
        del config
        return {}

    def problems(self, config: Any) -> Iterator[tuple[str, str]]:
        """What is wrong between the values of a config: the path of a key, and what would be right.

        Args:
          config: a `PipelineConfig` whose values are fine one by one.
        """
        del config
        return iter(())


class SupervisedFamily(Family):
    """A label is predicted from columns: ExampleGen, Transform, TFMA and a network, or trees.

    What differs between its tasks is what they say of the label: `BaseTask`.
    """

    has_label = True
    graph = "pipeline.graph.supervised.wire"
    search_graph = "pipeline.graph.supervised.wire_search"
    data_graph = "pipeline.graph.supervised.wire_data"


def family_of(task: LearningTask) -> Family:
    """Returns the family that a task is of."""
    return family_named(task.family)


def family_named(name: str) -> Family:
    """Returns the family of a name in `FAMILIES`."""
    found: type[Family] = import_registered(FAMILIES[name])
    return found()
