"""Settings of REALM's pretraining: learning rates, and values that are refused."""

from pathlib import Path
from typing import Any

import pytest

from pipelines.realm.config import PretrainConfig
from ragqa.errors import BadInput
from ragqa.settings.groups import replace_settings
from tests.helpers.realm import (
    RealmInputs,
    make_pretrain_config,
)


@pytest.fixture
def config(realm_inputs: RealmInputs, tmp_path: Path) -> PretrainConfig:
    return make_pretrain_config(realm_inputs, tmp_path / "run")


def test_the_retriever_learns_only_after_the_frozen_steps(config: PretrainConfig) -> None:
    settings = replace_settings(config, steps=100, frozen=40, warmup=10, lr=1.0, retriever_lr=0.5)
    question_rates = {step: settings.rates.compute_rates(step)[0] for step in (39, 40, 49, 99)}
    # The first of 10 steps of warm-up is step 40; after step 49 the rate falls by 0.5 / 50 a step.
    assert question_rates == pytest.approx({39: 0.0, 40: 0.5 / 10, 49: 0.5, 99: 0.5 / 50})
    passage_rate, reader_rate = settings.rates.compute_rates(39)[1:3]
    assert passage_rate == 0.0 and reader_rate > 0


def test_by_default_the_retriever_is_frozen_for_half_of_the_steps(config: PretrainConfig) -> None:
    settings = replace_settings(config, steps=100, warmup=10, lr=1.0, frozen=None, retriever_lr=None)
    assert settings.rates.compute_rates(49)[:2] == [0.0, 0.0]
    assert settings.rates.compute_rates(59)[0] == pytest.approx(0.2)  # a fifth of the reader's rate


def test_retriever_and_reader_learn_alike_with_equal_settings(config: PretrainConfig) -> None:
    settings = replace_settings(config, steps=100, warmup=10, lr=1.0, frozen=0, retriever_lr=1.0)
    question_rate, _, reader_rate = settings.rates.compute_rates(40)[:3]
    assert question_rate == reader_rate


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"k": 1}, "k = 1"),
        ({"masking": "nothing"}, "masking = nothing"),
        ({"steps": 0, "batch": 0}, "steps = 0, batch = 0"),
        ({"refresh_every": 0}, "refresh_every = 0"),
        ({"max_text": 3, "max_block": 3}, "max_text = 3, max_block = 3"),
        ({"kind": "nearest"}, "kind = nearest"),
        ({"lr": -1.0, "sample": 0, "eval_every": 0, "save_every": 0}, "save_every = 0, lr = -1.0"),
        ({"warmup": -5, "max_staleness": -1, "dropout": 1.5}, "max_staleness = -1, dropout = 1.5, warmup = -5"),
        ({"warmup": 7}, "warmup = 7: out of range .warmup: at most the 6 steps"),
    ],
)
def test_settings_out_of_range_are_refused(config: PretrainConfig, change: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        replace_settings(config, **change)
