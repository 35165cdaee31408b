"""An evaluation that compares with the model in service where that can read the data."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tfx import types
from tfx.types.standard_component_specs import BASELINE_MODEL_KEY

from components.evaluator.batched.executor import VERDICT_KEY, BatchExecutor
from components.evaluator.batched.reading import OF_FEATURE, UNREADABLE
from components.evaluator.verdict_settings import VerdictSettings
from trainer_module.runtime import report_notice


class BaselineTolerantExecutor(BatchExecutor):
    """Evaluates, and a second time without the model in service if that must be.

    A model parses what its schema had. A column that has changed its type since, or a gap that an
    older model's schema had no place for, would make every evaluation fail from then on.
    """

    def Do(  # noqa: N802 - TFX's name
        self,
        input_dict: dict[str, list[types.Artifact]],
        output_dict: dict[str, list[types.Artifact]],
        exec_properties: dict[str, Any],
    ) -> None:
        """Takes `examples`, `model`, `baseline_model` and `schema`; gives `evaluation`, `blessing`.

        Raises:
          Exception: what is raised without the model in service as well.
        """
        try:
            super().Do(input_dict, output_dict, exec_properties)
        except Exception as error:  # Beam and TFMA raise what they like.
            if UNREADABLE not in str(error) or not input_dict.get(BASELINE_MODEL_KEY):
                raise
            found = OF_FEATURE.search(str(error))
            report_notice(
                "the model in service cannot read this data, whose columns have changed since"
                f"{f' ({found[0]})' if found else ''}: the new one was not compared with it, and "
                "only evaluate.thresholds hold it. Once it is pushed, the next ones are compared"
            )
            alone, told = without_baseline(input_dict, exec_properties, "cannot read this data")
            super().Do(alone, output_dict, told)


def without_baseline(
    input_dict: dict[str, list[types.Artifact]], exec_properties: dict[str, Any], why: str
) -> tuple[dict[str, list[types.Artifact]], dict[str, Any]]:
    """The inputs and properties of an evaluation that leaves the model in service out.

    Args:
      input_dict: with that model.
      exec_properties: with the verdict's settings.
      why: what is wrong with it, after `which`.
    """
    settings = VerdictSettings.from_json(exec_properties.get(VERDICT_KEY) or "")
    told = {VERDICT_KEY: replace(settings, not_compared=why).to_json()}
    alone = {key: a for key, a in input_dict.items() if key != BASELINE_MODEL_KEY}
    return alone, {**exec_properties, **told}
