"""Answers as messages of a chat, with the places of their citations."""

import time

from ragqa.chat_text import NO_ANSWER, StreamedMessage, format_message, read_message
from ragqa.follow_ups import Turn
from ragqa.types import Alternative, Answer, Hit, Passage, Source, Span, Statement

TEXT = "The lighthouse was built in 1871 by the engineer Ada Holm."
START = TEXT.index("Ada Holm")


def make_source(title: str = "Skarvik Lighthouse", text: str = TEXT, span: Span | None = None) -> Source:
    passage = Passage(0, "notes/skarvik.md", title, text, "notes/skarvik.md", 0, len(text), unit="line", number=3)
    return Source(Hit(passage, 1.0), span, 1.0)


CITED = make_source(span=Span(START, START + 8))
ANSWER = Answer("Who built it?", "Ada Holm", 1.0, 0.934, (CITED,))


def test_a_message_has_the_answer_its_confidence_and_the_quote_of_each_source() -> None:
    message = format_message(ANSWER)
    assert message.text == (
        f"Ada Holm [1]\n\nConfidence 0.93.\n\n[1] **Skarvik Lighthouse**, skarvik.md, line 3: “{TEXT}”"
    )
    (citation,) = message.citations
    assert message.text[citation.start : citation.end] == "[1]" and citation.source is CITED


def test_every_marker_of_several_sources_is_a_citation() -> None:
    sources = tuple(make_source(f"Source {n}", span=Span(START, START + 8)) for n in range(5))
    message = format_message(Answer("Who?", "Ada Holm", 1.0, 0.5, sources))
    assert message.text.startswith("Ada Holm [1][2][3]\n") and "Source 3" not in message.text
    assert [message.text[c.start : c.end] for c in message.citations] == ["[1]", "[2]", "[3]"]
    assert [c.source for c in message.citations] == list(sources[:3])


def test_a_declined_question_says_so_with_the_best_guess_and_the_nearest_passages() -> None:
    guess = Alternative("Otto", 0.08)
    message = format_message(
        Answer("Who?", None, 0.0, 0.08, (make_source(),), (guess,), reason="it is too low", supported=None)
    )
    assert message.text.startswith(f"{NO_ANSWER}: it is too low.\nBest guess: Otto (confidence 0.08).\n\nThe nearest")
    (citation,) = message.citations
    assert message.text[citation.start :].startswith("[1] **Skarvik Lighthouse**")


def test_citations_stand_behind_the_statements_that_they_support() -> None:
    text = "It was built in 1871. Nobody knows *why*."
    statements = (
        Statement(text[:21], 0, (1,)),
        Statement(text[22:], 22, (2, 1), is_supported=False, reason="no name"),
    )
    sources = (CITED, make_source("Other"))
    message = format_message(
        Answer("When?", text, 1.0, 0.5, sources, supported=False, reason="1 statement", statements=statements)
    )
    first_line = "It was built in 1871 [1]. Nobody knows *why* [2][1] (unsupported)."
    assert message.text.startswith(f"{first_line}\n\nConfidence 0.50; unsupported: 1 statement.\n")
    assert [message.text[c.start : c.end] for c in message.citations] == ["[1]", "[2]", "[1]"]
    assert [c.source.hit.passage.title for c in message.citations] == [
        "Skarvik Lighthouse",
        "Other",
        CITED.hit.passage.title,
    ]


def test_documents_make_no_links_images_html_or_control_characters() -> None:
    hostile = "![x](https://evil.example/?q=1) <script>alert(1)</script> [a](javascript:alert(1)) `\x1b[31m\u202e"
    source = make_source(hostile[:60], hostile, Span(0, 31))
    shown = format_message(Answer("Who?", hostile[:31], 1.0, 0.9, (source,))).text
    assert "![x](" not in shown and "<script" not in shown.replace("\\<", "") and "[a](" not in shown
    assert "\\!" not in shown and "!\\[x\\](" in shown
    assert "\x1b" not in shown and "\u202e" not in shown


def test_no_number_of_a_source_becomes_a_link_or_an_image() -> None:
    text = "See![1](https://evil.example/?q=1) and \\[2](https://evil.example) or <img src=x>."
    statements = (Statement("Look!", 0, (1,)), Statement("(https://evil.example/a.png)", 5, ()))
    answers = [
        Answer("Who?", text, 1.0, 0.9, (CITED,)),
        Answer("Who?", "Look!(https://evil.example/a.png)", 1.0, 0.9, (CITED,), statements=statements),
    ]
    for answer in answers:
        shown = format_message(answer).text
        assert "](" not in shown and "<img" not in shown.replace("\\<", "")
        stream = StreamedMessage()
        for piece in ("See![1]", "(https://evil.example/?q=1)", "[1](x)"):
            stream.add(piece)
        assert "](" not in stream.add("") + stream.finish(answer).text


def test_a_streamed_message_is_the_whole_message() -> None:
    text = "It was built in 1871. Nobody [sic] knows why."
    statements = (Statement(text[:21], 0, (1,)), Statement(text[22:], 22, (2,), is_supported=False, reason="no name"))
    answer = Answer("When?", text, 1.0, 0.5, (CITED, make_source("Other")), statements=statements, supported=False)
    whole, stream = format_message(answer), StreamedMessage()
    pieces = ["It was built in 1871 [1].", " Nobody [sic] knows why [2] (unsupported)."]
    sent = "".join(map(stream.add, pieces))
    rest = stream.finish(answer)
    assert sent + rest.text == whole.text and rest.citations == whole.citations
    assert sent == "It was built in 1871 [1]. Nobody \\[sic\\] knows why [2] (unsupported)."


def test_a_declined_question_follows_what_was_written() -> None:
    stream = StreamedMessage()
    sent = stream.add("Perhaps Otto [1].")
    rest = stream.finish(Answer("Who?", None, 0.0, 0.0, (make_source(),), reason="too low", supported=None))
    assert rest.text.startswith(f"\n\n{NO_ANSWER}: too low.")
    (citation,) = rest.citations
    assert (sent + rest.text)[citation.start : citation.end] == "[1]" and citation.start > len(sent)


def test_a_message_is_read_back_as_a_turn() -> None:
    for text, title in (("Ada Holm", "Skarvik Lighthouse"), ("a_b [c]", "*Odd* [title]")):
        answer = Answer("Who?", text, 1.0, 0.9, (make_source(title, span=Span(0, 3)),))
        assert read_message("Who?", format_message(answer).text) == Turn("Who?", text, title)
    declined = Answer("Who?", None, 0.0, 0.0, (make_source(),), reason="no", supported=None)
    assert read_message("Who?", format_message(declined).text) == Turn("Who?", None)
    assert read_message("Who?", "Probably Newton.\nHe was …") == Turn("Who?", "Probably Newton.")


def test_reading_a_message_takes_linear_time() -> None:
    start = time.perf_counter()
    for text in ("[1]" * 33_000 + "x", " [1]" * 25_000 + "x", "\\" * 99_000, "\n[1] **a" * 12_000):
        read_message("Who?", text)
    assert time.perf_counter() - start < 5  # the first took 126 s before
