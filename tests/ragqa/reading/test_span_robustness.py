"""The default reader on unusual texts: exact offsets, or a declined question with a reason."""

import re
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ragqa.artefacts.paths import get_weights_dir
from ragqa.corpus.splitters import make_word_splitter
from ragqa.reading.calibration import UNCALIBRATED
from ragqa.reading.span import MAX_WINDOWS, MIN_PASSAGE_WINDOWS, ExtractiveReader
from ragqa.runtime.scorer import SPREAD, SpanScores
from ragqa.runtime.tokens import MAX_QUESTION, TextTokenizer, TokenInput
from ragqa.text import normalize_answer
from ragqa.types import Answer, Hit, Passage, Source

SCRIPTS = {
    "Arabic": "تأسست مدينة فاس في عام 789 على يد إدريس الأول.",
    "Hebrew with points": "בְּרֵאשִׁית בָּרָא אֱלֹהִים אֵת הַשָּׁמַיִם וְאֵת הָאָרֶץ",
    "Thai": "กรุงเทพมหานครก่อตั้งขึ้นในปี พ.ศ. 2325",
    "Chinese": "北京是中华人民共和国的首都，人口约两千一百万。",
    "Japanese": "東京は日本の首都であり、人口は約1400万人です。",
    "Korean": "서울은 대한민국의 수도이다.",
    "Hindi": "दिल्ली भारत की राजधानी है।",
    "emoji": "🏰 was built in 1871 👩\u200d👩\u200d👧 by 🇳🇴 Ada Holm 🧑🏽\u200d🔧.",
    "combining characters": "Skarvi\u0301k la\u0308g i\u0307 Bre\u0327nna\u0303 z\u0351\u036b\u0343a\u0332go 1871.",
    "turned around": "\u202eBrenna\u202c and \u2066Skarvik\u2069 since 1871",
    "no spaces": "Skarvik" * 300,
    "long numbers": "1,234,567.89 " * 20,
    "control characters": "a\x00b\x07c\ufeff d\u200be\u00adf",
    "lone surrogates' neighbours": "\ud7ff\ue000\ufffd\U0010ffff word",
}

READER, TOKENIZER = ExtractiveReader.load(), TextTokenizer(get_weights_dir() / "encoder")


class FlatScorer:
    """A scorer that gives every span the same score, in no time."""

    tokenizer, max_tokens, fingerprint, prior = TOKENIZER, 384, "flat", SPREAD

    def score(self, inputs: list[TokenInput]) -> list[SpanScores]:
        return [SpanScores(np.zeros(len(i.ids)), np.zeros(len(i.ids)), 0.0) for i in inputs]


COUNTING = ExtractiveReader(FlatScorer(), UNCALIBRATED)  # type: ignore[arg-type]


def read_documents(question: str, *documents: str, title: str = "", size: int | None = None) -> Answer:
    """Answer from whole documents, or from passages of ``size`` words."""
    hits = []
    for number, text in enumerate(documents):
        for start, end in make_word_splitter(size)(text, 0) if size else [(0, len(text))]:
            passage = Passage(len(hits), str(number), title, text[start:end], "memory", start, end)
            hits.append(Hit(passage, -float(len(hits))))
    return READER.read([question], [hits])[0]


def is_exact(answer: Answer, *documents: str) -> bool:
    """Tell whether each cited place contains the answer, or the question was declined with a reason.

    The first source contains it exactly, the others after normalisation.
    """
    if answer.text is None:
        return bool(answer.reason) and answer.confidence == 0
    assert answer.text.strip()
    for each in (answer, *answer.alternatives):
        assert 0 <= each.confidence <= 1 and each.text is not None
        first, *others = (cited_text(source, documents) for source in each.sources)
        assert first == each.text
        assert {normalize_answer(other) for other in others} <= {normalize_answer(first)}
        assert sum(source.weight for source in each.sources) == pytest.approx(1)
    return True


def cited_text(source: Source, documents: Sequence[str]) -> str:
    """Return the text of the document at the offsets of a source."""
    passage, span = source.hit.passage, source.span
    assert span is not None and 0 <= span.start < span.end <= len(passage.text)
    return documents[int(passage.document)][passage.start + span.start : passage.start + span.end]


def test_an_answer_in_a_passage_of_10_000_words() -> None:
    fact = " Skarvik Lighthouse was built in 1871 by the engineer Ada Holm. "
    sentence = "The sea was calm and the bread was good on that day. "
    before, after = sentence * 600, sentence * 320
    text = before + fact + after
    assert len(text.split()) > 10_000
    answer = read_documents("When was Skarvik Lighthouse built?", text)
    assert is_exact(answer, text) and answer.text == "1871"
    assert len(before) < answer.sources[0].span.start < len(before) + len(fact)  # type: ignore[union-attr]


@pytest.mark.parametrize("script", SCRIPTS)
def test_any_script_is_read_with_exact_offsets(script: str) -> None:
    text = SCRIPTS[script]
    for question in ("When was it built?", text[:60]):
        assert is_exact(read_documents(question, text, title=text[:30]), text)
        several = ("The tower was built in 1871.", f"{text} {text}", "")
        assert is_exact(read_documents(question, *several), *several)
        assert is_exact(read_documents(question, *several, size=3), *several)


@pytest.mark.parametrize("text", ["", " \n\t ", "\u200b\ufeff", "\x00", "\u0301", "!", "the"])
def test_passages_without_an_answer_are_declined(text: str) -> None:
    answer = read_documents("When was it built?", text)
    assert is_exact(answer, text) and answer.text is None and answer.reason
    if not text.strip():
        assert (answer.reason, answer.supported) == ("the passages have no words to mark", None)
    both = (text, "Skarvik was built in 1871.")
    beside = read_documents("When was Skarvik built?", *both)
    assert beside.text == "1871" and is_exact(beside, *both)


@pytest.mark.parametrize("question", ["hello", "thanks!", "Who are you?", "What is the capital of France?"])
def test_a_single_passage_does_not_make_the_reader_sure(question: str) -> None:
    document = "The lighthouse was built in 1871 by the engineer Ada Holm."
    assert read_documents(question, document).confidence < READER.threshold
    assert read_documents("Who built the lighthouse?", document).confidence > 0.9


def test_an_overlong_word_is_no_answer() -> None:
    assert read_documents("Who built it?", "x" * 100_000).text is None
    assert read_documents("When was Skarvik built?", f"{'x' * 101} Skarvik was built in 1871.").text == "1871"


def test_lone_surrogates_are_read_as_replacement_characters() -> None:
    text = "\ud83d Skarvik was built in 1871 \udfff by Ada Holm."
    answer = read_documents("When was \ud800 Skarvik built?", text)
    assert answer.text == "1871" and text[answer.sources[0].span.start : answer.sources[0].span.end] == "1871"  # type: ignore[union-attr]


def test_no_answer_is_given_without_passages() -> None:
    assert read_documents("When was it built?").reason == "no passages were found"


@pytest.mark.parametrize("words", [MAX_QUESTION, 1000, 20_000])
def test_a_question_longer_than_the_window_is_cut_with_a_note(words: int) -> None:
    """Only the beginning is read."""
    question = "When was Skarvik built? " + "and so on " * (words // 3)
    text = "Skarvik was built in 1871 by Ada Holm."
    answer = read_documents(question, text)
    assert is_exact(answer, text) and answer.text == "1871"
    assert answer.note and answer.note.endswith(f" wordpieces; its first {MAX_QUESTION} were read")


@pytest.mark.parametrize("words", [1, MAX_QUESTION - 1, MAX_QUESTION])
def test_a_question_that_fits_is_read_whole(words: int) -> None:
    note = read_documents("what " * words, "It was built in 1871.").note
    assert note is None
    assert read_documents("what " * (words + MAX_QUESTION), "It was built in 1871.").note


def test_titles_may_have_any_length() -> None:
    assert read_documents("When was it built?", "It was built in 1871.", title="Skarvik " * 5000).text == "1871"


def test_passages_of_all_scripts_can_be_read_together() -> None:
    texts = (*SCRIPTS.values(), "", "Skarvik was built in 1871.")
    assert is_exact(read_documents("When was Skarvik built?", *texts), *texts)


def test_offsets_are_exact_in_a_passage_from_the_middle_of_a_document() -> None:
    text = "\u00e9 \U0001f3f0 " * 60 + "Skarvik was built in 1871 by Ada Holm. It is old. " + "The sea is calm. " * 60
    answer = read_documents("When was Skarvik built?", text, size=20)
    assert answer.text == "1871" and is_exact(answer, text)
    assert answer.sources[0].hit.passage.start > 0
    assert cited_text(answer.sources[0], [text]) == "1871"


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.text(max_size=80),
    st.lists(st.text(max_size=200) | st.sampled_from(list(SCRIPTS.values())), max_size=3),
    st.text(max_size=30),
    st.none() | st.integers(1, 12),
)
def test_the_text_of_a_source_is_the_answer(question: str, documents: list[str], title: str, size: int | None) -> None:
    assert is_exact(read_documents(question, *documents, title=title, size=size), *documents)


@settings(max_examples=100)
@given(st.text(max_size=300))
def test_wordpieces_lie_in_the_text_in_order(text: str) -> None:
    """Offsets rely on this: wordpieces stay within the text and never go backwards."""
    offsets = TOKENIZER.tokenize(text).offsets
    assert all(0 <= start <= end <= len(text) for start, end in offsets)
    assert all(one[0] <= other[0] for one, other in pairwise(offsets))


@pytest.mark.parametrize("unit", ["北京是中华人民共和国的首都。", "ab1+", "x", '{"id":1},', "word "])
def test_passages_of_megabytes_are_read_in_a_bounded_number_of_windows(unit: str) -> None:
    """Indexes of earlier versions and servers may have them; only their beginning is read, with a note."""
    long, fact = unit * (1_000_000 // len(unit)), "Skarvik was built in 1871 by Ada Holm."
    passages = [Passage(number, str(number), "t" * 10_000, text, "", 0, 0) for number, text in enumerate((long, fact))]
    for count, most in ((2, 1), (10, 9), (40, 39)):
        hits = [Hit(passages[number == 0], -float(number)) for number in range(count)]
        (scored,) = COUNTING.score(["When was it built?"], [hits])
        assert len(scored.windows) <= max(MAX_WINDOWS, MIN_PASSAGE_WINDOWS * count)
        assert sum(window.is_cut for window in scored.windows) == most
        assert {window.passage for window in scored.windows} == set(range(count))
    answer = COUNTING.read(["When was it built?"], [hits])[0]
    assert answer.note is not None
    assert re.fullmatch(
        r"39 passages are too long to be read to the end; the first [\d,]+ characters were read", answer.note
    )


def test_a_passage_of_more_than_one_window_has_no_note() -> None:
    assert read_documents("When was it built?", "It was built in 1871. " * 300).note is None
    note = read_documents("When was it built? " * 40, "It was built in 1871. " * 20_000).note
    assert note is not None and "its first" in note and "; one passage is too long" in note


def test_a_cut_passage_has_its_note_if_the_early_layer_leaves_out_its_end() -> None:
    """Only the beginning is about the question, so the last window does not go through the later layers."""
    text = "Skarvik was built in 1871 by Ada Holm. " + "The bread was good and the sheep ate grass. " * 5000
    hits = [Hit(Passage(0, "0", "", text, "", 0, len(text)), 0.0)]
    (scored,) = READER.score(["When was Skarvik built?"], [hits])
    assert not any(window.is_cut for window in scored.windows)
    (answer,) = READER.read(["When was Skarvik built?"], [hits])
    assert answer.text == "1871" and answer.note and answer.note.startswith("one passage is too long to be read")
