"""Mining of DPR's examples with BM25, and of further negatives with the trained retriever."""

import shutil
from pathlib import Path

from pipelines.common.examples.mining import (
    PassageSearch,
    add_retriever_negatives,
    build_temporary_index,
    mine_examples,
    read_examples,
    write_retriever_negatives,
)
from pipelines.common.examples.retrieval_examples import RetrievalExample
from pipelines.dpr.config import DprConfig
from ragqa import artefacts
from ragqa.progress import Notify, Progress
from ragqa.question_files import read_questions
from ragqa.retrieval.base import PassageRetriever
from ragqa.retrieval.dense import DenseRanker
from ragqa.retrieval.live import open_retriever
from ragqa.retrieval.registry import RetrieverKind
from ragqa.runtime.encoder import load_encoder

EXAMPLES_FILE = "pairs.jsonl"
"""Name of the file with the examples mined with BM25, in the directory of the run."""
NEGATIVES_FILE = "negatives.jsonl"
"""Name of the file with the negatives mined with the retriever, in the directory of a round."""


def mine_bm25_examples(config: DprConfig, progress: Progress, notify: Notify) -> list[RetrievalExample]:
    """Mine training examples with BM25, or read the examples of an earlier call.

    Args:
        config: settings of the run.
        progress: shows the number of questions.
        notify: receives a line with the counts if examples are mined.

    Raises:
        BadInput, BadLine: a file cannot be read, no question can be used, or ``config.out`` holds examples of other
            inputs.
        ArtefactError, DamagedArtefact, MissingExtra: the index or the file of examples cannot be used.
    """
    index = artefacts.read_manifest(config.corpus, "index")
    retriever = open_retriever(config.corpus, RetrieverKind.BM25)
    identity = {
        "corpus": index.parents["corpus"],
        "engine": index.config["engine"],
        "questions": [artefacts.checksum(file) for file in config.questions],
        "patterns": [artefacts.checksum(file) for file in config.patterns],
        "dev": config.dev and artefacts.checksum(config.dev),
        "depth": config.depth,
        "pool": config.pool,
        "corpus-only": config.corpus_only,
    }
    file = config.out / EXAMPLES_FILE
    if not file.is_file():
        counts = mine_examples(
            config.files,
            PassageSearch(retriever, config.depth, config.pool),
            file,
            identity,
            keep_texts=not config.corpus_only,
            held_out=[question.text for question in read_questions(config.dev)] if config.dev else (),
            progress=progress,
        )
        notify(f"{file}: {counts}")
    return read_examples(file, identity)


def mine_retriever_negatives(
    config: DprConfig,
    folder: Path,
    retriever: Path,
    examples: list[RetrievalExample],
    progress: Progress,
    notify: Notify,
) -> list[RetrievalExample]:
    """Mine negatives with a trained retriever, or read the negatives of an earlier call.

    Args:
        config: settings of the run.
        folder: directory of the round.
        retriever: directory of the retriever of the previous round.
        examples: examples mined with BM25.
        progress: shows the number of questions.
        notify: receives a line with the counts if negatives are mined.

    Returns:
        The examples with the negatives of both retrievers.

    Raises:
        BadInput: the file in ``folder`` was mined for other examples or by another retriever.
        RagqaError: as for ``build_temporary_index``, ``load_encoder`` and ``add_retriever_negatives``.
    """
    folder.mkdir(exist_ok=True)
    file, vectors = folder / NEGATIVES_FILE, folder / "vectors"
    weights = [artefacts.checksum(file_of_weights) for file_of_weights in sorted(retriever.rglob("*.safetensors"))]
    identity = {"pairs": artefacts.checksum(config.out / EXAMPLES_FILE), "retriever": weights}
    if not file.is_file():
        with build_temporary_index(
            retriever,
            config.corpus,
            vectors,
            device=config.device,
            workers=config.workers,
            insecure=config.insecure,
            progress=progress,
        ) as (store, index):
            ranker = DenseRanker(load_encoder(retriever, device=config.device), index)
            search = PassageSearch(PassageRetriever(ranker, store), config.depth, config.pool)
            counts = write_retriever_negatives(examples, search, file, identity, progress=progress)
        notify(f"{file}: {counts}")
    shutil.rmtree(vectors, ignore_errors=True)
    return add_retriever_negatives(file, identity, examples)
