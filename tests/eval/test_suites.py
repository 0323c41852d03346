"""The suites: their declarations, the real files that they declare, and the command that scores on them."""

import io
import json
import re
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from eval.curatedtrec import CURATEDTREC
from eval.nq import NQ
from eval.squad import SQUAD
from eval.suite import Hub, Published, Split, Suite, main, make_parser, read_split, report_name, run
from eval.webq import WEBQ
from ragqa.errors import BadInput, MissingExtra
from ragqa.evaluation import Report
from ragqa.indexing.build import IndexConfig, build_index
from ragqa.questions import read_questions, read_squad
from ragqa.types import Question

SUITES = [NQ, WEBQ, CURATEDTREC, SQUAD]
STANDARD_TEST = {"nq": ("test", 3_610), "webq": ("test", 2_032), "curatedtrec": ("test", 694), "squad": ("dev", 10_570)}
"""Split and number of questions on which papers report."""

FIRST_QUESTION = {
    ("nq", "train"): "total number of death row inmates in the us",
    ("nq", "dev"): "who sings does he love me with reba",
    ("nq", "test-a"): "who got the first nobel prize in physics",
    ("webq", "train"): "what character did natalie portman play in star wars?",
    ("webq", "test-a"): "what does jamaican people speak?",
    ("curatedtrec", "train"): "When is Fashion week in NYC?",
    ("curatedtrec", "test-a"): "What is Britney Spears' middle name?",
    ("squad", "train"): "In what year did the earthquake in Sichuan occur?",
    ("squad", "dev-a"): "When did the 1973 oil crisis begin?",
    ("nq", "test"): "when was the last time anyone was on the moon",
    ("webq", "test"): "what does jamaican people speak?",
    ("squad", "dev"): "Which NFL team represented the AFC at Super Bowl 50?",
}

suites = pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.key)
splits = pytest.mark.parametrize(
    ("suite", "split"), [pytest.param(s, name, id=f"{s.key}-{name}") for s in SUITES for name in s.splits]
)
published = pytest.mark.parametrize(
    ("suite", "row"), [pytest.param(s, row, id=f"{s.key}-{row.system}") for s in SUITES for row in s.published]
)


@cache
def read(path: Path) -> list[tuple[str, tuple[str, ...]]]:
    """Each question of the file with its gold answers."""
    if path.name.endswith(".json.xz"):
        return [(q.text, q.answers) for paragraph in read_squad(path) for q in paragraph.questions]
    return [(question.text, question.answers) for question in read_questions(path)]


@splits
def test_the_real_file_is_as_declared(shared_data: Path, suite: Suite, split: str) -> None:
    path = shared_data / suite.key / suite.splits[split].file
    if not path.is_file():
        pytest.skip(f"no {path}")
    rows = read(path)
    assert len(rows) == suite.splits[split].questions
    if (suite.key, split) != ("curatedtrec", "test"):  # a file that was not at hand
        assert rows[0][0] == FIRST_QUESTION[suite.key, split]
    assert all(answers and all(answer.strip() for answer in answers) for _, answers in rows)
    if suite.regex:
        for _, answers in rows:
            for pattern in answers:
                re.compile(pattern, re.IGNORECASE | re.UNICODE | re.MULTILINE)


@pytest.mark.parametrize(
    ("suite", "held_out"),
    [
        pytest.param(s, name, id=f"{s.key}-{name}")
        for s in SUITES
        for name in s.splits
        if name not in ("train", STANDARD_TEST[s.key][0])
    ],
)
def test_no_question_of_train_is_asked_again(shared_data: Path, suite: Suite, held_out: str) -> None:
    paths = [shared_data / suite.key / suite.splits[name].file for name in ("train", held_out)]
    if not all(path.is_file() for path in paths):
        pytest.skip(f"no {paths}")
    seen, asked = ({text.lower().strip(" ?") for text, _ in read(path)} for path in paths)
    # SQuAD's splits are kept apart by article, and one question suits two.
    assert seen & asked == ({"who was the first person in space"} if suite.key == "squad" else set())


@suites
def test_a_declaration_is_consistent(suite: Suite) -> None:
    assert suite.default_split in suite.splits
    assert suite.default_split.endswith("-a")
    assert "Licence: " in suite.about
    assert "all-MiniLM-L6-v2" in suite.caution
    assert suite.default_split in suite.caution
    assert len({row.system for row in suite.published}) == len(suite.published)


@suites
def test_a_file_is_no_larger_than_the_hubs_split(suite: Suite) -> None:
    if suite.hub is None:
        return
    assert re.fullmatch("[0-9a-f]{40}", suite.hub.revision)
    for name, split in suite.splits.items():
        if whole := suite.hub.splits.get(name.removesuffix("-a")):
            assert split.questions <= whole[1]


def test_the_standard_test_set_is_a_split_too() -> None:
    for suite in SUITES:
        split, questions = STANDARD_TEST[suite.key]
        assert suite.splits[split].questions == questions


def test_each_data_set_is_scored_by_its_own_rule() -> None:
    assert [suite.key for suite in SUITES if suite.regex] == ["curatedtrec"]
    assert [suite.key for suite in SUITES if suite.unicode is None] == ["squad"]


@published
def test_a_published_number_names_its_paper_corpus_and_split(suite: Suite, row: Published) -> None:
    assert row.system
    assert 0 < row.em < 100
    assert re.search(r"\b20\d\d\b", row.source)
    assert "Wikipedia" in row.corpus or row.corpus == "none (closed book)"
    assert re.search(r"test, [\d,]+ questions", row.split)


# A suite of three questions, over three documents


THREE = Suite(
    key="three",
    title="Three Questions",
    about="Questions about what was built, found and baked. Licence: none.",
    splits={"train": Split(file="train.jsonl", questions=2), "test-a": Split(file="test-a.jsonl", questions=3)},
    default_split="test-a",
    hub=None,
    answer_type="names",
    published=(
        Published(system="ORACLE", em=98.7, source="Nobody 2020", corpus="all of Wikipedia", split="test, 9 questions"),
        Published(system="GUESS", em=1.2, source="Nobody 2021", corpus="none (closed book)", split="test, 9 questions"),
    ),
    caution="Three questions say little.",
)
DOCUMENTS = {
    "lighthouse.txt": "Skarvik Lighthouse was built in 1871 by the engineer Ada Holm. It stands on Brenna.\n",
    "bakery.txt": "The bakery on Mill Street was founded by Otto Brandt in 1923. It is known for rye bread.\n",
    "comet.txt": "Comet Varga was discovered by Ilona Varga in Szeged in 1956.\n",
}
QUESTIONS = [
    Question("Who built Skarvik Lighthouse?", ("Ada Holm",), "q1"),
    Question("Who discovered Comet Varga?", ("Ilona Varga", "I. Varga"), "q2"),
    Question("Who founded the bakery on Mill Street?", ("Zebedee Quux",), "q3"),  # in no document
]


def write_questions(file: Path, questions: list[Question]) -> Path:
    rows = [{"id": q.id, "question": q.text, "answers": q.answers} for q in questions]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    write_questions(folder / "test-a.jsonl", QUESTIONS)
    return folder


@pytest.fixture(scope="module")
def three_index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("suites")
    for name, text in DOCUMENTS.items():
        (folder / name).write_text(text)
    build_index([folder / name for name in DOCUMENTS], folder / "three.index", IndexConfig(retriever="bm25"))
    return folder / "three.index"


# Reading a split of files


def test_a_split_is_read_one_by_one(data: Path) -> None:
    questions = read_split(THREE, "test-a", data)
    assert (questions.name, questions.split, len(questions)) == ("Three Questions", "test-a", 3)
    iterator = iter(questions)
    assert iter(iterator) is iterator
    assert list(questions) == QUESTIONS


@pytest.mark.parametrize("questions", [QUESTIONS[:2], [*QUESTIONS, QUESTIONS[0]]], ids=["too few", "too many"])
def test_a_wrong_number_of_questions_is_reported_before_any_is_asked(data: Path, questions: list[Question]) -> None:
    file = write_questions(data / "test-a.jsonl", questions)
    with pytest.raises(BadInput) as caught:
        read_split(THREE, "test-a", data)
    assert str(caught.value) == f"{file} holds {len(questions)} questions, not the 3 of the split"


def test_an_empty_file_is_no_split(data: Path) -> None:
    (data / "test-a.jsonl").write_text("")
    with pytest.raises(BadInput, match=r"test-a\.jsonl"):
        list(read_split(THREE, "test-a", data))


def test_the_error_of_an_unknown_split_lists_the_splits(data: Path) -> None:
    with pytest.raises(BadInput, match=r"Three Questions has no split 'test' in files: choose one of train, test-a$"):
        read_split(THREE, "test", data)
    with pytest.raises(BadInput, match=r"no split 'test-a' on the hub: choose one of train, test$"):
        read_split(NQ, "test-a", None)
    with pytest.raises(BadInput, match=r"no split 'dev-b' in files: choose one of train, dev, test-a, test$"):
        read_split(NQ, "dev-b", data)


def test_a_data_set_that_no_hub_holds_needs_its_files() -> None:
    for split in ("train", "test-a", "test"):
        with pytest.raises(BadInput, match=r"CuratedTREC is not on the hub: .*--data"):
            read_split(CURATEDTREC, split, None)


def test_a_missing_file_is_reported_before_anything_is_asked(data: Path) -> None:
    with pytest.raises(BadInput, match=r"train\.jsonl does not exist: --data .* Three Questions$"):
        read_split(THREE, "train", data)
    (data / "train.jsonl").mkdir()
    with pytest.raises(BadInput, match=r"train\.jsonl"):
        read_split(THREE, "train", data)
    for folder in (data / "nowhere", data / "test-a.jsonl"):
        with pytest.raises(BadInput, match=r"--data must be the folder of Three Questions"):
            read_split(THREE, "test-a", folder)


def test_the_folder_of_another_suite_is_refused(data: Path) -> None:
    """By the name of a file, or else by how many questions are in it."""
    with pytest.raises(BadInput, match=r"dev-a-v1\.1\.json\.xz does not exist: --data .* SQuAD"):
        read_split(SQUAD, "dev-a", data)
    with pytest.raises(BadInput, match=r"test-a\.jsonl.*1,?057"):
        read_split(WEBQ, "test-a", data)


def test_real_folders_of_other_suites_are_refused(shared_data: Path) -> None:
    folders = {suite.key: shared_data / suite.key for suite in SUITES}
    if not all(folder.is_dir() for folder in folders.values()):
        pytest.skip(f"not all data sets are at {shared_data}")
    for suite in SUITES:
        for key, folder in folders.items():
            if key != suite.key:
                with pytest.raises(BadInput):
                    list(read_split(suite, suite.default_split, folder))


# Reading a split of the hub, without a network


REVISION = "0123456789abcdef0123456789abcdef01234567"


def on_hub(name: str, *, questions: int = 2, answers: str = "answer") -> Suite:
    splits = {"test": ("validation", questions)}
    return replace(THREE, hub=Hub(name=name, revision=REVISION, question="question", answers=answers, splits=splits))


def as_parquet(file: Path, rows: list[dict[str, Any]]) -> None:
    import pyarrow
    from pyarrow import parquet

    parquet.write_table(pyarrow.Table.from_pylist(rows), file.with_suffix(".parquet"))


def as_jsonl(file: Path, rows: list[dict[str, Any]]) -> None:
    file.with_suffix(".jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


NQ_ROWS = [{"question": "who?", "answer": ["Ada", "Ada Holm"]}, {"question": "où ?", "answer": ["Orléans"]}]
SQUAD_ROWS = [
    {"id": "56be", "title": "A", "question": "who?", "answers": {"text": ["Ada", "Ada"], "answer_start": [0, 0]}},
    {"id": "56bf", "title": "B", "question": "où ?", "answers": {"text": ["Orléans"], "answer_start": [3]}},
]


@pytest.mark.parametrize("write", [as_parquet, as_jsonl])
@pytest.mark.parametrize(
    ("rows", "answers", "expected"),
    [
        (NQ_ROWS, "answer", [Question("who?", ("Ada", "Ada Holm"), "1"), Question("où ?", ("Orléans",), "2")]),
        (
            SQUAD_ROWS,
            "answers.text",
            [Question("who?", ("Ada", "Ada"), "56be"), Question("où ?", ("Orléans",), "56bf")],
        ),
    ],
    ids=["a column of answers", "answers within a column"],
)
def test_a_split_of_the_hub(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    write: Callable[[Path, list[dict[str, Any]]], None],
    rows: list[dict[str, Any]],
    answers: str,
    expected: list[Question],
) -> None:
    """A folder stands in for the hub's repository."""
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    repository = tmp_path / "repository"
    repository.mkdir()
    write(repository / "train", [{**row, "question": "of train?"} for row in rows])
    write(repository / "validation", rows)
    questions = read_split(on_hub(str(repository), answers=answers), "test", None)
    assert len(questions) == 2
    assert list(questions) == expected
    for count in (1, 3):
        with pytest.raises(BadInput, match=f"{re.escape(str(repository))}, test holds"):
            read_split(on_hub(str(repository), questions=count, answers=answers), "test", None)


def test_the_hub_is_asked_for_one_revision_of_one_split(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Any, ...]] = []

    def load_dataset(name: str, *, revision: str, split: str) -> list[dict[str, Any]]:
        asked.append((name, revision, split))
        return NQ_ROWS

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    questions = read_split(on_hub("somebody/something"), "test", None)
    assert [question.text for question in questions] == ["who?", "où ?"]
    assert asked == [("somebody/something", REVISION, "validation")]


@pytest.mark.parametrize("suite", [s for s in SUITES if s.hub], ids=lambda suite: suite.key)
def test_each_split_of_a_hub_is_counted(monkeypatch: pytest.MonkeyPatch, suite: Suite) -> None:
    assert suite.hub is not None
    column, _, inner = suite.hub.answers.partition(".")
    row = {suite.hub.question: "who?", column: {inner: ["Ada"]} if inner else ["Ada"]}
    row |= {suite.hub.passage: "Ada was here."} if suite.hub.passage else {}
    passages = ("Ada was here.",) if suite.hub.passage else ()
    for split, (_, expected) in suite.hub.splits.items():
        rows = [row] * expected
        monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=lambda *_, rows=rows, **__: rows))
        questions = read_split(suite, split, None)
        assert len(questions) == expected
        assert next(iter(questions)) == Question("who?", ("Ada",), "1", passages=passages)
        rows.append(row)
        with pytest.raises(BadInput, match=f"{suite.hub.name}, {split} holds {expected + 1} questions"):
            read_split(suite, split, None)


def test_the_hub_needs_a_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MissingExtra, match=r"somebody/something.*'\.\[torch\]'"):
        list(read_split(on_hub("somebody/something"), "test", None))


# The command line


def run_command(suite: Suite, *arguments: str) -> str:
    """What the suite's command prints."""
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(io.StringIO()) as out:
        patch.setattr(sys, "argv", ["three", *arguments])
        main(suite)
    return out.getvalue()


@pytest.fixture
def command(three_index: Path, data: Path, tmp_path: Path) -> Callable[..., str]:
    """Runs the command of the three questions, the report at ``tmp_path / "r"``; returns what it prints."""
    return partial(
        run_command, THREE, "--pipeline", str(three_index), "--data", str(data), "--out", str(tmp_path / "r")
    )


class Scored(NamedTuple):
    """What a run of the command left."""

    printed: str
    report: Path
    record: Path


@pytest.fixture(scope="module")
def scored(three_index: Path, tmp_path_factory: pytest.TempPathFactory) -> Scored:
    folder = tmp_path_factory.mktemp("scored")
    write_questions(folder / "test-a.jsonl", QUESTIONS)
    report, record = folder / "three.report", folder / "records" / "three.json"
    given = ["--pipeline", three_index, "--data", folder, "--out", report, "--record", record]
    return Scored(run_command(THREE, *map(str, given), "--corpus", "three invented documents"), report, record)


def test_the_command_prints_what_was_scored_on_what(scored: Scored) -> None:
    assert scored.printed.startswith("Three Questions, test-a: 3 questions\n")
    assert "\ncorpus: three invented documents, 3 passages\n" in scored.printed
    assert re.search(r"^exact match +66\.7 %", scored.printed, re.MULTILINE)  # two of three
    assert re.search(r"^answer in the corpus +66\.7 %", scored.printed, re.MULTILINE)
    assert "\ncaution: Three questions say little.\n" in scored.printed
    assert scored.printed.endswith(f"\nreport: {scored.report / 'report.html'}\n")


def test_published_figures_are_a_paragraph_of_their_own(scored: Scored) -> None:
    """In a paragraph of their own, under a sentence that says they are not on this corpus."""
    paragraphs = scored.printed.split("\n\n")
    (of_others,) = (text for text in paragraphs if "ORACLE" in text)
    sentence, *rows = of_others.splitlines()
    assert sentence == "published, each on the corpus and split that it names, not on this one:"
    assert [row.split(";")[0].split() for row in rows] == [["98.7", "ORACLE"], ["1.2", "GUESS"]]
    for row, number in zip(rows, THREE.published, strict=True):
        assert number.corpus in row and number.split in row and number.source in row
    ours = "\n\n".join(text for text in paragraphs if text is not of_others)
    assert "exact match" in ours and "98.7" not in ours and "all of Wikipedia" not in ours
    assert "exact match" not in of_others and "66.7" not in of_others


def test_the_report_is_written(scored: Scored) -> None:
    report = Report.load(scored.report)
    assert (scored.report / "report.html").is_file()
    about, rows = report.figures["about"], list(report.rows())
    assert (about["name"], about["split"], about["questions"]) == ("Three Questions", "test-a", 3)
    assert (about["source"], about["caution"], about["answer_type"]) == (THREE.about, THREE.caution, "names")
    assert [row["em"] for row in about["published"]] == [98.7, 1.2]
    assert report.em == pytest.approx(2 / 3)
    assert [row.as_question for row in rows] == QUESTIONS
    assert [row.em for row in rows] == [True, True, False]
    assert [row.prediction for row in rows] == ["Ada Holm", "Ilona Varga", "Otto Brandt"]


def test_a_record_holds_figures_and_no_texts(scored: Scored) -> None:
    record = scored.record.read_text(encoding="utf-8")
    table = scored.record.with_suffix(".tsv").read_text(encoding="utf-8")
    texts = [text for q in QUESTIONS for text in (q.text, *q.answers)] + ["Otto Brandt", *DOCUMENTS.values()]
    for text in texts:
        assert text.strip() not in record and text.strip() not in table
    assert "ORACLE" not in record
    figures = json.loads(record)
    assert figures["em"]["value"] == pytest.approx(2 / 3)
    assert figures["corpus"] == "three invented documents, 3 passages"
    assert figures["questions"] == "Three Questions, test-a: 3 questions"
    assert "--record" in figures["command"] and figures["hardware"]
    head, *rows = [line.split("\t") for line in table.splitlines()]
    assert head[:2] == ["id", "em"]
    assert [row[:2] for row in rows] == [["q1", "1"], ["q2", "1"], ["q3", "0"]]
    assert all(len(row) == len(head) for row in rows)
    assert sorted(path.name for path in scored.record.parent.iterdir()) == ["three.json", "three.tsv"]


@pytest.mark.parametrize(
    ("suite", "rule", "right"),
    [
        (replace(THREE, regex=True), "regex", [True, False, False]),
        (replace(THREE, unicode=None), "squad", [False, False, False]),
        (THREE, "nq", [False, False, False]),
    ],
)
def test_the_suites_rule_is_the_one_that_scores(
    three_index: Path, tmp_path: Path, suite: Suite, rule: str, right: list[bool]
) -> None:
    """Only as patterns are the golds right where they begin the answer, and wrong where they end it."""
    questions = [replace(QUESTIONS[0], answers=("ada|bo",)), replace(QUESTIONS[1], answers=("varga",)), QUESTIONS[2]]
    write_questions(tmp_path / "test-a.jsonl", questions)
    given = ["--pipeline", three_index, "--data", tmp_path, "--out", tmp_path / "r", "--no-coverage"]
    report = run(suite, make_parser(suite, None).parse_args([str(argument) for argument in given]))
    assert report.figures["about"]["rule"] == rule
    assert [row.em for row in report.rows()] == right


def test_options_reach_the_pipeline(command: Callable[..., str], tmp_path: Path) -> None:
    printed = command("-k", "2", "--batch", "3", "--retriever", "bm25", "--depth", "3")
    about = Report.load(tmp_path / "r").figures["about"]
    assert (about["system"]["k"], about["system"]["depth"], about["batch"]) == (2, 3, 3)
    assert "\ncorpus: lighthouse.txt, bakery.txt, comet.txt, 3 passages\n" in printed


def test_a_sample_is_named_as_such(command: Callable[..., str], tmp_path: Path) -> None:
    assert command("--no-read", "--limit", "2").startswith(
        "Three Questions, 2 of test-a, drawn by chance: 2 questions\n"
    )
    assert len(list(Report.load(tmp_path / "r").rows())) == 2
    for limit in ("3", "4"):
        assert command("--no-read", "--limit", limit).startswith("Three Questions, test-a: 3 questions\n")


def test_retrieval_alone_is_scored_without_reading(command: Callable[..., str], tmp_path: Path) -> None:
    printed = command("--no-read", "--no-coverage", "--depth", "2")
    assert "\nexact match" not in printed
    assert re.search(r"^answer recall @1 +66\.7 %", printed, re.MULTILINE)
    assert re.search(r"^answer in the corpus +not searched", printed, re.MULTILINE)
    assert all(row.prediction is None and len(row.hits) <= 2 for row in Report.load(tmp_path / "r").rows())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--split", "dev"], "has no split 'dev'"),
        (["--split", "train"], "does not exist"),
        (["--data", "/nowhere"], "/nowhere/test-a.jsonl does not exist"),
        (["--pipeline", "/nowhere"], "/nowhere"),
        (["--retriever", "dense"], "dense"),
        (["-k", "0"], "k = 0"),
        (["--depth", "0"], "depth = 0"),
        (["--batch", "0"], "batch = 0"),
        (["--limit", "0"], "question"),
        (["--limit", "-1"], "-1"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_input_is_reported_in_one_line(
    command: Callable[..., str], tmp_path: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        command(*arguments)
    said = capsys.readouterr().err
    assert stop.value.code == 2
    assert message in said and said.count("\n") == 1 and "Traceback" not in said
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize("questions", [QUESTIONS[:2], [*QUESTIONS, QUESTIONS[0]]], ids=["few", "many"])
def test_a_file_of_another_size_leaves_no_report(
    command: Callable[..., str],
    data: Path,
    tmp_path: Path,
    questions: list[Question],
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_questions(data / "test-a.jsonl", questions)
    with pytest.raises(SystemExit):
        command("--no-read")
    assert "test-a.jsonl holds" in capsys.readouterr().err
    assert not (tmp_path / "r").exists()


def test_reports_of_different_settings_have_different_names() -> None:
    given = [
        [],
        ["--fast"],
        ["--beams", "4"],
        ["--beams", "4", "--max-answer", "9"],
        ["--beams", "4", "--min-answer", "9"],
        ["-k", "3"],
    ]
    options = [make_parser(THREE, "").parse_args(["--pipeline", "p", "--reader", "x", *each]) for each in given]
    readers: list[Any] = [
        SimpleNamespace(kind="fid", fingerprint="a" * 16 + "-fid"),
        SimpleNamespace(kind="fid", fingerprint="b" * 16 + "-fid"),
        SimpleNamespace(kind="span", fingerprint="c" * 16),
    ]
    named = [report_name(THREE, "dev", args, reader) for args in options for reader in readers]
    assert len(set(named)) == len(given) * len(readers)
    assert named[9] == f"{THREE.key}-dev-p-beams-4-max-answer-9-reader-fid-aaaaaaaa"
    assert named[2] == f"{THREE.key}-dev-p-reader-span-cccccccc"


def test_the_suites_ask_with_the_decoding_that_is_given(
    three_index: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It reaches the pipeline: the reader of spans that comes along refuses it."""
    write_questions(tmp_path / "test-a.jsonl", QUESTIONS)
    args = make_parser(THREE, "").parse_args(
        ["--pipeline", str(three_index), "--data", str(tmp_path), "--out", str(tmp_path / "r"), "--fast"]
    )
    with pytest.raises(BadInput, match="are for readers that write, and this one marks spans"):
        run(THREE, args)
    assert not (tmp_path / "r").exists()
