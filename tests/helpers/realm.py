"""REALM's pretraining for tests: a few steps in a small closed world."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pipelines.common.masked_text import MaskedBatch, open_masked_texts
from pipelines.common.tokenized_passages import TokenizedPassages
from pipelines.orqa import inverse_cloze_loop
from pipelines.realm import pretrain_loop
from pipelines.realm.config import PretrainConfig
from pipelines.realm.pretrain_loop import Realm
from ragqa.models.dual_encoder import DualEncoder
from ragqa.models.knowledge_augmented import KnowledgeAugmentedEncoder
from ragqa.retrieval.base import Ranking
from ragqa.settings.groups import replace_settings
from ragqa.training.log import read_rows
from tests.helpers import closed_world

WORLD = closed_world.make_world(30, 5, 0)
TAGGER = closed_world.ObjectTagger(WORLD.objects)


@dataclass(frozen=True)
class RealmInputs:
    """The files of the world, and the models that pretraining starts from."""

    folders: closed_world.WorldFolders
    encoder: Path
    retriever: Path


def write_inputs(root: Path) -> RealmInputs:
    """Write the world and an encoder, and train a retriever for three steps of inverse cloze."""
    folders = closed_world.write_world(WORLD, root / "world", width=32)
    encoder = closed_world.init_encoder(folders, root / "start", 0)
    cloze = closed_world.inverse_cloze_config(folders, encoder, root / "cloze", seed=0, steps=3)
    return RealmInputs(folders, encoder, inverse_cloze_loop.main(replace_settings(cloze, batch=16)))


def make_pretrain_config(inputs: RealmInputs, out: Path) -> PretrainConfig:
    """Return settings of six steps: the retriever learns from the third, the index is refreshed every second."""
    settings = closed_world.realm_config(inputs.folders, inputs.encoder, inputs.retriever, out, seed=0, steps=6)
    return replace_settings(settings, batch=4, k=4, frozen=2, refresh_every=2, save_every=3, eval_every=3, warmup=1)


def pretrain(config: PretrainConfig, **options: Any) -> Path:
    """Run the recipe; the objects of the world's facts are the salient spans."""
    return pretrain_loop.main(config, tagger=TAGGER, **options)


def read_losses(out: Path) -> list[tuple[int, float]]:
    """Return step and loss of each logged training step."""
    return [(row["step"], row["nll"]) for row in read_rows(out) if "nll" in row]


def load_realm(config: PretrainConfig) -> Realm:
    """Load the models that a run starts from, in evaluation mode."""
    realm = Realm(DualEncoder.load(config.retriever), KnowledgeAugmentedEncoder.load(config.encoder))
    return realm.eval()


def draw_batch(config: PretrainConfig, passages: TokenizedPassages) -> MaskedBatch:
    """Return the first batch of masked texts of a run."""
    texts = open_masked_texts(
        config.masking, passages, TAGGER, batch=config.batch, seed=config.seed, texts=config.texts, are_passages=False
    )
    return texts[0]


class FixedIndex:
    """An index that finds the same rows for every query."""

    vectors, width = None, 2

    def __init__(self, rows: list[int]) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def search(self, queries_BD: np.ndarray, k: int) -> list[Ranking]:
        """Return the first k rows for each query, with falling scores."""
        rows = np.array(self._rows[:k])
        return [Ranking(rows, -np.arange(len(rows), dtype=np.float32)) for _ in queries_BD]
