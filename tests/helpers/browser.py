"""A browser for the tests of the page, and what it reports."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

REPORT_VIOLATIONS = "addEventListener('securitypolicyviolation', (e) => console.error('CSP', e.violatedDirective))"
"""Script that writes what the content security policy forbids to the console."""


def find_browser() -> str:
    """Return the path of Chromium: $RAGQA_CHROMIUM, or a command of that name; skip the test without one."""
    names = (os.environ.get("RAGQA_CHROMIUM"), "chromium", "chromium-browser", "google-chrome")
    for name in filter(None, names):
        if path := shutil.which(name):
            return path
    pytest.skip("no browser: install chromium, or set RAGQA_CHROMIUM to its path")


@contextmanager
def open_browser() -> Iterator[Any]:
    """Yield a browser without windows."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="the extra dev is not installed")
    path = find_browser()
    with sync_api.sync_playwright() as playwright:
        # Containers lack the rights that the sandbox needs, and the pages come from this test.
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-dev-shm-usage"])
        try:
            yield browser
        finally:
            browser.close()


class Tab:
    """Page in a browser, with helpers for what users do and with all that went wrong in it."""

    def __init__(self, browser: Any, port: int, **options: Any) -> None:
        """Open a context of its own; ``options`` are those of the context, such as ``color_scheme``."""
        self.port, self.complaints = port, list[str]()
        self.context = browser.new_context(viewport={"width": 1280, "height": 800}, **options)
        self.context.grant_permissions(["clipboard-read", "clipboard-write"])
        self.context.set_default_timeout(20_000)
        self.context.add_init_script(REPORT_VIOLATIONS)
        self.page = self.context.new_page()
        self.page.on("dialog", self._dismiss)
        self.page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        self.page.on("console", self._hear)

    def _dismiss(self, dialog: Any) -> None:
        self.complaints.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _hear(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(f"{message.type}: {message.text}")

    def open(self, address: str = "") -> None:
        """Open the page with a query or a fragment, and wait until questions can be asked."""
        self.page.goto(f"http://127.0.0.1:{self.port}/{address}")
        self.page.wait_for_selector("#ask:visible")

    def ask(self, question: str, shown: str = "") -> None:
        """Ask a question, and wait for its answer; ``shown`` is a part of the question if not all of it is shown."""
        self.page.fill("#question", question)
        self.page.press("#question", "Enter")
        self.wait_for_answer(shown or question)

    def wait_for_answer(self, question: str) -> None:
        """Wait until the newest turn is that of a question, and has an answer or an error."""
        self.page.wait_for_function(
            """(question) => {
                const turn = document.querySelector(".turn");
                return turn?.querySelector("h2").textContent.includes(question) &&
                    !turn.querySelector(".progress") && turn.querySelector(".confidence, .reason, .error");
            }""",
            arg=question,
        )

    def open_source(self, number: int = 1) -> None:
        """Open the document of a source of the newest answer."""
        self.page.locator(".turn").first.locator(".card button").nth(number - 1).click()
        self.page.wait_for_selector(".text")

    def read(self, selector: str) -> str:
        """Return the text of the first element that a selector finds."""
        text: str = self.page.locator(selector).first.inner_text()
        return text

    def read_marks(self) -> list[str]:
        """Return the marked texts of the document."""
        marks: list[str] = self.page.locator(".text mark").all_inner_texts()
        return marks

    def get_focus(self) -> str:
        """Return the text or the id of the element that has the focus."""
        focus: str = self.page.evaluate("document.activeElement.id || document.activeElement.textContent")
        return focus

    def close(self) -> None:
        """Close the page."""
        self.context.close()
