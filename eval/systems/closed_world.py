"""Train systems in a closed world, a made-up corpus in which only retrieval can help.

    python -m eval.systems.closed_world --table masked-words --work runs/words --seeds 0 1 2
    python -m eval.systems.closed_world --table questions --work runs/questions --seeds 0 1 2
    python -m eval.systems.closed_world --table questions --work runs/try --smoke

The table ``masked-words`` pretrains REALM and tests it with masked statements of held-out facts. Two arms should work:
one refreshes the index every 50 steps, the other never. Two arms should collapse and raise alarms: in both, the
retriever learns at the reader's rate from the first step, and in one it also starts without inverse cloze.

The table ``questions`` trains generators, whose answers have two words. Three arms train only with all questions:
RAG-Token, RAG-Sequence, and the closed book. Five arms train with 50, 200, 1,000 and all questions, for 3,500 steps in
total: RAG alone, joint from the first step, REALM and then RAG, REALM and then joint, and joint training whose
questions begin after half of the steps.

One arm takes minutes on one core. Seeds are independent, so two processes can share the same --out.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from eval.command import run_command
from eval.systems.runner import Arm, Stage, TableRunner, format_table, select_arms
from eval.systems.world import (
    Fact,
    ObjectTagger,
    World,
    init_encoder,
    make_world,
    write_questions,
    write_world,
)
from ragqa.terminal import print_text

WORDS_A_STEP = 32
"""Number of masked statements in a training step of REALM."""
ALL = 0
"""Number of training questions that means all questions."""

# The formatter is off, because one line for each setting would make the arms hard to compare.
# fmt: off
INVERSE_CLOZE = Stage("inverse_cloze", "cloze", {
    "corpus": "{work}/world/known.index", "encoder": "{work}/start", "steps": 1000, "batch": 128,
    "lr": 1e-3, "warmup": 100, "dropout": 0.0, "width": 64, "pooling": "mean", "shared": True,
    "gain": 64**-0.25, "drop_rate": 0.5, "max_query": 32, "max_block": 32,
})
COLD_TOWERS = Stage("towers", "cold", {"encoder": "{work}/start", "width": 64, "gain": 64**-0.25})
REALM: Mapping[str, Any] = {
    "corpus": "{work}/world/corpus.index", "encoder": "{work}/start", "retriever": "{work}/cloze/model",
    "texts": "{work}/world/texts.index", "steps": 2000, "batch": WORDS_A_STEP, "lr": 1e-3, "warmup": 100,
    "dropout": 0.0, "refresh_every": 50, "max_text": 32, "max_block": 32,
    "dev": "{work}/world/questions.jsonl", "sample": 300, "eval_every": 100, "save_every": 250,
}


def realm_stage(out: str, **changes: Any) -> Stage:
    """Return a stage of REALM's pretraining; ``changes`` replace settings of ``REALM``."""
    return Stage("realm", out, {**REALM, **changes})


COLLAPSES: Mapping[str, Any] = {"frozen": 0, "retriever_lr": 1e-3}
"""Settings that train the retriever from the first step, at the reader's rate."""
MASKED_WORDS = {arm.title: arm for arm in (
    Arm("refreshed", (INVERSE_CLOZE, realm_stage("refreshed"))),
    Arm("never refreshed", (INVERSE_CLOZE, realm_stage("never-refreshed", refresh_every=None))),
    Arm("fast retriever", (INVERSE_CLOZE, realm_stage("fast-retriever", **COLLAPSES))),
    Arm("no warm start", (  # 600 steps are enough to see the collapse
        COLD_TOWERS, realm_stage("no-warm-start", retriever="{work}/cold/model", steps=600, **COLLAPSES),
    )),
)}

GENERATOR = Stage("generator", "generator", {"encoder": "{work}/start"})
REALM_FIRST = (INVERSE_CLOZE, realm_stage("realm", steps=1750, dev="{work}/dev.jsonl", sample=100, frozen=875))
REALM_GENERATOR = Stage("generator", "generator-realm", {"encoder": "{work}/realm/reader"})
ANSWERS: Mapping[str, Any] = {
    "dev": "{work}/dev.jsonl", "lr": 1e-3, "warmup": 100, "dropout": 0.0, "sample": 100, "eval_every": 250,
    "save_every": 250,
}
LENGTHS: Mapping[str, Any] = {"max_input": 64, "max_answer": 4}
RAG: Mapping[str, Any] = {
    **ANSWERS, **LENGTHS, "corpus": "{work}/world/corpus.index", "retriever": "{work}/cloze/model",
    "generator": "{work}/generator/model", "learn_passages": True, "steps": 1750, "batch": 32, "k": 7,
    "smoothing": 0.0,
    "frozen": 875,  # because the generator must first learn to use passages
    "weight_decay": 0.01, "clip": 1.0, "max_block": 32, "retriever_lr": 2e-4, "refresh_every": 50,
}
JOINT: Mapping[str, Any] = {
    **ANSWERS, "corpus": "{work}/world/corpus.index", "encoder": "{work}/start",
    "retriever": "{work}/cloze/model",
    "generator": None,  # the masked language model becomes the generator
    "texts": "{work}/world/texts.index", "decoder_layers": 1, "span": 0.0, "retriever_lr": 2e-4,
    "refresh_every": 50, "realm": {"batch": 16, "max_text": 32, "max_block": 32},
    "rag": {"batch": 16, "k": 7, "smoothing": 0.0, **LENGTHS},
}
CLOSED_BOOK: Mapping[str, Any] = {
    **ANSWERS, **LENGTHS, "generator": "{work}/generator/model", "steps": 1750, "batch": 32,
}
ARMS_BY_COUNT = ("RAG alone", "joint from the first step", "REALM, then RAG", "REALM, then joint", "joint")
"""Names of the arms that train with each number of questions."""


def make_question_arms(count: int) -> dict[str, Arm]:
    """Return the arms of the table of questions for ``count`` training questions (or ``ALL``)."""

    def arm(name: str, recipe: str, first: tuple[Stage, ...], settings: Mapping[str, Any], **changes: Any) -> Arm:
        out = f"{name.replace(' ', '-').replace(',', '')}/{count or 'all'}"
        questions = {"questions": f"{{work}}/train-{count or 'all'}.jsonl"}
        return Arm(name, (*first, Stage(recipe, out, {**settings, **questions, **changes})))

    alone, then = (INVERSE_CLOZE, GENERATOR), {"retriever": "{work}/realm/model"}
    first_step: Mapping[str, Any] = {"steps": 3500, "gen_from": 0.0, "frozen": 1000}
    after_realm: Mapping[str, Any] = {
        "steps": 1750, "gen_from": 0.0, "frozen": 875, "encoder": "{work}/realm/reader", **then,
    }
    arms = (
        arm("RAG-Token", "rag", alone, RAG),
        arm("RAG-Sequence", "rag", alone, RAG, marginal="sequence"),
        arm("joint", "joint", (INVERSE_CLOZE,), JOINT, steps=3500, gen_from=0.5, frozen=None),
        arm("closed book", "closed_book", (GENERATOR,), CLOSED_BOOK),
        arm("RAG alone", "rag", alone, RAG, steps=3500, batch=16, frozen=1000),
        arm("joint from the first step", "joint", (INVERSE_CLOZE,), JOINT, **first_step),
        arm("REALM, then RAG", "rag", (*REALM_FIRST, REALM_GENERATOR), RAG, batch=16, **then,
            generator="{work}/generator-realm/model"),
        arm("REALM, then joint", "joint", REALM_FIRST, JOINT, **after_realm),
    )
    return {row.title: row for row in arms}


# fmt: on
@dataclass(frozen=True, kw_only=True)
class ClosedWorldConfig:
    """Settings of a table of the closed world."""

    table: Literal["masked-words", "questions"]
    """Table to make."""
    work: Path
    """Directory for worlds and runs, with one folder for each seed."""
    out: Path | None = None
    """JSON file of the rows; default: rows.json in --work."""
    arms: tuple[str, ...] = ()
    """Names of the arms to train; default: all arms of the table."""
    seeds: tuple[int, ...] = (0,)
    """Seeds; each seed has its own world and its own runs."""
    counts: tuple[int, ...] = (50, 200, 1000, ALL)
    """Numbers of training questions for five arms of the table of questions; 0 means all."""
    entities: int = 2000
    """Number of entities of a world."""
    held_out: int = 450
    """Number of held-out facts."""
    dev: int = 100
    """Number of held-out facts that select the weights, in the table of questions."""
    smoke: bool = False
    """Run only a few steps of everything in a small world, to check that it works."""


SMOKE: Mapping[str, Any] = {"steps": 4, "warmup": 1, "frozen": 1, "refresh_every": 2, "eval_every": 2, "save_every": 2}
SMALL: Mapping[str, Any] = {"entities": 50, "held_out": 8, "dev": 4}


def main(config: ClosedWorldConfig) -> list[dict[str, Any]]:
    """Train and measure the arms of a table; return their rows.

    Raises:
        BadInput: there is no arm of a chosen name, or the output file is not a table.
        Mismatch: ``config.work`` holds a world with other settings.
        RagqaError: as for the recipes.
    """
    import torch

    torch.set_num_threads(1)  # because with tensors of this size a second thread makes a step slower
    config = replace(config, **SMALL) if config.smoke else config
    is_question_table = config.table == "questions"
    arms = make_question_arms(ALL) if is_question_table else MASKED_WORDS
    names = select_arms(arms, config.arms or [*arms])
    counts = {name: config.counts if is_question_table and name in ARMS_BY_COUNT else (ALL,) for name in names}
    return [measure_arm(config, seed, name, count) for seed in config.seeds for name in names for count in counts[name]]


def measure_arm(config: ClosedWorldConfig, seed: int, name: str, count: int) -> dict[str, Any]:
    """Return the row of an arm; train and measure the arm unless the output file has the row.

    Args:
        config: settings of the table.
        seed: seed of the world and of the runs.
        name: name of the arm.
        count: number of training questions, in the table of questions.

    Raises:
        RagqaError: as for ``main``.
    """
    is_question_table = config.table == "questions"
    arm = make_question_arms(count)[name] if is_question_table else MASKED_WORDS[name]
    world = make_world(config.entities, config.held_out, seed, words=2 if is_question_table else 1)
    questions = f"{2 * config.held_out} masked statements of held-out facts"
    if is_question_table:
        questions = f"{config.held_out - config.dev} held-out facts, answers of two tokens"
    runner = TableRunner(
        paths={"work": config.work / f"seed-{seed}"},
        out=config.out or config.work / "rows.json",
        about={
            "corpus": f"a closed world of {3 * config.entities} passages (eval.systems.world)",
            "questions": questions,
        },
        changes={"seed": seed, **(SMOKE if config.smoke else {})},
        tagger=ObjectTagger(world.objects),
    )
    _write_inputs(world, runner.work, seed, config.dev if is_question_table else 0, count)

    def measure() -> dict[str, Any]:
        runner.train(arm.stages)
        figures = score_answers(runner, arm) if is_question_table else score_statements(runner, arm, world)
        last = arm.stages[-1:]
        return {**figures, "seconds": runner.sum_seconds(arm.stages), "alarms": runner.list_alarms(last)}

    key = {"arm": name, "seed": seed, **({"count": count} if is_question_table else {})}
    options = [config.entities, config.held_out, config.dev if is_question_table else None]
    return runner.keep_row(key, arm.stages, options, measure)


def _write_inputs(world: World, work: Path, seed: int, dev: int, count: int) -> None:
    folders = write_world(world, work / "world", seed=seed)
    init_encoder(folders, work / "start", seed)
    write_questions(world.held_out[:dev], work / "dev.jsonl")
    write_questions(world.held_out[dev:], work / "test.jsonl")
    lines = folders.train_questions.read_text().splitlines(keepends=True)
    (work / f"train-{count or 'all'}.jsonl").write_text("".join(lines[: count or None]))


def score_answers(runner: TableRunner, arm: Arm) -> dict[str, Any]:
    """Return the scores of the generator of a trained arm on the test questions.

    Returns:
        Number of training questions (``questions``), exact match and, with passages, recall. By step of the training,
        ``dev`` has the exact match on the questions that select the weights, and ``seen`` the number of questions read
        in training.
    """
    from pipelines.common.config import TrainingIndexConfig
    from pipelines.common.generator_training import PassageFinder, evaluate_generator, make_passage_finder
    from pipelines.common.questions import read_answerable
    from pipelines.common.training_index import FrozenIndex
    from ragqa.models.dual_encoder import DualEncoder
    from ragqa.models.generation.generators import load_generator

    stage = arm.stages[-1]
    config, questions = runner.configure(stage), read_answerable(runner.work / "test.jsonl")
    search: PassageFinder = _find_nothing
    if stage.recipe == "closed_book":
        generator = load_generator(config.out / "model")
    else:
        final = replace(config, out=config.out / "final")
        index = FrozenIndex.open(config.corpus, config.out / "model", final, TrainingIndexConfig())
        generator, tower = load_generator(config.out / "generator"), DualEncoder.load(config.out / "model").questions
        search = make_passage_finder(index, tower, generator.passages, "cpu")
    scores = evaluate_generator(generator, search, questions, device="cpu", regex=False)
    first, batch = (config.first_question_step, config.rag.batch) if stage.recipe == "joint" else (0, config.batch)
    dev = {row["step"]: row["em"] for row in runner.read_log(stage) if "em" in row}
    return {
        "questions": len(read_answerable(config.questions)),
        **scores,
        "dev": {str(step): em for step, em in dev.items()},
        "seen": {str(step): batch * max(0, step - first) for step in dev},
    }


def _find_nothing(texts: list[str]) -> list[list[Any]]:
    return [[] for _ in texts]


def score_statements(runner: TableRunner, arm: Arm, world: World) -> dict[str, Any]:
    """Return the scores of a trained arm of REALM on masked statements of held-out facts.

    Returns:
        The scores with an index of the final weights. ``own_index`` has the scores with the last index of the run, and
        ``dev`` the recall during training.
    """
    from index.refresh import RefreshSettings, make_version_opener
    from pipelines.common.masked_text import open_masked_texts
    from pipelines.common.tokenized_passages import TokenizedPassages
    from pipelines.realm.pretrain_loop import Realm
    from ragqa.models.dual_encoder import DualEncoder
    from ragqa.models.knowledge_augmented import KnowledgeAugmentedEncoder
    from ragqa.retrieval.vectors.exact import ExactIndex
    from ragqa.runtime.encoder import load_encoder
    from ragqa.runtime.tokens import TextTokenizer

    stage = arm.stages[-1]
    config, rows = runner.configure(stage), runner.read_log(stage)
    blocks = TokenizedPassages.open(config.corpus, TextTokenizer(config.encoder), config.out / "blocks")
    model = Realm(DualEncoder.load(config.out / "model"), KnowledgeAugmentedEncoder.load(config.out / "reader"))
    texts = open_masked_texts(
        config.masking, blocks, runner.tagger, batch=config.batch, seed=config.seed, texts=config.texts
    )
    passages = [passage.titled_text for passage in blocks.store.get(range(len(blocks)))]
    fresh, versions = ExactIndex(load_encoder(config.out / "model").encode(passages)), config.out / "index"
    newest = max(int(path.name.partition("-")[2]) for path in versions.glob("index-*"))
    last = make_version_opener(config.corpus, versions, RefreshSettings(kind=config.index.kind))(newest)
    recalls = ("recall@1", "recall@5")
    return {
        **_ask_statements(world, model, fresh, blocks, texts, config),
        "own_index": _ask_statements(world, model, last, blocks, texts, config),
        "dev": {name: {str(row["step"]): row[name] for row in rows if name in row} for name in recalls},
    }


def _ask_statements(world: World, model: Any, index: Any, blocks: Any, texts: Any, config: Any) -> dict[str, float]:
    """Return how often REALM predicts the masked objects of held-out facts.

    Returns:
        Shares of statements: right predictions with retrieval (``accuracy``) and with only the null passage
        (``alone``), and passages that are the first result (``recall@1``) or among the first seven (``recall@7``).
    """
    import torch

    from pipelines.realm.pretrain_loop import predict

    model.eval()
    right = {"accuracy": 0, "alone": 0, "recall@1": 0, "recall@7": 0}
    rows = {passage.text: passage.id for passages in blocks.store.iter_batches() for passage in passages}
    statements = [(fact, statement) for fact in world.held_out for statement in fact.statements]
    for first in range(0, len(statements), 64):
        part = statements[first : first + 64]
        batch = texts.collate([_mask_object(fact, statement, blocks.tokenizer) for fact, statement in part])
        with torch.no_grad():
            predictions = predict(model, index, blocks, batch, config, lambda logits, labels: logits.log_softmax(-1))
        log_likelihood = predictions.gold_BKM + predictions.relevance_BK.log_softmax(-1)[..., None, None]
        right["accuracy"] += int((log_likelihood.logsumexp(1).argmax(-1) == batch.labels_BM).all(-1).sum())
        right["alone"] += int((predictions.gold_BKM[:, -1].argmax(-1) == batch.labels_BM).all(-1).sum())
        for (fact, _), retrieved in zip(part, predictions.rows_BK, strict=True):
            own = {rows[text] for text in fact.passages if text in rows}
            right["recall@1"] += int(retrieved[0]) in own
            right["recall@7"] += bool(own & set(retrieved[:7].tolist()))
    model.train()
    return {name: round(count / len(statements), 4) for name, count in right.items()}


def _mask_object(fact: Fact, statement: str, tokenizer: Any) -> Any:
    from pipelines.common.masked_text import NULL, MaskedText

    ids, labels = tokenizer.tokenize(statement).ids, tokenizer.tokenize(fact.object).ids
    first = next(place for place in range(len(ids)) if ids[place : place + len(labels)] == labels)
    places = list(range(first, first + len(labels)))
    masked = [*ids[:first], *[tokenizer.mask_id] * len(labels), *ids[first + len(labels) :]]
    return MaskedText(NULL, masked, places, labels)


def print_table(config: ClosedWorldConfig) -> None:
    """Make a table of the closed world, and print it; errors are as for ``main``."""
    rows = main(config)
    score = "em" if config.table == "questions" else "accuracy"
    lines = {", ".join(str(row[key]) for key in ("arm", "questions", "seed") if key in row): row for row in rows}
    print_text(format_table(lines, {name: Arm(name) for name in lines}, {score: (score,), "recall @1": ("recall@1",)}))


if __name__ == "__main__":
    run_command(print_table, ClosedWorldConfig, __doc__)
