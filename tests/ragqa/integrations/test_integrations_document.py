"""The examples of docs/integrations.md print what the page shows."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
TEXT = (ROOT / "docs" / "integrations.md").read_text("utf-8")
EXAMPLES = dict(re.findall(r"\n## (.+)\n(?:(?!\n## )[\s\S])*?(```python\n[\s\S]*?```\n\n```text\n[\s\S]*?)```", TEXT))
PACKAGES = {
    "Give an agent your documents": "mcp",
    "Use OpenAI's client": "openai",
    "Train with Search-R1": "fastapi",
    "Use Haystack": "haystack",
    "Use LangChain": "langchain_core",
    "Use LlamaIndex": "llama_index",
}


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    pytest.importorskip("fastapi", reason="the extra serve is not installed")
    from ragqa import Pipeline
    from ragqa.demo import demo_index
    from tests.helpers.serving import open_server

    with open_server({"demo": Pipeline.load(demo_index())}) as port:
        yield port


def test_all_examples_are_known() -> None:
    assert set(EXAMPLES) == set(PACKAGES)


@pytest.mark.thorough
@pytest.mark.parametrize("heading", PACKAGES)
def test_the_examples_print_what_the_page_shows(heading: str, port: int) -> None:
    if find_spec(PACKAGES[heading]) is None:
        pytest.skip(f"{PACKAGES[heading]} is not installed")
    code, shown = EXAMPLES[heading].removeprefix("```python\n").split("```\n\n```text\n")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "HAYSTACK_TELEMETRY_ENABLED": "False"}
    command = [sys.executable, "-W", "ignore", "-c", code.replace("127.0.0.1:8000", f"127.0.0.1:{port}")]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, shown), done.stderr
