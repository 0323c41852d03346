"""Mutations of good documents of all formats: no crash, no hang, no error that ends the run, little memory."""

import re
from pathlib import Path, PurePath

import pytest

from ragqa.corpus.formats.office import parser as office
from ragqa.corpus.formats.registry import _CONTAINERS, _DECOMPRESSORS, FORMATS
from tests.helpers import fuzzing
from tests.helpers.documents import read, write

pytestmark = pytest.mark.usefixtures("extras")


@pytest.fixture
def extras() -> None:
    pytest.importorskip("mwparserfromhell")


def test_every_format_and_container_has_a_target() -> None:
    expected = {entry.read for entry in FORMATS} | {*_CONTAINERS, *_DECOMPRESSORS}
    assert {target.read for target in fuzzing.TARGETS.values()} == expected
    suffixes = {PurePath(target.name).suffix for target in fuzzing.TARGETS.values()}
    # Each reader of office files needs its own target. Macros and templates have the forms of their documents.
    others = {".docm", ".dotx", ".pptm", ".ppsx", ".xlsm", ".jpeg", ".tiff"}
    assert {*office.SUFFIXES, *office.IMAGE_SUFFIXES} - others <= suffixes


def test_the_guide_names_every_suffix() -> None:
    guide = (Path(__file__).parents[3] / "docs" / "index.md").read_text("utf-8")
    known = {suffix for entry in FORMATS for suffix in entry.suffixes} | {*_CONTAINERS, *_DECOMPRESSORS}
    assert known - set(re.findall(r"`(\.\w+)`", guide)) == set()


@pytest.mark.parametrize("name", fuzzing.TARGETS)
def test_the_good_files_are_read(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", fuzzing.install_tesseract(tmp_path))
    path = write(tmp_path / fuzzing.TARGETS[name].name, fuzzing.make_good(name))
    documents, report = read(path, ocr=fuzzing.needs_ocr(name))
    assert documents and all("Tower" in document.text for document in documents[:1])
    assert report.notes == []


def test_a_few_mutations_of_each_format_do_no_harm(tmp_path: Path) -> None:
    outcome = fuzzing.run(list(fuzzing.TARGETS), 0, 20, tmp_path)
    assert outcome.failures == []
    assert (outcome.mutations, outcome.memory_ratio < 2) == (20 * len(fuzzing.TARGETS), True)


@pytest.mark.slow
@pytest.mark.parametrize("name", fuzzing.TARGETS)
def test_many_mutations_of_a_format_do_no_harm(tmp_path: Path, name: str) -> None:
    outcome = fuzzing.run([name], 20, 2_020, tmp_path)
    print(f"{name}: {outcome.mutations} mutations, memory {outcome.memory_ratio:.2f} times that of good files")
    assert outcome.failures == []
    assert (outcome.mutations, outcome.memory_ratio < 2) == (2_000, True)


def test_crashes_hangs_and_errors_are_found(tmp_path: Path) -> None:
    """A process that ends is started again behind the mutation that ended it."""
    outcome = fuzzing.run(["plain", "html"], 0, 5, tmp_path, HARMFUL + fuzzing.PROGRAM)
    assert outcome.mutations == 10
    assert [failure.partition(": ")[0] for failure in outcome.failures] == ["plain 1", "plain 2", "plain 3"]
    assert outcome.failures[0].endswith("SIGSEGV") and outcome.failures[1].endswith("SIGPROF")
    assert "ZeroDivisionError" in outcome.failures[2]


HARMFUL = """
import os, signal
from tests.helpers import fuzzing

mutate, read = fuzzing.mutate, fuzzing._read
fuzzing.CPU_SECONDS = 1.0

def mutate_and_do_harm(name, number):
    if (name, number) == ("plain", 1):
        os.kill(os.getpid(), signal.SIGSEGV)
    fuzzing._read = {("plain", 2): hang, ("plain", 3): fail}.get((name, number), read)
    return mutate(name, number)

def hang(*arguments):
    while True:
        pass

def fail(*arguments):
    1 / 0

fuzzing.mutate = mutate_and_do_harm
"""
