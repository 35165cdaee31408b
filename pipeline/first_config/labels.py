"""The columns that may be the label, the likeliest first, by their names, places and values."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable, Mapping

from components.column_types.choice import Choice
from components.column_types.decision import ENOUGH_ROWS, FEW_ROWS
from components.column_types.facts import Facts
from components.column_types.hints import identifies, names_moments
from components.example_gen.checks.report import (
    check_label_column,
    constant_label_error,
    date_label_error,
    identifier_error,
)
from pipeline.first_config.tasks import reads_numbers
from trainer_module.errors import DataError

_NAMES = (
    (
        {
            *("label", "labels", "target", "targets", "outcome", "response"),
            *("ziel", "zielgrosse", "zielgroesse", "zielwert", "zielvariable"),
            *("etiquette", "cible", "etiqueta", "objetivo", "alvo", "rotulo", "etichetta"),
        },
        8.0,
        5.0,
    ),
    ({"y"}, 8.0, 1.5),
    ({"class", "classes", "klasse", "classe", "clase"}, 4.0, 1.5),
    (
        {
            *("price", "churn", "churned", "survived", "default", "defaulted", "fraud"),
            *("species", "sentiment", "spam", "toxic", "converted", "clicked", "approved"),
            *("category", "result", "answer", "output", "diagnosis", "diagnosed", "exited"),
            *("attrition", "risk", "returned", "cancelled", "canceled", "purchased", "bought"),
            *("subscribed", "readmitted", "passed", "admitted", "accepted", "failure", "failed"),
            *("defect", "status"),
            *("preis", "prix", "precio", "preco", "prezzo", "betrug", "fraude", "frode"),
            *("kategorie", "categorie", "categoria", "ergebnis", "resultat", "resultado"),
            *("sales", "revenue", "demand", "consumption", "umsatz", "absatz", "verbrauch"),
            *("nachfrage", "ventes", "consommation", "demande", "ventas", "consumo", "demanda"),
            *("vendas", "receita", "vendite", "ricavi", "domanda"),
            *("risultato", "diagnose", "diagnostic", "diagnostico", "diagnosi", "risiko"),
        },
        4.0,
        3.0,
    ),
    (
        {
            *("cost", "amount", "salary", "income", "quality", "rating", "score", "grade"),
            *("count", "cnt", "value", "type", "stars"),
            *("gehalt", "einkommen", "kosten", "bewertung", "revenu", "cout", "salaire"),
            *("ingresos", "salario", "coste", "costo", "custo", "stipendio"),
        },
        2.0,
        1.5,
    ),
)
"""The words in names of labels in English, German, French, Spanish, Portuguese and Italian, without
accents; the score of a name that is one of the words, and of a name that contains one. Words for
any label precede words for usual labels, and words for columns that may also be features.
"""
_LAST, _FIRST, _BINARY, _GAPS = 2.0, 0.5, 0.5, -1.0
"""The scores of the last and the first column, of two different values, and of missing values."""
_MAX_CLASSES = 1_000
"""The maximum number of classes of text that may be a label."""
_MAX_CLASS_SHARE = 0.3
"""The maximum number of classes of text that may be a label, as a share of the rows."""


OPTION = "--label"
"""The option that names the label."""


def rank_labels(facts: Mapping[str, Facts], choices: Mapping[str, Choice]) -> list[str]:
    """Returns the columns that may be the label, the likeliest first.

    Args:
      facts: the facts about all columns, in the order of the data.
    """
    names = list(facts)
    candidates = [name for name in names if _may_be_label(facts[name], choices[name])]

    def likelihood(name: str) -> tuple[float, float]:
        return _score(facts[name], names), _name_score(name, names)

    # Of columns with equal scores, the better name and then the last one is the likeliest.
    return sorted(candidates, key=likelihood)[::-1]


def name_label(names: Collection[str]) -> str | None:
    """Returns the only column whose whole name means a label, such as `target`, or None."""
    found = [name for name in names if _name_score(name, names) == _NAMES[0][1]]
    return found[0] if len(found) == 1 else None


def _may_be_label(facts: Facts, choice: Choice) -> bool:
    if choice.type in ("date", "text", "image") or facts.distinct < 2 or facts.longest:
        return False
    if (
        identifies(facts.name)
        or facts.are_days
        or (not facts.is_text and names_moments(facts.name))
    ):
        return False
    if not facts.is_text:
        return not choice.is_ignored
    if reads_numbers(facts):
        return True
    few = facts.known < ENOUGH_ROWS
    return facts.distinct <= (
        max(facts.known // 2, 2) if few else min(_MAX_CLASSES, _MAX_CLASS_SHARE * facts.known)
    )


def _score(facts: Facts, names: list[str]) -> float:
    score = _name_score(facts.name, names)
    score += _LAST * (facts.name == names[-1]) + _FIRST * (facts.name == names[0])
    return score + _BINARY * (facts.distinct == 2) + _GAPS * facts.has_gaps


def _name_score(name: str, names: Collection[str]) -> float:
    if name in ("y", "Y") and {"x", "y", "z"} <= {other.lower() for other in names}:
        return 0.0  # These are sizes or coordinates.
    words = re.findall(r"[^\W_\d]+", _plain(re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name)))
    whole = next((score for known, score, _ in _NAMES if "".join(words) in known), 0.0)
    part = next((score for known, _, score in _NAMES if not known.isdisjoint(words)), 0.0)
    return max(whole, part)


def _plain(name: str) -> str:
    """Returns a name in lower case and without accents."""
    letters = unicodedata.normalize("NFKD", name.casefold())
    return "".join(letter for letter in letters if not unicodedata.combining(letter))


def check_label(
    label: str,
    facts: Mapping[str, Facts],
    choices: Mapping[str, Choice],
    names: Iterable[str],
    is_complete: bool,
) -> None:
    """Checks the label that a user names.

    Args:
      facts: the facts about all columns.
      names: the names of all columns, also of those without facts.
      is_complete: whether the facts are about all rows.

    Raises:
      DataError: there is no such column, or it is an identifier, dates, sentences or a constant.
    """
    check_label_column(names, label, key=OPTION)
    column, choice = facts.get(label), choices.get(label)
    if column is None or choice is None:
        raise DataError(
            f"Label {label!r} has several values, or bytes that are not text, in a row: every row"
            " needs exactly one label; name another column by --label."
        )
    if column.distinct == 1:
        shown = repr(column.examples[0]) if column.is_text else f"{column.low:g}"
        if is_complete:
            raise constant_label_error(label, shown, OPTION)
        raise DataError(
            f"Label {label!r} is {shown} in all of the {column.known:,} rows that were read: if the"
            " rows are sorted by the label, shuffle them; otherwise name another column by --label."
        )
    if choice.type == "date":
        shown = repr(column.examples[0]) if column.is_text else f"{column.low:.0f}"
        raise date_label_error(label, column.distinct, shown, OPTION)
    # Numbers with a fraction are quantities, whatever the name, such as `index`.
    is_identifier = choice.is_ignored or choice.type == "text" or identifies(label)
    is_identifier &= column.is_text or column.is_whole
    if is_identifier and column.known >= FEW_ROWS and column.distinct_share > _IDENTIFIER_SHARE:
        raise identifier_error(label, column.distinct, column.known, OPTION)


_IDENTIFIER_SHARE = 0.9
"""The share of distinct values above which a label is an identifier or sentences."""


_SHOWN = 3
"""The number of columns that a message describes."""


def no_label_error(path: str, choices: Mapping[str, Choice]) -> DataError:
    """Returns the error for data of which no column may be the label."""
    columns = list(choices.items())
    shown = "; ".join(f"{name!r}: {choice.reason}" for name, choice in columns[:_SHOWN])
    more = f"; and {len(columns) - _SHOWN:,} more" if len(columns) > _SHOWN else ""
    return DataError(
        f"No column of {path} looks like a label ({shown}{more}): name the column to predict by"
        " --label COLUMN, or add such a column."
    )
