"""Metrics agree with independent implementations on made-up texts and on real data, and have their invariants."""

import itertools
import json
import re
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ragqa.metrics import (
    accuracy_at,
    answer_recall,
    exact_match,
    f1,
    first_rank,
    has_answer,
    mean_reciprocal_rank,
    normalize_answer,
)
from ragqa.question_files import read_questions, read_squad
from tests.oracles import dpr, orqa, squad

# --- second implementations, on texts that are made up ---

# Few enough that random texts overlap; one of each kind that the rules distinguish.
CHARACTERS = [
    *"aAtThHeEbBnN",
    *"áÁéÅ\u212bñßẞﬁǅ",  # letters that decompose, and some that do not
    *"\u0301\u0307\u0345\u093c\u200d\ufe0f",  # marks and joiners
    *"ΣσςΑοİıIi",
    *"中日あ한सते्िسَّل",
    *"12٣½²Ⅷ",
    *".,'-_$?’“–€©🙂🏽",
    *" \u00a0\u2009\u3000\u2028\t\n\r",
    *"\x00\x1f\u200b\u00ad\ufeff\ue000\ud800",  # category C
    *["the", "a", "an", "cat", " ", " "],
]
texts = st.lists(st.sampled_from(CHARACTERS), max_size=25).map("".join)
answer_lists = st.lists(texts, max_size=4)


def list_forms(text: str) -> list[str]:
    """Return forms of a text that the rules may or may not treat as equal."""
    composed, decomposed = unicodedata.normalize("NFC", text), unicodedata.normalize("NFD", text)
    return [text, text.upper(), text.lower(), text.swapcase(), composed, decomposed, f" the {text}!", text[::-1]]


@st.composite
def substrings(draw: st.DrawFn, source: str) -> str:
    """Draw a substring of a text in one of its forms."""
    start, end = sorted(draw(st.tuples(*[st.integers(0, len(source))] * 2)))
    return draw(st.sampled_from(list_forms(source[start:end])))


@st.composite
def text_pairs(draw: st.DrawFn) -> tuple[str, str]:
    """Draw two texts that are often forms of the same text."""
    one = draw(texts)
    return one, draw(st.one_of(texts, st.sampled_from(list_forms(one)), substrings(one)))


@st.composite
def passages_with_answers(draw: st.DrawFn) -> tuple[str, list[str]]:
    """Draw a passage and answers that are mostly substrings of it."""
    text = draw(texts)
    return text, draw(st.lists(st.one_of(substrings(text), substrings(text), texts), max_size=3))


@st.composite
def retrieved_passages(draw: st.DrawFn) -> tuple[list[list[str]], list[list[str]]]:
    """Draw passages found for some questions, and their answers."""
    words = st.sampled_from(["cat", "dog", "a cat", "the dog.", "catalog", "cow", ""])
    questions = draw(st.lists(st.tuples(st.lists(words, max_size=6), st.lists(words, max_size=2)), max_size=6))
    return [found for found, _ in questions], [gold for _, gold in questions]


@given(text_pairs())
def test_scores_agree_with_the_oracles(pair: tuple[str, str]) -> None:
    prediction, gold = pair
    assert normalize_answer(prediction) == squad.normalise(prediction)
    assert normalize_answer(prediction, unicode="NFD") == orqa.normalise(prediction)
    assert exact_match(prediction, [gold], unicode=None) == squad.exact_match(prediction, [gold])
    assert exact_match(prediction, [gold]) == orqa.exact_match(prediction, [gold])
    assert f1(prediction, [gold]) == squad.f1(prediction, [gold])


@given(texts, st.lists(texts, min_size=1, max_size=4))
def test_scores_of_several_answers_agree_with_the_oracles(prediction: str, gold: list[str]) -> None:
    assert exact_match(prediction, gold, unicode=None) == squad.exact_match(prediction, gold)
    assert exact_match(prediction, gold) == orqa.exact_match(prediction, gold)
    assert f1(prediction, gold) == squad.f1(prediction, gold)


@given(passages_with_answers())
@example(("ΟΔΟΣ.Α", ["οδος"]))
@example(("\u0345Σ\u0345", ["σ"]))
def test_has_answer_agrees_with_the_oracle(sample: tuple[str, list[str]]) -> None:
    passage, gold = sample
    assert has_answer(passage, gold) is dpr.has_answer(passage, gold)


# A few signs that make patterns of all kinds, some of which do not compile.
BITS = [*"aAéb1Σ", "e\u0301", *"|.?*+^$()", r"\b", r"\d", " ", "\n"]
patterns = st.lists(st.sampled_from(BITS), max_size=6).map("".join)
subjects = st.lists(st.sampled_from([*"aAéEb1Σς.$", "e\u0301", " ", "\n"]), max_size=8).map("".join)


@given(subjects, st.lists(patterns, max_size=3))
def test_patterns_agree_with_the_oracles(subject: str, sample: list[str]) -> None:
    assert has_answer(subject, sample, regex=True) is dpr.has_pattern(subject, sample)
    assert exact_match(subject, sample, regex=True) is orqa.pattern_match(subject, sample)


def test_characters_are_tokenised_by_their_category() -> None:
    """The category of these characters has not changed since Unicode 3.2, so all tables agree."""
    old = unicodedata.ucd_3_2_0
    for char in filter(lambda char: old.category(char) == unicodedata.category(char) != "Cn", map(chr, range(0x3100))):
        kinds = [unicodedata.category(part)[0] for part in unicodedata.normalize("NFD", char)]
        assert has_answer(char, [char]) is any(kind not in "ZC" for kind in kinds), ascii(char)
        assert has_answer(f"{char}x", ["x"]) is (kinds[-1] not in "LNM"), ascii(char)


@given(retrieved_passages(), st.lists(st.integers(1, 8), max_size=4))
def test_answer_recall_agrees_with_the_oracle(sample: tuple[list[list[str]], list[list[str]]], ks: list[int]) -> None:
    found, gold = sample
    assert answer_recall(found, gold, ks) == {k: pytest.approx(dpr.accuracy(found, gold, k)) for k in ks}


# --- invariants ---


@given(text_pairs())
def test_an_exact_match_has_an_f1_of_one_unless_it_is_empty(pair: tuple[str, str]) -> None:
    prediction, gold = pair
    if exact_match(prediction, [gold], unicode=None):
        assert f1(prediction, [gold]) == (1.0 if normalize_answer(prediction) else 0.0)


@given(text_pairs())
def test_scores_of_one_answer_are_symmetric(pair: tuple[str, str]) -> None:
    prediction, gold = pair
    assert f1(prediction, [gold]) == f1(gold, [prediction])
    assert exact_match(prediction, [gold]) == exact_match(gold, [prediction])
    assert exact_match(prediction, [gold], unicode=None) == exact_match(gold, [prediction], unicode=None)


@given(texts)
def test_a_text_matches_and_contains_itself(text: str) -> None:
    assert exact_match(text, [text])
    assert exact_match(text, [text], unicode=None)
    assert has_answer(text, [text]) is bool(dpr.tokens(text))


@given(texts, answer_lists, texts)
def test_another_answer_never_lowers_a_score(prediction: str, gold: list[str], more: str) -> None:
    assert 0 <= f1(prediction, gold) <= f1(prediction, [*gold, more]) <= 1
    assert exact_match(prediction, gold) <= exact_match(prediction, [more, *gold])
    assert exact_match(prediction, gold, unicode=None) <= exact_match(prediction, [more, *gold], unicode=None)
    assert has_answer(prediction, gold) <= has_answer(prediction, [more, *gold])


@given(passages_with_answers())
def test_a_longer_passage_contains_what_a_shorter_one_does(sample: tuple[str, list[str]]) -> None:
    passage, gold = sample
    assert has_answer(passage, gold) <= has_answer(f"so {passage} it", gold)


@given(retrieved_passages())
def test_answer_recall_is_the_mean_over_prefixes_and_never_falls(
    sample: tuple[list[list[str]], list[list[str]]],
) -> None:
    found, gold = sample
    recall = answer_recall(found, gold, range(1, 8))
    for k, share in recall.items():
        hits = [
            any(has_answer(text, some) for text in some_found[:k]) for some_found, some in zip(found, gold, strict=True)
        ]
        assert share == pytest.approx(sum(hits) / len(hits) if hits else 0.0)
    assert list(recall.values()) == sorted(recall.values())


@given(st.lists(st.lists(st.booleans(), max_size=6), max_size=6))
def test_ranks_and_their_means_agree_with_the_marks(marks: list[list[bool]]) -> None:
    ranks = [first_rank(row) for row in marks]
    for k, share in accuracy_at(ranks, range(1, 8)).items():
        assert share == pytest.approx(sum(any(row[:k]) for row in marks) / max(1, len(marks)))
        inverse = sum(1 / (row.index(True) + 1) for row in marks if any(row[:k])) / max(1, len(marks))
        assert mean_reciprocal_rank(ranks, cutoff=k) == pytest.approx(inverse)
    assert mean_reciprocal_rank(ranks) == mean_reciprocal_rank(ranks, cutoff=6)


# --- real data ---


@pytest.mark.parametrize(("name", "missing"), [("bert-ensemble-v1.1", 0), ("logistic-regression-v1.1", 3)])
def test_published_squad_predictions_agree_with_the_oracle(shared_data: Path, name: str, missing: int) -> None:
    golds = {
        question.id: question.answers
        for paragraph in read_squad(shared_data / "squad" / "dev-a-v1.1.json.xz")
        for question in paragraph.questions
    }
    predictions = json.loads((shared_data / "squad" / "predictions" / f"{name}.json").read_text(encoding="utf-8"))
    assert len(golds) - len(golds.keys() & predictions.keys()) == missing  # wrong, and still counted

    matches = {id_: exact_match(predictions.get(id_), gold, unicode=None) for id_, gold in golds.items()}
    overlaps = {id_: f1(predictions.get(id_), gold) for id_, gold in golds.items()}
    for id_, gold in golds.items():
        prediction = predictions.get(id_)
        assert matches[id_] == (prediction is not None and squad.exact_match(prediction, gold)), id_
        assert overlaps[id_] == (0 if prediction is None else squad.f1(prediction, gold)), id_

    totals = squad.evaluate(golds, predictions)
    assert 100 * sum(matches.values()) / len(golds) == totals["exact_match"]
    assert 100 * sum(overlaps.values()) / len(golds) == totals["f1"]


def list_alternatives(pattern: str) -> Iterator[str]:
    """Return the branches of a pattern of CuratedTREC without their special characters, as likely answers."""
    for branch in pattern.split("|"):
        yield re.sub(r"\[.*?\]|[()*+?^$\\]", "", re.sub(r"\\[sb]\W?", " ", branch)).strip()


def test_curatedtrec_agrees_with_the_oracles(shared_data: Path) -> None:
    as_patterns = as_texts = total = 0
    for question in read_questions(shared_data / "curatedtrec" / "test-a.jsonl"):
        for prediction in [question.text, *itertools.chain.from_iterable(map(list_alternatives, question.answers))]:
            passage = f"They say it is\n{prediction}, and so it is."
            is_match = exact_match(prediction, question.answers, regex=True)
            is_found = has_answer(passage, question.answers, regex=True)
            assert is_match is orqa.pattern_match(prediction, question.answers), (question, prediction)
            assert is_found is dpr.has_pattern(passage, question.answers), (question, prediction)
            assert has_answer(passage, question.answers) is dpr.has_answer(passage, question.answers), (
                question,
                prediction,
            )
            as_patterns += is_found
            as_texts += has_answer(passage, question.answers)
            total += 1
    assert as_texts < total / 2 < as_patterns  # what forgetting the flag costs
