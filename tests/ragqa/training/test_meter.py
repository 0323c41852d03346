"""Weights are counted once for each token that they process."""

from pathlib import Path

import pytest

from ragqa.models.generation.seq2seq import Seq2Seq
from ragqa.training.meter import count_seq2seq_weights
from tests.helpers.denoise import write_shapes


@pytest.fixture(scope="module")
def shapes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return write_shapes(tmp_path_factory.mktemp("shapes"))


def test_weights_are_counted_for_each_side_of_a_seq2seq(shapes: dict[str, Path]) -> None:
    """One layer per side: attention of 2 heads of 16, feed-forward 64; T5's head shares the 54 embeddings."""
    square, wide = 32 * 32, 32 * 64
    model = Seq2Seq.load(shapes["t5"], fresh=True).model
    # Attention, feed-forward, and the keys and values of cross-attention.
    encoder = 4 * square + 2 * wide + 2 * square
    assert count_seq2seq_weights(model) == (encoder, 4 * square + 2 * square + 2 * wide + 54 * 32)
    assert not any(part._forward_hooks for part in model.modules())
    bert = Seq2Seq.load(shapes["bert"], fresh=True).model
    both = count_seq2seq_weights(bert.train())
    head = 32 * 32 + 32 * bert.config.decoder.vocab_size
    assert both == (encoder, 4 * square + 2 * square + 2 * wide + head) and bert.training
