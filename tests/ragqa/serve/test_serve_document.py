"""Commands of docs/serve.md, and the keys of their replies."""

import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="the extra serve is not installed")

from ragqa import Pipeline
from tests.helpers.serving import open_server

PAGE = Path(__file__).resolve().parents[3] / "docs" / "serve.md"
EXAMPLES = re.findall(r"```sh\n(curl [^`]*)```\n(?:[^`]*\n)?\n?```json\n([^`]*)```", PAGE.read_text("utf-8"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the file that docs/serve.md uploads, and the documents of its index."""
    folder = tmp_path_factory.mktemp("server")
    articles = Path(__file__).resolve().parents[3] / "ragqa" / "demo" / "articles"
    for name in ("forth-bridge.md", "golden-gate-bridge.md"):
        shutil.copy(articles / "geography" / name, folder / name)
    (folder / "report.txt").write_text("The report says that the quay is long.")
    return folder


@pytest.fixture(scope="module")
def port(folder: Path) -> Iterator[int]:
    from ragqa.indexing.build import build_index

    build_index([folder / "forth-bridge.md", folder / "golden-gate-bridge.md"], folder / "notes.index")
    with open_server({"demo": Pipeline.load(folder / "notes.index")}, can_edit=True) as port:
        yield port


def list_differences(shown: Any, real: Any, place: str = "") -> list[str]:
    """Return the places where two values differ in keys or types; null fits any value."""
    if isinstance(shown, dict) and isinstance(real, dict):
        lines = [f"{place}.{key}" for key in shown.keys() ^ real.keys()]
        for key in shown.keys() & real.keys():
            lines += list_differences(shown[key], real[key], f"{place}.{key}")
        return lines
    if isinstance(shown, list) and isinstance(real, list):
        return list_differences(shown[0], real[0], f"{place}[]") if shown and real else []
    if None in (shown, real):
        return []
    numbers = (int, float)
    are_numbers = isinstance(shown, numbers) and isinstance(real, numbers)
    return [] if are_numbers or type(shown) is type(real) else [place]


def test_differences_are_found() -> None:
    assert list_differences({"a": [{"b": 1}], "c": None}, {"a": [{"b": 2.5}], "c": "x"}) == []
    assert sorted(list_differences({"a": [{"b": 1}], "c": 1}, {"a": [{"d": 1}], "c": "x"})) == [
        ".a[].b",
        ".a[].d",
        ".c",
    ]


@pytest.mark.thorough
@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_commands_of_the_page_get_the_replies_that_it_shows(port: int, folder: Path) -> None:
    assert len(EXAMPLES) == 8
    paths = {
        "\\\n": " ",
        "127.0.0.1:8000": f"127.0.0.1:{port}",
        "report.pdf": "report.txt",
        "handbook%2Fleave.md": str(folder / "forth-bridge.md").replace("/", "%2F"),
    }
    for command, reply in EXAMPLES:
        line = command
        for shown, real in paths.items():
            line = line.replace(shown, real)
        run = subprocess.run([*shlex.split(line), "-sS"], cwd=folder, capture_output=True, text=True, check=True)
        assert list_differences(json.loads(reply), json.loads(run.stdout)) == [], command
    assert (folder / "notes.index.uploads" / "report.txt").is_file()
