"""Supervised training of a dual encoder (DPR, Karpukhin et al. 2020), from questions with answers or with passages.

    ragqa index wiki/ --out wiki.index --retriever bm25
    python -m pipelines.dpr.train --corpus wiki.index --encoder runs/encoder/model --questions nq/train.jsonl \\
        --dev nq/dev.jsonl --out runs/dpr --rounds 2

A question has to find its passage among those of the whole batch and a hard one beside it, which BM25 ranks high and
which holds no answer. With ``--rounds 2`` the retriever then looks for such passages itself, and training begins once
more with BM25's and its own: from the encoder, as for DPR's later checkpoint, or with ``--go-on`` from its weights
(ANCE, Xiong et al. 2021); DPR's author found the two about equal (github.com/facebookresearch/DPR, issue 114).

What comes out is OUT/model, its export for the CPU OUT/export, and for each round OUT/round-N with its figures. The
published recipe is one for 8 GPUs (``--processes 8 --gpus``); vectors are computed in parts of ``--chunk``, so that
one will do, or a CPU.

Legend: B questions of a batch, P its different passages, D width.
"""

import json
import shlex
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch

from pipelines.common import mining
from pipelines.common.best import Best
from pipelines.common.config import TrainingConfig, require
from pipelines.common.contrastive import contrast
from pipelines.common.mining import PassageSearch, QuestionFile, build_temporary_index
from pipelines.common.negatives import RetrievalExample
from pipelines.common.retrieval_eval import Examination, examine_anew
from pipelines.common.run import FREE, Run, held, read_row, running, vacant, write_model
from pipelines.common.tokenized_passages import Blocks
from pipelines.dpr.batches import Batch, PairBatches
from ragqa import artefacts
from ragqa.errors import BadInput, MissingExtra
from ragqa.models.dual_encoder import DualEncoder
from ragqa.models.pretrained import set_dropout
from ragqa.progress import SILENT, Progress
from ragqa.questions import read_questions
from ragqa.retrieval.base import PassageRetriever
from ragqa.retrieval.dense import DenseRanker
from ragqa.retrieval.live import open_retriever
from ragqa.retrieval.registry import RetrieverKind
from ragqa.runtime.encoder import load_encoder
from ragqa.runtime.export import export
from ragqa.runtime.tokens import TextTokenizer
from ragqa.training import parallel
from ragqa.training.schedule import warmup_linear, warmup_steps
from ragqa.training.step import parameter_groups


@dataclass(frozen=True, kw_only=True)
class DprConfig(TrainingConfig):
    """What is trained, on what, and for how long. Defaults are DPR's for Natural Questions."""

    corpus: Path
    """Index directory of the passages, with terms (``ragqa index --retriever bm25`` makes one)."""
    encoder: Path | None = None
    """Directory of the encoder that both towers begin from."""
    retriever: Path | None = None
    """In its place, a dual encoder to train on (from pipelines.orqa.inverse_cloze, say): width, pooling, shared
    are its own."""
    questions: tuple[Path, ...] = ()
    """Files of training questions, with answers or with the passages where these stand; see docs/evaluate.md."""
    patterns: tuple[Path, ...] = ()
    """Files whose answers are regular expressions (CuratedTREC)."""
    corpus_only: bool = False
    """Leave out gold passages that the corpus does not hold: they have no titles and may be set in another way, as
    QED's are, and then it is that which tells them from the negatives."""
    dev: Path | None = None
    """File of held-out questions, on which recall is measured; what stands there is not trained on. Of each round the
    weights of the best recall@5 are kept, without it the last."""
    dev_regex: bool = False
    """Its answers are patterns (CuratedTREC)."""
    sample: int | None = 500
    """How many of them."""
    rounds: int = 1
    """1: negatives of BM25; 2: then once more with the retriever's own beside them; and so on."""
    go_on: bool = False
    """Later rounds begin with the weights of the one before (ANCE) instead of anew (DPR)."""
    depth: int = 100
    """Passages of a question among which its positive and its negatives are looked for."""
    pool: int = 30
    """Highest-ranked negatives of a question that are drawn from, of each kind."""
    epochs: float = 40.0
    """Passes over the questions, in each round; 100 where they are few (DPR, section 4.2)."""
    steps: int | None = None
    """In place of epochs."""
    batch: int = 128
    """Questions a step."""
    hard: int = 1
    """Hard negatives of a question in a batch."""
    chunk: int = 128
    """Texts whose activations are in memory at a time; fewer cost time, but change no step."""
    lr: float = 2e-5
    """Learning rate at its peak."""
    warmup: int | None = None
    """Steps; by default 1237, or a tenth of all if that is less."""
    weight_decay: float = 0.0
    clip: float = 2.0
    width: int | None = None
    """Of a projection of the vectors; None takes them as the encoder has them."""
    pooling: Literal["cls", "mean"] = "cls"
    shared: bool = False
    """One tower for questions and passages."""
    max_query: int = 64
    """Wordpieces of a question, [CLS] and [SEP] included."""
    max_block: int = 256
    """The same of a passage."""
    eval_every: int = 1000
    """Steps between two evaluations."""
    workers: int = 0
    """Ray actors that embed passages for an evaluation or for mining; 0 embeds in this process."""
    no_export: bool = False
    """Leave out the export to 8 bits."""

    def __post_init__(self) -> None:
        """Raise BadInput for values that cannot be meant."""
        alone = self.batch == 1 and not self.hard
        require(self, hard=(self.hard >= 0 and not alone, "0 or more, and more than 0 with a batch of 1"))
        if (self.encoder is None) == (self.retriever is None):
            raise BadInput("one of --encoder and --retriever is needed: what training begins from")
        if not self.sources:
            raise BadInput("--questions or --patterns is needed: files of training questions")

    @property
    def sources(self) -> list[QuestionFile]:
        """Files of training questions."""
        return [*(QuestionFile(file) for file in self.questions), *(QuestionFile(file, True) for file in self.patterns)]


def main(config: DprConfig, *, progress: Progress = SILENT, notify: Callable[[str], None] = lambda line: None) -> Path:
    """Mine, train, export, or go on with it; the directory of the retriever.

    Args:
        config: see there.
        progress: told of the questions and of the steps.
        notify: told of what was mined, of evaluations and of the end, a line each.

    Raises:
        BadInput, ArtefactError: a file or directory is not what it should be, or a setting cannot be meant.
        NonFiniteLoss: training would have spoiled the weights.
    """
    first = beginning(config, 1)  # what is wrong with it is told before hours of mining
    check(config)
    if not (config.out / PAIRS).is_file():
        vacant(config.out)
    config.out.mkdir(parents=True, exist_ok=True)
    with held(config.out):
        limit = first.passages.max_tokens
        config = replace(config, max_query=min(config.max_query, limit), max_block=min(config.max_block, limit))
        assert first.tokenizer is not None
        tokenizer = TextTokenizer(first.tokenizer.parent)
        with parallel.take_turns():
            found = mined(config, progress, notify)
            blocks = Blocks.open(config.corpus, tokenizer, config.out / "blocks", progress=progress)
        exam = None
        if config.dev is not None:
            exam = Examination.of(config.dev, blocks, config.sample, config.seed, regex=config.dev_regex)
        for number in range(1, config.rounds + 1):
            with parallel.take_turns():
                harder = mined_again(config, number, found, progress, notify) if number > 1 else found
            train_round(config, number, harder, blocks, exam, progress, notify)
        with parallel.take_turns():
            return config.out / "model" if not parallel.is_first_process() else publish(config, notify)


def check(config: DprConfig) -> None:
    """Raise now what would else be raised after hours of work."""
    for file in (*config.questions, *config.patterns, *((config.dev,) if config.dev else ())):
        if not file.is_file():
            raise BadInput(f"{file}: no such file of questions")
    open_retriever(config.corpus, RetrieverKind.BM25)


def beginning(config: DprConfig, number: int) -> DualEncoder:
    """The towers as a round begins with them."""
    if number > 1 and config.go_on:
        return DualEncoder.load(model_of(config, number - 1))
    start = config.retriever or config.encoder
    assert start is not None
    if not start.is_dir():  # a hub would be asked for one of this name
        raise BadInput(f"{start}: no such directory to begin from")
    if config.retriever is not None:
        return DualEncoder.load(start)
    return DualEncoder.from_encoder(start, width=config.width, pooling=config.pooling, shared=config.shared)


def model_of(config: DprConfig, number: int) -> Path:
    """Directory of what a round makes."""
    return config.out / f"round-{number}" / "model"


def mined(config: DprConfig, progress: Progress, notify: Callable[[str], None]) -> list[RetrievalExample]:
    """The training questions with BM25's passages; mined, unless that was done."""
    index = artefacts.read_manifest(config.corpus, "index")
    terms = open_retriever(config.corpus, RetrieverKind.BM25)
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
    file = config.out / PAIRS
    if not file.is_file():
        line = mining.mine_examples(
            config.sources,
            PassageSearch(terms, config.depth, config.pool),
            file,
            identity,
            keep_texts=not config.corpus_only,
            held_out=[question.text for question in read_questions(config.dev)] if config.dev else (),
            progress=progress,
        )
        notify(f"{file}: {line}")
    return mining.read_examples(file, identity)


def mined_again(
    config: DprConfig, number: int, found: list[RetrievalExample], progress: Progress, notify: Callable[[str], None]
) -> list[RetrievalExample]:
    """The pairs with what the retriever of the round before ranks high, too; mined, unless that was done."""
    before, folder = model_of(config, number - 1), config.out / f"round-{number}"
    folder.mkdir(exist_ok=True)
    file, vectors = folder / "negatives.jsonl", folder / "vectors"
    weights = [artefacts.checksum(each) for each in sorted(before.rglob("*.safetensors"))]
    identity = {"pairs": artefacts.checksum(config.out / PAIRS), "retriever": weights}
    if not file.is_file():
        options: dict[str, Any] = {"device": config.device, "workers": config.workers, "progress": progress}
        with build_temporary_index(before, config.corpus, vectors, **options) as (store, index):
            retriever = PassageRetriever(DenseRanker(load_encoder(before, device=config.device), index), store)
            search = PassageSearch(retriever, config.depth, config.pool)
            line = mining.mine_own_negatives(found, search, file, identity, progress=progress)
        notify(f"{file}: {line}")
    shutil.rmtree(vectors, ignore_errors=True)
    return mining.add_own_negatives(file, identity, found)


def train_round(
    config: DprConfig,
    number: int,
    found: list[RetrievalExample],
    blocks: Blocks,
    exam: Examination | None,
    progress: Progress,
    notify: Callable[[str], None],
) -> None:
    """Train, or go on training, what ``model_of`` a round then holds; nothing where that was done."""
    batches = PairBatches(
        found,
        blocks,
        batch=config.batch,
        hard=config.hard,
        max_query=config.max_query,
        max_block=config.max_block,
        seed=(config.seed, number),
    )
    steps = config.steps or max(1, round(config.epochs * batches.per_epoch))
    own = replace(config, out=config.out / f"round-{number}", steps=steps, rounds=number, no_export=False)
    if finished(own):
        return
    torch.manual_seed(config.seed)
    retriever = beginning(config, number).to(config.device)
    retriever.limit_tokens(config.max_query, config.max_block)
    set_dropout(retriever.train(), config.dropout)
    optimizer = torch.optim.AdamW(parameter_groups(retriever, decay=config.weight_decay), lr=config.lr)
    with running(own, retriever, optimizer, name=f"DPR, round {number}", progress=progress, notify=notify) as run:
        best = Best(run, "recall@5")
        while True:
            if exam and run.due(config.eval_every) and parallel.is_first_process():
                indexed: dict[str, Any] = {"device": config.device, "workers": config.workers}
                best.told(**examine_anew(run.path / "dev", retriever, exam, config.corpus, **indexed))
            if run.due(config.save_every) and run.step:
                best.save()
            if run.done:
                break
            run.begin()
            train_step(run, retriever, batches[run.step], config)
        best.restore()
    if parallel.is_first_process():
        write_model(retriever, model_of(config, number))
        artefacts.write_text_whole(own.out / DONE, json.dumps(settings(own)))


PAIRS = "pairs.jsonl"
"""What BM25 found."""
DONE = "done.json"
"""Settings of a round, once its model is there."""


def settings(config: DprConfig) -> dict[str, Any]:
    """All that may not change while a run goes on, as JSON has it."""
    fixed = {name: value for name, value in asdict(config).items() if name not in FREE}
    now: dict[str, Any] = json.loads(json.dumps(fixed, default=str))
    return now


def finished(config: DprConfig) -> bool:
    """Whether a round was trained to its end; raises BadInput where that was with other settings."""
    mark = config.out / DONE
    if not mark.is_file():
        return False
    before, now = read_row(mark), settings(config)
    if told := [f"{name} {before.get(name)}, not {now[name]}" for name in now if before.get(name) != now[name]]:
        raise BadInput(f"{config.out} was trained with other settings ({', '.join(told)}): choose another directory")
    return True


def train_step(run: Run, retriever: DualEncoder, batch: Batch, config: DprConfig) -> None:
    """One optimizer step; raises NonFiniteLoss before the weights change."""
    warmup = warmup_steps(config.warmup, 1237, run.steps)
    rate = warmup_linear(run.step, peak=config.lr, warmup=warmup, total=run.steps)
    even = batch.evenly(parallel.count_processes())
    sides = even.questions, even.passages
    passages = len(batch.passages)
    contrast(run, retriever, sides, even.positive_B, even.masked_BP, config, rate=rate, passages=passages)


def publish(config: DprConfig, notify: Callable[[str], None]) -> Path:
    """The last round's model as OUT/model, and its export beside it."""
    model, aside = config.out / "model", config.out / ".model.writing"
    shutil.rmtree(aside, ignore_errors=True)
    shutil.copytree(model_of(config, config.rounds), aside)
    artefacts.swap_into_place(aside, model)
    encoder = model
    if not config.no_export:
        try:
            export(model, config.out / "export")
            encoder = config.out / "export"
        except MissingExtra as error:
            notify(f"not exported: {error}")
    sources = artefacts.peek_manifest(config.corpus).config["sources"]
    documents = shlex.join(sources) if len(sources) <= 3 else "DOCUMENTS"
    notify(f"index with it: ragqa index {documents} --out NAME.index --retriever dense --encoder {encoder}")
    return model


if __name__ == "__main__":
    from pipelines.common.processes import together
    from ragqa.cli.config import parse_config, report_errors
    from ragqa.progress import Bars

    with report_errors("pipelines.dpr.train"):
        print(together(main, parse_config(DprConfig, __doc__), progress=Bars(), notify=print))
