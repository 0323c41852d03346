"""Hostile texts on a page: they never become markup, and a page loads nothing and runs no script."""

import re
import unicodedata
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ragqa.evaluation import Report
from ragqa.evaluation.compare import compare
from ragqa.evaluation.report.page import render_comparison_page, render_page
from ragqa.evaluation.rows import Excerpt, Row
from tests.helpers.pages import (
    SYSTEM,
    ParsedPage,
    make_report,
)

pytest.importorskip("jinja2")


@pytest.fixture(scope="module")
def full_report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    return make_report(tmp_path_factory.mktemp("full"), split="dev")


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
    relaxed = settings(max_examples=40, suppress_health_check=list(HealthCheck))
    return relaxed(given(st.text(max_size=150))(test))


@with_hostile_texts
@pytest.mark.usefixtures("without_plots")
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
@pytest.mark.usefixtures("without_plots")
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


def test_a_page_loads_nothing_and_runs_no_script(full_report: Report, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
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
