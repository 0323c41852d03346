"""EM and F1 on hand-computed cases."""

import pytest

from ragqa.metrics import exact_match, f1, normalize_answer


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("The  Eiffel Tower!", "eiffel tower"),
        ("U.S.", "us"),
        ("an answer, a day", "answer day"),
        ("The", ""),
        ("“quoted”", "“quoted”"),  # curly quotes are no ASCII punctuation
        ("theatre", "theatre"),
    ],
)
def test_normalize(text: str, normal: str) -> None:
    assert normalize_answer(text) == normal


def test_exact_match_takes_the_best_answer() -> None:
    assert exact_match("the Seine", ["Thames", "Seine"])
    assert not exact_match("Seine river", ["Seine"])
    assert not exact_match(None, ["Seine"])
    assert not exact_match("Seine", [])


def test_the_unicode_rules_differ_on_accents() -> None:
    composed, decomposed = "caf\u00e9", "cafe\u0301"
    assert exact_match(composed, [decomposed], unicode="NFD")
    assert not exact_match(composed, [decomposed], unicode=None)


@pytest.mark.parametrize(
    ("said", "gold", "value"),
    [
        ("Denver Broncos", ["the Denver Broncos"], 1.0),
        ("Broncos of Denver", ["Denver Broncos"], 2 * (2 / 3) * 1 / (2 / 3 + 1)),
        ("red red", ["red"], 2 * 0.5 * 1 / 1.5),
        ("blue", ["red"], 0.0),
        ("the", ["a"], 0.0),  # both empty once normalised: EM 1, F1 0, as in the official script
        (None, ["red"], 0.0),
    ],
)
def test_f1(said: str | None, gold: list[str], value: float) -> None:
    assert f1(said, gold) == pytest.approx(value)
