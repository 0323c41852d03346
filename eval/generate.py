"""The arms of the table of generators, and the settings of the stages that each of them is made of.

All generators begin from one start: the encoder of ragqa's own span reader and a decoder that was taught to answer
beside gold passages. Then they have as many steps of questions of one file, as many at a time and by the same rate, and
those that retrieve share one retriever; the closed book, which has no passages, has as many steps more as the start
took. So what a generator has from its passages is what it is above the closed book.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

from eval.ablation_corpus import INDEX, QUESTIONS
from eval.generate_questions import DEV, TRAIN
from eval.generate_sizes import Sizes
from pipelines.closed_book import ClosedBookConfig
from pipelines.common.negatives import golds_of
from pipelines.common.run import inputs
from pipelines.fid import FidConfig
from pipelines.rag.train import RagConfig
from pipelines.rag.warm_generator import WarmGeneratorConfig
from ragqa import artefacts
from ragqa.artefacts.paths import weights_dir
from ragqa.models.dual_encoder import DualEncoder
from ragqa.questions import read_questions
from ragqa.runtime.restore import restore

ARMS = {
    "closed-book": "closed book",
    "rag-token": "RAG-Token",
    "rag-sequence": "RAG-Sequence",
    "fid": "FiD",
    "span": "ragqa's own span reader",
}
"""By name, what a reader calls them."""

Stage = RagConfig | FidConfig | ClosedBookConfig


@dataclass(frozen=True, kw_only=True)
class Places:
    """Where everything lies."""

    work: Path
    """A folder for each arm, and what they share: retriever, vectors, index, reader, start."""
    corpus: Path
    """What ``eval.generate_corpus`` made."""
    encoder: Path
    """Torch weights of all-MiniLM-L6-v2: the retriever begins from it, and ragqa's own reader was made of it."""
    data: Path
    """Folder of the data sets."""
    given: Path | None = None
    """A dual encoder in place of the one that is made of ``encoder``."""
    begun: Path | None = None
    """A span reader of pipelines.span_reader.train, of which generators are made in place of ragqa's own."""
    device: str = "cpu"

    @property
    def passages(self) -> Path:
        """Index directory of the passages."""
        return self.corpus / INDEX

    @property
    def questions(self) -> Path:
        """Those that are trained on."""
        return self.corpus / QUESTIONS / TRAIN

    @property
    def dev(self) -> Path:
        """Those that choose weights, and calibrate."""
        return self.corpus / QUESTIONS / DEV

    @property
    def retriever(self) -> Path:
        """The dual encoder that all arms have."""
        return self.given or self.work / "retriever"

    @property
    def reader(self) -> Path:
        """The span reader that generators are made of."""
        return self.begun or self.work / "reader"

    @property
    def vectors(self) -> Path:
        """Of the passages, by the retriever."""
        return self.work / "vectors"

    @property
    def index(self) -> Path:
        """Index directory of these vectors."""
        return self.work / "index"

    def arm(self, name: str) -> Path:
        """Folder of an arm."""
        return self.work / name


def begin_retriever(places: Places, sizes: Sizes) -> Path:
    """The retriever, made unless it is there or given: MiniLM's vectors, ``scale`` times their cosine.

    A layer norm does in place of a length of 1: the mean of a vector's values is all but 0.
    """
    if places.retriever.is_dir():
        return places.retriever
    width = int(json.loads((places.encoder / "config.json").read_text())["hidden_size"])
    gain = (sizes.scale / width) ** 0.5
    towers = DualEncoder.from_encoder(places.encoder, width=width, pooling="mean", shared=True, gain=gain)
    project = towers.questions.project
    assert project is not None
    with torch.no_grad():
        nn.init.eye_(project.weight)
    with artefacts.writing(places.retriever) as folder:
        towers.save(folder)
    return places.retriever


def begin_reader(places: Places) -> Path:
    """The span reader; unless it is there or given, ragqa's own, made torch again of the weights that are shipped."""
    if not places.reader.is_dir():
        with artefacts.writing(places.reader) as folder:
            restore(weights_dir() / "reader", places.encoder, folder)
    return places.reader


def start(places: Places, sizes: Sizes) -> WarmGeneratorConfig:
    """The start of all generators."""
    common = writing(places, sizes, "start", sizes.start_steps)
    common |= {"out": places.work / "start", "lr": sizes.start_lr, "seed": sizes.seed + 1}  # other questions come first
    return WarmGeneratorConfig(reader=places.reader, decoder_layers=sizes.decoder_layers, fitted=sizes.fitted, **common)


def begun(places: Places, sizes: Sizes) -> Path:
    """The generator that all go on from."""
    return start(places, sizes).out / "generator"


def training(places: Places, sizes: Sizes, name: str) -> Stage | None:
    """The training of an arm; None for the reader that comes with ragqa."""
    if name == "span":
        return None
    steps = closed_steps(sizes) if name == "closed-book" else sizes.steps
    common = writing(places, sizes, name, steps) | {"generator": begun(places, sizes)}
    if name == "closed-book":
        return ClosedBookConfig(index=places.index, calibrate=sizes.calibrate, **common)
    if name == "fid":
        return FidConfig(index=places.index, retriever="dense", k=sizes.k, calibrate=sizes.calibrate, **common)
    return RagConfig(
        corpus=places.passages,
        retriever=places.retriever,
        marginal="token" if name == "rag-token" else "sequence",
        k=sizes.k,
        smoothing=0.0,  # as FiD and the closed book have none
        retriever_lr=sizes.retriever_lr,
        frozen=round(sizes.frozen * sizes.steps),
        **common,
    )


def writing(places: Places, sizes: Sizes, name: str, steps: int) -> dict[str, Any]:
    """What all that train a generator are told."""
    return {
        "questions": places.questions,
        "dev": places.dev,
        "sample": sizes.sample,
        "out": places.arm(name) / "train",
        "steps": steps,
        "batch": sizes.batch,
        "max_answer": sizes.max_answer,
        "max_input": sizes.max_input,
        "lr": sizes.lr,
        "warmup": sizes.warm(steps),
        "weight_decay": 0.01,
        "clip": 1.0,
        "dropout": 0.0,
        "eval_every": sizes.every(steps, sizes.evaluations),
        "save_every": sizes.every(steps, sizes.saves),
        "device": places.device,
        "seed": sizes.seed,
    }


def words(sizes: Sizes, name: str) -> str:
    """How an arm was trained: ``eval.table`` sets readers beside the closed book of the same words."""
    if name == "span":
        return "as it is shipped"
    return f"begun by {sizes.start_steps:,} steps, {sizes.steps:,} (closed book {closed_steps(sizes):,}) of its own"


def closed_steps(sizes: Sizes) -> int:
    """Of the closed book's own, which has learned nothing of answering without passages in the start."""
    return sizes.steps + sizes.start_steps


def made_of(places: Places) -> dict[str, str]:
    """What lies in the work folder is made of these: digests of the passages, the retriever and the reader."""
    return inputs(SimpleNamespace(corpus=places.passages, retriever=places.retriever, reader=places.reader))


def caption(corpus: dict[str, Any], places: Places, sizes: Sizes) -> str:
    """What a reader of the table must know; ``corpus`` is the report of ``eval.generate_corpus``."""
    sources = {name: each["blocks"] for name, each in corpus["sources"].items() if "blocks" in each}
    made = ", ".join(f"{blocks:,} {name}" for name, blocks in sources.items())
    train, gold = corpus["questions"]["train"], sum(1 for each in read_questions(places.questions) if golds_of(each))
    reader = f"the span reader {places.begun.name}" if places.begun else "ragqa's own span reader"
    retriever = places.given.name if places.given else "all-MiniLM-L6-v2"
    return (
        f"Corpus: {corpus['blocks']:,} blocks of 100 words, one for all four test sets, not Wikipedia: {made}. "
        "nq-gold, squad, qed and squad-train are the passages that questions of NQ test-a, SQuAD dev-a and the "
        "training sets were answered from; said are whole articles whose title is said in a question of NQ dev or of "
        "the training questions of WebQuestions or CuratedTREC, random are others: no question of a test set chose "
        f"one. One dense retriever for all, {retriever}, before RAG trained its tower of questions on. "
        f"All generators begin from {reader} and {sizes.start_steps:,} steps of {sizes.batch} questions beside gold "
        f"passages; then come {sizes.steps:,} steps of as many questions and what is retrieved, {sizes.k} passages "
        f"read in training, {sizes.read} here; for the closed book {closed_steps(sizes):,} steps without passages. "
        f"Questions: {train['questions']:,} ({train['NQ']:,} of NQ, {train['SQuAD']:,} of SQuAD train; {gold:,} have a "
        "gold passage), none of which equals or is like one of the four test sets. Percent of the questions, 95 % "
        "intervals in brackets: over questions, not over trainings, of which there is one a row. ragqa's own span "
        "reader was trained on SQuAD train alone. What begins from all-MiniLM-L6-v2 has seen pairs from the train "
        "splits of NQ and SQuAD."
    )
