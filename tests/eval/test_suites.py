"""The suites: their declarations, and the real files that they declare."""

import re
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

from eval import registry
from eval.published import TEST_SETS, Published
from eval.suite import Suite, read_split
from ragqa.errors import BadInput
from ragqa.question_files import read_questions, read_squad

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
SUITES = list(registry.SUITES.values())
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
    """Return each question of a file with its gold answers."""
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
    if (suite.key, split) != ("curatedtrec", "test"):  # a file whose first question is not recorded
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
        if "train" in s.splits and name not in ("train", s.default_split.removesuffix("-a"))
    ],
)
def test_no_training_question_is_held_out_in_a_real_file(shared_data: Path, suite: Suite, held_out: str) -> None:
    paths = [shared_data / suite.key / suite.splits[name].file for name in ("train", held_out)]
    if not all(path.is_file() for path in paths):
        pytest.skip(f"no {paths}")
    training_texts, held_out_texts = ({text.lower().strip(" ?") for text, _ in read(path)} for path in paths)
    # SQuAD is split by article, and one question is asked about two articles.
    assert training_texts & held_out_texts == ({"who was the first person in space"} if suite.key == "squad" else set())


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


def test_every_suite_is_registered_and_named_as_its_file() -> None:
    names = {file.stem for file in (ROOT / "eval").glob("[a-z]*.py")} - {"registry"}
    declared = [
        (name, value.key)
        for name in sorted(names)
        for value in vars(import_module(f"eval.{name}")).values()
        if isinstance(value, Suite)
    ]
    assert declared and all(name == key for name, key in declared)
    assert {key for _, key in declared} == set(registry.SUITES)


def test_every_suite_of_the_papers_is_found() -> None:
    assert set(registry.SUITES) >= {"nq", "webq", "curatedtrec", "squad"}
    assert {suite.key for suite in SUITES if suite.published} == set(TEST_SETS)


@suites
def test_the_standard_test_set_is_a_split_too(suite: Suite) -> None:
    split, questions = STANDARD_TEST[suite.key]
    assert split == suite.default_split.removesuffix("-a")
    assert suite.splits[split].questions == questions


@suites
def test_the_documents_have_a_suite_with_its_questions(suite: Suite) -> None:
    row = re.search(rf"\| `python -m eval\.{suite.key}` \| ([^|]+) \|", (DOCS / "evaluate.md").read_text("utf-8"))
    assert row, "docs/evaluate.md has a row for each suite"
    counts = {name: int(count.replace(",", "")) for name, count in re.findall(r"([\w-]+) ([\d,]*\d)", row[1])}
    assert counts == {name: split.questions for name, split in suite.splits.items()}
    questions = suite.splits[suite.default_split].questions
    listed = rf"(?m)^\| [^|]+ {suite.default_split} \| {questions:,} \|.*/test-a/{suite.key}\.txt\)"
    assert re.search(listed, (DOCS / "train" / "data.md").read_text("utf-8"))


@suites
def test_the_list_of_the_test_questions_is_complete(suite: Suite) -> None:
    lines = (DOCS / "measurements" / "test-a" / f"{suite.key}.txt").read_text("utf-8").splitlines()
    split = suite.splits[suite.default_split]
    if split.file.endswith(".jsonl"):
        assert len(lines) == split.questions and all(re.fullmatch(r"[0-9a-f]{16}", line) for line in lines)
    else:
        assert len(lines) == len(set(lines)) == 16  # articles of SQuAD


def test_each_data_set_of_the_papers_is_scored_by_its_own_rule() -> None:
    rules = {suite.key: (suite.regex, suite.unicode) for suite in SUITES if suite.published}
    assert rules == {
        "nq": (False, "NFD"),
        "webq": (False, "NFD"),
        "curatedtrec": (True, "NFD"),
        "squad": (False, None),
    }


@published
def test_a_published_number_names_its_paper_corpus_and_split(suite: Suite, row: Published) -> None:
    assert row.system
    assert 0 < row.em < 100
    assert re.search(r"\b20\d\d\b", row.source)
    assert "Wikipedia" in row.corpus or row.corpus == "none (closed book)"
    assert re.search(r"test, [\d,]+ questions", row.split)


def test_real_folders_of_other_suites_are_refused(shared_data: Path) -> None:
    folders = {suite.key: shared_data / suite.key for suite in SUITES if (shared_data / suite.key).is_dir()}
    if len(folders) < 2:
        pytest.skip(f"fewer than two data sets are at {shared_data}")
    for suite in SUITES:
        for key, folder in folders.items():
            if key != suite.key:
                with pytest.raises(BadInput):
                    list(read_split(suite, suite.default_split, folder))
