"""HTML page of a report or a comparison, which needs no network and no scripts.

Questions, passages and names are untrusted text. The templates escape all values except the plots, and the content
security policy of the page forbids loading files and running scripts.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ragqa.errors import MissingExtra
from ragqa.evaluation.compare import Comparison
from ragqa.evaluation.figures import is_reading
from ragqa.evaluation.report import plots
from ragqa.evaluation.report.sample import SIZE, find_common_depth, is_read, is_regex, sample_pairs, sample_questions
from ragqa.evaluation.report.store import Report
from ragqa.evaluation.report.summary import RULES, describe_gold, format_percent, format_probability, list_gold_figures
from ragqa.retrieval.registry import DEFAULT_FUSION, RetrieverKind
from ragqa.text import format_count

if TYPE_CHECKING:
    from jinja2 import Environment

Figures = dict[str, Any]

_NO_PLOTS = f"{MissingExtra('drawing the plots', 'eval')}, then: {{command}}"


def render_page(report: Report) -> str:
    """Return the HTML page of a report.

    The page has no plots if matplotlib is not installed. The same report gives the same page each time.

    Raises:
        DamagedArtefact: a line of the rows is not a row.
    """
    figures, about = report.figures, report.figures["about"]
    return _render(
        "page.html",
        figures=figures,
        about=about,
        read=is_read(report),
        regex=is_regex(report),
        tiles=_list_tiles(figures),
        setting=[row for row in _list_settings(about) if row[1] is not None],
        confidence=figures["confidence"] and list(_list_confidence(figures["confidence"])),
        golds=list_gold_figures(figures),
        depths=sorted(figures["answer_recall"], key=int),
        groups=sample_questions(report),
        sample_size=SIZE,
        plots=_draw_plots(plots.draw_report_plots, figures),
        no_plots=_NO_PLOTS.format(command="ragqa eval page DIR"),
    )


def render_comparison_page(comparison: Comparison) -> str:
    """Return the HTML page of two reports on the same questions.

    The page has no plots if matplotlib is not installed.

    Raises:
        Mismatch: the questions of the reports differ.
        DamagedArtefact: a line of the rows is not a row.
    """
    figures, a, b = comparison.figures, comparison.a, comparison.b
    word = "right" if figures["right"] is not None else f"found an answer in the top {find_common_depth(comparison)}"
    titles = {name: f"{name} {word}" for name in ("only a", "only b", "neither", "both")}
    return _render(
        "comparison.html",
        figures=figures,
        a=figures["a"],
        b=figures["b"],
        folders={"a": a.path.name, "b": b.path.name},
        read_a=is_read(a),
        read_b=is_read(b),
        regex=is_regex(a),
        smaller=min(figures["a"], figures["b"], key=lambda about: about["system"].get("passages") or 0),
        tests=plots.list_tests(figures),
        settings=_join_sides(_list_settings(figures["a"]), _list_settings(figures["b"])),
        untested=_join_sides(_list_untested(a.figures), _list_untested(b.figures)),
        titles={**titles, "unanswerable": "no gold answers"},
        groups=sample_pairs(comparison),
        sample_size=SIZE,
        plots=_draw_plots(plots.draw_comparison_plots, figures, a.figures, b.figures),
        no_plots=_NO_PLOTS.format(command="ragqa eval compare A B --html FILE"),
    )


def _draw_plots(draw: Callable[..., list[plots.Plot]], *figures: Figures) -> list[plots.Plot] | None:
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        return None
    return draw(*figures)


# --- content of the tables ---


def _describe_basis(about: Figures) -> str:
    """Return the line above each table: corpus, split and number of questions."""
    passages = about["system"].get("passages")
    size = "number of passages not known" if passages is None else format_count(passages, "passages")
    split = _cut(about["split"] or "not named", 100)
    questions = f"{format_count(about['questions'], 'questions')} ({about['answerable']:,} with gold answers)"
    return f"corpus: {_cut(about['corpus'], 200)} · {size} · split: {split} · {questions}"


def _list_tiles(figures: Figures) -> list[tuple[str, str, str, str]]:
    """Return the name, value, unit and explanation of each main figure."""
    bound, seconds, system = figures["coverage_bound"], figures["seconds"], figures["about"]["system"]
    scores = {"Exact match (EM)": figures["em"], "F1": figures["f1"]}
    k = max((d for d in map(int, figures["answer_recall"]) if d <= (system.get("k") or 20)), default=None)
    if k is not None:
        scores[f"Answer recall@{k}"] = figures["answer_recall"][str(k)]
    tiles = [
        (name, format_percent(interval["value"]), "%", f"95 % interval {_format_edges(interval) or '–'}")
        for name, interval in scores.items()
        if interval
    ]
    if bound:
        is_searched = bound["corpus"] is not None
        where = "the corpus" if is_searched else f"the top {system.get('depth')} passages"
        covered = format_percent(bound["corpus" if is_searched else "retrieved"])
        tile = ("Coverage bound", covered, "%", f"questions with an answer in {where}")
        tiles.insert(1 if figures["em"] else 0, tile)  # after exact match, which it bounds
    if seconds:
        last = list(seconds)[-1]
        share = "median" if figures["about"]["batch"] == 1 else "median share of a batch"
        tiles.append(("Time per question", _format_milliseconds(seconds[last]["p50"]), "ms", f"{share}, {last}"))
    return tiles


def _list_confidence(confidence: Figures) -> Iterator[tuple[str, str]]:
    declining = confidence["declining"]
    below = f"{declining['below']:.3g}"
    yield "expected calibration error (ECE), 0 is best", f"{confidence['calibration_error']:.3f}"
    yield "area under the risk–coverage curve (AURC), 0 is best", f"{confidence['area_under_risk']:.3f}"
    yield "right in the more confident half of the answers", _format_share(confidence["right_at_half_coverage"])
    yield f"answered if declining below {below}", _format_share(declining["answered"])
    yield "… of these right", _format_share(declining["right_of_answered"])
    yield "… questions with gold answers declined", _format_share(declining["answerable_declined"])
    if declining["unanswerable"]:
        name = f"… of {declining['unanswerable']:,} questions without gold answers declined"
        yield name, _format_share(declining["unanswerable_declined"])
    yield "… EM, a declined answer being wrong", _format_share(declining["em"])


def _format_share(share: float | None) -> str:
    return "–" if share is None else f"{format_percent(share)} %"


def _list_settings(about: Figures) -> list[tuple[str, Any]]:
    system = about["system"]
    passages = system.get("passages")
    return [
        ("corpus", about["corpus"]),
        ("passages", "not known" if passages is None else f"{passages:,}"),
        ("split", about["split"] or "not named"),
        ("questions", f"{about['questions']:,}, {about['answerable']:,} of them with gold answers"),
        ("scoring rule", RULES[about["rule"]] if is_reading(about) else None),
        *_list_parts(system),
        ("hits searched for answers (depth)", system.get("depth")),
        ("questions asked together", about["batch"]),
        ("date", about["date"]),
        ("machine", about["hardware"]),
        ("version", about["created_by"]),
    ]


def _list_parts(system: Figures) -> list[tuple[str, Any]]:
    if "predictions" in system:
        return [("predictions of another system", system["predictions"])]
    retriever, index = system.get("retriever"), (system.get("kind"), system.get("index"))
    can_fuse = retriever in list(RetrieverKind) and RetrieverKind(retriever).can_fuse
    return [
        ("retriever", retriever),
        ("fusion", system.get("fusion") or (DEFAULT_FUSION if can_fuse else None)),
        ("index", ", ".join(str(part) for part in index if part) or None),
        ("encoder", system.get("encoder")),
        ("reader", system.get("reader", "not known") or "none: retrieval alone is scored"),
        ("passages read (k)", system.get("k") or None),
    ]


def _join_sides(a: Iterable[tuple[str, Any]], b: Iterable[tuple[str, Any]]) -> list[tuple[str, Any, Any]]:
    """Join the rows of two reports by name; rows without a value in either report are left out."""
    rows_a, rows_b = dict(a), dict(b)
    rows = [(name, rows_a.get(name), rows_b.get(name)) for name in dict.fromkeys([*rows_a, *rows_b])]
    return [row for row in rows if row[1:] != (None, None)]


def _list_untested(figures: Figures) -> Iterator[tuple[str, str]]:
    """Yield the name and value of each figure that a comparison shows without a test."""
    if bound := figures["coverage_bound"]:
        yield "an answer occurs in the corpus (coverage bound)", _format_share(bound["corpus"])
        yield "an answer occurs in the hits searched", _format_share(bound["retrieved"])
    for name, gold in list_gold_figures(figures):
        if gold["accuracy"]:
            yield f"mean reciprocal rank (MRR) of the {name}, top {gold['depth']}", f"{gold['mrr']:.3f}"
    yield from list(_list_confidence(figures["confidence"]))[:3] if figures["confidence"] else ()
    if seconds := figures["seconds"]:
        last = list(seconds)[-1]
        for name, key in (("median", "p50"), ("95th percentile", "p95")):
            yield f"time per question ({last}), {name}, ms", _format_milliseconds(seconds[last][key])


# --- format of values ---


@cache
def _make_environment() -> "Environment":
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_make_visible,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        counted=_describe_basis,
        cut=_cut,
        cut_left=lambda text, length: text if len(text) <= length else "…" + text[1 - length :],
        edges=_format_edges,
        gold_note=describe_gold,
        ms=_format_milliseconds,
        number="{:,}".format,
        one_decimal="{:.1f}".format,
        percent=format_percent,
        probability=format_probability,
        signed=_format_signed,
    )
    return environment


def _render(template: str, **values: Any) -> str:
    return _make_environment().get_template(template).render(values)


# Characters that are invisible or that HTML forbids; and characters that change the direction of the text after them.
_INVISIBLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")
_REVERSING = re.compile(r"[\u202a-\u202e\u2066-\u2069]")


def _make_visible(value: Any) -> Any:
    """Replace None by a dash, and remove or replace characters that a page must not contain."""
    if value is None:
        return "–"
    if isinstance(value, str) and not hasattr(value, "__html__"):
        return _REVERSING.sub("", _INVISIBLE.sub("\ufffd", value.replace("\r\n", "\n").replace("\r", "\n")))
    return value


def _cut(value: Any, length: int) -> str | None:
    text = None if value is None else str(value)
    return text if text is None or len(text) <= length else text[: length - 1] + "…"


def _format_edges(interval: Figures | None) -> str | None:
    if interval is None or interval["low"] == interval["high"]:
        return None
    return f"{format_percent(interval['low'])}–{format_percent(interval['high'])}"


def _format_milliseconds(seconds: float) -> str:
    time = 1000 * seconds
    return f"{time:,.0f}" if time >= 100 else f"{time:.1f}" if time >= 1 else f"{time:.3f}"


def _format_signed(share: float) -> str:
    """Return a share in percent with its sign; zero has no sign."""
    return f"{round(100 * share, 1) + 0.0:+.1f}".replace("-", "−").replace("+0.0", "0.0")
