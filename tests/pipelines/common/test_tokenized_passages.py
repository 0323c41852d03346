"""Passages as wordpieces are those that the index embeds."""

from pathlib import Path

import numpy as np
import pytest
import torch

from pipelines.common.masked_text import NULL
from pipelines.common.tokenized_passages import TokenizedPassages
from pipelines.realm.config import PretrainConfig
from ragqa.models.dual_encoder import DualEncoder
from ragqa.runtime.encoder import load_encoder
from ragqa.runtime.tokens import TextTokenizer
from tests.helpers.realm import (
    RealmInputs,
    make_pretrain_config,
)


@pytest.fixture
def config(realm_inputs: RealmInputs, tmp_path: Path) -> PretrainConfig:
    return make_pretrain_config(realm_inputs, tmp_path / "run")


def test_tokenized_passages_have_the_vectors_of_the_index(config: PretrainConfig, tmp_path: Path) -> None:
    blocks = TokenizedPassages.open(config.corpus, TextTokenizer(config.encoder), tmp_path)
    model = DualEncoder.load(config.retriever).eval()
    batch = blocks.batch([3, 0, NULL], 32)
    with torch.no_grad():
        vectors = model.passages(batch.ids_NL, batch.mask_NL).numpy()
    encoder = load_encoder(config.retriever)
    texts = [passage.titled_text for passage in blocks.store.get([3, 0])]
    assert np.allclose(vectors, encoder.encode([*texts, ""]), atol=1e-5)
    assert blocks.ids(NULL, 10) == blocks.ids(3, -1) == []
    again = TokenizedPassages.open(config.corpus, TextTokenizer(config.encoder), tmp_path)
    assert [again.ids(row, 99) for row in range(len(again))] == [blocks.ids(row, 99) for row in range(len(blocks))]
