"""The default reader on texts that nobody thought of: an answer whose place is exact, or a clear refusal."""

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ragqa.artefacts.paths import weights_dir
from ragqa.corpus.blocks import make_word_splitter
from ragqa.reading.span import ExtractiveReader
from ragqa.runtime.tokens import MAX_QUESTION, TextTokenizer
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

READER, TOKENIZER = ExtractiveReader.load(), TextTokenizer(weights_dir() / "encoder")


def read(question: str, *documents: str, title: str = "", size: int | None = None) -> Answer:
    """The answer out of documents as they are, or cut into passages of ``size`` words."""
    hits = []
    for number, text in enumerate(documents):
        for start, end in make_word_splitter(size)(text, 0) if size else [(0, len(text))]:
            passage = Passage(len(hits), str(number), title, text[start:end], "memory", start, end)
            hits.append(Hit(passage, -float(len(hits))))
    return READER.read([question], [hits])[0]


def is_exact(answer: Answer, *documents: str) -> bool:
    """Whether all places that are cited in the documents hold what is said, or else it is refused with a reason.

    The first one does to the letter, all others by the rule by which equal answers are merged.
    """
    if answer.text is None:
        return bool(answer.reason) and answer.confidence == 0
    assert answer.text.strip()
    for each in (answer, *answer.alternatives):
        assert 0 <= each.confidence <= 1 and each.text is not None
        first, *others = (cited(source, documents) for source in each.sources)
        assert first == each.text
        assert {normalize_answer(other) for other in others} <= {normalize_answer(first)}
        assert sum(source.weight for source in each.sources) == pytest.approx(1)
    return True


def cited(source: Source, documents: Sequence[str]) -> str:
    """What stands in its document where a source says."""
    passage, span = source.hit.passage, source.span
    assert span is not None and 0 <= span.start < span.end <= len(passage.text)
    return documents[int(passage.document)][passage.start + span.start : passage.start + span.end]


def test_an_answer_in_a_passage_of_10_000_words() -> None:
    fact = " Skarvik Lighthouse was built in 1871 by the engineer Ada Holm. "
    sentence = "The sea was calm and the bread was good on that day. "
    before, after = sentence * 600, sentence * 320
    text = before + fact + after
    assert len(text.split()) > 10_000
    answer = read("When was Skarvik Lighthouse built?", text)
    assert is_exact(answer, text) and answer.text == "1871"
    assert len(before) < answer.sources[0].span.start < len(before) + len(fact)  # type: ignore[union-attr]


@pytest.mark.parametrize("script", SCRIPTS)
def test_any_script_is_read_with_exact_offsets(script: str) -> None:
    text = SCRIPTS[script]
    for question in ("When was it built?", text[:60]):
        assert is_exact(read(question, text, title=text[:30]), text)
        several = ("The tower was built in 1871.", f"{text} {text}", "")
        assert is_exact(read(question, *several), *several)
        assert is_exact(read(question, *several, size=3), *several)


@pytest.mark.parametrize("text", ["", " \n\t ", "\u200b\ufeff", "\x00", "\u0301", "!", "the"])
def test_passages_with_nothing_to_say_are_declined(text: str) -> None:
    answer = read("When was it built?", text)
    assert is_exact(answer, text) and answer.text is None and answer.reason
    if not text.strip():
        assert answer.reason == "the passages have no words to mark"
    both = (text, "Skarvik was built in 1871.")
    beside = read("When was Skarvik built?", *both)
    assert beside.text == "1871" and is_exact(beside, *both)


def test_an_endless_word_is_no_answer() -> None:
    assert read("Who built it?", "x" * 100_000).text is None
    assert read("When was Skarvik built?", f"{'x' * 101} Skarvik was built in 1871.").text == "1871"


def test_half_a_character_is_read_as_one_that_is_none() -> None:
    text = "\ud83d Skarvik was built in 1871 \udfff by Ada Holm."
    answer = read("When was \ud800 Skarvik built?", text)
    assert answer.text == "1871" and text[answer.sources[0].span.start : answer.sources[0].span.end] == "1871"  # type: ignore[union-attr]


def test_no_passages_are_no_answer() -> None:
    assert read("When was it built?").reason == "no passages were found"


@pytest.mark.parametrize("words", [MAX_QUESTION, 1000, 20_000])
def test_a_question_longer_than_the_window(words: int) -> None:
    """Its beginning is read, and the answer says so."""
    asked = "When was Skarvik built? " + "and so on " * (words // 3)
    text = "Skarvik was built in 1871 by Ada Holm."
    answer = read(asked, text)
    assert is_exact(answer, text) and answer.text == "1871"
    assert answer.note and answer.note.endswith(f" wordpieces; its first {MAX_QUESTION} were read")


@pytest.mark.parametrize("words", [1, MAX_QUESTION - 1, MAX_QUESTION])
def test_a_question_that_fits_is_read_whole(words: int) -> None:
    note = read("what " * words, "It was built in 1871.").note
    assert note is None
    assert read("what " * (words + MAX_QUESTION), "It was built in 1871.").note


def test_titles_of_any_length() -> None:
    assert read("When was it built?", "It was built in 1871.", title="Skarvik " * 5000).text == "1871"


def test_many_passages_of_all_kinds_together() -> None:
    texts = (*SCRIPTS.values(), "", "Skarvik was built in 1871.")
    assert is_exact(read("When was Skarvik built?", *texts), *texts)


def test_a_passage_from_the_middle_of_its_document() -> None:
    text = "\u00e9 \U0001f3f0 " * 60 + "Skarvik was built in 1871 by Ada Holm. It is old. " + "The sea is calm. " * 60
    answer = read("When was Skarvik built?", text, size=20)
    assert answer.text == "1871" and is_exact(answer, text)
    assert answer.sources[0].hit.passage.start > 0
    assert cited(answer.sources[0], [text]) == "1871"


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.text(max_size=80),
    st.lists(st.text(max_size=200) | st.sampled_from(list(SCRIPTS.values())), max_size=3),
    st.text(max_size=30),
    st.none() | st.integers(1, 12),
)
def test_source_from_start_to_end_is_the_answer(
    question: str, documents: list[str], title: str, size: int | None
) -> None:
    assert is_exact(read(question, *documents, title=title, size=size), *documents)


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=300))
def test_wordpieces_lie_in_the_text_in_order(text: str) -> None:
    """What offsets rest on: none leaves the text, and none begins before the one before it."""
    offsets = TOKENIZER.tokenize(text).offsets
    assert all(0 <= start <= end <= len(text) for start, end in offsets)
    assert all(one[0] <= other[0] for one, other in pairwise(offsets))
