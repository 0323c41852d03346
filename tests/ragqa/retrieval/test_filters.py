"""A filtered search finds what a full ranking finds among the documents that the filter allows."""

import json
import os
import time
import zipfile
from datetime import date, timedelta
from pathlib import Path

import numpy as np
import pytest

from ragqa import PassageFilter
from ragqa.cli.main import app
from ragqa.corpus.store import PassageStore, PassageWriter
from ragqa.errors import BadInput
from ragqa.indexing.build import IndexConfig, build_index
from ragqa.indexing.update import update_index
from ragqa.pipeline import Pipeline
from ragqa.retrieval import filters
from ragqa.retrieval.base import NoHits
from ragqa.retrieval.live import open_retriever
from ragqa.retrieval.remote import RemoteRetriever
from ragqa.types import Passage
from tests.helpers.documents import make_tar, write
from tests.helpers.updates import RETRIEVERS, replace_encoders

WORDS = "red green blue cat dog owl sea barn mat rain fell sat flew slept old grey"
QUESTIONS = ["the red cat sat on the mat", "rain fell on the grey sea", "owl", "xylophone"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with 120 random documents in two folders, with tags and dates."""
    folder = tmp_path_factory.mktemp("filters") / "home"
    rng = np.random.default_rng(0)
    for number in range(120):
        tags = ", ".join(f"tag{n}" for n in range(3) if rng.random() < 0.4)
        day = date(2020, 1, 1) + timedelta(int(rng.integers(3000)))
        text = " ".join(rng.choice(WORDS.split(), 30))
        head = f"---\ntitle: note {number}\ntags: [{tags}]\ndate: {day}\n---\n"
        write(folder / ("work" if number % 3 else "play/deep") / f"{number}.md", f"{head}{text}\n")
    return folder


@pytest.fixture(params=[*((retriever, "flat") for retriever in RETRIEVERS), ("dense", "hnsw")])
def index(request, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An index with deleted and added rows."""
    retriever, kind = request.param
    replace_encoders(monkeypatch)
    if kind != "flat":
        pytest.importorskip("faiss")
    build_index([folder], tmp_path / "home.index", IndexConfig(retriever=retriever, kind=kind))
    extra = write(tmp_path / "extra" / "red.md", "---\ntags: [tag1]\ndate: 2027-05-05\n---\na red cat sat\n")
    update_index(tmp_path / "home.index", add=[extra], delete=[str(folder / "work" / "1.md")], compact=False)
    return tmp_path / "home.index"


@pytest.mark.parametrize(
    "wanted",
    [
        PassageFilter(["work"]),
        PassageFilter(["work/*1.md", "deep/*"], ["tag1"]),
        PassageFilter(tags=["TAG0", "tag2"]),
        PassageFilter(since="2024-06-01"),
        PassageFilter(["**/*.md"], ["tag1"], "2025"),
    ],
)
def test_filtered_search_equals_the_full_ranking_of_the_allowed_rows(index: Path, wanted: PassageFilter) -> None:
    retriever = open_retriever(index)
    passages = [p for batch in retriever.passages.iter_batches() for p in batch]
    tags = {tag.casefold() for tag in wanted.tags}
    allowed = {
        p.id
        for p in passages
        if tags <= set(p.tags)
        and p.date >= wanted.since
        and (not wanted.paths or any(match_slowly(p.path, pattern) for pattern in wanted.paths))
    }
    assert 5 < len(allowed) < 120
    full = retriever.search(QUESTIONS, 1000)
    for k in (1, 5, 1000):
        for hits, all_hits in zip(retriever.search(QUESTIONS, k, wanted), full, strict=True):
            expected = [(hit.passage.id, hit.score) for hit in all_hits if hit.passage.id in allowed][:k]
            assert [(hit.passage.id, pytest.approx(hit.score)) for hit in hits] == expected


def match_slowly(path: str, pattern: str) -> bool:
    """Match the patterns of the test above without regular expressions."""
    name, parents = Path(path).name, Path(path).parts[:-1]
    rules = {
        "work": "work" in parents,
        "work/*1.md": parents[-1] == "work" and name.endswith("1.md"),
        "deep/*": parents[-1] == "deep",
        "**/*.md": True,
    }
    return rules[pattern]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*.md", {"a.md", "work/b.md", "work/deep/c.md"}),
        ("work", {"work/b.md", "work/deep/c.md", "work/all.tar/d.md"}),
        ("work/*.md", {"work/b.md"}),
        ("work/**/*.md", {"work/b.md", "work/deep/c.md", "work/all.tar/d.md"}),
        ("home/work/b.md", {"work/b.md"}),
        ("all.tar", {"work/all.tar/d.md"}),
        ("?.md", {"a.md", "work/b.md", "work/deep/c.md", "work/all.tar/d.md"}),
        ("ork/b.md", set()),
        ("outside", set()),  # a folder above the indexed folder
        ("[a].md", set()),
    ],
)
def test_patterns_match_the_ends_of_paths_from_the_folder_on(
    tmp_path: Path, pattern: str, expected: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "outside" / "home"
    for name in ("a.md", "work/b.md", "work/deep/c.md"):
        write(home / name, f"the text of {name}")
    write(home / "work" / "all.tar", make_tar({"d.md": b"the text of d"}))
    build_index([home], tmp_path / "home.index", IndexConfig(retriever="bm25"))
    retriever = open_retriever(tmp_path / "home.index")

    def find(pattern: str) -> set[str]:
        hits = retriever.search(["text"], 10, PassageFilter([pattern]))[0]
        return {str(Path(hit.passage.path).relative_to(home)) for hit in hits}

    if pattern == "*.md":
        expected = expected | {"work/all.tar/d.md"}
    assert find(pattern) == expected
    monkeypatch.chdir(home / "work")
    assert find("./*.md") == {"work/b.md"}
    assert find("..") == {"a.md", "work/b.md", "work/deep/c.md", "work/all.tar/d.md"}


def test_documents_without_a_date_have_the_date_of_their_file(tmp_path: Path) -> None:
    old = write(tmp_path / "home" / "old.txt", "a text of long ago")
    os.utime(old, (time.time() - 30 * 86400,) * 2)
    write(tmp_path / "home" / "new.txt", "a text of today")
    with zipfile.ZipFile(tmp_path / "home" / "pages.zip", "w") as archive:
        archive.writestr(zipfile.ZipInfo("zipped.txt", (2020, 5, 6, 0, 0, 0)), "a text of 2020")
    write(tmp_path / "home" / "dated.md", "---\ndate: 2001-02-03\n---\na text with its own date")
    build_index([tmp_path / "home"], tmp_path / "home.index", IndexConfig(retriever="bm25"))
    retriever = open_retriever(tmp_path / "home.index")

    def find(since: str) -> set[str]:
        return {Path(h.passage.path).name for h in retriever.search(["text"], 9, PassageFilter(since=since))[0]}

    assert find("7d") == {"new.txt"}
    assert find("60d") == {"new.txt", "old.txt"}
    assert find("2020-05-06") == {"new.txt", "old.txt", "zipped.txt"}
    assert find("2020-05-07") == {"new.txt", "old.txt"}
    assert find("2001-02-03") == {"new.txt", "old.txt", "zipped.txt", "dated.md"}


def test_a_filter_that_allows_nothing_says_why(folder: Path, tmp_path: Path) -> None:
    build_index([folder], tmp_path / "home.index", IndexConfig(retriever="bm25"))
    retriever = open_retriever(tmp_path / "home.index")

    def explain(**wanted: object) -> str:
        (hits,) = retriever.search(["cat"], 5, PassageFilter(**wanted))  # type: ignore[arg-type]
        assert isinstance(hits, NoHits) and not hits
        return hits.reason.removeprefix("no document matches the filter: ")

    assert explain(tags=["tga1"]) == "none has the tag 'tga1' (there are: tag1)"
    assert explain(paths=["nowhere/*.md"]) == "none is in nowhere/*.md"
    assert explain(since="2100-01-01", paths=["work"]) == "none is of 2100-01-01 or later"
    assert explain(paths=["2.md"], tags=["tag0", "tag1", "tag2"], since="2019") == "none fulfils all its conditions"


@pytest.mark.parametrize("since", ["yesterday", "2024-13-01", "2024-1-1", "-3d", "99999999d", "2024-02-30"])
def test_malformed_filters_are_refused(since: str) -> None:
    for values in ({"tags": [""]}, {"paths": ["a", " "]}):
        with pytest.raises(BadInput, match="an empty text matches nothing"):
            PassageFilter(**values)
    with pytest.raises(BadInput, match="since"):
        PassageFilter(since=since)
    with pytest.raises(BadInput, match="paths"):
        PassageFilter(paths="work")  # type: ignore[arg-type]


def test_a_served_index_refuses_filters() -> None:
    with pytest.raises(BadInput, match="cannot be filtered"):
        RemoteRetriever("http://127.0.0.1:1").search(["a cat"], 1, PassageFilter(tags=["tag1"]))


def test_asking_with_a_filter(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, builder in (("north", "Ada Holm"), ("south", "Carl Berg")):
        text = f"---\ntags: [{name}]\n---\n# Lighthouse\n\nThe lighthouse was built in 1871 by {builder}.\n"
        write(tmp_path / "notes" / name / "light.md", text)
    index = tmp_path / "notes.index"
    build_index([tmp_path / "notes"], index, IndexConfig(retriever="bm25"))
    pipeline, question = Pipeline.load(index), "Who built the lighthouse?"
    assert pipeline.ask(question, filter=PassageFilter(["south/*.md"])).text == "Carl Berg"
    assert pipeline.ask(question, filter=PassageFilter(tags=["north"])).text == "Ada Holm"

    def run(*options: str) -> dict[str, object]:
        app(["ask", question, "--index", str(index), "--json", *options], standalone_mode=False)
        return json.loads(capsys.readouterr().out)  # type: ignore[no-any-return]

    assert run("--in", "south/*.md", "--in", "west")["answer"] == "Carl Berg"
    assert run("--tag", "north", "--since", "7d")["answer"] == "Ada Holm"
    declined = run("--tag", "nroth")
    assert declined["answer"] is None and "(there are: north" in str(declined["reason"])


def test_patterns_with_many_wildcards_take_no_exponential_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = "/home/" + "a" * 60
    with PassageWriter(tmp_path) as writer:
        writer.add_passage(Passage(0, path, "", "text", path, 0, 4))
    store, start = PassageStore.open(tmp_path), time.perf_counter()
    assert len(PassageFilter(["*a" * 8 + "b"]).find_rows(store, [])) == 0  # 70 s with Python's re
    assert time.perf_counter() - start < 2

    class Slow:
        def fullmatch(self, *arguments: object, **options: object) -> None:
            raise TimeoutError

    monkeypatch.setattr(filters, "_compile", lambda pattern: (Slow(), False))
    with pytest.raises(BadInput, match=r"the pattern 'a\*b' takes too long: use fewer \* and \?"):
        PassageFilter(["a*b"]).find_rows(store, [])


def test_a_filter_of_another_type_is_refused(index: Path) -> None:
    with pytest.raises(BadInput, match="filter = 'work': it must be a PassageFilter"):
        Pipeline.load(index).ask("Who built it?", filter="work")  # type: ignore[arg-type]
