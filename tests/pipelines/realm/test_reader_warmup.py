"""The warm-up of REALM's reader: which passage a text is read beside, and that it learns to look there."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import interrupt

from pipelines.common.masked_text import open_masked_texts
from pipelines.common.tokenized_passages import TokenizedPassages
from pipelines.realm import reader_warmup_loop
from pipelines.realm.config import ReaderWarmupConfig
from pipelines.realm.reader_warmup_loop import PassageChooser
from ragqa.errors import BadInput
from ragqa.indexing.build import IndexConfig, build_index
from ragqa.models.knowledge_augmented import KnowledgeAugmentedEncoder
from ragqa.runtime.tokens import TextTokenizer
from ragqa.settings.groups import make_config, replace_settings
from ragqa.training.log import read_rows


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """60 passages of three lines of four words, which no two passages share, each with a title of one."""
    root = tmp_path_factory.mktemp("corpus")
    rows = []
    for number in range(60):
        words = [f"w{13 * number + place}" for place in range(13)]
        text = "\\n\\n".join(" ".join(words[place : place + 4]) for place in (1, 5, 9))
        rows.append(f'{{"id": "{number}", "title": "{words[0]}", "text": "{text}"}}\n')
    (root / "passages.jsonl").write_text("".join(rows))
    build_index([root / "passages.jsonl"], root / "index", IndexConfig(retriever="bm25"))
    return root / "index"


@pytest.fixture(scope="module")
def encoder(small: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random weights as wide as a small model needs them: BERT's 0.02 leaves its attention flat for long."""
    shape, path = tmp_path_factory.mktemp("shape"), tmp_path_factory.mktemp("masked") / "encoder"
    shutil.copyfile(small / "tokenizer.json", shape / "tokenizer.json")
    row = json.loads((small / "config.json").read_text())
    (shape / "config.json").write_text(json.dumps(row | {"initializer_range": 32**-0.5}))
    torch.manual_seed(0)
    KnowledgeAugmentedEncoder.from_config(shape).save(path)
    return path


@pytest.fixture
def config(corpus: Path, encoder: Path, tmp_path: Path) -> ReaderWarmupConfig:
    few = {"steps": 4, "batch": 40, "max_text": 7, "masking": "uniform", "dropout": 0.0, "warmup": 1}
    return make_config(ReaderWarmupConfig, corpus=corpus, encoder=encoder, out=tmp_path / "run", **few)


def test_half_are_beside_their_own_passage_and_half_of_these_without_the_text(config: ReaderWarmupConfig) -> None:
    blocks = TokenizedPassages.open(config.corpus, TextTokenizer(config.encoder), config.out)
    texts, chooser = (
        open_masked_texts(config.masking, blocks, None, batch=config.batch, seed=config.seed),
        PassageChooser(blocks, config),
    )
    whole = {tuple(blocks.ids(row, 99)): row for row in range(len(blocks))}
    counts = np.zeros(3, int)
    for step in range(2, 22):
        batch = texts[step]
        found = chooser.choose(step, batch.texts)
        for text, ids, own in zip(batch.texts, found.ids, found.is_own_B.tolist(), strict=True):
            whole_text = text.ids.copy()
            for position, label in zip(text.positions, text.labels, strict=True):
                whole_text[position] = label
            passage = blocks.ids(text.row, 99)
            if not own:
                counts[2] += tuple(ids) in whole
            elif ids == passage:
                counts[0] += 1
            else:  # what is left is the passage but for the text: a sentence of it
                place = next(
                    place for place in range(len(passage)) if passage[place : place + len(whole_text)] == whole_text
                )
                assert ids == passage[:place] + passage[place + len(whole_text) :]
                counts[1] += 1
    assert counts.sum() == 800 and np.allclose(counts / 800, [0.25, 0.25, 0.5], atol=0.06)
    assert (
        chooser.choose(3, texts[3].texts).ids
        == chooser.choose(3, texts[3].texts).ids
        != chooser.choose(4, texts[4].texts).ids
    )
    assert [chooser.compute_shares(step) for step in (0, 1, 2, 4)] == [(1, 1), (0.75, 0.75), (0.5, 0.5), (0.5, 0.5)]
    first = chooser.choose(0, texts[0].texts)
    assert first.ids == [blocks.ids(text.row, 99) for text in texts[0].texts] and first.is_own_B.all()
    short = PassageChooser(blocks, replace_settings(config, max_block=5))
    assert max(map(len, short.choose(0, texts[0].texts).ids)) == 5


def test_losses_are_told_apart() -> None:
    nll_BM, counted_BM = torch.tensor([[1.0, 3.0], [5.0, 0.0]]), torch.tensor([[True, True], [True, False]])
    assert reader_warmup_loop._compute_losses_by_passage(nll_BM, counted_BM, torch.tensor([True, False])) == {
        "nll_own": 2.0,
        "nll_other": 5.0,
    }
    assert reader_warmup_loop._compute_losses_by_passage(nll_BM, counted_BM, torch.tensor([True, True])) == {
        "nll_own": 3.0
    }


def test_it_learns_to_look_into_the_passage(config: ReaderWarmupConfig, tmp_path: Path) -> None:
    """Passages of one word that is said again and again: all of a text is masked, its own passage tells it."""
    rows = [f'{{"id": "{number}", "text": "{" ".join(8 * [f"w{number}"])}"}}\n' for number in range(60)]
    (tmp_path / "same.jsonl").write_text("".join(rows))
    build_index([tmp_path / "same.jsonl"], tmp_path / "same.index", IndexConfig(retriever="bm25"))
    few = {"steps": 200, "batch": 32, "keep_share": 1.0, "lr": 3e-3, "warmup": 10, "rate": 0.999, "save_every": 1000}
    out = reader_warmup_loop.main(replace_settings(config, corpus=tmp_path / "same.index", **few))
    rows = read_rows(config.out)
    last = {name: np.mean([row[name] for row in rows[-20:] if name in row]) for name in ("nll_own", "nll_other")}
    assert last["nll_own"] < 0.5 * last["nll_other"], last
    KnowledgeAugmentedEncoder.load(out)


def test_a_broken_run_goes_on_with_the_very_losses(config: ReaderWarmupConfig) -> None:
    reader_warmup_loop.main(config)
    broken = replace_settings(config, out=config.out.with_name("broken"), save_every=2)
    interrupt(reader_warmup_loop.main, broken, 3)
    reader_warmup_loop.main(broken)
    whole, again = ([row["nll"] for row in read_rows(out)] for out in (config.out, broken.out))
    assert whole == again and len(whole) == 4


def test_settings_that_cannot_be_meant(config: ReaderWarmupConfig) -> None:
    with pytest.raises(BadInput, match=r"masking = all, own_share = 2, keep_share = -1: out of range"):
        replace_settings(config, masking="all", own_share=2, keep_share=-1)
