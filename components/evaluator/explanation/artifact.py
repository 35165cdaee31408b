"""The files of an explanation in the evaluation artifact."""

from __future__ import annotations

from components.copying import read_text, write_text
from components.evaluator.explanation.record import (
    EXAMPLES_FILE,
    EXPLANATION_FILE,
    Explanation,
    WorstExamples,
)


def write_explanation(explanation: Explanation, worst: WorstExamples, uri: str) -> None:
    """Writes an explanation and its worst examples."""
    write_text(worst.model_dump_json(exclude_defaults=True), uri, EXAMPLES_FILE)
    write_text(explanation.model_dump_json(), uri, EXPLANATION_FILE)


def read_explanation(uri: str) -> Explanation | None:
    """Returns the explanation that an evaluation stored, or None.

    Raises:
      ValidationError: another release wrote the file.
    """
    text = read_text(uri, EXPLANATION_FILE)
    return None if text is None else Explanation.model_validate_json(text)
