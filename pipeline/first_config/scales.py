"""Scales: words of a known order, and the names of columns with ratings."""

from __future__ import annotations

import re
from collections.abc import Collection

_SCALES = (
    "very low|vlow, low, medium|med|mid|middle|moderate|average|normal, high, very high|vhigh",
    "low, medium|med|mid|moderate, high|elevated, severe|critical|extreme",
    "none|no, mild|minor|slight|some, moderate, severe|major|marked, critical|extreme",
    "very bad|very poor|terrible|awful, bad|poor, fair|ok|okay|average|acceptable|regular, good,"
    " very good|vgood, excellent|premium|great, ideal|perfect|outstanding",
    "unacceptable|unacc, acceptable|acc, good, very good|vgood, excellent",
    "xxs, xs|extra small, s|small, m|med|medium, l|large|big, xl|extra large, xxl, xxxl",
    "short, medium|average, long, very long",
    "slow, medium|average, fast, very fast",
    "cold, cool|mild, warm, hot",
    "never, rarely|seldom, sometimes|occasionally, often|frequently, usually|mostly, always",
    "strongly disagree|totally disagree, disagree, slightly disagree|somewhat disagree,"
    " neutral|neither|neither agree nor disagree|undecided, slightly agree|somewhat agree, agree,"
    " strongly agree|totally agree",
    "very dissatisfied|very unsatisfied, dissatisfied|unsatisfied, neutral|neither, satisfied,"
    " very satisfied",
    "very unlikely, unlikely, neutral|neither, likely, very likely",
    "beginner|novice, intermediate, advanced, expert",
    "bronze, silver, gold, platinum, diamond",
)
"""The scales from the lowest to the highest place; words of the same place are separated by bars.
"""
_PLACES = tuple(
    {word: place for place, words in enumerate(scale.split(", ")) for word in words.split("|")}
    for scale in _SCALES
)
_MIN_CLASSES = 3


def order_words(classes: Collection[str]) -> list[str]:
    """Returns classes from the lowest to the highest, or an empty list if no scale has them all."""
    words = {name: " ".join(re.findall(r"[^\W_]+", name.lower())) for name in classes}
    for places in _PLACES:
        found = {name: places[word] for name, word in words.items() if word in places}
        if _MIN_CLASSES <= len(set(found.values())) == len(classes):
            return sorted(found, key=found.__getitem__)
    return []
