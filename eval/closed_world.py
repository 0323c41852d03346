"""A closed world in which only retrieval can help: invented entities, and facts about them.

Every fact stands in one passage. Statements and questions say the same in other words; a model that is asked for the
object of a fact that it has never seen must find the passage, by a name made of syllables that many names share,
and copy from it. Objects are of one token, or of as many as are wanted where answers are to be written. The facts that
are asked at the end stand in the passages only: no recipe trains on them, neither as passage nor as statement. Of their
entities other facts are known.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

import numpy as np
import torch

from pipelines.common.masked_text import MaskedTexts, Text
from pipelines.common.tokenized_passages import Blocks
from pipelines.orqa.inverse_cloze import WarmStartConfig
from pipelines.realm.pretrain import PretrainConfig, Realm, guess
from pipelines.realm.retrieve import NULL
from ragqa import artefacts
from ragqa.errors import Mismatch
from ragqa.indexing.build import IndexConfig, build_index
from ragqa.models.knowledge_augmented import KnowledgeAugmentedEncoder
from ragqa.pretraining.salient import SalientSpan
from ragqa.retrieval.vectors.mips import Mips

SYLLABLES = [a + b for a, b in product("bdfgklmnprstvz", ("a", "e", "i", "o", "u", "an", "el", "or"))]
OBJECTS = 150
"""Different objects: by chance one in so many is right. Relations share them, so no object tells its relation."""

_TOLD = "world.json"
"""Beside a world: its size and its seed."""


@dataclass(frozen=True)
class Relation:
    """How a relation is worded: in passages, in statements, in questions; {e} the entity, {o} the object.

    Questions are of words that statements have: others would be noise that nothing has taught to overlook.
    """

    name: str
    passages: tuple[str, ...]
    statements: tuple[str, ...]
    question: str


RELATIONS = (
    Relation(
        "capital",
        ("the seat of government of {e} is {o} .", "{e} is ruled from the halls of {o} ."),
        ("{o} serves {e} as its capital city .", "people call {o} the capital of {e} ."),
        "capital of {e}",
    ),
    Relation(
        "founder",
        ("{e} was established long ago by {o} .", "settlers led by {o} first came to {e} ."),
        ("history names {o} as founder of {e} .", "{o} is the founder whom {e} honours ."),
        "founder of {e}",
    ),
    Relation(
        "export",
        ("traders bring {o} out of {e} each year .", "the ships of {e} are laden with {o} ."),
        ("the main export of {e} remains {o} .", "{o} is what {e} has for export ."),
        "main export of {e}",
    ),
)


@dataclass(frozen=True)
class Fact:
    """That an entity stands in a relation to an object."""

    entity: str
    relation: int
    object: str


@dataclass(frozen=True)
class World:
    """Facts to learn from and facts to be asked."""

    known: list[Fact]
    asked: list[Fact]
    objects: list[str]


@dataclass(frozen=True)
class Folders:
    """Where a world lies on disk."""

    root: Path
    corpus: Path = field(init=False)
    """Index directory with a passage for every fact."""
    known: Path = field(init=False)
    """Index directory of the passages of the known facts: what a warm start may see."""
    texts: Path = field(init=False)
    """Index directory of statements of the known facts."""
    encoder: Path = field(init=False)
    """Shape and tokenizer of a small masked language model."""
    questions: Path = field(init=False)
    """Of the asked facts."""
    taught: Path = field(init=False)
    """Questions of the known facts, in random order."""

    def __post_init__(self) -> None:
        names = {"corpus": "corpus.index", "known": "known.index", "texts": "texts.index"}
        for name, file in {
            **names,
            "encoder": "encoder",
            "questions": "questions.jsonl",
            "taught": "taught.jsonl",
        }.items():
            object.__setattr__(self, name, self.root / file)


class ObjectTagger:
    """Finds the object of a statement: the only thing there that is worth to be masked."""

    def __init__(self, objects: Iterable[str]) -> None:
        self._objects = set(objects)
        self._lengths = sorted({len(name.split()) for name in self._objects})

    def spans(self, text: str) -> list[SalientSpan]:
        """The objects in ``text``, whose words a space parts."""
        found, start, words = [], 0, text.split()
        for at, word in enumerate(words):
            start = text.index(word, start)
            names = (" ".join(words[at : at + length]) for length in self._lengths)
            found += [SalientSpan(start, start + len(name), "name") for name in names if name in self._objects]
            start += len(word)
        return found


def make(entities: int, asked: int, seed: int, *, words: int = 1) -> World:
    """A world of ``entities`` with a fact each for every relation; of so many of them one is kept to be ``asked``.

    Its objects have so many ``words``, each of them a token: few, in all combinations, so that no word tells the next.
    """
    rng = np.random.default_rng(seed)
    names: dict[str, None] = {}
    while len(names) < entities + OBJECTS:
        count = int(rng.integers(3, 5))
        names["".join(rng.choice(SYLLABLES, count))] = None
    every = list(names)
    world = World([], [], _objects(every[entities:], words, seed))
    for number, entity in enumerate(every[:entities]):
        kept = int(rng.integers(len(RELATIONS))) if number < asked else None
        for relation, choice in enumerate(rng.choice(OBJECTS, len(RELATIONS), replace=False)):
            fact = Fact(entity, relation, world.objects[choice])
            (world.asked if relation == kept else world.known).append(fact)
    return world


def _objects(names: list[str], words: int, seed: int) -> list[str]:
    if words == 1:
        return names
    side = int(np.ceil(len(names) ** (1 / words)))
    pools = [names[place * side : (place + 1) * side] for place in range(words)]
    every = [" ".join(name) for name in product(*pools)]
    rng = np.random.default_rng([seed, words])  # entities and facts are those of a world of single words
    return [every[at] for at in rng.permutation(len(every))[: len(names)]]


def write(world: World, root: Path, *, width: int = 96, layers: int = 1, seed: int = 0) -> Folders:
    """Passages, statements, questions, tokenizer and the shape of a model under ``root``, unless they are there.

    Raises Mismatch where a world of other settings is there.
    """
    facts = [*world.known, *world.asked]
    entities, words = len({fact.entity for fact in facts}), len(facts[0].object.split())
    sizes = {"entities": entities, "asked": len(world.asked), "words": words, "width": width, "layers": layers}
    told = {**sizes, "seed": seed}
    file = root / _TOLD
    if file.is_file():
        if (before := json.loads(file.read_text())) != told:
            raise Mismatch(f"{root} holds a world of {before}, and {told} is wanted: give another folder, or delete it")
        return Folders(root)
    with artefacts.writing(root) as folder:
        _write(world, Folders(folder), width, layers, seed)
        (folder / _TOLD).write_text(json.dumps(told))
    return Folders(root)


def _write(world: World, folders: Folders, width: int, layers: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    facts = [*world.known, *world.asked]
    order = rng.permutation(len(facts))
    passages = [(str(at), _worded(facts[at], "passages", rng)) for at in order.tolist()]
    known = [(name, text) for name, text in passages if int(name) < len(world.known)]
    statements = [
        (f"{at}-{n}", form.format(e=fact.entity, o=fact.object))
        for at, fact in enumerate(world.known)
        for n, form in enumerate(RELATIONS[fact.relation].statements)
    ]
    for rows, folder in ((passages, folders.corpus), (known, folders.known), (statements, folders.texts)):
        file = folders.root / f"{folder.stem}.jsonl"
        file.write_text("".join(json.dumps({"id": name, "text": text}) + "\n" for name, text in rows))
        build_index([file], folder, IndexConfig(retriever="bm25"))
    write_questions(world.asked, folders.questions)
    write_questions([world.known[at] for at in rng.permutation(len(world.known))], folders.taught)
    _write_shape(world, folders.encoder, width, layers)


def write_questions(facts: Iterable[Fact], file: Path) -> Path:
    """A file of the facts, asked."""
    rows = ({"question": question(fact), "answers": [fact.object]} for fact in facts)
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def begin(folders: Folders, out: Path, seed: int) -> Path:
    """Random weights of the world's shape, from which towers and masked language model begin."""
    if not out.is_dir():
        torch.manual_seed(seed)
        with artefacts.writing(out) as folder:
            KnowledgeAugmentedEncoder.from_config(folders.encoder).save(folder)
    return out


def warm_up(folders: Folders, start: Path, out: Path, *, seed: int, steps: int = 1000) -> WarmStartConfig:
    """Settings of a warm start that a small world needs: its passages are single sentences."""
    return WarmStartConfig(
        corpus=folders.known,
        encoder=start,
        out=out,
        steps=steps,
        batch=128,
        lr=1e-3,
        warmup=min(100, steps),
        dropout=0.0,
        width=64,
        pooling="mean",
        shared=True,
        gain=64**-0.25,
        thin=0.5,
        max_query=32,
        max_block=32,
        seed=seed,
    )


def pretraining(folders: Folders, start: Path, retriever: Path, out: Path, *, seed: int, steps: int) -> PretrainConfig:
    """Settings of REALM's pretraining in a small world; when the retriever learns, and how fast, is the default."""
    return PretrainConfig(
        corpus=folders.corpus,
        encoder=start,
        retriever=retriever,
        texts=folders.texts,
        out=out,
        steps=steps,
        batch=32,
        lr=1e-3,
        warmup=min(100, steps),
        dropout=0.0,
        refresh_every=50,
        max_text=32,
        max_block=32,
        questions=folders.questions,
        sample=300,
        eval_every=100,
        save_every=250,
        seed=seed,
    )


@torch.no_grad()
def ask(
    world: World, model: Realm, index: Mips, blocks: Blocks, texts: MaskedTexts, config: PretrainConfig
) -> dict[str, float]:
    """Statements of the asked facts, their objects masked: what the model does with facts it has never seen.

    ``accuracy`` of the object with retrieval, ``alone`` by the null passage only, and ``recall@1``, ``recall@7``: the
    statement's own passage is the first, or among the first seven.
    """
    model.eval()
    mask = blocks.tokenizer.mask
    right = {"accuracy": 0, "alone": 0, "recall@1": 0, "recall@7": 0}
    rows = {passage.text: passage.id for passages in blocks.store.iter_batches() for passage in passages}
    facts = [(fact, form) for fact in world.asked for form in RELATIONS[fact.relation].statements]
    for at in range(0, len(facts), 64):
        some = facts[at : at + 64]
        batch = texts.collate([_masked(fact, form, blocks, mask) for fact, form in some])
        found = guess(
            model, index, blocks, batch, [NULL] * len(some), config, lambda logits, labels: logits.log_softmax(-1)
        )
        gold_BM = batch.labels_BM
        both = (found.gold_BKM + found.relevance_BK.log_softmax(-1)[..., None, None]).logsumexp(1)
        right["accuracy"] += int((both.argmax(-1) == gold_BM).all(-1).sum())
        right["alone"] += int((found.gold_BKM[:, -1].argmax(-1) == gold_BM).all(-1).sum())
        for (fact, _), found_rows in zip(some, found.rows_BK, strict=True):
            own = {rows[text] for text in _passages(fact) if text in rows}
            right["recall@1"] += int(found_rows[0]) in own
            right["recall@7"] += bool(own & set(found_rows[:7].tolist()))
    model.train()
    return {name: round(count / len(facts), 4) for name, count in right.items()}


def _passages(fact: Fact) -> list[str]:
    return [form.format(e=fact.entity, o=fact.object) for form in RELATIONS[fact.relation].passages]


def _masked(fact: Fact, form: str, blocks: Blocks, mask: int) -> Text:
    ids = blocks.tokenizer.pieces(form.format(e=fact.entity, o=fact.object)).ids
    labels = blocks.tokenizer.pieces(fact.object).ids
    first = next(at for at in range(len(ids)) if ids[at : at + len(labels)] == labels)
    places = list(range(first, first + len(labels)))
    return Text(NULL, [*ids[:first], *[mask] * len(labels), *ids[first + len(labels) :]], places, labels)


def question(fact: Fact) -> str:
    """A fact, asked."""
    return RELATIONS[fact.relation].question.format(e=fact.entity)


def _worded(fact: Fact, form: str, rng: np.random.Generator) -> str:
    return str(rng.choice(getattr(RELATIONS[fact.relation], form))).format(e=fact.entity, o=fact.object)


def _write_shape(world: World, folder: Path, width: int, layers: int) -> None:
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
    from transformers import BertConfig

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words = {
        word
        for relation in RELATIONS
        for form in (*relation.passages, *relation.statements, relation.question)
        for word in form.split()
        if not word.startswith("{")
    }
    parts = [*SYLLABLES, *"abcdefghijklmnopqrstuvwxyz"]  # letters for what greedy cutting leaves of a name
    pieces = [
        *special,
        *sorted(words),
        *sorted({word for name in world.objects for word in name.split()}),
        *parts,
        *(f"##{part}" for part in parts),
    ]
    vocabulary = {piece: number for number, piece in enumerate(dict.fromkeys(pieces))}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(special)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=max(1, width // 32),
        intermediate_size=4 * width,
        max_position_embeddings=64,
        initializer_range=width**-0.5,  # BERT's 0.02, made for a width of 768, leaves attention flat for long
    ).save_pretrained(folder)
