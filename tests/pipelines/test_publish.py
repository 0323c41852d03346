"""A published checkpoint of RAG and DPR's encoder of passages, as one pipeline that answers."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import run
from transformers import DPRContextEncoder, DPRQuestionEncoder, RagTokenForGeneration

from pipelines import publish
from pipelines.publish import PublishConfig
from ragqa.corpus.store import PassageStore
from ragqa.errors import ArtefactError, BadInput, Mismatch
from ragqa.indexing.build import IndexConfig, build_index
from ragqa.models.generation.generators import load_rag
from ragqa.models.generation.search import SearchSettings
from ragqa.pipeline import Pipeline
from ragqa.retrieval.live import open_retriever
from ragqa.runtime.encoder import load_encoder
from tests.helpers.generators import tiny_dpr_config, word_tokenizer, write_rag

QUESTION = "w3 w9 w20"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("words")
    rng = np.random.default_rng(3)
    texts = [" ".join(f"w{n}" for n in rng.integers(0, 55, 12)) for _ in range(20)]
    rows = [json.dumps({"id": str(n), "title": f"w{n}", "text": text}) for n, text in enumerate(texts)]
    (folder / "c.jsonl").write_text("\n".join(rows))
    build_index([folder / "c.jsonl"], folder / "c.index", IndexConfig(retriever="bm25"))
    return folder / "c.index"


def write_passages(path: Path, kind: Any = DPRContextEncoder, *, size: int = 60, seed: int = 8, **options: Any) -> Any:
    """DPR's encoder of passages, as it is published."""
    torch.manual_seed(seed)
    model = kind(tiny_dpr_config(size, **options)).eval()
    model.save_pretrained(path)
    word_tokenizer(size).save_pretrained(path)
    return model


def vector(model: Any, text: str) -> torch.Tensor:
    """Return the vector of a text by an encoder of transformers."""
    ids = torch.tensor([[2, *word_tokenizer(60)(text, add_special_tokens=False)["input_ids"], 3]])
    found: torch.Tensor = model(ids).pooler_output[0]
    return found


@pytest.mark.thorough
def test_a_checkpoint_of_rag_answers_as_a_pipeline(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It reads what transformers' own encoders find, and writes what its generator writes beside that."""
    checkpoint = write_rag(tmp_path / "rag", RagTokenForGeneration)
    encoder = write_passages(tmp_path / "dpr")
    told: list[str] = []
    config = PublishConfig(
        rag=str(tmp_path / "rag"), passages=str(tmp_path / "dpr"), corpus=corpus, out=tmp_path / "out"
    )
    path = publish.main(config, notify=told.append)
    assert told[0] == "rag-token, 3 passages a question"
    capsys.readouterr()  # what transformers said while it wrote
    options = ("--pipeline", str(path), "--reader", "rag-token", "--max-answer", "5", "--min-confidence", "0", "--json")
    status, out, error = run("ask", QUESTION, *options, capsys=capsys)
    assert (status, error) == (0, "")
    row = json.loads(out)

    passages = list(PassageStore.open(corpus / "passages").read_rows(0, 20))
    with torch.no_grad():
        vectors = torch.stack([vector(encoder, passage.titled_text) for passage in passages])
        scores = vectors @ vector(checkpoint.rag.question_encoder, QUESTION)
    best = scores.topk(3)
    assert {source["document"] for source in row["sources"]} == {passages[n].document for n in best.indices.tolist()}
    generator = load_rag(tmp_path / "rag").generator.eval()
    inputs = generator.make_inputs([QUESTION], [[passages[n] for n in best.indices.tolist()]])
    ((wanted,),) = generator.generate(inputs, best.values[None], SearchSettings(max_answer=5))
    assert row["answer"] == generator.seq2seq.tokens.decode(wanted.ids) != ""
    weights = {passages[n].document: weight for n, weight in zip(best.indices.tolist(), wanted.posterior, strict=True)}
    found = {source["document"]: source["weight"] for source in row["sources"]}
    assert found == pytest.approx(weights, abs=0.05)  # questions are encoded in 8 bits

    pipeline = Pipeline.load(path)
    assert (pipeline.k, pipeline.note, pipeline.ask(QUESTION).text is not None) == (3, None, True)
    straight = Pipeline.load(path, reader=tmp_path / "rag")  # whoever takes the checkpoint itself cannot be known
    assert straight.note is not None and "another dense retriever" in straight.note


def test_two_encoders_of_dpr_become_a_retriever(corpus: Path, tmp_path: Path) -> None:
    """An index of it finds by the very vectors of transformers' own two encoders."""
    asks = write_passages(tmp_path / "asks", DPRQuestionEncoder, seed=1, initializer_range=0.4)
    reads = write_passages(tmp_path / "reads", initializer_range=0.4)
    config = PublishConfig(questions=str(tmp_path / "asks"), passages=str(tmp_path / "reads"), out=tmp_path / "out")
    pair = publish.main(config)
    assert pair == publish.main(config) == tmp_path / "out" / "model"
    assert [path.name for path in pair.parent.iterdir() if path.is_dir()] == ["model"]
    shutil.copytree(tmp_path / "reads", tmp_path / "copy")
    with pytest.raises(BadInput, match=r"out holds a run with other settings \(passages .*reads, not .*copy"):
        publish.main(replace(config, passages=str(tmp_path / "copy")))
    build_index([corpus.parent / "c.jsonl"], tmp_path / "i", IndexConfig(retriever="dense", encoder=str(pair)))
    (hits,) = open_retriever(tmp_path / "i", "dense").search([QUESTION], 20)
    with torch.no_grad():
        asked, vectors = vector(asks, QUESTION), torch.stack([vector(reads, hit.passage.titled_text) for hit in hits])
    found = load_encoder(pair)
    np.testing.assert_allclose(found.encode_questions([QUESTION])[0], asked, atol=1e-5)
    np.testing.assert_allclose(found.encode([hit.passage.titled_text for hit in hits]), vectors, atol=1e-5)
    assert len(hits) == 20 and hits[0].score > hits[-1].score + 1
    assert [hit.score for hit in hits] == pytest.approx((vectors @ asked).tolist(), abs=0.02)  # kept in half precision


def test_models_that_do_not_belong_together_are_refused_in_one_line(corpus: Path, tmp_path: Path) -> None:
    write_rag(tmp_path / "rag", RagTokenForGeneration)
    write_passages(tmp_path / "dpr")
    write_passages(tmp_path / "asks", DPRQuestionEncoder)
    write_passages(tmp_path / "narrow", projection_dim=6)
    write_passages(tmp_path / "words", size=50)
    given: dict[str, Any] = {"rag": "rag", "passages": "dpr", "corpus": corpus, "out": tmp_path / "out"}
    for changed, kind, line in (
        ({"rag": "dpr"}, ArtefactError, "dpr is a model of type dpr, and a model of type rag is needed"),
        ({"passages": "rag"}, ArtefactError, "rag is a model of type rag, and a model of type dpr is needed"),
        ({"rag": None, "questions": "dpr"}, ArtefactError, "dpr holds DPRContextEncoder, not a DPRQuestionEncoder"),
        ({"rag": None, "questions": "asks", "passages": "words"}, Mismatch, "asks and .*words differ: they do not"),
        ({"rag": None}, BadInput, "either --rag or --questions is needed"),
        ({"questions": "asks"}, BadInput, "either --rag or --questions is needed"),
        ({"passages": "asks"}, ArtefactError, "asks holds DPRQuestionEncoder, not a DPRContextEncoder"),
        ({"passages": "nowhere"}, ArtefactError, "nowhere: no such directory"),
        ({"passages": "narrow"}, Mismatch, "have vectors of width 16 and 6: they do not belong together"),
        ({"passages": "words"}, Mismatch, "they do not belong together"),
        ({"corpus": tmp_path / "rag"}, ArtefactError, "rag"),
    ):
        settings = {**given, **changed}
        named = ("rag", "questions", "passages")
        places = {name: str(tmp_path / settings[name]) for name in named if settings.get(name)}
        with pytest.raises(kind, match=line) as caught:
            publish.main(PublishConfig(**{**settings, **places}))
        assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()
