"""The ablation of the reader's parts: what its arms are, and that they go all the way at the size of a smoke test."""

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import data_folder
import pytest
from conftest import ROOT
from data_folder import ask, lines, put

from eval.ablation_sources import SQUAD_DEV
from eval.bench import arms as common
from eval.bench import reader as bench
from eval.bench.reader import ARMS, SMOKE, Bench, Places, Sizes
from eval.generate_questions import SQUAD_TRAIN, TREC_TEST, WEBQ_TEST
from eval.suite import Split
from pipelines.calibrate.fit import index_of
from pipelines.span_reader import train as span_reader
from ragqa.indexing.build import IndexConfig, build_index
from ragqa.progress import SILENT
from ragqa.questions import read_squad

QUESTIONS = {"squad": 6, "nq": 10, "webq": 5, "curatedtrec": 1}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = data_folder.write(tmp_path_factory.mktemp("data"))
    put(root / WEBQ_TEST, lines([ask(f"w64 w{100 + n}", f"w{600 + n}") for n in range(5)]))
    put(root / "webq/train.jsonl", lines([ask(f"w65 w{105 + n}", f"w{605 + n}") for n in range(5)]))
    put(root / TREC_TEST, lines([ask("w65 w101", "w60[01]")]))
    put(root / "trivia/train.jsonl", lines([ask(f"w67 w{115 + n}", f"w{615 + n}") for n in range(5)]))
    put(root / "curatedtrec/train.jsonl", lines([ask(f"w66 w{110 + n}", f"w61[{n}]") for n in range(5)]))
    articles = []
    for n in range(30):
        text = f"w{200 + n} w50 w{700 + n} w1 w2"
        asked = {"id": f"{n}", "question": f"w63 w{200 + n}", "answers": [{"text": f"w{700 + n}", "answer_start": 9}]}
        articles.append({"title": f"w{n}", "paragraphs": [{"context": text, "qas": [asked]}]})
    put(root / SQUAD_TRAIN, json.dumps({"data": articles}))
    facts = [{"id": str(n), "text": f"w{100 + n} w50 w{600 + n} w1 w2"} for n in range(50)]
    put(root / "facts.jsonl", lines(facts))
    build_index([root / "facts.jsonl"], root / "facts.index", IndexConfig(retriever="bm25"))
    index_of(list(read_squad(root / SQUAD_DEV)), root / "squad.index", "bm25")
    return root


@pytest.fixture
def command(data: Path, small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    cut = [
        replace(each, splits={each.default_split: Split(file=each.splits[each.default_split].file, questions=count)})
        for each, count in zip(bench.SUITES, QUESTIONS.values(), strict=True)
    ]
    monkeypatch.setattr(bench, "SUITES", tuple(cut))
    where = {"--work": tmp_path / "work", "--encoder": small, "--index": data / "facts.index", "--data": data}
    where["--paragraphs"] = data / "squad.index"
    return [*(str(part) for pair in where.items() for part in pair), "--smoke"]


def arm(name: str, sizes: Sizes = SMOKE) -> dict[str, Any]:
    here = Path("here")
    places = Places(work=here, encoder=here, index=here, asked=here, data=here, teacher=Path("teacher"))
    row = asdict(Bench(places, sizes, SILENT).config(name))
    return {key: value for key, value in row.items() if key != "out"}


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("float32", set()),
        ("apart", {"apart"}),
        ("gold-only", {"train", "patterns", "shares"}),
        ("no-hard", {"hard"}),
        ("no-negatives", {"negatives"}),
        ("hard-em", {"loss"}),
        ("unfrozen", {"freeze_embeddings"}),
        ("taught", {"teacher"}),
    ],
)
def test_an_arm_differs_in_its_part_alone(name: str, changed: set[str]) -> None:
    sizes = Sizes(recipe={"shares": [4, 3, 2, 2, 1, 1], "steps": 100})
    full, other = arm("full", sizes), arm(name, sizes)
    assert {key for key in full if full[key] != other[key]} == changed
    assert len(ARMS) == 9, "each but full stands above"


def test_the_full_arm_is_the_recipe() -> None:
    """Its settings are those of the documented command, and so are its training files."""
    full, settings = arm("full", Sizes()), json.loads(bench.RECIPE.read_text())
    docs = (ROOT / "docs" / "training.md").read_text()
    (told,) = re.findall(r"\npython -m pipelines\.span_reader\.train .*?\n(?=ragqa)", docs, re.S)
    assert f"--config {bench.RECIPE.relative_to(ROOT)} " in told
    assert {name: full[name] for name in settings} == {**settings, "shares": tuple(settings["shares"])}
    files = {name: re.findall(rf"--{name} ((?:[^- \\]\S*\s)+)", told)[0].split() for name in ("train", "refuse")}
    assert [str(file.relative_to("here")) for file in full["train"]] == files["train"]
    assert {str(file.relative_to("here")) for file in full["refuse"]} == set(files["refuse"])


def refused(command: Sequence[str], capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit):
        bench.main(command)
    (line,) = capsys.readouterr().err.splitlines()
    return line


def test_what_would_fail_after_hours_fails_at_once(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "is no encoder" in refused([*command, "--encoder", str(tmp_path)], capsys)
    assert "lacks squad/train-v1.1.json.xz" in refused([*command, "--data", str(tmp_path)], capsys)
    assert "--teacher is needed" in refused([*command, "--arms", "taught"], capsys)
    for recipe, told in (
        ({"setps": 3}, "--sizes: setps: no settings"),
        ({"device": "cuda"}, "--sizes: device: no settings"),
        ({"hard": 2}, "hard"),
        ({"hard": "all"}, "of another kind"),
    ):
        (tmp_path / "sizes.json").write_text(json.dumps({"recipe": recipe}))
        assert told in refused([*command, "--sizes", str(tmp_path / "sizes.json")], capsys)


@pytest.mark.slow
def test_arms_go_all_the_way_and_are_not_done_twice(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "reader.json"
    options = [*command, "--out", str(out), "--arms", "full", "float32", "gold-only", "apart"]
    bench.main(options)
    rows = {row["arm"]: row for row in json.loads(out.read_text())["rows"]}
    assert set(rows) == set(options[-4:])
    for row in rows.values():
        counts = {key: each["questions"] for key, each in row["em"].items()}
        assert counts == {key: min(4, count) for key, count in {**QUESTIONS, "squad-open": 6}.items()}
    assert rows["full"]["em"]["squad"]["answer_recall"] == {} != rows["full"]["em"]["squad-open"]["answer_recall"]
    assert rows["apart"]["less full"]["nq"]["em"] is not None
    assert (tmp_path / "work" / "apart" / "train" / "mined").resolve() == (tmp_path / "work" / "mined").resolve()
    assert (tmp_path / "work" / "gold-only" / "train" / "mined").resolve().name == "mined-gold"

    def never(*arguments: Any, **options: Any) -> None:
        raise AssertionError("done twice")

    for name in ("train_step", "mine"):
        monkeypatch.setattr(span_reader, name, never)
    monkeypatch.setattr(common, "run", never)
    bench.main(options)
