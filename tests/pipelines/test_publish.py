"""Published checkpoints of RAG and DPR become a pipeline or a retriever."""

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
    """Write a passage encoder in the format of DPR's published checkpoints."""
    torch.manual_seed(seed)
    model = kind(tiny_dpr_config(size, **options)).eval()
    model.save_pretrained(path)
    word_tokenizer(size).save_pretrained(path)
    return model


def encode(model: Any, text: str) -> torch.Tensor:
    """Return the vector of a text, computed by transformers."""
    ids = torch.tensor([[2, *word_tokenizer(60)(text, add_special_tokens=False)["input_ids"], 3]])
    vector: torch.Tensor = model(ids).pooler_output[0]
    return vector


@pytest.mark.thorough
def test_a_rag_checkpoint_answers_in_a_pipeline_as_in_transformers(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Sources and answer equal those of the encoders of transformers and of RAG's generator."""
    checkpoint = write_rag(tmp_path / "rag", RagTokenForGeneration)
    encoder = write_passages(tmp_path / "dpr")
    lines: list[str] = []
    config = PublishConfig(
        rag=str(tmp_path / "rag"), passages=str(tmp_path / "dpr"), corpus=corpus, out=tmp_path / "out"
    )
    path = publish.main(config, notify=lines.append)
    assert lines[0] == "rag-token, 3 passages a question"
    capsys.readouterr()  # discards messages of transformers
    options = ("--pipeline", str(path), "--reader", "rag-token", "--max-answer", "5", "--min-confidence", "0", "--json")
    status, out, error = run("ask", QUESTION, *options, capsys=capsys)
    assert (status, error) == (0, "")
    row = json.loads(out)

    passages = list(PassageStore.open(corpus / "passages").read_rows(0, 20))
    with torch.no_grad():
        vectors = torch.stack([encode(encoder, passage.titled_text) for passage in passages])
        scores = vectors @ encode(checkpoint.rag.question_encoder, QUESTION)
    best = scores.topk(3)
    assert {source["document"] for source in row["sources"]} == {passages[n].document for n in best.indices.tolist()}
    generator = load_rag(tmp_path / "rag").generator.eval()
    inputs = generator.make_inputs([QUESTION], [[passages[n] for n in best.indices.tolist()]])
    ((expected,),) = generator.generate(inputs, best.values[None], SearchSettings(max_answer=5))
    assert row["answer"] == generator.seq2seq.tokens.decode(expected.ids) != ""
    weights = {
        passages[n].document: weight for n, weight in zip(best.indices.tolist(), expected.posterior, strict=True)
    }
    row_weights = {source["document"]: source["weight"] for source in row["sources"]}
    assert row_weights == pytest.approx(weights, abs=0.05)  # questions are encoded in 8 bits

    pipeline = Pipeline.load(path)
    assert (pipeline.k, pipeline.notes, pipeline.ask(QUESTION).text is not None) == (3, (), True)
    # The checkpoint itself does not name the retriever with which it was trained.
    direct = Pipeline.load(path, reader=tmp_path / "rag")
    assert "another dense retriever" in "".join(direct.notes)


def test_two_dpr_encoders_become_a_retriever(corpus: Path, tmp_path: Path) -> None:
    """Vectors and scores equal those of the two encoders of transformers."""
    question_encoder = write_passages(tmp_path / "asks", DPRQuestionEncoder, seed=1, initializer_range=0.4)
    passage_encoder = write_passages(tmp_path / "reads", initializer_range=0.4)
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
        query, vectors = (
            encode(question_encoder, QUESTION),
            torch.stack([encode(passage_encoder, hit.passage.titled_text) for hit in hits]),
        )
    encoder = load_encoder(pair)
    np.testing.assert_allclose(encoder.encode_questions([QUESTION])[0], query, atol=1e-5)
    np.testing.assert_allclose(encoder.encode([hit.passage.titled_text for hit in hits]), vectors, atol=1e-5)
    assert len(hits) == 20 and hits[0].score > hits[-1].score + 1
    assert [hit.score for hit in hits] == pytest.approx((vectors @ query).tolist(), abs=0.02)  # stored as float16


def test_models_that_do_not_fit_are_refused_in_one_line(corpus: Path, tmp_path: Path) -> None:
    write_rag(tmp_path / "rag", RagTokenForGeneration)
    write_passages(tmp_path / "dpr")
    write_passages(tmp_path / "asks", DPRQuestionEncoder)
    write_passages(tmp_path / "narrow", projection_dim=6)
    write_passages(tmp_path / "words", size=50)
    usual: dict[str, Any] = {"rag": "rag", "passages": "dpr", "corpus": corpus, "out": tmp_path / "out"}
    for changes, kind, message in (
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
        settings = {**usual, **changes}
        names = ("rag", "questions", "passages")
        paths = {name: str(tmp_path / settings[name]) for name in names if settings.get(name)}
        with pytest.raises(kind, match=message) as caught:
            publish.main(PublishConfig(**{**settings, **paths}))
        assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()
