"""The page of a report and of a comparison: its content."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ragqa.evaluation import Report, evaluate
from ragqa.evaluation.compare import compare
from ragqa.evaluation.report.page import render_comparison_page, render_page
from ragqa.evaluation.report.sample import sample_questions
from ragqa.evaluation.rows import SystemResult
from tests.helpers.pages import (
    ANSWERS_BY_ID,
    QUESTIONS,
    SYSTEM,
    TEXTS,
    FixedSystem,
    ParsedPage,
    make_hits,
    make_report,
    make_result,
    read_table,
    score_predictions,
)

pytest.importorskip("jinja2")
pytestmark = pytest.mark.usefixtures("without_plots")


@pytest.fixture(scope="module")
def full_report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    return make_report(tmp_path_factory.mktemp("full"), split="dev")


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
    assert rows["right in the more confident half of the answers"] == ["0.0 %"]
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


def replace_about(made: Report, **about: Any) -> Report:
    return replace(made, figures={**made.figures, "about": {**made.figures["about"], **about}})


def test_published_results_have_their_own_table(full_report: Report) -> None:
    row = {"system": "DPR", "em": 41.5, "source": "Karpukhin", "corpus": "Wikipedia", "split": "test"}
    html = render_page(replace_about(full_report, published=[row], caution="Mind <this>.", source="From & of."))
    assert "Published results on another task" in ParsedPage(html).all("h2")
    assert read_table(html, "Other systems, each on a corpus and a split of its own") == {
        "DPR": ["41.5", "Wikipedia", "test", "Karpukhin"]
    }
    assert not any("DPR" in read_table(html, title) for title in ("Answers", "What was measured"))
    assert "Mind <this>." in ParsedPage(html).text and "From & of." in ParsedPage(html).text
    assert "Published" not in render_page(full_report)


def test_warnings_are_shown(tmp_path: Path) -> None:
    results = {question.id: make_result(None) for question in QUESTIONS}
    html = render_page(make_report(tmp_path, results))
    assert "4 of 4 questions with gold answers got no prediction, which counts as wrong" in html
    assert html.count("no prediction</span>") >= 5


def test_questions_are_grouped_by_where_the_answer_was_lost(full_report: Report) -> None:
    html = render_page(full_report)
    groups = {group.name: [item.row.id for item in group.shown] for group in sample_questions(full_report)}
    assert groups == {name: [name] for name in ("not chosen", "not read", "not retrieved", "right", "unanswerable")}
    for name in groups:
        assert f'<section id="group-{name.replace(" ", "-")}">' in html
    shown_questions = [summary.split("?")[0] + "?" for summary in ParsedPage(html).all("summary")]
    assert Counter(shown_questions) == Counter(question.text for question in QUESTIONS)


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


def test_a_page_of_retrieval_alone(tmp_path: Path) -> None:
    results = {question.id: SystemResult(None, [], make_hits(), 0.01) for question in QUESTIONS}
    html = render_page(make_report(tmp_path, results, {**SYSTEM, "k": 0, "reader": None}))
    assert [group.split(" (")[0] for group in ParsedPage(html).all("a")[-3:]] == [
        "not retrieved",
        "found",
        "unanswerable",
    ]
    assert "prediction</dt>" not in html and "EM" not in read_table(html, "What could be answered")
    assert read_table(html, "What was measured")["reader"] == ["none: retrieval alone is scored"]
    assert "Answer recall@3" in ParsedPage(html).text


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


def test_a_page_of_a_comparison(full_report: Report, tmp_path: Path) -> None:
    other = make_report(
        tmp_path,
        {
            **{id: make_result(answer, 0.5) for id, answer in ANSWERS_BY_ID.items()},
            "not chosen": make_result("Bo Berg"),
        },
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
    untested = read_table(html, "Also measured, without a test")
    assert untested["right in the more confident half of the answers"] == ["0.0 %", "40.0 %"]
    parsed = ParsedPage(html)
    assert parsed.all("a")[-4:] == ["only b right (1)", "neither right (2)", "both right (1)", "no gold answers (1)"]
    one = html[html.index('id="group-only-b"') : html.index('id="group-neither"')]
    assert ParsedPage(one).all("summary") == [
        "who came second? a ✗ wrong: 1903 (confidence 40.0 %) b ✓ right: Bo Berg (confidence 50.0 %)"
    ]
    assert render_comparison_page(compare(full_report, other)) == html


def test_a_page_of_a_comparison_of_retrieval(full_report: Report, tmp_path: Path) -> None:
    results = {question.id: SystemResult(None, [], make_hits()[:1] * 3, 0.01) for question in QUESTIONS}
    other = make_report(tmp_path, results, {**SYSTEM, "k": 0, "reader": None, "retriever": "bm25"})
    html = render_comparison_page(compare(other, full_report))
    found_by = [link.split(" found an answer in the top 3")[0] for link in ParsedPage(html).all("a")[-4:-1]]
    assert found_by == ["only b", "neither", "both"]
    assert "Which is right" not in html
    assert "<b>b</b>" in html and '<span class="said"><b>a</b>' not in html
