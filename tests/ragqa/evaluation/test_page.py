"""The page of a report: its content, escaping of hostile texts, and independence of other files.

Small fixed systems are evaluated; the page is parsed with the standard library.
"""

import json
import re
import sys
import unicodedata
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ragqa.evaluation import Report, evaluate
from ragqa.evaluation.compare import compare
from ragqa.evaluation.evaluated_systems import Predictions
from ragqa.evaluation.report.page import render_comparison_page, render_page
from ragqa.evaluation.report.sample import SIZE, Piece, mark_row, sample_groups, sample_questions
from ragqa.evaluation.rows import Excerpt, Row, SystemResult
from ragqa.types import Answer, Hit, Passage, Question, Source, Span

pytest.importorskip("jinja2")


@dataclass
class FixedSystem:
    """A system with a fixed result for each question."""

    examined: dict[str, SystemResult]
    described: dict[str, Any]
    is_identified: bool = True

    def examine(self, questions: list[Question]) -> list[SystemResult]:
        return [self.examined[question.id] for question in questions]

    def skip(self, question: Question) -> None:
        pass

    def finish(self) -> None:
        pass

    def describe(self) -> dict[str, Any]:
        return self.described


SYSTEM = {"retriever": "hybrid", "fusion": "rrf", "kind": "flat", "k": 2, "reader": "r1", "depth": 20, "passages": 504}
TEXTS = ("Ada Holm came first in 1903.", "Bo Berg came second.", "Cy came third.")
QUESTIONS = [
    Question("who came first?", ("Ada Holm",), "right", documents=("d0",)),
    Question("who came second?", ("Bo Berg",), "not chosen", documents=("d1",)),
    Question("who came third?", ("Cy",), "not read", documents=("d2",)),
    Question("who came fourth?", ("Di",), "not retrieved", documents=("d9",)),
    Question("who came last?", (), "unanswerable"),
]
ANSWERS_BY_ID = {
    "right": "Ada Holm",
    "not chosen": "1903",
    "not read": "Bo",
    "not retrieved": "Cy",
    "unanswerable": "Bo Berg",
}


def make_hits() -> list[Hit]:
    return [Hit(Passage(n, f"d{n}", f"Title {n}", text, "", 0, len(text)), 1 - n / 9) for n, text in enumerate(TEXTS)]


def make_result(said: str | None, confidence: float = 0.5) -> SystemResult:
    """Return a result with all passages, two of them read; the first one with the answer is cited."""
    hits = make_hits()
    cited = next(((hit, hit.passage.text.find(said)) for hit in hits if said and said in hit.passage.text), None)
    sources = (Source(cited[0], Span(cited[1], cited[1] + len(said)), 1.0),) if cited and said else ()
    return SystemResult(Answer("", said, 0.0, confidence, sources), hits[:2], hits, 0.01, 0.3)


def make_report(
    folder: Path, examined: dict[str, SystemResult] | None = None, system: Any = None, **settings: Any
) -> Report:
    given = examined or {id: make_result(said, 0.2 * n) for n, (id, said) in enumerate(ANSWERS_BY_ID.items(), 1)}
    made = FixedSystem(given, SYSTEM if system is None else system)
    return evaluate(made, QUESTIONS, out=folder / "a.report", name="demo", **{"corpus": "encyclopedia", **settings})


@pytest.fixture(scope="module")
def full_report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    return make_report(tmp_path_factory.mktemp("full"), split="dev")


@pytest.fixture
def with_plots() -> None:
    """Skip the test if matplotlib is missing; tests of plots use this fixture."""
    pytest.importorskip("matplotlib")


@pytest.fixture(autouse=True)
def _hide_matplotlib_by_default(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make matplotlib unavailable to other tests, because plots take a second per page."""
    if "with_plots" not in request.fixturenames:
        monkeypatch.setitem(sys.modules, "matplotlib", None)


class ParsedPage(HTMLParser):
    """The tags of a page with their attributes, its texts, and its texts by tag."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, tuple[tuple[str, str | None], ...]]] = []
        self.texts: list[str] = []
        self.inside: dict[str, list[str]] = {}
        self._open: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, tuple(attrs)))
        self.inside.setdefault(tag, []).append("")
        self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        self.tags.append((f"/{tag}", ()))
        while self._open and self._open.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        self.texts.append(data)
        for tag in set(self._open):
            self.inside[tag][-1] += data

    def handle_decl(self, decl: str) -> None:
        assert decl == "DOCTYPE html"

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"comment {data!r}")

    def handle_pi(self, data: str) -> None:
        raise AssertionError(f"processing instruction {data!r}")

    @property
    def text(self) -> str:
        return "".join(self.texts)

    def all(self, tag: str) -> list[str]:
        """Return the texts of all elements with a tag, white space collapsed."""
        return [" ".join(text.split()) for text in self.inside.get(tag, [])]

    def attributes(self, name: str) -> list[str]:
        return [value or "" for _, attrs in self.tags for key, value in attrs if key == name]


def read_table(html: str, title: str) -> dict[str, list[str]]:
    """Return the rows of the table with this title: first cell to other cells."""
    table = next(part for part in html.split("<table>")[1:] if f"<b>{title}</b>" in part).split("</table>")[0]
    rows = [ParsedPage(make_row) for make_row in re.findall(r"<tr.*?</tr>", table, re.DOTALL)]
    return {make_row.all("th")[0]: make_row.all("td") for make_row in rows if "td" in make_row.inside}


def test_scores_and_bounds_are_shown(full_report: Report) -> None:
    html = render_page(full_report)
    rows = read_table(html, "Answers")
    assert rows["exact match (EM)"] == ["25.0", "0.0–75.0"]  # 1 of 4; of 4 questions, resampled, 0 to 3 are right
    assert rows["an answer occurs in the top 20"] == ["75.0", "–"]
    assert "an answer occurs in the corpus (coverage bound)" not in rows  # a fixed system has no corpus to search
    assert read_table(html, "Where answers are lost") == {
        "right": ["1", "25.0", "the prediction matches a gold answer"],
        "not retrieved": [
            "1",
            "25.0",
            "none of the top 20 passages holds an answer; the others were not searched",
        ],
        "not read": ["1", "25.0", "an answer is among the top 20 passages, but not among those that were read"],
        "not chosen": ["1", "25.0", "an answer is in the passages that were read, but another was given"],
    }
    assert read_table(html, "Retrieval") == {
        "1": ["25.0", "0.0–75.0", "25.0"],
        "2": ["50.0", "0.0–100.0", "50.0"],
        "3": ["75.0", "25.0–100.0", "75.0"],
    }
    assert "mean reciprocal rank (MRR) among the first 20: 0.458" in html  # (1 + 1/2 + 1/3 + 0) / 4


def test_confidence_and_times_are_shown(full_report: Report) -> None:
    html = render_page(full_report)
    rows = read_table(html, "Confidence")
    # Confidences are 0.2 (right), 0.4, 0.6, 0.8 and 1 (all wrong): nothing is declined below 0.2.
    assert rows["answered if declining below 0.2"] == ["100.0 %"]
    assert rows["… of these right"] == ["20.0 %"]
    assert rows["right among the surer half"] == ["0.0 %"]
    assert rows["expected calibration error (ECE), 0 is best"] == ["0.720"]  # (0.8 + 0.4 + 0.6 + 0.8 + 1) / 5
    assert read_table(html, "Time per question, ms")["total"] == ["310", "310", "310", "310"]
    assert "Questions were asked one at a time." in html


def test_the_setting_is_described(full_report: Report) -> None:
    rows = read_table(render_page(full_report), "What was measured")
    assert rows["corpus"] == ["encyclopedia"]
    assert rows["passages"] == ["504"]
    assert rows["split"] == ["dev"]
    assert rows["questions"] == ["5, 4 of them with gold answers"]
    assert rows["scoring rule"][0].startswith("nq: equal to a gold answer after Unicode NFD")
    assert [rows[name] for name in ("retriever", "fusion", "index", "passages read (k)")] == [
        ["hybrid"],
        ["rrf"],
        ["flat"],
        ["2"],
    ]
    assert rows["version"][0].startswith("ragqa ")


@pytest.mark.parametrize(("settings", "words"), [({"unicode": None}, "SQuAD 1.1"), ({"regex": True}, "CuratedTREC")])
def test_other_rules_are_described(tmp_path: Path, settings: dict[str, Any], words: str) -> None:
    assert words in read_table(render_page(make_report(tmp_path, **settings)), "What was measured")["scoring rule"][0]


def test_every_table_has_a_caption(full_report: Report) -> None:
    parsed = ParsedPage(render_page(full_report))
    line = "corpus: encyclopedia · 504 passages · split: dev · 5 questions (4 with gold answers)"
    assert len(parsed.all("caption")) == len(parsed.all("table")) >= 8
    assert all(caption.endswith(line) for caption in parsed.all("caption"))


@pytest.mark.parametrize(
    ("passages", "says"),
    [
        (504, "A score on this corpus of 504 passages must not be compared with scores on all of Wikipedia"),
        (None, "A score on this corpus must not be compared with scores on all of Wikipedia"),
        (21_015_324, "compare them only with scores on the same corpus and split"),
    ],
)
def test_the_corpus_is_not_named_as_the_index(tmp_path: Path, passages: int | None, says: str) -> None:
    assert says in render_page(make_report(tmp_path, system={**SYSTEM, "passages": passages}))


def test_times_of_batches_are_not_called_latencies(tmp_path: Path) -> None:
    html = render_page(make_report(tmp_path, batch=3))
    assert "3 questions were asked at a time: these are shares of a batch's time, not latencies." in html
    assert "median share of a batch" in html


def with_about(made: Report, **about: Any) -> Report:
    return replace(made, figures={**made.figures, "about": {**made.figures["about"], **about}})


def test_published_results_have_their_own_table(full_report: Report) -> None:
    make_row = {"system": "DPR", "em": 41.5, "source": "Karpukhin", "corpus": "Wikipedia", "split": "test"}
    html = render_page(with_about(full_report, published=[make_row], caution="Mind <this>.", source="From & of."))
    assert "Published results on another task" in ParsedPage(html).all("h2")
    assert read_table(html, "Other systems, each on a corpus and a split of its own") == {
        "DPR": ["41.5", "Wikipedia", "test", "Karpukhin"]
    }
    assert not any("DPR" in read_table(html, title) for title in ("Answers", "What was measured"))
    assert "Mind <this>." in ParsedPage(html).text and "From & of." in ParsedPage(html).text
    assert "Published" not in render_page(full_report)


def test_warnings_are_shown(tmp_path: Path) -> None:
    given = {question.id: make_result(None) for question in QUESTIONS}
    html = render_page(make_report(tmp_path, given))
    assert "4 of 5 questions with gold answers got no prediction, which counts as wrong" in html
    assert html.count("no prediction</span>") >= 5


def test_questions_are_grouped_by_where_the_answer_was_lost(full_report: Report) -> None:
    html = render_page(full_report)
    groups = {group.name: [item.row.id for item in group.shown] for group in sample_questions(full_report)}
    assert groups == {name: [name] for name in ("not chosen", "not read", "not retrieved", "right", "unanswerable")}
    for name in groups:
        assert f'<section id="group-{name.replace(" ", "-")}">' in html
    asked = [summary.split("?")[0] + "?" for summary in ParsedPage(html).all("summary")]
    assert Counter(asked) == Counter(question.text for question in QUESTIONS)


def test_a_question_shows_its_passages(full_report: Report) -> None:
    html = render_page(full_report)
    wrong = html[html.index('id="group-not-chosen"') : html.index('id="group-not-read"')]
    parsed = ParsedPage(wrong)
    assert parsed.all("dd")[:5] == [
        "Bo Berg",
        "not chosen",
        "1903 (confidence 40.0 %)",
        "✗ wrong · EM 0 · F1 0.0",
        "rank 2 of 3 (2 read)",
    ]
    assert parsed.all("blockquote") == [TEXTS[0], TEXTS[1]]
    assert parsed.all("figcaption") == [
        "cited, rank 1: Title 0 · d0",
        "first passage with an answer, rank 2: Title 1 · d1",
    ]
    assert parsed.all("mark") == ["1903", "Bo Berg"]
    assert parsed.attributes("class").count("of-prediction ") == parsed.attributes("class").count(" of-answer") == 1


def test_questions_that_the_corpus_cannot_answer_have_their_own_group(full_report: Report, tmp_path: Path) -> None:
    looked = {**full_report.figures, "coverage_bound": {"corpus": 0.75, "retrieved": 0.75}}
    (tmp_path / "rows.jsonl").write_bytes((full_report.path / "rows.jsonl").read_bytes())
    (tmp_path / "missing.json").write_text(json.dumps({"answers": [3], "passages": [], "documents": []}))
    made = Report(tmp_path, {**looked, "loss": {**looked["loss"], "not in the corpus": 1, "not retrieved": 0}})
    groups = {group.name: [item.row.id for item in group.shown] for group in sample_questions(made)}
    assert groups["not in the corpus"] == ["not retrieved"] and "not retrieved" not in groups
    assert read_table(render_page(made), "Answers")["an answer occurs in the corpus (coverage bound)"] == ["75.0", "–"]
    assert read_table(render_page(made), "Where answers are lost")["not in the corpus"][:2] == ["1", "25.0"]


def make_row(number: int, question: str = "who?", **values: Any) -> Row:
    none = dict.fromkeys(
        ("prediction", "f1", "confidence", "rank", "passage_rank", "document_rank", "retrieve_seconds", "read_seconds")
    )
    make_row = {**none, "id": "", "answers": ("x",), "em": False, "loss": "not read", "read": 0, "digest": ""}
    make_row |= {"documents": (), "passages": ()}
    passages = {"cited": None, "holding": None, "hits": ()}
    return Row(number=number, question=question, **{**make_row, **passages, **values})


def test_the_sample_is_uniform_and_the_same_for_every_system() -> None:
    rows = [make_row(number, f"who is {number}?") for number in range(1000)]
    first, again = (sample_groups([("all", row, row.number) for row in rows], ["all"])[0] for _ in range(2))
    assert first == again and first.count == 1000 and len(first.shown) == SIZE
    assert first.shown == sorted(first.shown) and first.shown != list(range(SIZE))
    assert 250 < sum(first.shown) / SIZE < 750  # the mean of a fair sample is within 4 standard errors of 500


def test_equal_rows_can_be_sampled() -> None:
    items = [("all", make_row(0), dict[str, int]()) for _ in range(50)]  # dicts cannot be ordered
    assert sample_groups(items, ["all", "none"])[0].count == 50


EXCERPT = "ab Ada Holm cd"


@pytest.mark.parametrize(
    ("span", "answers", "pieces"),
    [
        ((3, 11), ("Ada Holm",), [("ab ", ""), ("Ada Holm", "sg"), (" cd", "")]),
        ((3, 6), ("ada  holm",), [("ab ", ""), ("Ada", "sg"), (" Holm", "g"), (" cd", "")]),
        ((0, 2), ("Holm", "Ada Holm"), [("ab", "s"), (" ", ""), ("Ada Holm", "g"), (" cd", "")]),
        ((0, 6), ("ol", ""), [("ab Ada", "s"), (" Holm cd", "")]),  # an answer is not marked inside a word
        ((12, 99), ("y",), [("ab Ada Holm ", ""), ("cd", "s")]),
        ((-5, -1), ("y",), [(EXCERPT, "")]),
        ((None, None), ("cd",), [("ab Ada Holm ", ""), ("cd", "g")]),
    ],
)
def test_cited_spans_and_gold_answers_are_marked(
    span: tuple[int | None, int | None], answers: tuple[str, ...], pieces: list[Any]
) -> None:
    made = mark_row(make_row(0, answers=answers, cited=Excerpt("", "", EXCERPT, 1, *span)), regex=False)
    assert [(p.text, "s" * p.is_predicted + "g" * p.is_gold) for p in made.cited] == pieces


def test_patterns_are_marked_and_shown_as_code(tmp_path: Path) -> None:
    html = render_page(make_report(tmp_path, regex=True, split="x"))
    assert ParsedPage(html).all("code").count("Bo Berg") == 1
    made = mark_row(make_row(0, answers=("[", "A.a", r"H\w+m"), cited=Excerpt("", "", EXCERPT)), regex=True)
    assert [piece.text for piece in made.cited if piece.is_gold] == ["Holm"]


@given(st.text(max_size=3000), st.integers(-5, 4000), st.integers(-5, 4000), st.lists(st.text(max_size=3), max_size=3))
def test_pieces_add_up_to_the_passage(text: str, start: int, end: int, answers: list[str]) -> None:
    cited = mark_row(make_row(0, answers=tuple(answers), cited=Excerpt("", "", text, 1, start, end)), regex=False).cited
    kept = "".join(piece.text for piece in cited if piece not in (Piece("… "), Piece(" …")))
    assert kept in text and len(kept) <= 2100
    assert len(text) > 700 or kept == text


HOSTILE_TEXTS = [
    "<script>alert(1)</script>",
    "</title></style></blockquote></details><img src=x onerror=alert(1)>",
    '"\' onmouseover=alert(1) x="',
    "{{ 7 * 7 }}{% raw %}{# #}",
    "&lt;b&gt; &amp; &#x3c; <!-- <![CDATA[ ]]> -->",
    "\x00\x01\x1b[31m\x7f\x85\x9b",
    "\ud800 and \udfff",
    "\u202eevil\u2066 \u05d0\u05d1\u05d2 \u0627\u0644",
    "x" * 10_000,
    "\u0301" * 500,
    "\r\n\u2028\ufffe",
    "javascript:alert(1) https://example.com //example.com",
]


def drop_invisible(text: str) -> str:
    """Return a text without white space, control characters and replacement characters."""
    return "".join(c for c in text if unicodedata.category(c)[0] not in "CZ" and c != "\ufffd")


def make_hostile_row(made: Report, text: str) -> Row:
    first = next(made.rows())
    cited = Excerpt(title=text, document=text, text=text, rank=1, start=1, end=len(text) - 1)
    holding = replace(cited, start=None, end=None)
    return replace(first, id=text, question=text, answers=(text,), prediction=text, cited=cited, holding=holding)


def make_hostile_report(made: Report, folder: Path, text: str) -> Report:
    """Return a report of one question in which every text is ``text``."""
    (folder / "rows.jsonl").write_text(make_hostile_row(made, text).to_json() + "\n", encoding="utf-8")
    (folder / "missing.json").write_text("null")
    published = [{"system": text, "em": 1.0, "source": text, "corpus": text, "split": text}]
    about = {**made.figures["about"], "name": text, "split": text, "corpus": text, "hardware": text, "caution": text}
    about |= {"published": published, "source": text, "system": {**SYSTEM, "retriever": text, "index": text}}
    return Report(folder, {**made.figures, "about": about, "warnings": [text]})


def list_tags(html: str) -> list[Any]:
    html.encode()  # no lone surrogates
    return ParsedPage(html).tags


def with_hostile_texts(test: Callable[..., None]) -> Callable[..., None]:
    for text in HOSTILE_TEXTS:
        test = example(text)(test)
    relaxed = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
    return relaxed(given(st.text(max_size=150))(test))


@with_hostile_texts
def test_hostile_texts_never_become_markup(
    full_report: Report, tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    folder = tmp_path_factory.mktemp("hostile")
    # The same length, so that the same parts are marked and cut.
    harmless, text = "x" + "y" * len(text) + "z", f"x{text}z"
    html = render_page(make_hostile_report(full_report, folder, text))
    assert list_tags(html) == list_tags(render_page(make_hostile_report(full_report, folder, harmless)))
    shown_texts = drop_invisible(ParsedPage(html).text)
    assert drop_invisible(text[:70]) in shown_texts
    assert shown_texts.count(drop_invisible(text[:30])) >= 12
    assert not re.search("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ufffe\uffff\u202a-\u202e\u2066-\u2069]", html)


@with_hostile_texts
def test_hostile_texts_never_become_markup_in_a_comparison(
    full_report: Report, tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    folder = tmp_path_factory.mktemp("hostile")
    harmless, text = "x" + "y" * len(text) + "z", f"x{text}z"
    pages = []
    for shown_text in (harmless, text):
        made = make_hostile_report(full_report, folder, shown_text)
        comparison = compare(made, made)
        pages.append(render_comparison_page(replace(comparison, figures={**comparison.figures, "notes": [shown_text]})))
    assert list_tags(pages[0]) == list_tags(pages[1])
    assert drop_invisible(ParsedPage(pages[1]).text).count(drop_invisible(text[:30])) >= 12


@pytest.mark.usefixtures("with_plots")
def test_a_page_loads_nothing_and_runs_no_script(full_report: Report, tmp_path: Path) -> None:
    pages = [
        render_page(make_hostile_report(full_report, tmp_path, "".join(HOSTILE_TEXTS))),
        render_page(full_report),
        render_comparison_page(compare(full_report, full_report)),
    ]
    for parsed in map(ParsedPage, pages):
        names = {tag for tag, _ in parsed.tags}
        assert not names & {"script", "link", "img", "iframe", "object", "embed", "base", "form", "video", "audio"}
        attributes = {(name, value) for _, attrs in parsed.tags for name, value in attrs}
        assert not [name for name, _ in attributes if name.startswith("on") or name in ("src", "srcset", "action")]
        assert not [value for _, value in attributes if value and ("//" in value or "script:" in value)]
        policy = next(value for name, value in attributes if name == "content" and "default-src" in (value or ""))
        assert policy == "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
        assert not re.search(r"url\((?!#)|@import", "".join(parsed.inside["style"]))


@pytest.mark.usefixtures("with_plots")
def test_internal_links_have_targets(full_report: Report) -> None:
    for html in (render_page(full_report), render_comparison_page(compare(full_report, full_report))):
        parsed = ParsedPage(html)
        ids = parsed.attributes("id")
        assert len(ids) == len(set(ids)) > 20
        links = [*parsed.attributes("href"), *parsed.attributes("xlink:href")]
        assert all(link.startswith("#") and link[1:] in ids for link in links)
        assert all(target in ids for target in re.findall(r"url\(#([^)]*)\)", html))


def test_a_page_of_retrieval_alone(tmp_path: Path) -> None:
    given = {question.id: SystemResult(None, [], make_hits(), 0.01) for question in QUESTIONS}
    html = render_page(make_report(tmp_path, given, {**SYSTEM, "k": 0, "reader": None}))
    assert [group.split(" (")[0] for group in ParsedPage(html).all("a")[-3:]] == [
        "not retrieved",
        "found",
        "unanswerable",
    ]
    assert "prediction</dt>" not in html and "EM" not in read_table(html, "What could be answered")
    assert read_table(html, "What was measured")["reader"] == ["none: retrieval alone is scored"]
    assert "Answer recall@3" in ParsedPage(html).text


def score_predictions(folder: Path, name: str, text: str, **settings: Any) -> Report:
    file = folder / name
    file.write_text(text, encoding="utf-8")
    return evaluate(Predictions(file, depth=20), QUESTIONS, out=folder / "p.report", name="demo", **settings)


def test_a_page_of_predictions_without_passages(tmp_path: Path) -> None:
    html = render_page(score_predictions(tmp_path, "<b>.json", json.dumps({"right": "Ada Holm", "not read": "Bo"})))
    parsed = ParsedPage(html)
    assert read_table(html, "What was measured")["predictions of another system"] == ["<b>.json"]
    assert read_table(html, "Answers") == {"exact match (EM)": ["25.0", "0.0–75.0"], "F1": ["25.0", "0.0–75.0"]}
    assert parsed.all("a")[-3:] == ["wrong (3)", "right (1)", "unanswerable (1)"]
    assert parsed.all("h3").count("Time per question") == 1 and "Not measured" in html
    assert "Retrieval" not in "".join(parsed.all("caption")) and "Confidence" not in "".join(parsed.all("caption"))


def test_a_page_of_predictions_with_passages(tmp_path: Path) -> None:
    lines = [{"prediction": "Ada Holm", "ctxs": [{"text": text} for text in TEXTS]} for _ in QUESTIONS]
    html = render_page(score_predictions(tmp_path, "p.jsonl", "\n".join(map(json.dumps, lines)), corpus="Wikipedia"))
    assert read_table(html, "Retrieval")["1"][0] == "25.0"
    assert "corpus: Wikipedia · number of passages not known · split: not named" in html
    assert "cited" not in ParsedPage(html).text and "untitled" in html


def test_a_page_of_unanswerable_questions(tmp_path: Path) -> None:
    system = FixedSystem({"unanswerable": make_result("Bo Berg", 0.1)}, SYSTEM)
    html = render_page(evaluate(system, QUESTIONS[4:], out=tmp_path / "r", name="none"))
    assert ParsedPage(html).all("a")[-1] == "unanswerable (1)"
    assert read_table(html, "Confidence")["… EM, a declined answer being wrong"] == ["–"]


def test_a_page_without_matplotlib_names_the_extra(full_report: Report) -> None:
    says = (
        "drawing the plots needs the extra 'eval'; in the checkout: pip install -c constraints.txt -e '.[eval]', then: "
    )
    assert says + "ragqa eval page DIR" in ParsedPage(render_page(full_report)).all("p")
    assert says + "ragqa eval compare A B --html FILE" in ParsedPage(
        render_comparison_page(compare(full_report, full_report))
    ).all("p")
    assert "<svg" not in render_page(full_report)


@pytest.mark.usefixtures("with_plots")
def test_the_same_report_gives_the_same_bytes(full_report: Report) -> None:
    import matplotlib

    first = render_page(full_report)
    mine: Any = {"font.size": 33, "svg.fonttype": "path", "axes.facecolor": "red", "lines.linewidth": 9}
    with matplotlib.rc_context(mine):
        assert render_page(full_report) == first
        assert {key: matplotlib.rcParams[key] for key in mine} == mine
    assert len(first.encode()) < 300_000


@pytest.mark.usefixtures("with_plots")
def test_plots_show_the_figures(full_report: Report) -> None:
    from ragqa.evaluation.report.plots import draw_report_plots

    drawn = {plot.title.split(" (")[0]: plot for plot in draw_report_plots(full_report.figures)}
    assert list(drawn) == [
        "Answer recall by number of passages",
        "Where answers are lost",
        "Risk and coverage",
        "Reliability",
        "EM by question word",
        "EM by question length",
        "EM by answer type",
        "EM by answer length",
    ]
    texts = {name: ParsedPage(plot.svg).all("text") for name, plot in drawn.items()}
    assert {"1", "2", "3", "the gold document among the first k"} <= {*texts["Answer recall by number of passages"]}
    assert texts["Where answers are lost"].count("1 (25.0 %)") == 4
    assert "all answered: 80.0 % wrong" in texts["Risk and coverage"]
    assert "declined below 0.2: 100.0 % answered, 80.0 % of them wrong" in texts["Risk and coverage"]
    assert "ECE, 0.720" in drawn["Reliability"].title and texts["Reliability"].count("1") == 5
    assert "who (4)" in texts["EM by question word"]
    colours = set(re.findall(r"#[0-9a-f]{6}\b", "".join(plot.svg for plot in drawn.values())))
    assert not colours  # plots use the colours of the page, which differ in light and dark mode


@pytest.mark.usefixtures("with_plots")
def test_labels_of_plots_are_escaped(full_report: Report) -> None:
    from ragqa.evaluation.report.plots import draw_report_plots

    kind = '$x^2$ <b> id="q" href="#q" <!-- \\frac'
    kinds = {"question word": [{**full_report.figures["breakdown"]["question word"][0], "kind": kind}]}
    plot = draw_report_plots({**full_report.figures, "breakdown": kinds})[-1]
    assert ParsedPage(plot.svg).tags and "$x^2$ <b>" in "".join(ParsedPage(plot.svg).all("text"))


def test_a_page_of_a_comparison(full_report: Report, tmp_path: Path) -> None:
    other = make_report(
        tmp_path,
        {**{id: make_result(said, 0.5) for id, said in ANSWERS_BY_ID.items()}, "not chosen": make_result("Bo Berg")},
    )
    html = render_comparison_page(compare(full_report, other))
    assert read_table(html, "Differences, question by question")["EM"][:4] == ["25.0", "50.0", "−25.0", "−75.0 to 0.0"]
    assert read_table(html, "Which is right") == {
        "both": ["1", "25.0"],
        "only a": ["0", "0.0"],
        "only b": ["1", "25.0"],
        "neither": ["2", "50.0"],
    }
    assert read_table(html, "Systems and settings")["split"] == ["dev", "not named"]
    assert read_table(html, "Also measured, without a test")["right among the surer half"] == ["0.0 %", "40.0 %"]
    parsed = ParsedPage(html)
    assert parsed.all("a")[-4:] == ["only b right (1)", "neither right (2)", "both right (1)", "no gold answers (1)"]
    one = html[html.index('id="group-only-b"') : html.index('id="group-neither"')]
    assert ParsedPage(one).all("summary") == [
        "who came second? a ✗ wrong: 1903 (confidence 40.0 %) b ✓ right: Bo Berg (confidence 50.0 %)"
    ]
    assert render_comparison_page(compare(full_report, other)) == html


def test_a_page_of_a_comparison_of_retrieval(full_report: Report, tmp_path: Path) -> None:
    given = {question.id: SystemResult(None, [], make_hits()[:1] * 3, 0.01) for question in QUESTIONS}
    other = make_report(tmp_path, given, {**SYSTEM, "k": 0, "reader": None, "retriever": "bm25"})
    html = render_comparison_page(compare(other, full_report))
    found_by = [link.split(" found an answer in the top 3")[0] for link in ParsedPage(html).all("a")[-4:-1]]
    assert found_by == ["only b", "neither", "both"]
    assert "Which is right" not in html
    assert "<b>b</b>" in html and '<span class="said"><b>a</b>' not in html
