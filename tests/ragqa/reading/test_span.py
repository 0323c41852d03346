"""Span decoding over all passages: whole words, merged answers, exact offsets."""

import math
import unicodedata
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragqa.artefacts.paths import get_weights_dir
from ragqa.errors import BadInput
from ragqa.reading.calibration import UNCALIBRATED, Calibration
from ragqa.reading.span import ExtractiveReader
from ragqa.reading.windows import OVERLAP, make_windows
from ragqa.runtime.scorer import RAW, SPREAD, SpanScores, SpanTable
from ragqa.runtime.tokens import TextTokenizer, TokenInput
from ragqa.types import Hit, Passage

TOKENIZER = TextTokenizer(get_weights_dir() / "encoder")


class FixedTokenScorer:
    """A scorer with fixed start and end scores by token; all others are -9."""

    tokenizer = TOKENIZER
    fingerprint = "fake"
    prior = SPREAD

    def __init__(self, start: dict[str, float], end: dict[str, float], relevance: float = 0.0) -> None:
        self.max_tokens = 512
        self._start = {TOKENIZER.tokenize(w).ids[0]: s for w, s in start.items()}
        self._end = {TOKENIZER.tokenize(w).ids[-1]: s for w, s in end.items()}
        self._relevance = relevance

    def score(self, inputs: list[TokenInput]) -> list[SpanScores]:
        return [
            SpanScores(
                np.array([self._start.get(i, -9.0) for i in item.ids]),
                np.array([self._end.get(i, -9.0) for i in item.ids]),
                self._relevance,
            )
            for item in inputs
        ]


class FixedSpanScorer(FixedTokenScorer):
    """A scorer with fixed scores by first and last token of a span; all others are -9."""

    prior = RAW

    def __init__(self, spans: dict[tuple[str, str], float], width: int = 3) -> None:
        super().__init__({}, {})
        self._spans = {(ids(first)[0], ids(last)[-1]): score for (first, last), score in spans.items()}
        self._width = width

    def score(self, inputs: list[TokenInput]) -> list[SpanTable]:
        return [SpanTable(np.array([self._row(item.ids, at) for at in range(len(item.ids))])) for item in inputs]

    def _row(self, ids: list[int], at: int) -> list[float]:
        ends = [*ids[at : at + self._width], *[-1] * self._width][: self._width]
        return [self._spans.get((ids[at], end), -9.0) for end in ends]


def ids(word: str) -> list[int]:
    return TOKENIZER.tokenize(word).ids


def make_hit(text: str, number: int = 0, title: str = "") -> Hit:
    return Hit(Passage(number, str(number), title, text, "memory", 0, len(text)), 1.0)


def make_reader(scorer: FixedTokenScorer, max_tokens: int = 512) -> ExtractiveReader:
    scorer.max_tokens = max_tokens
    return ExtractiveReader(scorer, UNCALIBRATED)  # type: ignore[arg-type]


def test_confidence_matches_a_computation_by_hand() -> None:
    # Two one-word passages: the only spans are the words, with scores 2 log 2 and 2 log 3.
    scorer = FixedTokenScorer({"red": math.log(2), "blue": math.log(3)}, {"red": math.log(2), "blue": math.log(3)})
    answer = make_reader(scorer).read(["which colour?"], [[make_hit("red", 0), make_hit("blue", 1)]])[0]
    assert answer.text == "blue"
    assert answer.confidence == pytest.approx(9 / 13)
    assert answer.alternatives[0].text == "red"
    assert answer.alternatives[0].confidence == pytest.approx(4 / 13)


def test_equal_answers_are_merged_and_all_passages_cited() -> None:
    # red occurs in two passages (4 + 4 against 5): together they win.
    scorer = FixedTokenScorer({"red": math.log(2), "blue": math.log(5)}, {"red": math.log(2), "blue": 0.0})
    hits = [make_hit("red", 0), make_hit("blue", 1), make_hit("Red.", 2)]
    answer = make_reader(scorer).read(["which colour?"], [hits])[0]
    assert answer.text in ("red", "Red")
    assert answer.confidence == pytest.approx(8 / 13, abs=1e-3)
    assert {s.hit.passage.id for s in answer.sources} == {0, 2}
    assert sum(s.weight for s in answer.sources) == pytest.approx(1.0)


def test_retrieval_scores_are_standardised() -> None:
    # Equal spans; scores 3 and 1, so the second passage lies 2 / 1 standard deviations back, on any scale.
    scorer = FixedTokenScorer({"red": 0.0, "blue": 0.0}, {"red": 0.0, "blue": 0.0})
    for scale in (1.0, 100.0):
        hits = [replace(make_hit("red", 0), score=3 * scale), replace(make_hit("blue", 1), score=scale)]
        answer = make_reader(scorer).read(["which colour?"], [hits])[0]
        assert answer.text == "red"
        assert answer.confidence == pytest.approx(1 / (1 + math.exp(-2)))


def test_span_probabilities_match_a_computation_by_hand() -> None:
    """P(b, s) is the softmax of relevance plus span score over all spans of all passages (ORQA, section 4.1)."""
    scorer = FixedSpanScorer({("red", "red"): 1.0, ("red", "fox"): 2.0, ("fox", "fox"): 0.0, ("blue", "blue"): 4.0})
    hits = [replace(make_hit("red fox", 0), score=3.0), replace(make_hit("blue", 1), score=0.5)]
    weight = {"red": math.exp(4), "red fox": math.exp(5), "fox": math.exp(3), "blue": math.exp(4.5)}
    found = make_reader(scorer).find_answers(["which animal?"], [hits])[0]
    assert {each.text: each.evidence.weight for each in found} == pytest.approx(
        {text: each / sum(weight.values()) for text, each in weight.items()}
    )
    assert (found[0].evidence.span, found[0].evidence.relevance) == (2.0, 3.0)


def test_the_calibration_sets_the_weight_of_retrieval() -> None:
    """Scores 3 and 1 lie 2 standard deviations apart, so the second passage counts e^-1 at half the weight."""
    scorer = FixedTokenScorer({"red": 0.0, "blue": 0.0}, {"red": 0.0, "blue": 0.0})
    hits = [replace(make_hit("red", 0), score=3.0), replace(make_hit("blue", 1), score=1.0)]
    for prior, second in ((1.0, math.exp(-2)), (0.5, math.exp(-1)), (0.0, 1.0)):
        calibrated = ExtractiveReader(scorer, Calibration((0.0, 1.0, 0.0, 0.0), prior=prior))  # type: ignore[arg-type]
        answer = calibrated.read(["which colour?"], [hits])[0]
        assert answer.confidence == pytest.approx(1 / (1 + second))
    raw = ExtractiveReader(
        FixedSpanScorer({("red", "red"): 0.0, ("blue", "blue"): 0.0}), Calibration((0, 1.0, 0, 0), prior=0.5)
    )  # type: ignore[arg-type]
    assert raw.read(["which colour?"], [hits])[0].confidence == pytest.approx(1 / (1 + math.exp(-2)))


def test_evidence_matches_a_computation_by_hand() -> None:
    """red in two passages (e^4 each, the second e^-2 less for retrieval), blue, and a longer form of red."""
    scorer = FixedTokenScorer({"red": 2.0, "blue": 1.0}, {"red": 2.0, "blue": 1.0, "fox": 1.0}, relevance=0.5)
    hits = [
        replace(make_hit("red fox", 0), score=3.0),
        replace(make_hit("blue", 1), score=3.0),
        replace(make_hit("red", 2), score=1.0),
    ]
    found = {each.text: each.evidence for each in make_reader(scorer).find_answers(["which?"], [hits])[0]}
    spread = 2 / np.std([3, 3, 1])
    red, blue = math.exp(4) + math.exp(4 - spread), math.exp(2)
    assert (found["red"].own_relevance, found["red"].relevance, found["red"].passages_read) == (0.5, 0.5, 3)
    assert (found["red"].passages_agreeing, found["blue"].passages_agreeing, found["red fox"].passages_agreeing) == (
        2,
        1,
        0,
    )
    assert found["red"].lead == pytest.approx(math.log(red / blue))  # the longer form does not compete
    assert found["blue"].lead == pytest.approx(math.log(blue / red))
    assert found["red"].behind_best == 0 and found["red"].best_ahead == pytest.approx(spread / 3)
    alone = make_reader(scorer).find_answers(["which?"], [hits[1:2]])[0][0].evidence
    answering = make_reader(scorer)
    (two,) = answering.score(["which?"], [hits[:2]])
    (three,) = answering.score(["which?"], [hits])
    fewer = [answering.merge_spans(each, 1.0) for each in (two, three.take(2))]
    assert [[(each.text, each.evidence) for each in found] for found in fewer[:1] * 2] == [
        [(each.text, each.evidence) for each in found] for found in fewer
    ]
    assert (alone.passages_read, alone.lead, alone.best_ahead) == (1, pytest.approx(math.log(1e6)), 0)


def test_raw_retrieval_scores_are_used_by_readers_trained_with_them() -> None:
    scorer = FixedSpanScorer({("red", "red"): 0.0, ("blue", "blue"): 0.0})
    for scale in (1.0, 3.0):
        hits = [replace(make_hit("red", 0), score=2 * scale), replace(make_hit("blue", 1), score=scale)]
        answer = make_reader(scorer).read(["which colour?"], [hits])[0]
        assert answer.confidence == pytest.approx(1 / (1 + math.exp(-scale)))


def test_span_scores_are_limited_to_whole_words_and_windows() -> None:
    text = "xylophonists play " + "word " * 200 + "zebra"
    inner = TOKENIZER.tokenize(text).ids[1]
    scorer = FixedSpanScorer({("zebra", "zebra"): 5.0})
    scorer._spans[inner, inner] = 50.0
    answer = make_reader(scorer, max_tokens=128).read(["who?"], [[make_hit(text)]])[0]
    assert answer.text == "zebra"
    assert answer.sources[0].span is not None
    assert answer.sources[0].span.start == text.index("zebra")


def test_a_passage_with_less_than_one_percent_of_the_weight_is_no_source() -> None:
    """The weights are 100 : 2 : 1 before, and the last passage has 1 of 103."""
    scorer = FixedSpanScorer({("castle", "castle"): 5.0})
    hits = [replace(make_hit("castle", n), score=math.log(score)) for n, score in enumerate((100, 2, 1))]
    (answer,) = make_reader(scorer).read(["what?"], [hits])
    assert [each.hit.passage.id for each in answer.sources] == [0, 1]
    assert [source.weight for source in answer.sources] == pytest.approx([100 / 102, 2 / 102])


def test_the_answer_is_written_as_in_its_first_source() -> None:
    """The best span is "Castle", but the passage that says "castle" twice has more of the weight: 2 e^-0.5 > 1."""
    scorer = FixedSpanScorer({("castle", "castle"): 5.0, ("tower", "tower"): 4.0})
    texts = ("a Castle", "the castle was a castle", "Tower", "tower or tower")
    hits = [replace(make_hit(text, n), score=-0.5 * (n % 2)) for n, text in enumerate(texts)]
    (answer,) = make_reader(scorer).read(["what?"], [hits])
    assert answer.text == "castle" and [each.hit.passage.id for each in answer.sources] == [1, 0]
    assert [source.weight for source in answer.sources] == pytest.approx([0.548, 0.452], abs=1e-3)
    assert answer.alternatives[0].text == "tower"


def test_no_answer_begins_or_ends_inside_a_word() -> None:
    # "telescopes" is cut into pieces by the tokenizer; its parts score best, and are no answers.
    text = "xylophonists play"
    pieces = TOKENIZER.tokenize(text)
    assert len(pieces.ids) > 2
    inner = TOKENIZER._tokenizer.id_to_token(pieces.ids[1])
    scorer = FixedTokenScorer({}, {})
    scorer._start = {pieces.ids[1]: 50.0}
    scorer._end = {pieces.ids[1]: 50.0}
    answer = make_reader(scorer).read(["who?"], [[make_hit(text)]])[0]
    assert inner.startswith("##")
    assert answer.text in ("xylophonists", "play", "xylophonists play")


def test_no_answer_is_cut_out_of_a_number() -> None:
    text = "It weighs 12,345 tons"
    pieces = TOKENIZER.tokenize(text)
    at = pieces.offsets.index((13, 16))
    assert text[13:16] == "345"
    scorer = FixedTokenScorer({}, {})
    scorer._start = scorer._end = {pieces.ids[at]: 50.0}
    assert make_reader(scorer).read(["how much?"], [[make_hit(text)]])[0].text not in ("345", "345 tons", ",345")
    start, end = (
        next(make_windows(TOKENIZER, "?", [("", text)], 64)).begins,
        next(make_windows(TOKENIZER, "?", [("", text)], 64)).ends,
    )
    assert [text[slice(*o)] for o, ok in zip(pieces.offsets, start, strict=True) if ok] == [
        "It",
        "weighs",
        "12",
        "tons",
    ]
    assert [text[slice(*o)] for o, ok in zip(pieces.offsets, end, strict=True) if ok] == ["It", "weighs", "345", "tons"]


@pytest.mark.parametrize("text", ["the Cafe\u0301 of Rene\u0301", "สมชาย ใจดี", "مُحَمَّدٌ", "z\u0351\u036ba\u0332go 1871"])
def test_marks_belong_to_the_letter_before_them(text: str) -> None:
    """BERT's tokenizer drops combining marks; answers keep them."""
    offsets = next(make_windows(TOKENIZER, "?", [("", text)], 64)).offsets
    assert offsets[-1, 1] == len(text) and (offsets[1:, 0] >= offsets[:-1, 1]).all()
    assert not any(unicodedata.category(text[end]).startswith("M") for end in offsets[:-1, 1])
    if "Cafe" in text:
        assert {"Cafe\u0301", "Rene\u0301"} <= {text[start:end] for start, end in offsets}


def test_no_answer_contains_an_overlong_word() -> None:
    text = f"built by {'x' * 101} in 1871"
    window = next(make_windows(TOKENIZER, "?", [("", text)], 64))
    pieces = [text[slice(*each)] for each in window.offsets]
    assert [piece[0] for piece in pieces] == ["b", "b", "x", "i", "1"]
    spans = {(first, first + more) for first, more in np.argwhere(window.find_possible_spans(5))}
    assert spans == {(0, 0), (0, 1), (1, 1), (3, 3), (3, 4), (4, 4)}


@pytest.mark.parametrize("tokens", [-1, 0, 1, 5, 15])
def test_a_window_too_small_for_a_passage_is_refused(tokens: int) -> None:
    with pytest.raises(BadInput, match="has no room for a passage: at least 16 are needed"):
        list(make_windows(TOKENIZER, "who built it?", [("title", "built by Ada")], tokens))
    whole = " ".join(f"w{i}" for i in range(50))
    found = list(make_windows(TOKENIZER, "who built it? " * 9, [("a long title " * 9, whole)], 16))
    assert {int(at) for window in found for at in window.offsets[:, 0]} == {
        begin for begin, _ in TOKENIZER.tokenize(whole).offsets
    }


def test_a_span_in_two_windows_counts_once() -> None:
    words = [f"w{i}" for i in range(200)]
    text = " ".join(words)
    parts = list(make_windows(TOKENIZER, "?", [("", text)], 128))
    assert parts[0].overlap == 0
    assert all(p.overlap == min(OVERLAP, len(parts[0].offsets) // 2) for p in parts[1:])
    answer = make_reader(FixedTokenScorer({}, {}), max_tokens=128).read(["?"], [[make_hit(text)]])[0]
    whole = make_reader(FixedTokenScorer({}, {}), max_tokens=512).read(["?"], [[make_hit(text)]])[0]
    # All tokens score alike: a span's probability is one over the number of spans, however they are read.
    assert answer.confidence == pytest.approx(whole.confidence, rel=0.15)


def test_tiny_windows_terminate() -> None:
    parts = list(make_windows(TOKENIZER, "what " * 90, [("title " * 40, "word " * 300)], 64))
    assert max(len(p.tokens.ids) for p in parts) <= 64


def test_a_question_without_passages_or_words_is_declined() -> None:
    scorer = FixedTokenScorer({}, {})
    answers = make_reader(scorer).read(["a?", "b?", "c?"], [[], [make_hit("")], [make_hit("...")]])
    assert [a.text for a in answers] == [None, None, None]
    assert [a.confidence for a in answers] == [0.0, 0.0, 0.0]
    assert len(answers[1].sources) == 1
    nothing = "the passages have no words to mark"
    assert [a.reason for a in answers] == ["no passages were found", nothing, nothing]


def test_an_answer_after_the_first_window_is_found() -> None:
    text = "word " * 700 + "zebra " + "word " * 300
    scorer = FixedTokenScorer({"zebra": 9.0}, {"zebra": 9.0})
    answer = make_reader(scorer).read(["which animal?"], [[make_hit(text)]])[0]
    assert answer.text == "zebra"
    assert answer.sources[0].span is not None
    assert answer.sources[0].span.start == 3500


@settings(max_examples=60)
@given(st.text(max_size=300), st.text(max_size=40), st.integers(0, 2**32 - 1), st.booleans())
def test_offsets_are_exact_for_any_text(text: str, title: str, seed: int, table: bool) -> None:
    class RandomScorer(FixedTokenScorer):
        def score(self, inputs: list[TokenInput]) -> list[SpanScores] | list[SpanTable]:
            rng = np.random.default_rng(seed)
            if table:
                return [SpanTable(rng.normal(size=(len(i.ids), 7))) for i in inputs]
            return [SpanScores(rng.normal(size=len(i.ids)), rng.normal(size=len(i.ids)), 0.0) for i in inputs]

    answer = make_reader(RandomScorer({}, {})).read(["what?"], [[make_hit(text, title=title)]])[0]
    if answer.text is not None:
        span = answer.sources[0].span
        assert span is not None
        assert text[span.start : span.end] == answer.text
        assert 0.0 <= answer.confidence <= 1.0


def test_windows_cover_every_piece_and_overlap() -> None:
    text = " ".join(f"w{i}" for i in range(900))
    parts = list(make_windows(TOKENIZER, "what?", [("Title", text)], 256))
    assert max(len(p.tokens.ids) for p in parts) <= 256
    seen = sorted({tuple(o) for p in parts for o in p.offsets.tolist()})
    assert seen == sorted(map(tuple, TOKENIZER.tokenize(text).offsets))
    first, second = parts[0].offsets, parts[1].offsets
    assert first[-OVERLAP].tolist() == second[0].tolist()


def test_readers_with_different_calibrations_have_different_fingerprints() -> None:
    """An evaluation with one reader must not be resumed with the other, although their weights are equal."""
    scorer: Any = FixedTokenScorer({}, {})
    one, other = UNCALIBRATED, Calibration((0.0, 1.0, 0.0, 0.0), prior=0.5)
    assert ExtractiveReader(scorer, one).fingerprint == ExtractiveReader(scorer, replace(one)).fingerprint
    assert ExtractiveReader(scorer, one).fingerprint != ExtractiveReader(scorer, other).fingerprint
    assert ExtractiveReader(scorer, one).fingerprint == "fe7873620f1fc9ec", "pipelines that were saved would not load"
