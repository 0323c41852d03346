"""The demo: its questions have answers in its articles, and its index is built once by concurrent processes."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from ragqa.artefacts.paths import get_demo_dir
from ragqa.demo import demo_index
from ragqa.pipeline import Pipeline

ROWS = [json.loads(line) for line in (get_demo_dir() / "questions.jsonl").read_text().splitlines()]
ARTICLES = sorted((get_demo_dir() / "articles").rglob("*.md"))


def test_the_demo_has_its_announced_size() -> None:
    assert len(ARTICLES) >= 150
    assert sum(len(path.read_text().split()) for path in ARTICLES) >= 25_000
    assert len(ROWS) >= 250
    assert sum(not row["answers"] for row in ROWS) >= 30
    assert max(Counter(row["id"] for row in ROWS).values()) == 1
    assert max(Counter(row["question"] for row in ROWS).values()) == 1


@pytest.mark.parametrize("row", [row for row in ROWS if row["answers"]], ids=lambda row: row["id"])
def test_each_answer_is_in_its_article(row: dict) -> None:
    text = (get_demo_dir() / "articles" / row["documents"][0]).read_text()
    assert row["answers"][0] in text


def test_titles_are_unique_and_bodies_are_prose() -> None:
    titles = Counter(path.read_text().splitlines()[0] for path in ARTICLES)
    assert max(titles.values()) == 1
    for path in ARTICLES:
        lines = path.read_text().splitlines()
        assert lines[0].startswith("# ") and lines[1] == ""
        assert not any(line.startswith(("#", "-", "*", ">")) for line in lines[1:]), path


@pytest.mark.thorough
def test_concurrent_processes_build_one_index(tmp_path: Path) -> None:
    code = "from ragqa.demo import demo_index; print(demo_index())"
    environment = {"XDG_CACHE_HOME": str(tmp_path), "PATH": ""}
    crowd = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environment)
        for _ in range(3)
    ]
    outputs = {process.communicate(timeout=240)[0].strip() for process in crowd}
    assert all(process.returncode == 0 for process in crowd)
    assert len(outputs) == 1
    assert [p.name for p in (tmp_path / "ragqa").glob("demo-*/manifest.json")] == ["manifest.json"]


@pytest.mark.thorough
def test_the_demo_answers_and_is_rebuilt_when_damaged() -> None:
    index = demo_index()
    before = (index / "manifest.json").stat().st_mtime_ns
    assert demo_index() == index and (index / "manifest.json").stat().st_mtime_ns == before
    answer = Pipeline.load(index).ask("Who built the first working reflecting telescope?")
    assert answer.text is not None and "Newton" in answer.text
    (index / "dense" / "vectors.npy").write_bytes(b"")
    again = demo_index()
    assert Pipeline.load(again).ask("Who built the first working reflecting telescope?") == answer
