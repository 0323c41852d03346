"""One step of REALM's pretraining: which passages it proposes, its scores and its loss."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pipelines.common.masked_text import NULL, MaskedText
from pipelines.common.tokenized_passages import TokenizedPassages
from pipelines.common.training_index import score_with_towers
from pipelines.realm import pretrain_loop
from pipelines.realm.config import PretrainConfig
from pipelines.realm.pretrain_loop import (
    MaskedPrediction,
    Realm,
    make_triviality_test,
    marginalise,
    measure,
    predict,
    propose,
)
from ragqa.errors import BadInput
from ragqa.models.dual_encoder import DualEncoder
from ragqa.objectives import realm_mlm_nll
from ragqa.retrieval.base import Ranking
from ragqa.runtime.tokens import TextTokenizer
from ragqa.settings.groups import replace_settings
from ragqa.training.health import measure_retrieval
from tests.helpers.realm import (
    FixedIndex,
    RealmInputs,
    draw_batch,
    load_realm,
    make_pretrain_config,
    pretrain,
)


@pytest.fixture
def config(realm_inputs: RealmInputs, tmp_path: Path) -> PretrainConfig:
    return make_pretrain_config(realm_inputs, tmp_path / "run")


def test_a_text_is_not_given_the_passage_it_was_taken_from() -> None:
    own_rows = [2, 9, NULL]
    found = propose(FixedIndex([4, 2, 7, 1]), np.zeros((3, 2)), lambda text, row: row == own_rows[text], 3)
    assert found.tolist() == [[4, 7, 1], [4, 2, 7], [4, 2, 7]]
    with pytest.raises(BadInput, match="2 passages for a text, not 3: lower --k"):
        propose(FixedIndex([4, 2, 7]), np.zeros((1, 2)), lambda text, row: row == own_rows[text], 3)


def test_a_passage_that_contains_the_text_is_trivial(config: PretrainConfig, tmp_path: Path) -> None:
    """The row of the passage does not matter, nor do the masks; a text of few wordpieces makes no passage trivial."""
    blocks = TokenizedPassages.open(config.corpus, TextTokenizer(config.encoder), tmp_path)
    ids, other = blocks.ids(3, 99), blocks.ids(5, 99)
    assert len(ids) > 8
    middle = MaskedText(NULL, [4, *ids[2:8], 4], [0, 7], [ids[1], ids[8]])
    is_trivial = make_triviality_test(
        [middle, MaskedText(NULL, ids[2:4], [], []), MaskedText(5, other, [], [])], blocks
    )
    assert middle.original_ids == ids[1:9]
    assert [is_trivial(0, row) for row in (3, 5)] == [True, False]
    assert not is_trivial(1, 3)  # two wordpieces only
    assert is_trivial(2, 5) and not is_trivial(2, 3)
    part = np.asarray(ids[2:8], np.int32).tobytes()
    assert blocks.contains(3, part)
    assert not blocks.contains(3, part[1:-3])  # begins and ends within a wordpiece of four bytes


@pytest.mark.parametrize("marginal", ["token", "sequence"])
def test_the_loss_of_a_step_agrees_with_the_equations(config: PretrainConfig, tmp_path: Path, marginal: str) -> None:
    """The reference computes each pair of text and passage by itself, without padding, with all logits."""
    blocks = TokenizedPassages.open(config.corpus, TextTokenizer(config.encoder), tmp_path)
    model, batch = load_realm(config), draw_batch(config, blocks)
    index = FixedIndex([4, 2, 7])
    first, last = blocks.tokenizer.special_ids
    with torch.no_grad():
        found = predict(model, index, blocks, batch, replace_settings(config, k=4))
        loss, _ = marginalise(found, replace_settings(config, marginal=marginal))
        logits, relevance = [], []
        for row, text in enumerate(batch.texts):
            x = [first, *text.ids, last]
            query = model.retriever.questions(torch.tensor([x]), torch.ones(1, len(x), dtype=torch.long))
            for place in (4, 2, 7, NULL):
                z = blocks.ids(place, 99)
                both = torch.tensor([[*x, *z, last]])
                types = torch.tensor([[0] * len(x) + [1] * (len(z) + 1)])
                logits_of_pair = model.reader.model(input_ids=both, token_type_ids=types).logits[0]
                logits.append(logits_of_pair[batch.positions_BM[row]])
                alone = torch.tensor([[first, *z, last]])
                vector = model.retriever.passages(alone, torch.ones_like(alone))
                relevance.append((query @ vector.T).item())
        expected = realm_mlm_nll(
            torch.stack(logits).unflatten(0, (4, 4)),
            torch.tensor(relevance).view(4, 4),
            batch.labels_BM,
            marginal=marginal,
        )
    assert loss.item() == pytest.approx(expected.item(), rel=2e-2)  # the step is in bfloat16
    assert found.rows_BK.tolist() == [[4, 2, 7, NULL]] * 4


@pytest.mark.parametrize(("marginal", "expected"), [("token", 10 / 3), ("sequence", 5.0)])
def test_the_loss_without_passages_is_the_loss_of_the_step(
    config: PretrainConfig, marginal: str, expected: float
) -> None:
    """Without passages, average tokens of 1, 2 and 7 nats in two texts: over tokens, or over texts."""
    alone = -torch.tensor([[[1.0, 2.0]], [[7.0, 9.0]]])
    counted, rows = torch.tensor([[True, True], [True, False]]), np.array([[4], [2]])
    prediction = MaskedPrediction(
        gold_BKM=2 * alone,
        alone_B1M=alone,
        relevance_BK=torch.tensor([[3.0], [5.0]]),
        rows_BK=rows,
        counted_BM=counted,
        tokens=(1, 1, 1),
    )
    settings = replace_settings(config, marginal=marginal, null=False)
    figures = measure(load_realm(config), prediction, *marginalise(prediction, settings), settings).figures
    assert (figures["nll"], figures["nll_alone"]) == pytest.approx((2 * expected, expected))


def test_scores_are_computed_in_float32(config: PretrainConfig, tmp_path: Path) -> None:
    """Layer normalisation with gain 1 gives scores near 100, where neighbours in bfloat16 differ by a half."""
    retriever = DualEncoder.from_encoder(config.encoder, width=128).eval()
    blocks = TokenizedPassages.open(config.corpus, TextTokenizer(config.encoder), tmp_path)
    rows, batch = np.array([[4, 2, 7]]), blocks.batch([2, 4, 7], 32)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        query_BD = retriever.questions(batch.ids_NL[:1], batch.mask_NL[:1])
        vectors = retriever.passages(batch.ids_NL, batch.mask_NL)
        found, _ = score_with_towers(retriever, query_BD, rows, blocks, 32)
    expected = query_BD.numpy() @ vectors.numpy()[[1, 0, 2]].T
    assert found.dtype == torch.float32 and expected.min() > 64
    assert np.allclose(found.numpy(), expected, atol=1e-4)


def test_passages_that_an_approximate_index_misses_change_nothing(config: PretrainConfig, tmp_path: Path) -> None:
    """A missing passage has no part in the loss, and the figures do not count it."""
    index = FixedIndex([4, 2, 7, 1, 3, 5])
    index.search = lambda queries_BD, k: [Ranking(np.array([4, 2]), np.zeros(2, np.float32)) for _ in queries_BD]
    found = propose(index, np.zeros((2, 2)), lambda text, row: text == 1 and row == 2, 3)
    assert found.tolist() == [[4, 2, NULL], [4, NULL, NULL]]
    blocks = TokenizedPassages.open(config.corpus, TextTokenizer(config.encoder), tmp_path)
    model, batch = load_realm(config), draw_batch(config, blocks)
    with torch.no_grad():
        few = predict(model, index, blocks, batch, replace_settings(config, k=6))
        two = predict(model, FixedIndex([4, 2]), blocks, batch, replace_settings(config, k=3))
    rows = [
        measure_retrieval(g.gold_BKM, g.alone_B1M, g.relevance_BK, g.counted_BM, g.rows_BK, has_null=True)
        for g in (few, two)
    ]
    losses = [marginalise(g, config)[0].item() for g in (few, two)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-2)  # the step is in bfloat16
    for name in ("utility", "null"):
        assert rows[0][name] == pytest.approx(rows[1][name], rel=5e-2, abs=1e-2)
    assert rows[0]["distinct"] == rows[1]["distinct"] == 0.0  # all texts have the same two passages


def test_a_fresh_index_equals_the_tower_and_no_text_is_given_its_own_passage(
    config: PretrainConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches: list[Any] = []

    def check_and_predict(model: Realm, index: Any, blocks: TokenizedPassages, batch: Any, config: Any) -> Any:
        everything = blocks.batch(range(len(blocks)), config.max_block)
        with torch.no_grad():
            vectors = model.retriever.passages(everything.ids_NL, everything.mask_NL).numpy()
        (ranking,) = index.search(vectors[:1], 5)
        assert np.allclose(ranking.scores, vectors[ranking.rows] @ vectors[0], rtol=2**-7)  # bfloat16
        batches.append(([text.row for text in batch.texts], predict(model, index, blocks, batch, config).rows_BK))
        return predict(model, index, blocks, batch, config)

    monkeypatch.setattr(pretrain_loop, "predict", check_and_predict)
    pretrain(replace_settings(config, texts=config.corpus, masking="words", max_block=6, refresh_every=1, k=20))
    assert all(own not in rows for owns, rows_BK in batches for own, rows in zip(owns, rows_BK, strict=True))
    assert all(own >= 0 for owns, _ in batches for own in owns)
    assert DualEncoder.load(config.out / "model").passages.max_tokens == 6
