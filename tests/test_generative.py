"""Readers that write their answers, from the command line down to the text of a citation."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from conftest import run
from generators import passage, write_bart

from ragqa import artefact, asking
from ragqa.errors import ArtefactError, BadInput
from ragqa.models.decoding import Candidate
from ragqa.models.generators import load_generator, make_generator, save_generator
from ragqa.models.seq2seq import Seq2Seq
from ragqa.pipeline import Pipeline
from ragqa.reading.choose import open_reader
from ragqa.reading.confidence import Calibration
from ragqa.reading.generative import GenerativeReader
from ragqa.text import occurrence
from ragqa.types import Answer, Hit

HITS = [
    Hit(passage("Genji", "The Tale of Genji was written by Murasaki Shikibu."), 3.0),
    Hit(passage("Heian", "Heian was the capital; MURASAKI  Shikibu lived there."), 2.0),
    Hit(passage("Comet", "The comet was seen in 1956."), 1.0),
]


class Words:
    """A generator that writes what it is told, word by word, and the posteriors to it."""

    kind = "rag-token"
    passages, max_answer = 5, 32

    def __init__(
        self, *answers: tuple[str, float, tuple[float, ...]], closed: bool = False, retriever: str | None = None
    ) -> None:
        self.answers, self.template, self.retriever = answers, SimpleNamespace(closed=closed), retriever
        self.words = sorted({word for text, _, _ in answers for word in text.split()})
        tokens = SimpleNamespace(text=lambda ids: " ".join(self.words[n] for n in ids))
        self.seq2seq = SimpleNamespace(tokens=tokens, max_tokens=64)
        self.seen: list[Any] = []

    def to(self, device: str) -> "Words":
        return self

    def eval(self) -> "Words":
        return self

    def inputs(self, questions: list[str], passages: list[list[Any]]) -> Any:
        return SimpleNamespace(to=lambda device: (questions, passages))

    def generate(self, inputs: Any, relevance_BK: torch.Tensor, search: Any) -> list[list[Candidate]]:
        self.seen.append((inputs, relevance_BK))
        return [[self._candidate(*answer) for answer in self.answers] for _ in inputs[0]]

    def stream(self, inputs: Any, relevance_BK: torch.Tensor, search: Any) -> Any:
        best = self._candidate(*self.answers[0])
        for each in best.ids:
            yield torch.tensor([each])
        return [[best]]

    def _candidate(self, text: str, log_prob: float, posterior: tuple[float, ...]) -> Candidate:
        return Candidate(tuple(map(self.words.index, text.split())), log_prob, posterior)


def reader(*answers: Any, **options: Any) -> GenerativeReader:
    return GenerativeReader(Words(*answers, **options), Calibration((0.0, 1.0, 0.0, 0.0)), fingerprint="f")


def test_passages_are_cited_by_their_posterior_and_marked_where_the_answer_stands() -> None:
    (answer,) = reader(("Murasaki Shikibu", -0.5, (0.2, 0.7, 0.1)), ("1956", -2.0, (0.1, 0.1, 0.8))).read(
        ["who"], [HITS]
    )
    assert (answer.text, answer.supported) == ("Murasaki Shikibu", True)
    assert answer.confidence == pytest.approx(2.718281828**-0.5)
    assert [source.weight for source in answer.sources] == [0.7, 0.2, 0.1]
    shown = [s.span and s.hit.passage.text[s.span.start : s.span.end] for s in answer.sources]
    assert shown == ["MURASAKI  Shikibu", "Murasaki Shikibu", None]
    (other,) = answer.alternatives
    assert other.text == "1956" and other.sources[0].hit is HITS[2]


def test_what_stands_in_no_passage_is_marked() -> None:
    (answer,) = reader(("Sei Shonagon", -0.1, (0.2, 0.7, 0.1))).read(["who"], [HITS])
    assert not answer.supported
    assert "(confidence 0.90; unsupported: in none of the passages that were read)" in asking.as_text(answer)
    assert json.loads(asking.as_json(answer))["supported"] is False


def test_questions_with_fewer_passages_are_padded_and_those_without_declined() -> None:
    told = reader(("1956", -0.1, (0.2, 0.7, 0.1)))
    first, second, third = told.read(["a", "b", "c"], [HITS[:1], [], HITS])
    assert (first.text, second.text, third.text) == ("1956", None, "1956")
    ((questions, passages), relevance_BK) = told._generator.seen[0]
    assert questions == ["a", "c"] and [len(each) for each in passages] == [1, 3]
    assert relevance_BK.tolist() == [[3.0, float("-inf"), float("-inf")], [3.0, 2.0, 1.0]]
    assert told.read(["b"], [[]])[0].text is None and len(first.sources) == 1


def test_a_closed_book_needs_no_passages_and_has_no_sources() -> None:
    (answer,) = reader(("1956", -0.1, (1.0,)), closed=True).read(["when"], [[]])
    assert (answer.text, answer.sources, answer.supported) == ("1956", (), False)


def test_an_empty_answer_is_declined() -> None:
    (answer,) = reader(("", -0.1, (0.2, 0.7, 0.1))).read(["who"], [HITS])
    assert answer.text is None and [source.hit for source in answer.sources] == HITS


def test_an_answer_is_said_while_it_is_written() -> None:
    *pieces, answer = reader(("Murasaki Shikibu of Heian", -0.5, (0.2, 0.7, 0.1))).stream("who", HITS)
    assert pieces == ["Murasaki", " Shikibu", " of", " Heian"]
    assert isinstance(answer, Answer) and "".join(pieces) == answer.text
    (nothing,) = reader(("x", -0.5, (1.0,))).stream("who", [])
    assert isinstance(nothing, Answer) and nothing.text is None


@pytest.mark.parametrize(("least", "shown"), [(0.0, "1956 or 1957   (confidence"), (0.99, "1956 or 1957\nNo answer")])
def test_on_a_terminal_it_is_shown_once(
    least: float, shown: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("NO_COLOR", "1")
    found = SimpleNamespace(search=lambda questions, k: [HITS for _ in questions])
    pipeline = Pipeline(found, reader(("1956 or 1957", -0.5, (0.2, 0.7, 0.1))))  # type: ignore[arg-type]
    asking.tell(asking.Asker(pipeline, least), "when", asking.as_text, print)
    assert capsys.readouterr().out.replace("**", "").startswith(shown)


@pytest.mark.parametrize(
    ("text", "answer", "place"),
    [
        ("It was Zürich, 4 May", "zu\u0308rich", "Zürich"),
        ("the U.S.A. and", "U.S.A.", "U.S.A."),
        ("a forest", "rest", None),
        ("one two", "", None),
        ("one two one three", "one three", "one three"),
    ],
)
def test_where_an_answer_stands(text: str, answer: str, place: str | None) -> None:
    found = occurrence(text, answer)
    assert (found and text[slice(*found)]) == place


@pytest.fixture(scope="module")
def bart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_bart(tmp_path_factory.mktemp("bart"))


@pytest.fixture(scope="module")
def ours(bart: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rag")
    save_generator(make_generator(Seq2Seq.load(bart), "rag-token", passages=3), path)
    return path


def test_every_kind_answers_a_question(bart: Path, index: Path) -> None:
    for kind in ("rag-token", "rag-sequence", "fid", "closed-book"):
        pipeline = Pipeline.load(index, reader=f"{kind}:{bart}", k=2)
        one, other = pipeline.ask(["Who built Skarvik?", "When was it?"])
        (alone,) = pipeline.ask(["Who built Skarvik?"])
        assert alone.text == one.text and alone.confidence == pytest.approx(one.confidence, rel=1e-4)
        assert len(one.sources) == len(other.sources) == (0 if kind == "closed-book" else 2)
        if one.text is not None and one.sources:
            assert sum(source.weight for source in one.sources) == pytest.approx(1, abs=1e-4)
        *pieces, last = pipeline.stream("Who built Skarvik?")
        assert isinstance(last, Answer) and last.text == one.text
        assert (kind == "rag-sequence") == (not pieces) or not last.text
        assert "".join(map(str, pieces)) in (last.text or "", "")


def test_a_pipeline_keeps_several_readers(ours: Path, bart: Path, index: Path, tmp_path: Path) -> None:
    readers = {"rag-token": ours, "closed-book": f"closed-book:{bart}"}
    Pipeline.load(index, readers=readers, k=2).save(tmp_path / "both")
    saved = json.loads((tmp_path / "both" / "pipeline.json").read_text())
    assert saved["readers"]["rag-token"].startswith("./") and saved["readers"]["closed-book"].startswith(
        "closed-book:./"
    )
    marked = Pipeline.load(tmp_path / "both")
    written = Pipeline.load(tmp_path / "both", reader="rag-token")
    closed = Pipeline.load(tmp_path / "both", reader="closed-book")
    assert type(marked.reader).__name__ == "ExtractiveReader" and closed.reader.closed
    assert written.reader.fingerprint == GenerativeReader.load(ours).fingerprint
    with pytest.raises(BadInput, match=r"--reader fid: .*both names no such reader; it has rag-token, closed-book"):
        Pipeline.load(tmp_path / "both", reader="fid")
    with pytest.raises(BadInput, match="give a directory, or fid:DIRECTORY"):
        Pipeline.load(index, reader="fid")


def test_a_generator_is_the_pipelines_own_reader(ours: Path, index: Path, tmp_path: Path) -> None:
    Pipeline.load(index, reader=ours).save(tmp_path / "p")
    again = Pipeline.load(tmp_path / "p")
    assert again.reader.fingerprint == GenerativeReader.load(ours).fingerprint
    assert artefact.read(tmp_path / "p", "pipeline").parents["reader"] == again.reader.fingerprint


def test_asked_from_the_command_line(bart: Path, index: Path, capsys: pytest.CaptureFixture[str]) -> None:
    common = ("ask", "Who built Skarvik?", "--index", str(index), "--min-confidence", "0", "--reader")
    status, out, error = run(*common, f"rag-token:{bart}", "--json", capsys=capsys)
    row = json.loads(out)
    assert status in (0, 1) and not error and row["sources"]
    status, out, _ = run(*common, f"closed-book:{bart}", capsys=capsys)
    assert status in (0, 1) and "[1]" not in out


def test_bad_generators_are_one_line(
    ours: Path, bart: Path, small: Path, index: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for setting, line in {
        str(bart): "is a plain seq2seq: say which of rag-token",
        f"fid:{ours}": "is a generator of kind rag-token, not fid",
        "rag-token:": "name the directory of the model behind the colon",
        "rag-token": "names no such reader",
        f"rag-token:{small}": str(small),
    }.items():
        status, out, error = run("ask", "Who?", "--index", str(index), "--reader", setting, capsys=capsys)
        assert (status, out) == (2, "") and line in error and len(error.splitlines()) == 1, (setting, error)
    with pytest.raises(ArtefactError):
        open_reader(f"rag-token:{small}")
    assert load_generator(ours).passages == 3
