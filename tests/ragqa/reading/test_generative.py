"""Generative readers over a generator with fixed answers: citations, alternatives, streaming, scores."""

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from ragqa.cli import ask
from ragqa.models.generation.decoding import Candidate
from ragqa.models.generation.tokenizer import Seq2SeqTokenizer
from ragqa.pipeline import Pipeline
from ragqa.reading.base import RetrieverIdentity
from ragqa.reading.calibration import UNCALIBRATED
from ragqa.reading.generative import GenerativeReader
from ragqa.text import locate_answer
from ragqa.types import Answer, Hit
from tests.helpers.generators import bart_tokenizer, passage

HITS = [
    Hit(passage("Genji", "The Tale of Genji was written by Murasaki Shikibu."), 3.0),
    Hit(passage("Heian", "Heian was the capital; MURASAKI  Shikibu lived there."), 2.0),
    Hit(passage("Comet", "The comet was seen in 1956."), 1.0),
]


class FixedGenerator:
    """A generator with fixed answers, scores and posteriors of passages."""

    passages, max_answer, read = 5, 32, 100

    def __init__(
        self,
        *answers: tuple[str, float, tuple[float, ...]],
        closed: bool = False,
        retriever: str | None = None,
        joined: str = " ",
        kind: str = "rag-token",
    ) -> None:
        self.kind = kind
        self.answers, self.template, self.retriever = answers, SimpleNamespace(is_closed_book=closed), retriever
        self.words = sorted({word for text, _, _ in answers for word in text.split()})
        tokens = SimpleNamespace(decode=lambda ids: joined.join(self.words[n] for n in ids))
        self.seq2seq = SimpleNamespace(tokens=tokens, max_tokens=64)
        self.seen: list[Any] = []

    def to(self, device: str) -> "FixedGenerator":
        return self

    def eval(self) -> "FixedGenerator":
        return self

    def make_inputs(self, questions: list[str], passages: list[list[Any]]) -> Any:
        return SimpleNamespace(to=lambda device: (questions, passages))

    def can_read(self, question: str, passage: Any, end: int) -> bool:
        return end <= self.read

    def generate(self, inputs: Any, relevance_BK: torch.Tensor, search: Any) -> list[list[Candidate]]:
        self.seen.append((inputs, relevance_BK))
        return [[self._candidate(*answer) for answer in self.answers] for _ in inputs[0]]

    def stream(self, inputs: Any, relevance_BK: torch.Tensor, search: Any) -> Any:
        best = self._candidate(*self.answers[0])
        for each in best.ids:
            yield torch.tensor([each])
        return [[best]]

    def _candidate(self, text: str, log_prob: float, posterior: tuple[float, ...]) -> Candidate:
        return Candidate(tuple(map(self.words.index, text.split())), log_prob, posterior)


def make_reader(*answers: Any, scored_by: RetrieverIdentity | None = None, **options: Any) -> GenerativeReader:
    return GenerativeReader(FixedGenerator(*answers, **options), UNCALIBRATED, fingerprint="f", scored_by=scored_by)


def test_passages_are_cited_by_posterior_with_the_span_of_the_answer() -> None:
    (answer,) = make_reader(("Murasaki Shikibu", -0.5, (0.2, 0.7, 0.1)), ("1956", -2.0, (0.1, 0.1, 0.8))).read(
        ["who"], [HITS]
    )
    assert (answer.text, answer.supported) == ("Murasaki Shikibu", True)
    assert answer.confidence == pytest.approx(2.718281828**-0.5)
    assert [source.weight for source in answer.sources] == [0.7, 0.2, 0.1]
    shown = [s.span and s.hit.passage.text[s.span.start : s.span.end] for s in answer.sources]
    assert shown == ["MURASAKI  Shikibu", "Murasaki Shikibu", None]
    (other,) = answer.alternatives
    assert other.text == "1956" and other.sources[0].hit is HITS[2]


def test_an_answer_found_in_no_passage_is_marked_unsupported() -> None:
    (answer,) = make_reader(("Sei Shonagon", -0.1, (0.2, 0.7, 0.1))).read(["who"], [HITS])
    assert not answer.supported
    assert "(confidence 0.90; unsupported: in none of the passages that were\nread)" in ask.format_text(answer)
    assert json.loads(ask.format_json(answer))["supported"] is False


def test_text_that_was_cut_off_supports_no_answer() -> None:
    """The end of a long passage is cut off and not read."""
    reader = make_reader(("Murasaki Shikibu", -0.5, (0.2, 0.7, 0.1)))
    for read, supported in ((49, True), (48, False)):  # the answer ends with the 49th character
        reader._generator.read = read
        (answer,) = reader.read(["who"], [HITS[:1]])
        assert answer.supported == supported, read


def test_rag_sequence_returns_alternatives_from_all_passages() -> None:
    answers = [("1956", -0.5, (0.2, 0.7, 0.1)), ("Murasaki", -2.0, (0.1, 0.1, 0.8))]
    readers = {kind: make_reader(*answers, kind=kind) for kind in ("rag-sequence", "rag-token")}
    assert {kind: each._search.max_candidates for kind, each in readers.items()} == {"rag-sequence": 5, "rag-token": 1}
    assert [other.text for other in readers["rag-sequence"].read(["who"], [HITS])[0].alternatives] == ["Murasaki"]
    answers_by_question = readers["rag-sequence"].find_answers(["who", "when"], [HITS, []])
    assert [[each.text for each in row] for row in answers_by_question] == [["1956"], []]
    silent = make_reader(("", -0.5, (0.2, 0.7, 0.1)), answers[1], kind="rag-sequence")
    assert silent.read(["who"], [HITS])[0].text is None and silent.find_answers(["who"], [HITS]) == [[]]


def test_questions_with_fewer_passages_are_padded_and_those_without_declined() -> None:
    reader = make_reader(("1956", -0.1, (0.2, 0.7, 0.1)))
    first, second, third = reader.read(["a", "b", "c"], [HITS[:1], [], HITS])
    assert (first.text, second.text, third.text) == ("1956", None, "1956")
    ((questions, passages), relevance_BK) = reader._generator.seen[0]
    assert questions == ["a", "c"] and [len(each) for each in passages] == [1, 3]
    assert relevance_BK.tolist() == [[3.0, float("-inf"), float("-inf")], [3.0, 2.0, 1.0]]
    assert reader.read(["b"], [[]])[0].text is None and len(first.sources) == 1
    assert ask.format_text(second) == "No answer: no passages were found."


def test_a_closed_book_needs_no_passages_and_has_no_sources() -> None:
    (answer,) = make_reader(("1956", -0.1, (1.0,)), closed=True).read(["when"], [[]])
    assert (answer.text, answer.sources, answer.supported) == ("1956", (), False)


def test_an_empty_answer_is_declined() -> None:
    (answer,) = make_reader(("", -0.1, (0.2, 0.7, 0.1))).read(["who"], [HITS])
    assert answer.text is None and [source.hit for source in answer.sources] == HITS
    shown = "No answer in these documents: the generator wrote nothing.\n\nThe nearest passages:\n"
    assert ask.format_text(answer).startswith(shown)
    assert json.loads(ask.format_json(answer))["reason"] == "the generator wrote nothing"


def test_an_answer_is_streamed_word_by_word() -> None:
    *pieces, answer = make_reader(("Murasaki Shikibu of Heian", -0.5, (0.2, 0.7, 0.1))).stream("who", HITS)
    assert pieces == ["Murasaki", " Shikibu", " of", " Heian"]
    assert isinstance(answer, Answer) and "".join(pieces) == answer.text
    *pieces, answer = make_reader(("源 氏 物 語", -0.5, (0.2, 0.7, 0.1)), joined="").stream("who", HITS)
    assert pieces == ["源", "氏", "物", "語"] and answer.text == "源氏物語"
    (nothing,) = make_reader(("x", -0.5, (1.0,))).stream("who", [])
    assert isinstance(nothing, Answer) and nothing.text is None


def test_incomplete_characters_are_not_streamed() -> None:
    """The tokenizer emits single bytes, which decode to replacement marks until a character is complete."""
    tokens = Seq2SeqTokenizer(bart_tokenizer())
    ids = tokens.encode_bare("Zürich 源氏")
    assert any("\ufffd" in tokens.decode(ids[:end]) for end in range(len(ids)))
    reader = make_reader(("x", -0.5, (1.0,)))
    reader._generator.seq2seq.tokens = tokens
    candidate = Candidate(tuple(ids), -0.5, (1.0,))
    reader._generator.stream = lambda *_: _yield_tokens(ids, candidate)  # type: ignore[method-assign]
    *pieces, answer = reader.stream("where", HITS[:1])
    assert "".join(pieces) == answer.text == "Zürich 源氏" and len(pieces) > 4
    assert not any("\ufffd" in piece for piece in pieces)


def _yield_tokens(ids: list[int], candidate: Candidate) -> Any:
    for each in ids:
        yield torch.tensor([each])
    return [[candidate]]


@pytest.mark.parametrize("between", [" ", "  ", " \n"])
@pytest.mark.parametrize(
    ("least", "shown"),
    [
        (0.0, "1956 or 1957   (confidence"),
        (0.99, "1956 or 1957\nWithdrawn. No answer in these documents: the best has "),
    ],
)
def test_a_streamed_answer_is_shown_once_on_a_terminal(
    between: str, least: float, shown: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("NO_COLOR", "1")
    retriever = SimpleNamespace(search=lambda questions, k: [HITS for _ in questions])
    pipeline = Pipeline(retriever, make_reader(("1956 or 1957", -0.5, (0.2, 0.7, 0.1)), joined=between))  # type: ignore[arg-type]
    ask.ask_one(pipeline, "when", least, ask.format_text)
    output = capsys.readouterr().out.replace("**", "")
    assert output.replace("  or  ", " or ", 1).startswith(shown)
    assert output.count("1957") == 1 + output.count("Best guess")


@pytest.mark.parametrize(
    ("text", "answer", "place"),
    [
        ("It was Zürich, 4 May", "zu\u0308rich", "Zürich"),
        ("the U.S.A. and", "U.S.A.", "U.S.A."),
        ("a forest", "rest", None),
        ("one two", "", None),
        ("one two one three", "one three", "one three"),
    ],
)
def test_answers_are_located_in_texts(text: str, answer: str, place: str | None) -> None:
    span = locate_answer(text, answer)
    assert (span and text[slice(*span)]) == place


def test_scores_of_another_retriever_are_standardised_with_a_warning() -> None:
    scores = [Hit(HITS[0].passage, 30.0), Hit(HITS[1].passage, 28.0), Hit(HITS[2].passage, 20.0)]
    words = ("1956", -0.1, (0.2, 0.7, 0.1))
    for retriever, encoder, own, same in (
        ("dense", "abc", "abc", True),
        ("dense", "abc", None, True),  # the retriever of training is unknown
        ("dense", "abd", "abc", False),
        ("hybrid", None, "abc", False),
        ("bm25", None, "abc", False),
    ):
        reader = make_reader(words, retriever=own, scored_by=RetrieverIdentity(retriever, encoder))
        assert (reader.warning is None) == same
        reader.read(["when"], [scores])
        ((_, relevance_BK),) = reader._generator.seen
        spread = [0.0, -2 / 4.3204938, -10 / 4.3204938]  # the standard deviation of 30, 28, 20
        assert relevance_BK[0].tolist() == pytest.approx([30.0, 28.0, 20.0] if same else spread)


def test_the_end_of_a_passage_of_megabytes_is_not_tokenized() -> None:
    long = [
        replace(HITS[0], passage=passage("G" * 5_000, text)) for text in ("1956 " * 400_000, "x " * 500_000 + "1956")
    ]
    reader = make_reader(("1956", -0.1, (0.6, 0.3, 0.1)))
    reader._generator.read = 10**9
    (answer,) = reader.read(["when"], [[*long, HITS[2]]])
    (((_, passages), _),) = reader._generator.seen
    assert [len(each.text) for each in passages[0]] == [50_000, 50_000, len(HITS[2].passage.text)]
    assert max(len(each.title) for each in passages[0]) == 1_000
    assert [source.span is not None for source in answer.sources] == [True, False, True]
    assert answer.note == "2 passages have more than 50,000 characters; the rest was not read"
    assert reader.read(["when"], [HITS])[0].note is None
