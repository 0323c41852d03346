"""Retrieval is evaluated in training with the rule of the data set."""

import json
from pathlib import Path

import pytest

from pipelines.common.config import HeldOutConfig
from pipelines.common.retrieval_eval import HeldOutQuestions, evaluate_retrieval
from pipelines.common.tokenized_passages import TokenizedPassages
from pipelines.realm.config import PretrainConfig
from ragqa.models.dual_encoder import DualEncoder
from ragqa.runtime.tokens import TextTokenizer
from tests.helpers.realm import (
    FixedIndex,
    RealmInputs,
    make_pretrain_config,
)


@pytest.fixture
def config(realm_inputs: RealmInputs, tmp_path: Path) -> PretrainConfig:
    return make_pretrain_config(realm_inputs, tmp_path / "run")


def test_answers_match_as_patterns_if_the_data_set_says_so(config: PretrainConfig, tmp_path: Path) -> None:
    blocks = TokenizedPassages.open(config.corpus, TextTokenizer(config.encoder), tmp_path / "blocks")
    file = tmp_path / "questions.jsonl"
    pattern = f"{blocks.store[2].text[:4]}.+"
    file.write_text(json.dumps({"question": "which?", "answers": [pattern]}) + "\n")
    tower = DualEncoder.load(config.retriever).questions
    for regex, recall in ((True, 1.0), (False, 0.0)):
        held_out = HeldOutQuestions.read(HeldOutConfig(dev=file, sample=None, regex=regex), blocks, 0)
        assert held_out is not None
        assert evaluate_retrieval(held_out, tower, FixedIndex([2]), "cpu", [1]) == {"recall@1": recall}
