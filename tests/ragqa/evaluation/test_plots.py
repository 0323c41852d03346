"""The plots and the links of a page; equal reports give equal bytes."""

import re
from typing import Any

import pytest

from ragqa.evaluation import Report
from ragqa.evaluation.compare import compare
from ragqa.evaluation.report.page import render_comparison_page, render_page
from ragqa.evaluation.report.plots import draw_report_plots
from tests.helpers.pages import (
    ParsedPage,
    make_report,
)

pytest.importorskip("jinja2")
pytest.importorskip("matplotlib")


@pytest.fixture(scope="module")
def full_report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    return make_report(tmp_path_factory.mktemp("full"), split="dev")


def test_internal_links_have_targets(full_report: Report) -> None:
    for html in (render_page(full_report), render_comparison_page(compare(full_report, full_report))):
        parsed = ParsedPage(html)
        ids = parsed.attributes("id")
        assert len(ids) == len(set(ids)) > 20
        links = [*parsed.attributes("href"), *parsed.attributes("xlink:href")]
        assert all(link.startswith("#") and link[1:] in ids for link in links)
        assert all(target in ids for target in re.findall(r"url\(#([^)]*)\)", html))


def test_the_same_report_gives_the_same_bytes(full_report: Report) -> None:
    import matplotlib

    first = render_page(full_report)
    mine: Any = {"font.size": 33, "svg.fonttype": "path", "axes.facecolor": "red", "lines.linewidth": 9}
    with matplotlib.rc_context(mine):
        assert render_page(full_report) == first
        assert {key: matplotlib.rcParams[key] for key in mine} == mine
    assert len(first.encode()) < 300_000


def test_plots_show_the_figures(full_report: Report) -> None:
    plots = {plot.title.split(" (")[0]: plot for plot in draw_report_plots(full_report.figures)}
    assert list(plots) == [
        "Answer recall by number of passages",
        "Where answers are lost",
        "Risk and coverage",
        "Reliability",
        "EM by question word",
        "EM by question length",
        "EM by answer type",
        "EM by answer length",
    ]
    texts = {name: ParsedPage(plot.svg).all("text") for name, plot in plots.items()}
    assert {"1", "2", "3", "the gold document among the first k"} <= {*texts["Answer recall by number of passages"]}
    assert texts["Where answers are lost"].count("1 (25.0 %)") == 4
    assert "all answered: 80.0 % wrong" in texts["Risk and coverage"]
    assert "declined below 0.2: 100.0 % answered, 80.0 % of them wrong" in texts["Risk and coverage"]
    assert "ECE, 0.720" in plots["Reliability"].title and texts["Reliability"].count("1") == 5
    assert "who (4)" in texts["EM by question word"]
    colours = set(re.findall(r"#[0-9a-f]{6}\b", "".join(plot.svg for plot in plots.values())))
    assert not colours  # plots use the colours of the page, which differ in light and dark mode


def test_labels_of_plots_are_escaped(full_report: Report) -> None:
    kind = '$x^2$ <b> id="q" href="#q" <!-- \\frac'
    kinds = {"question word": [{**full_report.figures["breakdown"]["question word"][0], "kind": kind}]}
    plot = draw_report_plots({**full_report.figures, "breakdown": kinds})[-1]
    assert ParsedPage(plot.svg).tags and "$x^2$ <b>" in "".join(ParsedPage(plot.svg).all("text"))
