"""Generative readers over small models: decoding, saving, and the command line."""

import json
from math import exp
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import run
from transformers import BartForConditionalGeneration, GPT2Config, GPT2LMHeadModel

from ragqa import artefacts
from ragqa.errors import ArtefactError, BadInput
from ragqa.models.generation.generators import load_generator, make_generator, save_generator
from ragqa.models.generation.search import SearchSettings
from ragqa.models.generation.seq2seq import Seq2Seq
from ragqa.pipeline import Pipeline
from ragqa.reading.base import Decoding
from ragqa.reading.generative import GenerativeReader
from ragqa.reading.registry import open_reader
from ragqa.retrieval.live import open_retriever
from ragqa.types import Answer, Hit
from tests.helpers.generators import bart_tokenizer, word_tokenizer, write_bart


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


def assert_refused(index: Path, options: tuple[str, ...], line: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Check that ``ragqa ask`` with these options fails with one line on the error stream."""
    status, out, error = run("ask", QUESTION, "--index", str(index), *options, capsys=capsys)
    assert (status, out) == (2, "") and line in error and len(error.splitlines()) == 1, (options, error)


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
    decoding = Decoding(beams=2, max_answer=5, min_answer=1)
    Pipeline.load(index, reader=tmp_path / "short", k=1, decoding=decoding, readers={"rag-sequence": rag}).save(
        tmp_path / "set"
    )
    again = Pipeline.load(tmp_path / "set")
    assert (again.k, again.reader.decoding, again.describe()["decoding"]["beams"]) == (1, decoding, 2)  # type: ignore[attr-defined]
    other = Pipeline.load(tmp_path / "set", reader="rag-sequence")  # its own settings of training
    assert (other.k, other.reader.decoding) == (3, Decoding(max_answer=32))  # type: ignore[attr-defined]
    assert Pipeline.load(tmp_path / "set", k=3, decoding=Decoding(max_answer=6)).k == 3
    assert Pipeline.load(index).k == 30
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
    search = SearchSettings(beams=3, max_answer=6, min_answer=2, max_candidates=5 if kind == "rag-sequence" else 3)
    (wanted,) = generator.generate(inputs, relevance, search, **({"fast": True} if fast else {}))
    row = json.loads(out)
    texts = list(dict.fromkeys(generator.seq2seq.tokens.decode(each.ids) for each in wanted))
    assert status == 0 and not error
    assert [row["answer"], *(other["answer"] for other in row["alternatives"])] == texts and len(texts) > 1
    assert row["confidence"] == pytest.approx(exp(wanted[0].log_prob), abs=1e-4)


def test_invalid_decoding_is_reported_in_one_line(rag: Path, index: Path, capsys: pytest.CaptureFixture[str]) -> None:
    writes = ("--reader", str(rag))
    for options, line in {
        ("--beams", "2"): "are for generative readers, and this is a span reader: leave them out",
        (*writes, "--max-answer", "999"): "max_answer = 999: the generator writes 128 tokens at most",
        (*writes, "--max-answer", "3", "--min-answer", "3"): "min_answer = 3, max_answer = 3: at least 1 beam",
        (*writes, "--max-answer", "1"): "max_answer = 1: at least 1 beam, 2 tokens",
    }.items():
        assert_refused(index, options, line, capsys)
    with pytest.raises(BadInput, match="beams = 0"):
        Pipeline.load(index, reader=rag, decoding=Decoding(beams=0))


def test_scores_of_another_retriever_are_reported_on_the_command_line(
    bart: Path, index: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
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
    assert status == 0 and " ".join(out.split()).endswith("; unsupported: no passages were read)")
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
        assert_refused(index, ("--reader", setting), line, capsys)
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
        assert_refused(index, ("--reader", f"rag-token:{place}"), line, capsys)


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
    arguments = ("ask", "xqzzy", *common, "--retriever", "bm25", "--reader", f"{kind}:{bart}")
    status, out, _ = run(*arguments, capsys=capsys)
    nothing = (1, "No answer: no passages were found.\n")
    assert (status, out) == nothing if kind != "closed-book" else status == 0
    longest = "who built it " * 200  # the model reads 128 bytes; the passages are longer as well
    reader = Pipeline.load(index, retriever="dense", reader=f"{kind}:{bart}", decoding=Decoding(max_answer=4))
    short, long, again = reader.ask([QUESTION, longest, QUESTION])
    assert (
        short == again and long.text is not None and short.score == pytest.approx(reader.ask(QUESTION).score, rel=1e-4)
    )
