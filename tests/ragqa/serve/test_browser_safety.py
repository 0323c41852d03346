"""Attacks in documents, names, addresses and answers, none of which may run in the page."""

import json
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

pytest.importorskip("fastapi", reason="the extra serve is not installed")

from ragqa import Pipeline
from ragqa.indexing.build import build_index
from ragqa.types import Answer, Source, Statement
from tests.helpers.browser import Tab, open_browser
from tests.helpers.serving import WritingPipeline, open_server

pytestmark = pytest.mark.thorough
ATTACKS = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(2)>",
    "<svg onload=alert(3)></svg>",
    "</textarea><script>alert(4)</script>",
    "</title><script>alert(5)</script>",
    "</mark></blockquote><iframe srcdoc='<script>alert(6)</script>'></iframe>",
    "\"'><body onload=alert(7)>",
    "[link](javascript:alert(8))",
    "javascript:alert(9)",
    "<a href=javascript:alert(10)>a</a>",
    "<style>*{display:none}</style>",
    "<form action=//evil.example><button>b</button></form>",
    "<meta http-equiv=refresh content=0;url=//evil.example>",
    "${alert(11)}{{constructor.constructor('alert(12)')()}}",
    "\u202egpj.exe\u202c \u2067abc\u2069",
    "\x1b[31mred\x1b]0;title\x07\x9b2J",
]
NAME = "<img src=x onerror=alert(13)> javascript:alert(14)"
QUESTION = "Who built the lighthouse of Zorba?"


class HostilePipeline(WritingPipeline):
    """Pipeline whose answers, notes and reasons are attacks."""

    def stream_answer(self, retrieved: Any, *, min_confidence: float | None) -> Iterator[str | Answer]:
        text, statements = "", []
        for attack in ATTACKS:
            yield f"{attack} "
            supported = len(statements) % 2 == 0
            statements.append(Statement(attack, len(text), (1, 99), is_supported=supported, reason=attack))
            text += f"{attack} "
        sources = (Source(retrieved.hits[0], None, 1.0),)
        options = {"note": " ".join(ATTACKS), "missing": (NAME,), "supported": False, "reason": NAME}
        yield Answer(retrieved.question, text, 1.0, 0.6, sources, asked=NAME, statements=tuple(statements), **options)


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    folder = tmp_path_factory.mktemp("hostile")
    (folder / "docs").mkdir()
    rows = [
        {
            "id": f"{attack} {number}",
            "title": attack,
            "text": f"The lighthouse of Zorba was built by Ada {attack} Holm in 18{number:02}. {attack} It is tall.",
            "tags": [attack, NAME],
        }
        for number, attack in enumerate(ATTACKS)
    ]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "docs" / f"{NAME.replace('/', '')}.jsonl").write_text(lines)
    article = f"# {NAME}\n\n## {ATTACKS[0]}\n\n### {ATTACKS[2]}\n\nThe keeper of Zorba is {ATTACKS[1]} Nils Moe.\n"
    (folder / "docs" / f"{NAME}.md").write_text(article)
    build_index([folder / "docs"], folder / "hostile.index")
    pipeline = Pipeline.load(folder / "hostile.index")
    indexes = {NAME: pipeline, "written": HostilePipeline(pipeline)}
    with open_browser() as browser, open_server(indexes, can_edit=True) as port:
        tab = Tab(browser, port)
        tab.open()
        yield tab


@pytest.fixture(autouse=True)
def _nothing_runs(tab: Tab) -> Iterator[None]:
    tab.page.goto("about:blank")
    tab.open()
    yield
    assert tab.complaints == []
    assert_only_own_elements(tab)


def assert_only_own_elements(tab: Tab) -> None:
    """Check that the page has only elements and attributes of its own."""
    foreign = "script:not([src='main.js']), body :is(img, svg, iframe, style, meta, object, embed, base), mark mark"
    assert tab.page.locator(foreign).count() == 0
    names = tab.page.evaluate("[...document.querySelectorAll('*')].flatMap(e => e.getAttributeNames())")
    assert not [name for name in names if name.startswith("on")]
    links = tab.page.evaluate("[...document.querySelectorAll('[href], [action], [src]')].map(e => e.outerHTML)")
    assert not [link for link in links if "evil" in link or "javascript:" in link]
    assert re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", tab.read("body")) is None


def test_violations_are_noticed(tab: Tab) -> None:
    tab.page.evaluate("document.body.append(Object.assign(document.createElement('img'), {src: 'data:,'}))")
    tab.page.wait_for_timeout(200)
    assert any("CSP img-src" in line for line in tab.complaints)
    # Trusted types: the browser itself refuses HTML from text, so a mistake in the page would not run scripts.
    refused = "try { document.body.innerHTML = '<p>'; 'set' } catch (error) { error.name }"
    assert tab.page.evaluate(refused) == "TypeError"
    tab.page.wait_for_timeout(200)
    tab.complaints.clear()
    tab.page.evaluate("document.querySelector('img').remove()")


def test_answers_and_cards_show_attacks_as_text(tab: Tab) -> None:
    tab.ask(QUESTION)
    while tab.page.locator("button", has_text=re.compile("Show .* more")).count():
        tab.page.locator("button", has_text=re.compile("Show .* more")).first.click()
    cards = " ".join(tab.page.locator(".card").all_inner_texts())
    assert cards.count("Zorba") >= 5 and any(attack in cards for attack in ATTACKS[:8])
    tab.page.get_by_role("button", name="Copy as Markdown").click()
    tab.page.wait_for_selector("text=Copied")
    copied = tab.page.evaluate("navigator.clipboard.readText()")
    assert not re.search(r"(?<!\\)<|\x1b|\u202e|(?<!\\)\]\(", copied)


def test_documents_show_attacks_as_text(tab: Tab) -> None:
    tab.page.get_by_role("button", name="Documents").click()
    tab.page.wait_for_selector(".documents li")
    titles = tab.page.locator(".documents .open").all_inner_texts()
    assert "<script>alert(1)</script>" in titles and "\\u202egpj.exe\\u202c \\u2067abc\\u2069" in titles
    for number in range(len(titles)):
        tab.page.locator(".documents .open").nth(number).click()
        tab.page.wait_for_selector(".text")
        assert "Zorba" in tab.read(".text")
        assert_only_own_elements(tab)
        tab.page.keyboard.press("Escape")
        tab.page.get_by_role("button", name="Documents").click()
        tab.page.wait_for_selector(".documents li")
    tab.page.locator(".documents .quiet").first.click()
    assert "Delete “" in tab.read("#confirm")
    tab.page.get_by_role("button", name="Keep").click()


def test_the_text_around_an_attack_keeps_its_mark(tab: Tab) -> None:
    tab.ask("Who is the keeper of Zorba?")
    assert tab.read(".card mark").endswith("Nils Moe")
    tab.open_source()
    assert tab.read_marks()[0].endswith("Nils Moe") and ATTACKS[0] in tab.read(".text h3")


def test_questions_and_addresses_show_attacks_as_text(tab: Tab) -> None:
    for number, attack in enumerate(ATTACKS):
        tab.ask(f"{attack} Zorba {number}?", shown=f"Zorba {number}?")
        assert "alert" not in attack or "alert" in tab.read(".turn h2")
    attack = quote("".join(ATTACKS[:6]))
    tab.page.goto("about:blank")
    tab.open(f"#q={attack}&index={attack}&path={attack}&tag={attack}")
    tab.page.wait_for_selector(".reason, .error")
    assert "alert(1)" in tab.read("#filter-summary")
    tab.complaints.clear()  # the browser logs the status of a bad filter


def test_linked_documents_that_do_not_exist_are_an_error(tab: Tab) -> None:
    attack = quote("".join(ATTACKS[:6]))
    tab.page.goto(f"http://127.0.0.1:{tab.port}/?document={attack}&index={attack}&path={attack}&start=x&end={attack}")
    tab.page.wait_for_selector("#panel .error")
    tab.page.goto(f"http://127.0.0.1:{tab.port}/?document=javascript:alert(1)&start=1&end=2")
    tab.page.wait_for_selector("#panel .error")
    assert tab.read("#panel .error") == "There is no such document: GET /documents lists all."
    assert not [line for line in tab.complaints if "Failed to load resource" not in line]
    tab.complaints.clear()


def test_written_answers_show_attacks_as_text(tab: Tab) -> None:
    tab.page.get_by_label("Index").select_option("written")
    tab.ask(QUESTION)
    shown = tab.read(".answer")
    assert all(attack in shown for attack in ATTACKS[:3]) and "\\u202egpj.exe" in shown and "\\x1b[31mred" in shown
    assert tab.page.locator(".unsupported").count() == len(ATTACKS) // 2
    assert tab.page.locator(".cite").count() == len(ATTACKS)  # source 99 does not exist


def test_uploads_show_attacks_as_text(tab: Tab) -> None:
    tab.page.get_by_role("button", name="Documents").click()
    name = "<img src=x onerror=alert(15)>.md"
    file = {"name": name, "mimeType": "text/html", "buffer": b"# T\n\nThe <script>alert(16)</script> text."}
    tab.page.set_input_files("#files", file)
    tab.page.wait_for_selector("#panel-body .progress:has-text('was added'), #panel .error")
    assert name in tab.read("#panel-body")
    tab.complaints[:] = [line for line in tab.complaints if "Failed to load resource" not in line]
