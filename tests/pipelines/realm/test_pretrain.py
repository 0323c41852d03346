"""A run of REALM's pretraining: what it logs, writes and refuses."""

import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from pipelines.orqa import inverse_cloze_loop
from pipelines.realm import pretrain_loop
from pipelines.realm.config import PretrainConfig
from ragqa.errors import BadInput, NonFiniteLoss
from ragqa.models.dual_encoder import DualEncoder
from ragqa.models.knowledge_augmented import KnowledgeAugmentedEncoder
from ragqa.settings.groups import replace_settings
from ragqa.training.log import read_rows
from tests.helpers import closed_world
from tests.helpers.realm import (
    RealmInputs,
    make_pretrain_config,
    pretrain,
    read_losses,
)


@pytest.fixture
def config(realm_inputs: RealmInputs, tmp_path: Path) -> PretrainConfig:
    return make_pretrain_config(realm_inputs, tmp_path / "run")


def test_each_step_evaluation_and_swap_is_logged(config: PretrainConfig) -> None:
    lines: list[str] = []
    pretrain(config, notify=lines.append)
    rows = read_rows(config.out)
    steps = [row for row in rows if "nll" in row]
    assert [row["step"] for row in steps] == list(range(6))
    names = {"nll", "nll_alone", "utility", "utility_top", "entropy", "distinct", "null"}
    names |= {"tokens/s", "utilisation", "staleness"}
    assert all(names <= row.keys() and all(math.isfinite(row[name]) for name in names) for row in steps)
    assert [row["staleness"] for row in steps] == [0, 0, 0, 1, 0, 1]  # the retriever learns from the third step on
    assert [row["step"] for row in rows if "recall@5" in row] == [0, 3, 6]
    swaps = [(row["step"], row["swap_version"]) for row in rows if "swap_version" in row]
    assert swaps == [(0, 0), (4, 2), (6, 4)]
    assert [line.partition(":")[0] for line in lines if "ALARM" not in line] == ["step 0", "step 3", "step 6"]


def test_a_retriever_that_is_frozen_for_all_steps_keeps_its_weights(config: PretrainConfig) -> None:
    pretrain(replace_settings(config, frozen=6))
    before, after = DualEncoder.load(config.retriever), DualEncoder.load(config.out / "model")
    assert all(torch.equal(a, b) for a, b in zip(before.parameters(), after.parameters(), strict=True))
    reader = KnowledgeAugmentedEncoder.load(config.out / "reader")
    start = KnowledgeAugmentedEncoder.load(config.encoder)
    assert any(not torch.equal(a, b) for a, b in zip(reader.parameters(), start.parameters(), strict=True))


def test_recall_of_patterns_is_measured_in_pretraining(config: PretrainConfig, tmp_path: Path) -> None:
    file = tmp_path / "questions.jsonl"
    file.write_text(json.dumps({"question": "which?", "answers": [".+"]}) + "\n")
    pretrain(replace_settings(config, steps=1, dev=file, regex=True))
    assert {row["recall@5"] for row in read_rows(config.out) if "recall@5" in row} == {1.0}


def test_texts_are_cut_to_the_positions_of_the_model(
    config: PretrainConfig, realm_inputs: RealmInputs, tmp_path: Path
) -> None:
    folders = realm_inputs.folders
    shape = json.loads((folders.encoder / "config.json").read_text())
    shutil.copytree(folders.encoder, tmp_path / "short")
    (tmp_path / "short" / "config.json").write_text(json.dumps({**shape, "max_position_embeddings": 24}))
    torch.manual_seed(0)
    KnowledgeAugmentedEncoder.from_config(tmp_path / "short").save(tmp_path / "short")
    cloze = closed_world.inverse_cloze_config(folders, tmp_path / "short", tmp_path / "cloze", seed=0, steps=1)
    retriever = inverse_cloze_loop.main(replace_settings(cloze, batch=16, max_query=64, max_block=288))
    short = replace_settings(
        config, encoder=tmp_path / "short", retriever=retriever, max_text=64, max_block=288, steps=2
    )
    pretrain(replace_settings(short, null=False))
    rows = [row for row in read_rows(config.out) if "nll" in row]
    assert all(math.isfinite(row["nll_alone"]) and math.isfinite(row["utility"]) for row in rows)
    saved = json.loads((config.out / "config.json").read_text())
    assert (saved["max_text"], saved["max_block"]) == (12, 24)


def test_a_loss_that_is_not_finite_leaves_the_last_checkpoint_to_continue_from(
    config: PretrainConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loss of step 4 is not a number; the run continues from the checkpoint of step 3."""
    marginalise, calls = pretrain_loop.marginalise, []

    def fail_once(*arguments: Any) -> tuple[torch.Tensor, torch.Tensor]:
        calls.extend([1] * torch.is_grad_enabled())  # the loss without passages is only measured
        loss, counted = marginalise(*arguments)
        return loss * (math.nan if len(calls) == 5 else 1.0), counted

    with monkeypatch.context() as patch, pytest.raises(NonFiniteLoss, match="at step 4"):
        patch.setattr(pretrain_loop, "marginalise", fail_once)
        pretrain(config)
    assert len(read_losses(config.out)) == 4 and not (config.out / "model").exists()
    assert max(path.name for path in (config.out / "checkpoints").glob("step-*")) == "step-00000003"
    pretrain(config)
    whole = replace_settings(config, out=config.out.with_name("whole"))
    pretrain(whole)
    assert read_losses(config.out) == read_losses(whole.out)


def test_models_with_different_tokenizers_are_refused(config: PretrainConfig, tmp_path: Path) -> None:
    shutil.copytree(config.retriever, tmp_path / "other")
    for file in (tmp_path / "other").rglob("tokenizer.json"):
        file.write_text(file.read_text() + "\n")
    with pytest.raises(BadInput, match=r"other and .+ have different tokenizers"):
        pretrain(replace_settings(config, retriever=tmp_path / "other"))
    assert not config.out.exists()


def test_a_run_refuses_to_continue_with_other_settings(config: PretrainConfig) -> None:
    pretrain(replace_settings(config, steps=2))
    with pytest.raises(BadInput, match=r"other settings \(steps 2, not 6, lr 0.001, not 0.1\)"):
        pretrain(replace_settings(config, lr=0.1))


def test_a_corpus_without_salient_spans_is_refused(config: PretrainConfig) -> None:
    with pytest.raises(BadInput, match="1000 texts in a row have nothing to mask"):
        pretrain_loop.main(config, tagger=closed_world.ObjectTagger([]))
