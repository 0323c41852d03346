"""Generative readers: answers, citations, decoding, saving, and the command line."""

import json
from math import exp
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from conftest import run
from transformers import BartForConditionalGeneration, GPT2Config, GPT2LMHeadModel

from ragqa import artefacts
from ragqa.cli import ask
from ragqa.errors import ArtefactError, BadInput
from ragqa.models.generation.decoding import Candidate
from ragqa.models.generation.generators import load_generator, make_generator, save_generator
from ragqa.models.generation.search import SearchSettings
from ragqa.models.generation.seq2seq import Seq2Seq
from ragqa.pipeline import Pipeline
from ragqa.reading.base import Decoding, RetrieverIdentity
from ragqa.reading.calibration import UNCALIBRATED
from ragqa.reading.generative import GenerativeReader
from ragqa.reading.registry import open_reader
from ragqa.retrieval.live import open_retriever
from ragqa.text import locate_answer
from ragqa.types import Answer, Hit
from tests.helpers.generators import bart_tokenizer, passage, word_tokenizer, write_bart

HITS = [
    Hit(passage("Genji", "The Tale of Genji was written by Murasaki Shikibu."), 3.0),
    Hit(passage("Heian", "Heian was the capital; MURASAKI  Shikibu lived there."), 2.0),
    Hit(passage("Comet", "The comet was seen in 1956."), 1.0),
]


class FixedGenerator:
    """A generator with fixed answers, scores and posteriors of passages."""

    passages, max_answer, read = 5, 32, 100

    def __init__(
        self,
        *answers: tuple[str, float, tuple[float, ...]],
        closed: bool = False,
        retriever: str | None = None,
        joined: str = " ",
        kind: str = "rag-token",
    ) -> None:
        self.kind = kind
        self.answers, self.template, self.retriever = answers, SimpleNamespace(is_closed_book=closed), retriever
        self.words = sorted({word for text, _, _ in answers for word in text.split()})
        tokens = SimpleNamespace(decode=lambda ids: joined.join(self.words[n] for n in ids))
        self.seq2seq = SimpleNamespace(tokens=tokens, max_tokens=64)
        self.seen: list[Any] = []

    def to(self, device: str) -> "FixedGenerator":
        return self

    def eval(self) -> "FixedGenerator":
        return self

    def make_inputs(self, questions: list[str], passages: list[list[Any]]) -> Any:
        return SimpleNamespace(to=lambda device: (questions, passages))

    def can_read(self, question: str, passage: Any, end: int) -> bool:
        return end <= self.read

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


def make_reader(*answers: Any, scored_by: RetrieverIdentity | None = None, **options: Any) -> GenerativeReader:
    return GenerativeReader(FixedGenerator(*answers, **options), UNCALIBRATED, fingerprint="f", scored_by=scored_by)


def test_passages_are_cited_by_posterior_with_the_span_of_the_answer() -> None:
    (answer,) = make_reader(("Murasaki Shikibu", -0.5, (0.2, 0.7, 0.1)), ("1956", -2.0, (0.1, 0.1, 0.8))).read(
        ["who"], [HITS]
    )
    assert (answer.text, answer.supported) == ("Murasaki Shikibu", True)
    assert answer.confidence == pytest.approx(2.718281828**-0.5)
    assert [source.weight for source in answer.sources] == [0.7, 0.2, 0.1]
    shown = [s.span and s.hit.passage.text[s.span.start : s.span.end] for s in answer.sources]
    assert shown == ["MURASAKI  Shikibu", "Murasaki Shikibu", None]
    (other,) = answer.alternatives
    assert other.text == "1956" and other.sources[0].hit is HITS[2]


def test_an_answer_found_in_no_passage_is_marked_unsupported() -> None:
    (answer,) = make_reader(("Sei Shonagon", -0.1, (0.2, 0.7, 0.1))).read(["who"], [HITS])
    assert not answer.supported
    assert "(confidence 0.90; unsupported: in none of the passages that were read)" in ask.format_text(answer)
    assert json.loads(ask.format_json(answer))["supported"] is False


def test_text_that_was_cut_off_supports_no_answer() -> None:
    """The end of a long passage is cut off and not read."""
    reader = make_reader(("Murasaki Shikibu", -0.5, (0.2, 0.7, 0.1)))
    for read, supported in ((49, True), (48, False)):  # the answer ends with the 49th character
        reader._generator.read = read
        (answer,) = reader.read(["who"], [HITS[:1]])
        assert answer.supported == supported, read


def test_rag_sequence_returns_alternatives_from_all_passages() -> None:
    answers = [("1956", -0.5, (0.2, 0.7, 0.1)), ("Murasaki", -2.0, (0.1, 0.1, 0.8))]
    readers = {kind: make_reader(*answers, kind=kind) for kind in ("rag-sequence", "rag-token")}
    assert {kind: each._search.returned for kind, each in readers.items()} == {"rag-sequence": 5, "rag-token": 1}
    assert [other.text for other in readers["rag-sequence"].read(["who"], [HITS])[0].alternatives] == ["Murasaki"]
    answers_by_question = readers["rag-sequence"].find_answers(["who", "when"], [HITS, []])
    assert [[each.text for each in row] for row in answers_by_question] == [["1956"], []]
    silent = make_reader(("", -0.5, (0.2, 0.7, 0.1)), answers[1], kind="rag-sequence")
    assert silent.read(["who"], [HITS])[0].text is None and silent.find_answers(["who"], [HITS]) == [[]]


def test_questions_with_fewer_passages_are_padded_and_those_without_declined() -> None:
    reader = make_reader(("1956", -0.1, (0.2, 0.7, 0.1)))
    first, second, third = reader.read(["a", "b", "c"], [HITS[:1], [], HITS])
    assert (first.text, second.text, third.text) == ("1956", None, "1956")
    ((questions, passages), relevance_BK) = reader._generator.seen[0]
    assert questions == ["a", "c"] and [len(each) for each in passages] == [1, 3]
    assert relevance_BK.tolist() == [[3.0, float("-inf"), float("-inf")], [3.0, 2.0, 1.0]]
    assert reader.read(["b"], [[]])[0].text is None and len(first.sources) == 1
    assert ask.format_text(second) == "No answer: no passages were found."


def test_a_closed_book_needs_no_passages_and_has_no_sources() -> None:
    (answer,) = make_reader(("1956", -0.1, (1.0,)), closed=True).read(["when"], [[]])
    assert (answer.text, answer.sources, answer.supported) == ("1956", (), False)


def test_an_empty_answer_is_declined() -> None:
    (answer,) = make_reader(("", -0.1, (0.2, 0.7, 0.1))).read(["who"], [HITS])
    assert answer.text is None and [source.hit for source in answer.sources] == HITS
    shown = "No answer in these documents: the generator wrote nothing. The nearest passages:\n"
    assert ask.format_text(answer).startswith(shown)
    assert json.loads(ask.format_json(answer))["reason"] == "the generator wrote nothing"


def test_an_answer_is_streamed_word_by_word() -> None:
    *pieces, answer = make_reader(("Murasaki Shikibu of Heian", -0.5, (0.2, 0.7, 0.1))).stream("who", HITS)
    assert pieces == ["Murasaki", " Shikibu", " of", " Heian"]
    assert isinstance(answer, Answer) and "".join(pieces) == answer.text
    *pieces, answer = make_reader(("源 氏 物 語", -0.5, (0.2, 0.7, 0.1)), joined="").stream("who", HITS)
    assert pieces == ["源", "氏", "物", "語"] and answer.text == "源氏物語"
    (nothing,) = make_reader(("x", -0.5, (1.0,))).stream("who", [])
    assert isinstance(nothing, Answer) and nothing.text is None


def test_incomplete_characters_are_not_streamed(bart: Path) -> None:
    """The tokenizer emits single bytes, which decode to replacement marks until a character is complete."""
    tokens = Seq2Seq.load(bart).tokens
    ids = tokens.encode_bare("Zürich 源氏")
    assert any("\ufffd" in tokens.decode(ids[:end]) for end in range(len(ids)))
    reader = make_reader(("x", -0.5, (1.0,)))
    reader._generator.seq2seq.tokens = tokens
    candidate = Candidate(tuple(ids), -0.5, (1.0,))
    reader._generator.stream = lambda *_: _yield_tokens(ids, candidate)  # type: ignore[method-assign]
    *pieces, answer = reader.stream("where", HITS[:1])
    assert "".join(pieces) == answer.text == "Zürich 源氏" and len(pieces) > 4
    assert not any("\ufffd" in piece for piece in pieces)


def _yield_tokens(ids: list[int], candidate: Candidate) -> Any:
    for each in ids:
        yield torch.tensor([each])
    return [[candidate]]


@pytest.mark.parametrize("between", [" ", "  ", " \n"])
@pytest.mark.parametrize(
    ("least", "shown"),
    [
        (0.0, "1956 or 1957   (confidence"),
        (0.99, "1956 or 1957\nWithdrawn. No answer in these documents: the best has "),
    ],
)
def test_a_streamed_answer_is_shown_once_on_a_terminal(
    between: str, least: float, shown: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("NO_COLOR", "1")
    retriever = SimpleNamespace(search=lambda questions, k: [HITS for _ in questions])
    pipeline = Pipeline(retriever, make_reader(("1956 or 1957", -0.5, (0.2, 0.7, 0.1)), joined=between))  # type: ignore[arg-type]
    ask.ask_one(pipeline, "when", least, ask.format_text, print)
    said = capsys.readouterr().out.replace("**", "")
    assert said.replace("  or  ", " or ", 1).startswith(shown) and said.count("1957") == 1


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
def test_answers_are_located_in_texts(text: str, answer: str, place: str | None) -> None:
    span = locate_answer(text, answer)
    assert (span and text[slice(*span)]) == place


@pytest.fixture(scope="module")
def bart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_bart(tmp_path_factory.mktemp("bart"))


@pytest.fixture(scope="module")
def rag(bart: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rag")
    save_generator(make_generator(Seq2Seq.load(bart), "rag-token", passages=3), path)
    return path


QUESTION = "Who built Skarvik?"
KINDS = ("rag-token", "rag-sequence", "fid", "closed-book")


@pytest.fixture(scope="module")
def hits_by_question(index: Path) -> list[list[Hit]]:
    """Return two passages for each of two questions."""
    return open_retriever(index, "dense").search([QUESTION, "When was it?"], 2)


@pytest.mark.parametrize("kind", KINDS)
def test_with_one_passage_every_kind_answers_as_transformers_does(
    kind: str, bart: Path, hits_by_question: list[list[Hit]]
) -> None:
    reader = GenerativeReader.load(bart, kind, decoding=Decoding(max_answer=6))
    (answer,) = reader.read([QUESTION], [hits_by_question[0][:1]])
    inputs = reader._generator.make_inputs([QUESTION], [[hits_by_question[0][0].passage]])
    read = {"input_ids": inputs.ids_NL, "attention_mask": inputs.mask_NL}
    reference = BartForConditionalGeneration.from_pretrained(bart).eval()
    with torch.no_grad():
        ids = reference.generate(**read, max_length=7, num_beams=1)
        said = ids[:, 1:]  # without the start token of the decoder
        log_probs = reference(**read, labels=said).logits.log_softmax(-1).gather(-1, said.unsqueeze(-1))
    assert answer.text == bart_tokenizer().decode(ids[0], skip_special_tokens=True).strip() != ""
    assert answer.score == pytest.approx(log_probs.sum().item(), rel=1e-4)
    assert [source.weight for source in answer.sources] == ([] if kind == "closed-book" else [1.0])


@pytest.mark.parametrize("kind", KINDS)
def test_answers_do_not_depend_on_the_batch_or_on_streaming(
    kind: str, bart: Path, index: Path, hits_by_question: list[list[Hit]]
) -> None:
    pipeline = Pipeline.load(index, retriever="dense", reader=f"{kind}:{bart}", k=2)
    one, other = pipeline.ask([QUESTION, "When was it?"])
    alone = pipeline.ask(QUESTION)
    assert one.text == alone.text and one.text
    assert alone.score == pytest.approx(one.score, rel=1e-4)
    cited = [{source.hit.passage.id for source in answer.sources} for answer in (one, other)]
    assert cited == [set() if kind == "closed-book" else {hit.passage.id for hit in hits} for hits in hits_by_question]
    for answer in (one, other):
        weights = [source.weight for source in answer.sources]
        assert not weights or (sum(weights) == pytest.approx(1, abs=1e-4) and weights == sorted(weights, reverse=True))
    *pieces, last = pipeline.stream(QUESTION)
    assert isinstance(last, Answer) and (last.text, last.score) == (alone.text, pytest.approx(alone.score))
    assert "".join(map(str, pieces)) == ("" if kind == "rag-sequence" else last.text)


def test_the_settings_of_training_are_the_defaults_for_answering(
    bart: Path, rag: Path, index: Path, tmp_path: Path
) -> None:
    short = make_generator(Seq2Seq.load(bart), "rag-token", passages=2, max_answer=7)
    save_generator(short, tmp_path / "short")
    pipeline = Pipeline.load(index, reader=tmp_path / "short")
    assert (pipeline.k, pipeline.reader.decoding.max_answer) == (2, 7)  # type: ignore[attr-defined]
    assert len(pipeline.ask(QUESTION).sources) == 2
    pipeline.save(tmp_path / "own")
    assert Pipeline.load(tmp_path / "own").k == 2
    chosen = Decoding(beams=2, max_answer=5, min_answer=1)
    Pipeline.load(index, reader=tmp_path / "short", k=1, decoding=chosen, readers={"rag-sequence": rag}).save(
        tmp_path / "set"
    )
    again = Pipeline.load(tmp_path / "set")
    assert (again.k, again.reader.decoding, again.describe()["decoding"]["beams"]) == (1, chosen, 2)  # type: ignore[attr-defined]
    other = Pipeline.load(tmp_path / "set", reader="rag-sequence")  # its own settings of training
    assert (other.k, other.reader.decoding) == (3, Decoding(max_answer=32))  # type: ignore[attr-defined]
    assert Pipeline.load(tmp_path / "set", k=3, decoding=Decoding(max_answer=6)).k == 3
    assert Pipeline.load(index).k == 10
    row = json.loads((tmp_path / "short" / "generator.json").read_text())
    del row["max_answer"], row["retriever"]  # as in files of earlier versions
    (tmp_path / "short" / "generator.json").write_text(json.dumps(row))
    assert load_generator(tmp_path / "short").max_answer == 32


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("kind", ["rag-token", "rag-sequence"])
def test_decoding_options_of_the_command_line_are_applied(
    kind: str,
    fast: bool,
    bart: Path,
    index: Path,
    hits_by_question: list[list[Hit]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    options = ("--beams", "3", "--max-answer", "6", "--min-answer", "2", *(["--fast"] if fast else []))
    common = ("--index", str(index), "--retriever", "dense", "-k", "2", "--min-confidence", "0", "--json")
    status, out, error = run("ask", QUESTION, *common, "--reader", f"{kind}:{bart}", *options, capsys=capsys)
    if fast and kind == "rag-token":
        assert (status, out) == (
            2,
            "",
        ) and "fast decoding is for rag-sequence only: rag-token has a single search" in error
        return
    generator: Any = load_generator(bart, kind).eval()
    inputs = generator.make_inputs([QUESTION], [[hit.passage for hit in hits_by_question[0]]])
    relevance = torch.tensor([[hit.score for hit in hits_by_question[0]]])
    search = SearchSettings(beams=3, longest=6, shortest=2, returned=5 if kind == "rag-sequence" else 3)
    (wanted,) = generator.generate(inputs, relevance, search, **({"fast": True} if fast else {}))
    row = json.loads(out)
    texts = list(dict.fromkeys(generator.seq2seq.tokens.decode(each.ids) for each in wanted))
    assert status == 0 and not error
    assert [row["answer"], *(other["answer"] for other in row["alternatives"])] == texts and len(texts) > 1
    assert row["confidence"] == pytest.approx(exp(wanted[0].log_prob), abs=1e-4)


def test_invalid_decoding_is_reported_in_one_line(rag: Path, index: Path, capsys: pytest.CaptureFixture[str]) -> None:
    writes = ("--reader", str(rag))
    for options, line in {
        ("--beams", "2"): "are for readers that write, and this one marks spans: leave them out",
        (*writes, "--max-answer", "999"): "max_answer = 999: the generator writes 128 tokens at most",
        (*writes, "--max-answer", "3", "--min-answer", "3"): "min_answer = 3, max_answer = 3: at least 1 beam",
        (*writes, "--max-answer", "1"): "max_answer = 1: at least 1 beam, 2 tokens",
    }.items():
        status, out, error = run("ask", QUESTION, "--index", str(index), *options, capsys=capsys)
        assert (status, out) == (2, "") and line in error and len(error.splitlines()) == 1, error
    with pytest.raises(BadInput, match="beams = 0"):
        Pipeline.load(index, reader=rag, decoding=Decoding(beams=0))


def test_scores_of_another_retriever_are_standardised_with_a_warning(
    bart: Path, index: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scores = [Hit(HITS[0].passage, 30.0), Hit(HITS[1].passage, 28.0), Hit(HITS[2].passage, 20.0)]
    words = ("1956", -0.1, (0.2, 0.7, 0.1))
    for retriever, encoder, own, same in (
        ("dense", "abc", "abc", True),
        ("dense", "abc", None, True),  # the retriever of training is unknown
        ("dense", "abd", "abc", False),
        ("hybrid", None, "abc", False),
        ("bm25", None, "abc", False),
    ):
        reader = make_reader(words, retriever=own, scored_by=RetrieverIdentity(retriever, encoder))
        assert (reader.prior_warning is None) == same
        reader.read(["when"], [scores])
        ((_, relevance_BK),) = reader._generator.seen
        spread = [0.0, -2 / 4.3204938, -10 / 4.3204938]  # the standard deviation of 30, 28, 20
        assert relevance_BK[0].tolist() == pytest.approx([30.0, 28.0, 20.0] if same else spread)
    own = Pipeline.load(index).describe()["encoder"]
    save_generator(make_generator(Seq2Seq.load(bart), "rag-token", retriever=own), tmp_path / "rag")
    for options, line in {
        ("--retriever", "dense"): "",
        (): "these scores are of hybrid, so only their differences count",
        ("--reader", f"fid:{bart}"): "",
    }.items():
        common = ("ask", QUESTION, "--index", str(index), "--min-confidence", "0", "--reader", str(tmp_path / "rag"))
        status, _, error = run(*common, *options, capsys=capsys)
        assert status == 0 and (line in error if line else not error), error


def test_a_pipeline_can_save_several_readers(rag: Path, bart: Path, index: Path, tmp_path: Path) -> None:
    readers = {"rag-token": rag, "closed-book": f"closed-book:{bart}"}
    Pipeline.load(index, readers=readers, k=2).save(tmp_path / "both")
    saved = json.loads((tmp_path / "both" / "pipeline.json").read_text())
    assert saved["readers"]["rag-token"].startswith("./") and saved["readers"]["closed-book"].startswith(
        "closed-book:./"
    )
    marked = Pipeline.load(tmp_path / "both")
    written = Pipeline.load(tmp_path / "both", reader="rag-token")
    closed = Pipeline.load(tmp_path / "both", reader="closed-book")
    assert type(marked.reader).__name__ == "ExtractiveReader" and closed.reader.is_closed_book
    assert written.reader.fingerprint == GenerativeReader.load(rag).fingerprint
    with pytest.raises(BadInput, match=r"--reader fid: .*both names no such reader; it has rag-token, closed-book"):
        Pipeline.load(tmp_path / "both", reader="fid")
    with pytest.raises(
        BadInput, match=r"--reader nope: .*both has rag-token, closed-book, and no such directory is there"
    ):
        Pipeline.load(tmp_path / "both", reader="nope")
    with pytest.raises(BadInput, match="give a directory, or fid:DIRECTORY"):
        Pipeline.load(index, reader="fid")


def test_a_saved_pipeline_keeps_its_generator(rag: Path, index: Path, tmp_path: Path) -> None:
    Pipeline.load(index, reader=rag).save(tmp_path / "p")
    again = Pipeline.load(tmp_path / "p")
    assert again.reader.fingerprint == GenerativeReader.load(rag).fingerprint
    assert artefacts.read_manifest(tmp_path / "p", "pipeline").parents["reader"] == again.reader.fingerprint


def test_generators_answer_on_the_command_line(bart: Path, index: Path, capsys: pytest.CaptureFixture[str]) -> None:
    common = ("ask", QUESTION, "--index", str(index), "--retriever", "dense", "--min-confidence", "0", "--reader")
    status, out, error = run(*common, f"rag-token:{bart}", "--json", capsys=capsys)
    answer = Pipeline.load(index, retriever="dense", reader=f"rag-token:{bart}").ask(QUESTION)
    row = json.loads(out)
    assert (status, error, row["answer"], row["supported"]) == (0, "", answer.text, False)
    assert [source["weight"] for source in row["sources"]] == [round(each.weight, 4) for each in answer.sources]
    assert row["reason"] == "in none of the passages that were read"
    status, out, _ = run(*common, f"closed-book:{bart}", capsys=capsys)
    assert status == 0 and out.count("\n") == 1 and out.endswith("; unsupported: no passages were read)\n")
    status, out, _ = run(*common, f"closed-book:{bart}", "--min-confidence", "1", capsys=capsys)
    assert (status, out) == (1, "No answer: the best has confidence 0.00, below 1.00.\n")
    status, out, _ = run(*common, f"closed-book:{bart}", "--min-confidence", "1", "--json", capsys=capsys)
    assert (json.loads(out)["answer"], json.loads(out)["supported"]) == (None, None)


def test_invalid_generators_are_reported_in_one_line(
    rag: Path, bart: Path, small: Path, index: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for setting, line in {
        str(bart): "is a plain seq2seq: name its kind, one of rag-token",
        f"fid:{rag}": "is a generator of kind rag-token, not fid",
        "rag-token:": "name the directory of the model after the colon",
        "rag-token": "names no such reader",
        f"rag-token:{small}": str(small),
    }.items():
        status, out, error = run("ask", "Who?", "--index", str(index), "--reader", setting, capsys=capsys)
        assert (status, out) == (2, "") and line in error and len(error.splitlines()) == 1, (setting, error)
    with pytest.raises(ArtefactError):
        open_reader(f"rag-token:{small}")
    assert load_generator(rag).passages == 3


def write_variant(path: Path, bart: Path, *, tokenizer: Any = None, bias: int | None = None) -> Path:
    """Save a copy of the model with another tokenizer, or one that always writes the token ``bias``."""
    model = BartForConditionalGeneration.from_pretrained(bart)
    if bias is not None:
        model.final_logits_bias[0, bias] = 1e4
    model.save_pretrained(path)
    (tokenizer or bart_tokenizer()).save_pretrained(path)
    return path


def test_unsupported_or_damaged_models_are_reported_in_one_line(
    bart: Path, index: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    size = len(bart_tokenizer())
    GPT2LMHeadModel(GPT2Config(vocab_size=size, n_embd=16, n_layer=1, n_head=2)).save_pretrained(tmp_path / "gpt2")
    places = {
        tmp_path / "gpt2": "is a gpt2, not one of the supported seq2seqs: bart, blenderbot,",
        write_variant(
            tmp_path / "small", bart, tokenizer=word_tokenizer(60)
        ): "has 60 pieces, the model 300 embeddings",
        write_variant(tmp_path / "alike", bart, tokenizer=word_tokenizer(size)): "it belongs to another model",
        write_variant(tmp_path / "broken", bart): "has no tokenizer that can be loaded",
        write_variant(tmp_path / "torn", bart): "is not a seq2seq that can be loaded",
        tmp_path / "nowhere": "nowhere: no such directory",
    }
    (tmp_path / "broken" / "tokenizer.json").write_text("{")
    (tmp_path / "torn" / "model.safetensors").write_bytes(b"torn")
    capsys.readouterr()
    for place, line in places.items():
        reader = f"rag-token:{place}"
        status, out, error = run("ask", QUESTION, "--index", str(index), "--reader", reader, capsys=capsys)
        assert (status, out) == (2, "") and line in error and len(error.splitlines()) == 1, (place, error)


@pytest.mark.parametrize("kind", KINDS)
def test_unusual_questions_and_passages_cause_no_traceback(
    kind: str, bart: Path, index: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No passages, an empty answer, and questions and passages over the input limit."""
    silent = write_variant(tmp_path / "silent", bart, bias=2)
    common = ("--index", str(index), "--min-confidence", "0", "--max-answer", "4")
    capsys.readouterr()
    status, out, _ = run("ask", QUESTION, *common, "--reader", f"{kind}:{silent}", capsys=capsys)
    where = "No answer" if kind == "closed-book" else "No answer in these documents"
    assert status == 1 and out.startswith(f"{where}: the generator wrote nothing.")
    asked = ("ask", "xqzzy", *common, "--retriever", "bm25", "--reader", f"{kind}:{bart}")
    status, out, _ = run(*asked, capsys=capsys)
    nothing = (1, "No answer: no passages were found.\n")
    assert (status, out) == nothing if kind != "closed-book" else status == 0
    longest = "who built it " * 200  # the model reads 128 bytes; the passages are longer as well
    reader = Pipeline.load(index, retriever="dense", reader=f"{kind}:{bart}", decoding=Decoding(max_answer=4))
    short, long, again = reader.ask([QUESTION, longest, QUESTION])
    assert (
        short == again and long.text is not None and short.score == pytest.approx(reader.ask(QUESTION).score, rel=1e-4)
    )
