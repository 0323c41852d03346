"""Where answers stand: passages that hold one, in the whole corpus, and spans of a passage that are one."""

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


def test_the_questions_of_a_passage_by_hand() -> None:
    asked = [["1871"], ["Ada Holm", "Holm"], ["the engineer"], [], ["Holm Ada"], ["", "…"], ["brenna"], ["871"]]
    text = "Built in 1871 by the engineer Ada Holm, on Brenna …"
    assert AnswerFinder(asked).find_questions(text) == [0, 1, 2, 5, 6]
    assert AnswerFinder(asked).find_questions("") == []


def test_patterns_by_hand() -> None:
    asked = [[r"18\d\d"], [r"^ada"], ["("], [r"jos\u00e9", "holm|brandt"], [" "]]
    assert AnswerFinder(asked, regex=True).find_questions("Built in 1871.\nAda Holm") == [0, 1, 3]
    assert AnswerFinder([["José"]], regex=True).find_questions("Jose\u0301 Rizal") == [0]


TEXTS = st.text(alphabet="ab Ñéσς1,.-\u0301", max_size=30)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.lists(TEXTS.map(lambda t: t[:4]), max_size=3), max_size=8), TEXTS)
def test_it_is_has_answer_for_all_at_once(asked: list[list[str]], text: str) -> None:
    assert AnswerFinder(asked).find_questions(text) == [n for n, each in enumerate(asked) if has_answer(text, each)]


@pytest.fixture(scope="module")
def colours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index of passages of one document each: red, green, red green, blue."""
    folder = tmp_path_factory.mktemp("colours")
    texts = ["red", "green", "red green", "blue"]
    lines = [json.dumps({"id": str(n), "title": "red", "text": text}) for n, text in enumerate(texts)]
    (folder / "c.jsonl").write_text("\n".join(lines))
    build_index([folder / "c.jsonl"], folder / "c.index", IndexConfig(retriever="bm25"))
    return folder / "c.index"


def test_rows_by_hand(colours: Path, tmp_path: Path, monkeypatch) -> None:
    store, asked = PassageStore.open(colours / "passages"), [["green"], ["white"], ["Red", "blue"]]
    rows = find_answer_rows(store, "c", asked, tmp_path)
    assert [found.tolist() for found in rows] == [[1, 2], [], [0, 2, 3]]
    answered = AnsweredQuestions([Question("?")] * 3, rows)
    assert answered.has_answer(2, np.array([3, 1, -1, 0])).tolist() == [True, False, False, True]
    assert answered.has_answer(1, np.array([3, 1])).tolist() == [False, False]
    monkeypatch.setattr(module, "_write_rows", None)  # it is on disk now
    again = find_answer_rows(store, "c", asked, tmp_path)
    assert all(np.array_equal(before, after) for before, after in zip(rows, again, strict=True))
    with pytest.raises(TypeError):
        find_answer_rows(store, "c", asked, tmp_path, regex=True)


def test_a_pass_that_was_killed_leaves_nothing_to_trust(colours: Path, tmp_path: Path, monkeypatch) -> None:
    store = PassageStore.open(colours / "passages")

    def killed(*arguments: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", killed)
        with pytest.raises(KeyboardInterrupt):
            find_answer_rows(store, "c", [["blue"]], tmp_path)
    assert [found.tolist() for found in find_answer_rows(store, "c", [["blue"]], tmp_path)] == [[3]]
    assert len(list(tmp_path.iterdir())) == 1


def found(text: str, answers: list[str], *, regex: bool = False, title: str = "", max_tokens: int = 64) -> list[str]:
    """The gold spans of the first window, as texts, in order."""
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
        ("日本 and ☃☃☃ \U0001f9ea", ["\U0001f9ea"], ["\U0001f9ea"]),  # all of them one unknown piece
        ("red", ["", " "], []),
    ],
)
def test_gold_spans_by_hand(text: str, answers: list[str], spans: list[str]) -> None:
    assert found(text, answers) == spans


@pytest.mark.parametrize(
    ("text", "pattern", "spans"),
    [
        ("Born in 1871, died 1945.", r"1[89]\d\d", ["1871", "1945"]),
        ("The Mayor of May", "May", ["Mayor", "May"]),  # matched from its first character, whatever follows
        ("A brown fox", "rown", []),  # begins inside a word: no answer can be right
        ("He met José Rizal", "jos\u00e9( rizal)?", ["José Rizal"]),
        ("Jose\u0301 Rizal", "rizal", ["Rizal"]),
        ("a b c", "x*", []),
        ("a b c", "(", []),
    ],
)
def test_gold_spans_of_patterns_by_hand(text: str, pattern: str, spans: list[str]) -> None:
    assert found(text, [pattern], regex=True) == spans


def test_a_passage_that_was_cut_has_the_spans_of_what_is_left() -> None:
    text = "red " * 30 + "blue"
    assert found(text, ["blue"]) == ["blue"]
    assert found(text, ["blue"], max_tokens=24) == []
    assert len(found(text, ["red"], title="red", max_tokens=24)) == 17  # [CLS] what ? [SEP] red [SEP] … [SEP]


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
