"""Plain masked language modelling: the loss, learning, and killed runs."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import interrupt

from pipelines.common.masked_text import MaskedText, MaskedTexts, make_position_chooser
from pipelines.masked_lm import loop as masked_lm
from pipelines.masked_lm.config import MaskedLMConfig
from ragqa.corpus.store import PassageStore
from ragqa.errors import ArtefactError, BadInput
from ragqa.models.knowledge_augmented import KnowledgeAugmentedEncoder
from ragqa.runtime.tokens import TextTokenizer
from ragqa.settings.groups import replace_settings
from ragqa.training.log import read_rows
from ragqa.training.precision import fix_precision
from tests.helpers import tiny


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> tiny.TinyWorld:
    return tiny.write(tmp_path_factory.mktemp("tiny"))


@pytest.fixture
def config(world: tiny.TinyWorld, small: Path, tmp_path: Path) -> MaskedLMConfig:
    few: dict[str, Any] = {"steps": 4, "batch": 6, "max_text": 12, "dropout": 0.0, "warmup": 1, "save_every": 2}
    return MaskedLMConfig(corpus=world.corpus, encoder=small, fresh=True, out=tmp_path / "run", **few)


def test_the_loss_is_the_mean_over_masked_pieces_and_ignores_padding(config: MaskedLMConfig) -> None:
    tokenizer = TextTokenizer(config.encoder)
    texts = MaskedTexts(
        PassageStore.open(config.corpus / "passages"),
        tokenizer,
        make_position_chooser("words", None, rate=0.3, count=1),
        batch=6,
        max_text=12,
        seed=0,
        only_masks=False,
    )
    torch.manual_seed(0)
    model = KnowledgeAugmentedEncoder.from_config(config.encoder).eval()
    long, short = MaskedText(0, [9, 4, 7, 4, 5], [1, 3], [8, 6]), MaskedText(1, [4, 5], [0], [9])
    first, last = tokenizer.special_ids
    losses = []
    with torch.no_grad(), fix_precision("float32"):
        for text in (long, short):
            ids = torch.tensor([[first, *text.ids, last]])
            log_probs = model.model(input_ids=ids, token_type_ids=torch.zeros_like(ids)).logits[0].log_softmax(-1)
            losses += [
                -log_probs[place + 1, label].item() for place, label in zip(text.positions, text.labels, strict=True)
            ]
        loss = masked_lm.compute_loss(model, texts.collate([long, short])).loss
    assert len(losses) == 3 and loss.item() == pytest.approx(np.mean(losses), rel=1e-5)


def test_training_starts_from_random_or_from_trained_weights(config: MaskedLMConfig) -> None:
    """The passages have few words, so the loss falls. A second run starts with the loss at which the first ended."""
    long = replace_settings(config, steps=60, lr=3e-3, batch=16, save_every=100)
    trained = masked_lm.main(long)
    losses = [row["nll"] for row in read_rows(long.out)]
    assert losses[0] > 6 and np.mean(losses[-10:]) < 0.8 * losses[0]
    again = replace_settings(config, encoder=trained, fresh=False, out=config.out.with_name("again"), lr=1e-9, steps=1)
    masked_lm.main(again)
    assert read_rows(again.out)[0]["nll"] == pytest.approx(np.mean(losses[-10:]), rel=0.2)


def test_a_killed_run_continues_with_the_same_losses(config: MaskedLMConfig) -> None:
    config = replace_settings(config, dropout=0.1)
    masked_lm.main(config)
    broken = replace_settings(config, out=config.out.with_name("broken"))
    interrupt(masked_lm.main, broken, 3)
    masked_lm.main(broken)
    losses, continued = ([row["nll"] for row in read_rows(run.out)] for run in (config, broken))
    assert losses == continued and len(losses) == 4


def test_unsuitable_settings_and_inputs_are_refused(config: MaskedLMConfig, world: tiny.TinyWorld) -> None:
    with pytest.raises(BadInput, match=r"masking = salient: .*salient masking is in pipelines\.realm\.pretrain"):
        replace_settings(config, masking="salient")
    with pytest.raises(ArtefactError, match=r"lacks .* weights of its masked language model"):
        masked_lm.main(replace_settings(config, fresh=False))
    with pytest.raises(ArtefactError):
        masked_lm.main(replace_settings(config, corpus=config.encoder))
    assert not config.out.exists()
