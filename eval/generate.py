"""The arms of the table of generators, and the settings of the stages that each of them is made of.

All generators begin from one start that denoises the corpus, and then have as many steps of questions of one file, as
many at a time and by the same rates. Those that retrieve share the first of them (``reading``, beside a single passage)
and one retriever; the closed book has its own task in all of them, without passages. So what a generator has from its
passages is what it is above the closed book.
"""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from eval.ablation_corpus import INDEX, QUESTIONS
from eval.generate_questions import DEV, TRAIN
from eval.generate_sizes import Sizes
from pipelines.closed_book import ClosedBookConfig
from pipelines.denoise import DenoiseConfig
from pipelines.fid import FidConfig
from pipelines.fine_tune import FineTuneConfig
from pipelines.rag import RagConfig
from ragqa import artefact
from ragqa.models.dual_encoder import DualEncoder

ARMS = {
    "closed-book": "closed book",
    "rag-token": "RAG-Token",
    "rag-sequence": "RAG-Sequence",
    "fid": "FiD",
    "span-tuned": "span reader, trained on the same questions",
    "span": "ragqa's own span reader",
}
"""By name, what a reader calls them."""

Stage = RagConfig | FidConfig | ClosedBookConfig | FineTuneConfig


@dataclass(frozen=True, kw_only=True)
class Places:
    """Where everything lies."""

    work: Path
    """A folder for each arm, and what they share: retriever, vectors, index, generator, start."""
    corpus: Path
    """What ``eval.generate_corpus`` made."""
    encoder: Path
    """Torch weights of all-MiniLM-L6-v2 or another BERT: generator, span reader and retriever begin from it."""
    data: Path
    """Folder of the data sets."""
    given: Path | None = None
    """A dual encoder in place of the one that is made of ``encoder``."""
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
    with artefact.writing(places.retriever) as folder:
        towers.save(folder)
    return places.retriever


def begin_encoder(places: Places, sizes: Sizes) -> Path:
    """The first layers of the encoder, of which generators and span reader are made."""
    short = places.work / "encoder"
    if not short.is_dir():
        with artefact.writing(short) as folder:
            config = json.loads((places.encoder / "config.json").read_text())
            config["num_hidden_layers"] = min(sizes.layers, config["num_hidden_layers"])
            (folder / "config.json").write_text(json.dumps(config, indent=1))
            for name in ("model.safetensors", "tokenizer.json"):  # weights of other layers are left when it is loaded
                shutil.copyfile(places.encoder / name, folder / name)
    return short


def start(places: Places, sizes: Sizes) -> DenoiseConfig:
    """The start of all generators: made of the encoder, they denoise the corpus."""
    return DenoiseConfig(
        corpus=places.passages,
        encoder=places.work / "encoder",
        decoder_layers=sizes.decoder_layers,
        objective="infilling" if sizes.objective == "infilling" else "spans",
        out=places.work / "start",
        steps=sizes.start_steps,
        batch=sizes.start_batch,
        max_text=sizes.start_text,
        lr=sizes.start_lr,
        warmup=sizes.warm(sizes.start_steps),
        dropout=0.0,
        save_every=sizes.every(sizes.start_steps, sizes.saves),
        device=places.device,
        seed=sizes.seed,
    )


def training(places: Places, sizes: Sizes, name: str) -> Stage | None:
    """The training of an arm; None for the reader that comes with ragqa."""
    if name == "span":
        return None
    if name == "span-tuned":
        return tuning(places, sizes, name)
    if name == "closed-book":
        common = writing(places, sizes, name, sizes.read_steps + sizes.steps)
        common["generator"] = start(places, sizes).out / "model"
        return ClosedBookConfig(index=places.index, calibrate=sizes.calibrate, **common)
    common = writing(places, sizes, name, sizes.steps)
    common["generator"] = began(places, sizes)
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


def reading(places: Places, sizes: Sizes) -> RagConfig:
    """How those begin that retrieve: RAG with one passage and a retriever that stays, so that there is only to read."""
    own: dict[str, Any] = {"generator": start(places, sizes).out / "model", "out": places.work / "reading"}
    own |= {"dev": None, "seed": sizes.seed + 1}  # other questions than those that the arms begin with
    return RagConfig(
        corpus=places.passages,
        retriever=places.retriever,
        k=1,
        smoothing=0.0,
        frozen=sizes.read_steps,
        **{**writing(places, sizes, "reading", sizes.read_steps), **own},
    )


def began(places: Places, sizes: Sizes) -> Path:
    """The generator that those go on from that retrieve."""
    return reading(places, sizes).out / "generator" if sizes.read_steps else start(places, sizes).out / "model"


def begun_by(places: Places, sizes: Sizes, name: str) -> list[DenoiseConfig | RagConfig]:
    """The stages that an arm shares with others and begins from, in order."""
    if name.startswith("span"):
        return []
    reads = sizes.read_steps and name != "closed-book"
    return [start(places, sizes), *([reading(places, sizes)] if reads else [])]


def tuning(places: Places, sizes: Sizes, name: str) -> FineTuneConfig:
    """ORQA's fine-tuning, on the same questions: retriever and span reader."""
    return FineTuneConfig(
        corpus=places.passages,
        retriever=places.retriever,
        encoder=places.work / "encoder",
        beam=sizes.beam,
        read=sizes.k,
        max_input=sizes.max_input,
        retriever_lr=sizes.retriever_lr,
        **shared(places, sizes, name, sizes.tune_steps),
    )


def writing(places: Places, sizes: Sizes, name: str, steps: int) -> dict[str, Any]:
    """What all that train a generator on questions are told."""
    lengths = {"max_answer": sizes.max_answer, "max_input": sizes.max_input}
    return {**shared(places, sizes, name, steps), **lengths}


def shared(places: Places, sizes: Sizes, name: str, steps: int) -> dict[str, Any]:
    """What all arms are told."""
    return {
        "questions": places.questions,
        "dev": places.dev,
        "sample": sizes.sample,
        "out": places.arm(name) / "train",
        "steps": steps,
        "batch": sizes.batch,
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
    if name == "span-tuned":
        return f"{sizes.tune_steps:,} steps of {sizes.batch} questions"
    return f"{sizes.read_steps + sizes.steps:,} steps of {sizes.batch} questions"


def caption(corpus: dict[str, Any], sizes: Sizes) -> str:
    """What a reader of the table must know; ``corpus`` is the report of ``eval.generate_corpus``."""
    sources = {name: each["blocks"] for name, each in corpus["sources"].items() if "blocks" in each}
    made = ", ".join(f"{blocks:,} {name}" for name, blocks in sources.items())
    train = corpus["questions"]["train"]
    reads = f"; in the first {sizes.read_steps:,} steps of RAG and FiD a single one" if sizes.read_steps else ""
    return (
        f"Corpus: {corpus['blocks']:,} blocks of 100 words, one for all four test sets, not Wikipedia: {made}. "
        "nq-gold, squad, qed and squad-train are the passages that questions of NQ test-a, SQuAD dev-a and the "
        "training sets were answered from; said are whole articles whose title is said in a question of NQ dev or of "
        "the training questions of WebQuestions or CuratedTREC, random are others: no question of a test set chose "
        "one. One dense retriever for all, before RAG and span reader trained its tower of questions on. Trained on "
        f"{train['questions']:,} questions ({train['NQ']:,} of NQ, {train['SQuAD']:,} of SQuAD train), none of which "
        f"equals or is like one of the four test sets; {sizes.k} passages read in training, {sizes.read} here{reads}. "
        "Percent of the questions, 95 % intervals in brackets: over questions, not over trainings, of which there is "
        "one a row. ragqa's own span reader was trained on SQuAD train alone; span readers have no closed book. What "
        "begins from all-MiniLM-L6-v2 has seen pairs from the train splits of NQ and SQuAD."
    )
