"""Passages of a corpus that contain an answer, and the spans of answers in a passage."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.common import answer_rows as module
from pipelines.common.answer_rows import AnsweredQuestions, find_answer_rows
from pipelines.common.examples.gold_spans import GoldSpans
from ragqa.artefacts.paths import get_weights_dir
from ragqa.corpus.store import PassageStore
from ragqa.indexing.build import IndexConfig, build_index
from ragqa.matching.answer_finder import AnswerFinder
from ragqa.metrics import has_answer
from ragqa.reading.windows import make_windows
from ragqa.runtime.tokens import TextTokenizer
from ragqa.types import Question

TOKENIZER = TextTokenizer(get_weights_dir() / "encoder")


def test_questions_with_an_answer_in_a_text_by_hand() -> None:
    gold_answers = [["1871"], ["Ada Holm", "Holm"], ["the engineer"], [], ["Holm Ada"], ["", "…"], ["brenna"], ["871"]]
    text = "Built in 1871 by the engineer Ada Holm, on Brenna …"
    assert AnswerFinder(gold_answers).find_questions(text) == [0, 1, 2, 5, 6]
    assert AnswerFinder(gold_answers).find_questions("") == []


def test_questions_with_a_pattern_in_a_text_by_hand() -> None:
    gold_answers = [[r"18\d\d"], [r"^ada"], ["("], [r"jos\u00e9", "holm|brandt"], [" "]]
    assert AnswerFinder(gold_answers, regex=True).find_questions("Built in 1871.\nAda Holm") == [0, 1, 3]
    assert AnswerFinder([["José"]], regex=True).find_questions("Jose\u0301 Rizal") == [0]


TEXTS = st.text(alphabet="ab Ñéσς1,.-\u0301", max_size=30)


@settings(max_examples=150)
@given(st.lists(st.lists(TEXTS.map(lambda t: t[:4]), max_size=3), max_size=8), TEXTS)
def test_the_answer_finder_agrees_with_has_answer(gold_answers: list[list[str]], text: str) -> None:
    assert AnswerFinder(gold_answers).find_questions(text) == [
        n for n, each in enumerate(gold_answers) if has_answer(text, each)
    ]


@pytest.fixture(scope="module")
def colours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Index four passages of one document each: red, green, red green, blue."""
    folder = tmp_path_factory.mktemp("colours")
    texts = ["red", "green", "red green", "blue"]
    lines = [json.dumps({"id": str(n), "title": "red", "text": text}) for n, text in enumerate(texts)]
    (folder / "c.jsonl").write_text("\n".join(lines))
    build_index([folder / "c.jsonl"], folder / "c.index", IndexConfig(retriever="bm25"))
    return folder / "c.index"


def test_rows_of_passages_with_an_answer_by_hand(colours: Path, tmp_path: Path, monkeypatch) -> None:
    store, gold_answers = PassageStore.open(colours / "passages"), [["green"], ["white"], ["Red", "blue"]]
    rows = find_answer_rows(store, "c", gold_answers, tmp_path)
    assert [found.tolist() for found in rows] == [[1, 2], [], [0, 2, 3]]
    answered = AnsweredQuestions([Question("?")] * 3, rows)
    assert answered.has_answer(2, np.array([3, 1, -1, 0])).tolist() == [True, False, False, True]
    assert answered.has_answer(1, np.array([3, 1])).tolist() == [False, False]
    monkeypatch.setattr(module, "_write_rows", None)  # the rows are read from disk
    again = find_answer_rows(store, "c", gold_answers, tmp_path)
    assert all(np.array_equal(before, after) for before, after in zip(rows, again, strict=True))
    with pytest.raises(TypeError):
        find_answer_rows(store, "c", gold_answers, tmp_path, regex=True)


def test_a_killed_search_for_answers_is_repeated(colours: Path, tmp_path: Path, monkeypatch) -> None:
    store = PassageStore.open(colours / "passages")

    def interrupt(*arguments: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", interrupt)
        with pytest.raises(KeyboardInterrupt):
            find_answer_rows(store, "c", [["blue"]], tmp_path)
    assert [found.tolist() for found in find_answer_rows(store, "c", [["blue"]], tmp_path)] == [[3]]
    assert len(list(tmp_path.iterdir())) == 1


def find_gold_spans(
    text: str, answers: list[str], *, regex: bool = False, title: str = "", max_tokens: int = 64
) -> list[str]:
    """Return the gold spans of the first window as texts, in order."""
    window = next(make_windows(TOKENIZER, "what?", [(title, text)], max_tokens))
    places = sorted(GoldSpans(TOKENIZER, answers, regex=regex).find(window, text))
    return [text[window.offsets[first, 0] : window.offsets[last, 1]] for first, last in places]


@pytest.mark.parametrize(
    ("text", "answers", "spans"),
    [
        ("Art is art; the art of Bart.", ["art"], ["Art", "art", "art"]),
        ("Ada Holm and Otto", ["Holm", "Ada Holm", "ada"], ["Ada", "Ada Holm", "Holm"]),
        ("xylophonists play", ["xylophonist", "phonists"], []),
        ("It weighs 12,345 tons or 345", ["345"], ["345"]),
        ("It weighs 12,345 tons", ["12,345"], ["12,345"]),
        ("Café Beyoncé", ["cafe"], ["Café"]),  # an uncased tokenizer drops accents
        ("日本 and ☃☃☃ \U0001f9ea", ["\U0001f9ea"], ["\U0001f9ea"]),  # the whole word is one unknown wordpiece
        ("red", ["", " "], []),
    ],
)
def test_gold_spans_by_hand(text: str, answers: list[str], spans: list[str]) -> None:
    assert find_gold_spans(text, answers) == spans


@pytest.mark.parametrize(
    ("text", "pattern", "spans"),
    [
        ("Born in 1871, died 1945.", r"1[89]\d\d", ["1871", "1945"]),
        ("The Mayor of May", "May", ["Mayor", "May"]),  # the match begins a word; the span is the whole word
        ("A brown fox", "rown", []),  # the match begins inside a word
        ("He met José Rizal", "jos\u00e9( rizal)?", ["José Rizal"]),
        ("Jose\u0301 Rizal", "rizal", ["Rizal"]),
        ("a b c", "x*", []),
        ("a b c", "(", []),
    ],
)
def test_gold_spans_of_patterns_by_hand(text: str, pattern: str, spans: list[str]) -> None:
    assert find_gold_spans(text, [pattern], regex=True) == spans


def test_a_cut_passage_has_only_the_spans_of_its_remaining_text() -> None:
    text = "red " * 30 + "blue"
    assert find_gold_spans(text, ["blue"]) == ["blue"]
    assert find_gold_spans(text, ["blue"], max_tokens=24) == []
    assert len(find_gold_spans(text, ["red"], title="red", max_tokens=24)) == 17  # [CLS] what ? [SEP] red [SEP] … [SEP]


def test_byte_level_pieces_differ_after_a_space(tmp_path: Path) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers

    pieces = ["<s>", "</s>", "<unk>", "Ġ", "r", "e", "d", "Ġr", "Ġre", "Ġred", "re", "red"]
    merges = [("Ġ", "r"), ("Ġr", "e"), ("Ġre", "d"), ("r", "e"), ("re", "d")]
    model = models.BPE({piece: number for number, piece in enumerate(pieces)}, merges, unk_token="<unk>")
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    own = TextTokenizer(tmp_path)
    window = next(make_windows(own, "red", [("", "red red")], 32))
    assert GoldSpans(own, ["red"]).find(window, "red red") == {(0, 0), (1, 1)}
