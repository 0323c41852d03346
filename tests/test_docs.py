"""Check the documents: their links, commands, paths and line lengths."""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")])
"""Pages that are checked. Model cards beside the weights are under the checksums of their manifests."""
LONGEST_LINE = 100
LONGEST_README = 220
LONGEST_PARAGRAPH = 6
LONGEST_DECISION = 15
FIGURE_PAGE = "results.md"
"""Page that may hold tables of scores."""

FOREIGN_OPTIONS = {"--working-dir"}
"""Options of other programs that the pages name in their text."""

_LINK = re.compile(r"(?<!\\)\[[^\]]*\]\(([^)\s]+)\)")
_MODULE = re.compile(r"python -m ((?:ragqa|index|pipelines|eval)(?:\.\w+)*)")
_PATH = re.compile(r"(?<![\w/.-])((?:ragqa|index|pipelines|eval|tests|docs)/[\w./-]*\w\.(?:py|md|json|txt|html|png))\b")
_FENCE = re.compile(r"^\s*(```|~~~)")
_ITEM = re.compile(r"^\s*([-*]|\d+\.) ")
_INTERVAL = re.compile(r"\d \(-?\+?\d+(\.\d+)? to ")


def name_of(page: Path) -> str:
    """Return the path of a page from the root of the repository."""
    return page.relative_to(ROOT).as_posix()


def read_lines(page: Path) -> Iterator[tuple[int, str, bool]]:
    """Yield the number of each line, the line, and whether it is code."""
    is_code = False
    for number, line in enumerate(page.read_text("utf-8").splitlines(), start=1):
        if _FENCE.match(line):
            is_code = not is_code
            yield number, line, True
        else:
            yield number, line, is_code


def anchors_of(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = [line.lstrip("#").strip() for _, line, is_code in read_lines(page) if not is_code and line[:1] == "#"]
    slugs = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.replace(" ", "-") for heading in slugs}


def is_prose(line: str) -> bool:
    """Tell whether a line outside code belongs to a paragraph."""
    return bool(line.strip()) and not line.startswith(("|", "#", "!", "<", "    ")) and not _ITEM.match(line)


def paragraphs(page: Path) -> Iterator[tuple[int, int]]:
    """Yield the first line and the number of lines of each paragraph that is no list."""
    first = count = 0
    for number, line, is_code in read_lines(page):
        if is_prose(line) and not is_code and not (count == 0 and line.startswith(" ")):
            first, count = (first, count + 1) if count else (number, 1)
        else:
            if count:
                yield first, count
            count = 0
    if count:
        yield first, count


@pytest.fixture(params=PAGES, ids=name_of)
def page(request: pytest.FixtureRequest) -> Path:
    """Return each page in turn."""
    path: Path = request.param
    return path


def test_every_command_exists(page: Path) -> None:
    modules = set(_MODULE.findall(page.read_text("utf-8")))
    missing = [module for module in sorted(modules) if not is_runnable(module)]
    assert not missing, f"{name_of(page)} names commands that do not exist"


def test_the_architecture_names_every_command_of_the_recipes() -> None:
    files = [file for file in (ROOT / "pipelines").rglob("*.py") if 'if __name__ == "__main__":' in file.read_text()]
    modules = {".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__main__") for file in files}
    text = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    assert len(modules) > 15
    assert not {module for module in modules if f"`{module}`" not in text}


def is_runnable(module: str) -> bool:
    """Tell whether ``python -m module`` finds something to run, without importing it."""
    path = ROOT.joinpath(*module.split("."))
    return path.with_suffix(".py").is_file() or (path / "__main__.py").is_file()


def test_every_link_resolves(page: Path) -> None:
    text = "\n".join(line for _, line, is_code in read_lines(page) if not is_code)
    broken = []
    for target in _LINK.findall(text):
        if re.match(r"[a-z]+:", target):
            continue
        place, _, anchor = target.partition("#")
        file = (page.parent / place).resolve() if place else page
        if not file.exists() or (anchor and file.suffix == ".md" and anchor not in anchors_of(file)):
            broken.append(target)
    assert not broken, f"{name_of(page)} has links that lead nowhere"


@pytest.mark.parametrize("name", ["README.md", "docs/architecture.md", "docs/contributing.md", "docs/train/README.md"])
def test_every_named_file_exists(name: str) -> None:
    named = sorted(set(_PATH.findall((ROOT / name).read_text("utf-8"))))
    missing = [
        path for path in named if not (ROOT / path).exists() and not (ROOT / name).parent.joinpath(path).exists()
    ]
    assert not missing, f"{name} names files that do not exist"


def test_lines_are_short(page: Path) -> None:
    long = [
        number
        for number, line, is_code in read_lines(page)
        if len(line) > LONGEST_LINE and not is_code and not line.startswith(("|", "!"))
    ]
    assert not long, f"{name_of(page)} has lines over {LONGEST_LINE} characters"


def test_paragraphs_are_short(page: Path) -> None:
    long = [first for first, count in paragraphs(page) if count > LONGEST_PARAGRAPH]
    assert not long, f"{name_of(page)} has paragraphs over {LONGEST_PARAGRAPH} lines"


def test_pages_end_with_where_to_go_next(page: Path) -> None:
    if page.parent == ROOT:
        pytest.skip("the README and the changelog are entries themselves")
    headings = [line for _, line, is_code in read_lines(page) if not is_code and line.startswith("## ")]
    assert headings[-1] == "## Where to go next"


def test_tables_of_scores_stand_on_one_page(page: Path) -> None:
    if page.name == FIGURE_PAGE:
        pytest.skip("the place for figures")
    rows = [number for number, line, is_code in read_lines(page) if line.startswith("|") and _INTERVAL.search(line)]
    assert not rows, f"{name_of(page)} has scores with intervals: they belong into docs/results.md"


def test_recorded_scores_stand_in_the_results() -> None:
    folder = ROOT / "docs" / "measurements"
    results = (ROOT / "docs" / FIGURE_PAGE).read_text("utf-8")
    missing = []
    for file in sorted(folder.rglob("*.json")):
        em = json.loads(file.read_text("utf-8")).get("em")
        if isinstance(em, dict) and "value" in em:
            value, low, high = (f"{100 * em[name]:.1f}" for name in ("value", "low", "high"))
            if f"{value} ({low} to {high})" not in results:
                missing.append(name_of(file))
    assert not missing, "docs/results.md lacks the exact match of these records"


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= LONGEST_README


def test_decisions_are_short() -> None:
    text = (ROOT / "docs" / "decisions.md").read_text("utf-8")
    entries = {entry.splitlines()[0]: entry.strip().splitlines()[1:] for entry in re.split(r"(?m)^## ", text)[1:]}
    long = [title for title, lines in entries.items() if len([line for line in lines if line]) > LONGEST_DECISION]
    assert not long


def test_every_measurement_is_named() -> None:
    folder = ROOT / "docs" / "measurements"
    text = (folder / "README.md").read_text("utf-8")
    named = {link for link in _LINK.findall(text) if link.endswith(".json")}
    by_pattern = re.compile(r"(\w+)_(wiki|aa)_(bm25|dense|hybrid)\.json|squad_paragraphs_\w+\.json")
    files = {file.name for file in folder.glob("*.json") if not by_pattern.fullmatch(file.name)}
    assert files <= named


def test_the_documents_name_the_threshold_of_the_shipped_reader() -> None:
    weights = ROOT / "ragqa" / "weights" / "reader"
    threshold = json.loads((weights / "calibration.json").read_text())["threshold"]
    pages = [ROOT / name for name in ("README.md", "CHANGELOG.md", "docs/ask.md", "docs/results.md")]
    assert [page for page in (*pages, weights / "README.md") if f"{threshold:.2f}" not in page.read_text("utf-8")] == []
    shown = [re.findall(r"below (0\.\d\d)\.", page.read_text("utf-8")) for page in (pages[0], pages[2])]
    assert shown == [[f"{threshold:.2f}"]] * 2
    report = (ROOT / "docs" / "demo-report.html").read_text("utf-8")
    assert f"answered if declining below {threshold:.2f}<" in report, "make the report again with the shipped reader"


def test_the_readme_has_the_figures_of_the_demos_report() -> None:
    report = re.sub(r"<[^>]+>", " ", (ROOT / "docs" / "demo-report.html").read_text("utf-8"))
    em = re.search(r"exact match \(EM\) +(\d+\.\d)", report)
    declined = re.search(r"questions without gold answers declined +(\d+\.\d)", report)
    assert em and declined
    readme = (ROOT / "README.md").read_text("utf-8")
    assert f"| exact match, 228 answerable questions of the demo, percent | {em[1]} |" in readme
    assert f"| unanswerable demo questions that ragqa declines | {float(declined[1]):.0f} % |" in readme


def test_the_small_shape_fits_the_shipped_tokenizer() -> None:
    shape = json.loads((ROOT / "docs" / "train" / "shape" / "config.json").read_text())
    tokenizer = json.loads((ROOT / "ragqa" / "weights" / "encoder" / "tokenizer.json").read_text("utf-8"))
    assert shape["vocab_size"] >= len(tokenizer["model"]["vocab"])


def test_the_packages_that_the_documents_name_are_importable() -> None:
    assert all(find_spec(name) for name in ("ragqa", "index", "pipelines", "eval"))


def commands_of(page: Path) -> Iterator[list[str]]:
    """Yield the words of each ``ragqa`` and ``python -m`` command in the shell blocks of a page."""
    text = "\n".join(line for _, line, is_code in read_lines(page) if is_code)
    for line in re.sub(r"\\\n\s*", " ", text).splitlines():
        line = re.sub(r"^(\$|>) |^train\(\) \{ ", "", line.strip())
        if match := re.match(r"(?:\S*/)?(?:python -m )?((?:ragqa|index|pipelines|eval)\b\S*) ?(.*)", line):
            try:
                words = shlex.split(match[2], comments=True)
            except ValueError:
                continue
            yield [match[1], *words]


def collect_options() -> dict[tuple[str, ...], dict[str, set[str]]]:
    """Return, for each command of the documents, its options and the pages that name them."""
    options: dict[tuple[str, ...], dict[str, set[str]]] = {}
    for page in PAGES:
        for program, *words in commands_of(page):
            has_command = program == "ragqa" and words and not words[0].startswith("-")
            command = ("ragqa", words[0]) if has_command else (program,)
            command = (*command, "compare") if words[:2] == ["eval", "compare"] else command
            command = (*command, "questions") if command == ("ragqa", "eval") else command
            for word in words:
                if word.startswith("--"):
                    options.setdefault(command, {}).setdefault(word.split("=")[0], set()).add(name_of(page))
    return options


def read_options(command: tuple[str, ...]) -> set[str]:
    """Return the options that the help of a command lists."""
    environment = {**os.environ, "COLUMNS": "300", "NO_COLOR": "1"}
    arguments = [sys.executable, "-m", *command, "--help"]
    shown = subprocess.run(arguments, cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout
    return {*re.findall(r"--[\w.-]+", shown), "--help", "--config"}


@pytest.mark.thorough
def test_every_option_exists() -> None:
    named = collect_options()
    with ThreadPoolExecutor(2) as pool:
        known = dict(zip(named, pool.map(read_options, named), strict=True))
    unknown = [
        f"{' '.join(command)} {option} ({', '.join(sorted(pages))})"
        for command, options in named.items()
        for option, pages in options.items()
        if option not in known[command]
    ]
    anywhere = set.union(*known.values())
    for page in PAGES:
        if page.name in {"CHANGELOG.md", "decisions.md"}:
            continue
        prose = "\n".join(line for _, line, is_code in read_lines(page) if not is_code)
        options = set(re.findall(r"`(--[a-z][\w.-]*)", prose)) - FOREIGN_OPTIONS
        unknown += [f"{name_of(page)}: {option}" for option in sorted(options - anywhere)]
    assert not unknown


@pytest.mark.thorough
def test_the_training_run_of_the_readme_works(tmp_path: Path) -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    block = re.search(r"```sh\n(?:(?!```)[\s\S])*?(mkdir -p runs/shape\n[\s\S]*?)```", text)
    assert block
    script = re.sub(r"--steps \d+", "--steps 2", re.sub(r"--warmup \d+", "--warmup 1", block[1]))
    script = re.sub(r"(?m)^(?:python -m )(?=\w)|^(?=ragqa )", f"{shlex.quote(sys.executable)} -m ", script)
    for name in ("docs", "ragqa"):
        (tmp_path / name).symlink_to(ROOT / name)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run(["bash", "-ec", script], cwd=tmp_path, env=environment, check=True)
    assert (tmp_path / "runs" / "cloze" / "model").is_dir()
