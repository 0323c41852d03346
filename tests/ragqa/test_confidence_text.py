"""Confidences as text."""

import pytest

from ragqa.text import describe_low_confidence, format_confidence
from ragqa.types import Answer


@pytest.mark.parametrize("confidence", [0.05496, 0.054951, 0.0549, 0.99996, 0.0])
def test_text_and_json_show_the_same_confidence(confidence: float) -> None:
    """Rounded at once, 0.05496 is 0.05; rounded to the four decimals of the JSON first, it is 0.06."""
    row = Answer("Who?", "Ada", 0.0, confidence).to_dict()
    assert format_confidence(confidence) == f"{row['confidence']:.2f}"


def test_a_confidence_just_below_the_threshold_is_shown_with_more_decimals() -> None:
    assert describe_low_confidence(0.05, 0.16) == "the best has confidence 0.05, below 0.16"
    assert describe_low_confidence(0.1572, 0.16) == "the best has confidence 0.1572, below 0.1600"
