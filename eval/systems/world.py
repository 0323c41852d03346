"""Generate a closed world: invented entities, whose facts a model must retrieve to answer.

Exactly one passage states each fact. Statements and questions express the fact in other words. Training shows held-out
facts only in passages: recipes train on other facts about the same entities. So a model can answer a question about a
held-out fact only if it finds the passage and copies the object. The names of entities share their syllables, so a
model must compare whole names. An object has one or two words.

``eval.systems.closed_world`` trains systems in such worlds, and the tests of the recipes use small ones.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np

from index.versions import SavableModel
from ragqa import artefacts
from ragqa.errors import Mismatch
from ragqa.indexing.build import IndexConfig, build_index
from ragqa.pretraining.salient import SalientSpan
from ragqa.retrieval.registry import RetrieverKind

SYLLABLES = [a + b for a, b in product("bdfgklmnprstvz", ("a", "e", "i", "o", "u", "an", "el", "or"))]
OBJECTS = 150
"""Number of different objects; a random guess is right in one of 150 cases."""

_DESCRIPTION = "world.json"


@dataclass(frozen=True)
class Relation:
    """Relation with its wordings; ``{e}`` stands for the entity and ``{o}`` for the object.

    A question uses only words of the statements, because training would not teach a model to ignore other words.
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
    """An entity, a relation by its number in ``RELATIONS``, and the object of the relation."""

    entity: str
    relation: int
    object: str

    @property
    def passages(self) -> list[str]:
        """Passages that can state this fact; the corpus has one of them."""
        return self._fill_in(*RELATIONS[self.relation].passages)

    @property
    def statements(self) -> list[str]:
        """Statements of this fact, the texts of masked language modelling."""
        return self._fill_in(*RELATIONS[self.relation].statements)

    @property
    def question(self) -> str:
        """Question that asks for the object."""
        return self._fill_in(RELATIONS[self.relation].question)[0]

    def _fill_in(self, *templates: str) -> list[str]:
        return [template.format(e=self.entity, o=self.object) for template in templates]


@dataclass(frozen=True)
class World:
    """Closed world: all facts and objects."""

    known: list[Fact]
    """Facts to train on."""
    held_out: list[Fact]
    """Facts to test with; training shows them only in passages."""
    objects: list[str]


class WorldFolders:
    """Paths of the files of a closed world."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.corpus = root / "corpus.index"
        """Index directory with a passage for each fact."""
        self.known_corpus = root / "known.index"
        """Index directory with the passages of the training facts, for inverse cloze."""
        self.texts = root / "texts.index"
        """Index directory with the statements of the training facts."""
        self.encoder = root / "encoder"
        """Configuration and tokenizer of a small masked language model."""
        self.test_questions = root / "questions.jsonl"
        """Questions about held-out facts."""
        self.train_questions = root / "taught.jsonl"
        """Questions about training facts, in random order."""


class ObjectTagger:
    """Tagger that finds only the given objects of a world as salient spans."""

    def __init__(self, objects: Iterable[str]) -> None:
        self._objects = set(objects)
        self._lengths = sorted({len(name.split()) for name in self._objects})

    def find_spans(self, text: str) -> list[SalientSpan]:
        """Return the objects in ``text``, a statement whose words are separated by spaces."""
        spans, start, words = [], 0, text.split()
        for place, word in enumerate(words):
            start = text.index(word, start)
            names = (" ".join(words[place : place + length]) for length in self._lengths)
            spans += [SalientSpan(start, start + len(name), "name") for name in names if name in self._objects]
            start += len(word)
        return spans


def make_world(entities: int, held_out: int, seed: int, *, words: int = 1) -> World:
    """Make a closed world in which each entity has one fact for each relation.

    Args:
        entities: number of entities.
        held_out: number of held-out facts; no two are about the same entity.
        seed: seed of all random choices.
        words: number of words of an object, each of one token. Objects of several words are random combinations, so
            that no word predicts the next one.
    """
    rng = np.random.default_rng(seed)
    unique: dict[str, None] = {}
    while len(unique) < entities + OBJECTS:
        count = int(rng.integers(3, 5))
        unique["".join(rng.choice(SYLLABLES, count))] = None
    names = list(unique)
    world = World([], [], _combine_objects(names[entities:], words, seed))
    for number, entity in enumerate(names[:entities]):
        held_out_relation = int(rng.integers(len(RELATIONS))) if number < held_out else None
        for relation, choice in enumerate(rng.choice(OBJECTS, len(RELATIONS), replace=False)):
            fact = Fact(entity, relation, world.objects[choice])
            (world.held_out if relation == held_out_relation else world.known).append(fact)
    return world


def _combine_objects(names: list[str], words: int, seed: int) -> list[str]:
    if words == 1:
        return names
    side = int(np.ceil(len(names) ** (1 / words)))
    pools = [names[place * side : (place + 1) * side] for place in range(words)]
    combinations = [" ".join(name) for name in product(*pools)]
    # A separate random generator, so that entities and facts do not depend on ``words``.
    rng = np.random.default_rng([seed, words])
    return [combinations[place] for place in rng.permutation(len(combinations))[: len(names)]]


def write_world(world: World, root: Path, *, width: int = 96, seed: int = 0) -> WorldFolders:
    """Write the files of a world into ``root``, unless they exist; return their paths.

    These are the corpora, the questions, and the configuration and tokenizer of a model.

    Args:
        world: facts and objects.
        root: directory of the world.
        width: width of the model's hidden layers.
        seed: seed of the wording and of the order of the passages and questions.

    Raises:
        Mismatch: ``root`` holds a world with other settings.
        BadInput: ``root`` holds other files, or cannot be written.
    """
    facts = [*world.known, *world.held_out]
    description = {
        "entities": len({fact.entity for fact in facts}),
        "asked": len(world.held_out),
        "words": len(facts[0].object.split()),
        "width": width,
        "layers": 1,
        "seed": seed,
    }
    file = root / _DESCRIPTION
    if file.is_file():
        if (existing := json.loads(file.read_text())) != description:
            raise Mismatch(f"{root} holds the world {existing}, not {description}: choose another folder or delete it")
        return WorldFolders(root)
    with artefacts.replace_directory(root) as folder:
        _write_corpora(world, WorldFolders(folder), seed)
        _write_encoder_config(world, WorldFolders(folder).encoder, width)
        (folder / _DESCRIPTION).write_text(json.dumps(description))
    return WorldFolders(root)


def _write_corpora(world: World, folders: WorldFolders, seed: int) -> None:
    rng = np.random.default_rng(seed)
    facts = [*world.known, *world.held_out]
    order = rng.permutation(len(facts))
    passages = [(str(number), str(rng.choice(facts[number].passages))) for number in order.tolist()]
    known = [(name, text) for name, text in passages if int(name) < len(world.known)]
    statements = [
        (f"{number}-{n}", text) for number, fact in enumerate(world.known) for n, text in enumerate(fact.statements)
    ]
    for rows, folder in ((passages, folders.corpus), (known, folders.known_corpus), (statements, folders.texts)):
        file = folders.root / f"{folder.stem}.jsonl"
        file.write_text("".join(json.dumps({"id": name, "text": text}) + "\n" for name, text in rows))
        build_index([file], folder, IndexConfig(retriever=RetrieverKind.BM25, blocks="words"))
    write_questions(world.held_out, folders.test_questions)
    write_questions([world.known[number] for number in rng.permutation(len(world.known))], folders.train_questions)


def write_questions(facts: Iterable[Fact], file: Path) -> Path:
    """Write a file of questions (JSON lines) with one question for each fact; return its path."""
    rows = ({"question": fact.question, "answers": [fact.object]} for fact in facts)
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def init_encoder(folders: WorldFolders, out: Path, seed: int) -> Path:
    """Save an encoder with random weights in ``out``, unless it exists; return ``out``.

    Args:
        folders: paths of the world; its folder ``encoder`` has the configuration and the tokenizer.
        out: directory to write.
        seed: seed of the weights.
    """
    from ragqa.models.knowledge_augmented import KnowledgeAugmentedEncoder

    return _save_random(lambda: KnowledgeAugmentedEncoder.from_config(folders.encoder), out, seed)


def init_generator(encoder: Path, out: Path, seed: int) -> Path:
    """Save a generator of an encoder and one decoder layer in ``out``, unless it exists.

    Args:
        encoder: directory of the encoder.
        out: directory to write.
        seed: seed of the random weights, such as the decoder's cross-attention.

    Returns:
        The directory ``out``.

    Raises:
        ArtefactError: as for ``make_from_encoder``.
    """
    from ragqa.models.generation.encoder_decoder import make_from_encoder

    return _save_random(lambda: make_from_encoder(encoder, decoder_layers=1), out, seed)


def _save_random(make_model: Callable[[], SavableModel], out: Path, seed: int) -> Path:
    import torch

    if not out.is_dir():
        torch.manual_seed(seed)
        with artefacts.replace_directory(out) as folder:
            make_model().save(folder)
    return out


def _write_encoder_config(world: World, folder: Path, width: int) -> None:
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
    from transformers import BertConfig

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    vocabulary = {piece: number for number, piece in enumerate(dict.fromkeys([*special, *_list_wordpieces(world)]))}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(special)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=width,
        num_hidden_layers=1,
        num_attention_heads=max(1, width // 32),
        intermediate_size=4 * width,
        max_position_embeddings=64,
        # BERT's 0.02 is made for width 768; at this width, it leaves attention flat for a long time.
        initializer_range=width**-0.5,
    ).save_pretrained(folder)


def _list_wordpieces(world: World) -> list[str]:
    templates = [
        text for relation in RELATIONS for text in (*relation.passages, *relation.statements, relation.question)
    ]
    template_words = {word for text in templates for word in text.split() if not word.startswith("{")}
    object_words = {word for name in world.objects for word in name.split()}
    # Letters too, because greedy matching of syllables can leave single letters of a name.
    parts = [*SYLLABLES, *"abcdefghijklmnopqrstuvwxyz"]
    return [*sorted(template_words), *sorted(object_words), *parts, *(f"##{part}" for part in parts)]
