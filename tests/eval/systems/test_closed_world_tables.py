"""The tables of the closed world: only retrieval helps there, and recipes learn it."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
import torch

from eval.systems import closed_world as table
from eval.systems.closed_world import ClosedWorldConfig
from eval.systems.runner import TableRunner
from eval.systems.world import ObjectTagger, World, WorldFolders, init_encoder, make_world, write_world
from pipelines.common import generator_training
from pipelines.joint import loop as joint
from pipelines.orqa import inverse_cloze_loop
from pipelines.rag import loop as rag
from pipelines.realm import pretrain_loop
from ragqa.errors import Mismatch
from ragqa.runtime.tokens import TextTokenizer
from ragqa.settings.groups import replace_settings
from ragqa.training.log import read_rows
from tests.helpers.closed_world import inverse_cloze_config, joint_config, rag_config, realm_config
from tests.helpers.copying import CopyingGenerator, CopyingReader

QUICK: dict[str, Any] = {"frozen": 0, "warmup": 10, "refresh_every": 20, "eval_every": 50, "retriever_lr": 5e-4}
"""Settings by which a retriever learns within a hundred steps from a model that copies."""


@pytest.fixture
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module", params=[1, 2], ids=["words of statements", "answers of questions"])
def world(request: pytest.FixtureRequest) -> World:
    return make_world(150, 50, 0, words=request.param)


@pytest.fixture(scope="module")
def folders(world: World, tmp_path_factory: pytest.TempPathFactory) -> WorldFolders:
    return write_world(world, tmp_path_factory.mktemp("world"))


@pytest.fixture(scope="module")
def start(folders: WorldFolders) -> Path:
    return init_encoder(folders, folders.root / "start", 0)


@pytest.fixture(scope="module")
def retriever(folders: WorldFolders, start: Path) -> Path:
    cloze = inverse_cloze_config(folders, start, folders.root / "cloze", seed=0, steps=200)
    return inverse_cloze_loop.main(replace_settings(cloze, batch=64, warmup=20))


def read_recalls(out: Path) -> dict[int, float]:
    return {row["step"]: row["recall@1"] for row in read_rows(out) if "recall@1" in row}


@pytest.mark.parametrize("world", [1], indirect=True)
def test_a_retriever_learns_from_a_reader_that_copies(
    world: World,
    folders: WorldFolders,
    start: Path,
    retriever: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The fast version of the slow test of masked words: the reader copies, so it need not learn first."""
    config = realm_config(folders, start, retriever, tmp_path / "run", seed=0, steps=100)
    tokenizer = TextTokenizer(folders.encoder)
    objects = [tokenizer.tokenize(name).ids[0] for name in world.objects]
    reader = CopyingReader(objects, 5 + max(objects + list(tokenizer.ordinary_ids)))
    monkeypatch.setattr(pretrain_loop.KnowledgeAugmentedEncoder, "load", lambda folder: reader)
    pretrain_loop.main(replace_settings(config, **QUICK), tagger=ObjectTagger(world.objects))
    recalls = read_recalls(config.out)
    assert recalls[0] < 0.4 and recalls[100] > 0.6


@pytest.fixture
def without_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the functions that count, save and generate, because the copying generator has no weights."""
    monkeypatch.setattr(generator_training, "count_token_flops", lambda _: (0, 0))
    monkeypatch.setattr(generator_training, "write_generator", lambda *_: None)
    monkeypatch.setattr(generator_training, "write_answers", lambda generator, texts, *_: [""] * len(texts))


@pytest.mark.parametrize("world", [2], indirect=True)
@pytest.mark.parametrize("marginal", ["token", pytest.param("sequence", marks=pytest.mark.thorough)])
def test_a_retriever_learns_from_a_generator_that_copies(
    world: World,
    folders: WorldFolders,
    retriever: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    without_weights: None,
    marginal: Literal["token", "sequence"],
) -> None:
    """The fast version of the slow test of RAG-Token and RAG-Sequence."""
    config = rag_config(folders, folders.train_questions, retriever, folders.root, tmp_path / "run", seed=0, steps=100)
    generator = CopyingGenerator(world.objects, TextTokenizer(folders.encoder), marginal)
    monkeypatch.setattr(generator_training, "load_for_training", lambda *_, **__: generator)
    monkeypatch.setattr(rag, "RagGenerator", CopyingGenerator)
    rag.main(replace_settings(config, marginal=marginal, **QUICK))
    recalls = read_recalls(config.out)
    assert recalls[100] > recalls[0] + 0.2 and recalls[100] > 0.5


@pytest.mark.thorough
@pytest.mark.parametrize("world", [2], indirect=True)
def test_one_retriever_learns_from_masked_words_and_then_from_both_losses(
    world: World,
    folders: WorldFolders,
    start: Path,
    retriever: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    without_weights: None,
) -> None:
    """The fast version of the slow test of joint training."""
    config = joint_config(folders, start, retriever, None, tmp_path / "run", seed=0, steps=100)
    tokenizer = TextTokenizer(folders.encoder)
    pieces = {piece for name in world.objects for piece in tokenizer.tokenize(name).ids}
    reader = CopyingReader(sorted(pieces), 5 + max(*pieces, *tokenizer.ordinary_ids))
    generator = CopyingGenerator(world.objects, tokenizer, "token")
    monkeypatch.setattr(joint.KnowledgeAugmentedEncoder, "load", lambda folder: reader)
    monkeypatch.setattr(joint, "load_generator", lambda *_: generator)
    monkeypatch.setattr(joint.Joint, "copy_encoder_to_generator", lambda self: None)
    joint.main(replace_settings(config, **QUICK), tagger=ObjectTagger(world.objects))
    recalls = read_recalls(config.out)
    assert recalls[50] > recalls[0] + 0.1 and recalls[100] > recalls[50] and recalls[100] > 0.6


def make_rows(config: ClosedWorldConfig) -> dict[str, dict[str, Any]]:
    return {row["arm"]: row for row in table.main(config)}


@pytest.mark.thorough
def test_a_table_runs_from_end_to_end_and_reuses_its_rows(
    tmp_path: Path, one_thread: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    arms = ("RAG-Sequence", "joint", "closed book", "REALM, then RAG", "REALM, then joint")
    config = ClosedWorldConfig(
        table="questions", work=tmp_path / "work", out=tmp_path / "rows.json", arms=arms, counts=(5,), smoke=True
    )
    rows = make_rows(config)
    questions = {"RAG-Sequence": 142, "joint": 5, "closed book": 142, "REALM, then RAG": 5, "REALM, then joint": 5}
    assert {arm: row["questions"] for arm, row in rows.items()} == questions
    assert all(0 <= row["em"] <= 1 and row["seconds"] and row["dev"] for row in rows.values())
    questions_seen = {"RAG-Sequence": 4 * 32, "closed book": 4 * 32, "joint": 2 * 16}
    assert {arm: get_last_figure(row["seen"]) for arm, row in rows.items()} == {
        **questions_seen,
        "REALM, then RAG": 4 * 16,
        "REALM, then joint": 4 * 16,
    }
    monkeypatch.setattr(TableRunner, "train", lambda *_: pytest.fail("trained again"))
    elsewhere = replace(config, work=tmp_path / "elsewhere", arms=("joint",))
    assert make_rows(elsewhere) == {"joint": rows["joint"]}  # read from the output file
    assert make_rows(config) == rows
    monkeypatch.setitem(table.SMOKE, "warmup", 2)  # type: ignore[index]  # rows of other settings are not reused
    with pytest.raises(pytest.fail.Exception, match="trained again"):
        make_rows(config)
    monkeypatch.undo()
    monkeypatch.setitem(table.SMALL, "entities", 51)  # type: ignore[index]
    with pytest.raises(Mismatch, match=r"holds the world .*'entities': 50.*, not .*'entities': 51"):
        make_rows(config)


@pytest.mark.thorough
def test_recall_does_not_depend_on_how_many_passages_are_read(tmp_path: Path, one_thread: None) -> None:
    config = ClosedWorldConfig(table="masked-words", work=tmp_path, arms=("refreshed",), smoke=True)
    (row,) = table.main(config)
    assert 0 <= row["recall@1"] <= row["recall@7"] < 1 and set(row["own_index"]) == {"accuracy", "alone"} | {
        "recall@1",
        "recall@7",
    }
    world = make_world(50, 8, 0)
    runner = TableRunner(
        paths={"work": tmp_path / "seed-0"},
        out=tmp_path / "rows.json",
        about={},
        changes={"seed": 0, **table.SMOKE, "k": 150},
        tagger=ObjectTagger(world.objects),
    )
    everything = table.score_statements(runner, table.MASKED_WORDS["refreshed"], world)
    assert everything["recall@7"] == row["recall@7"]


def get_last_figure(figures: dict[str, float]) -> float:
    """Return the figure of the last step."""
    return figures[max(figures, key=int)]


@pytest.mark.slow
@pytest.mark.timeout(2400)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_only_retrieval_helps_and_it_is_learned_from_masked_words_alone(
    tmp_path: Path, one_thread: None, seed: int
) -> None:
    rows = make_rows(ClosedWorldConfig(table="masked-words", work=tmp_path, seeds=(seed,)))
    refreshed, stale = rows["refreshed"], rows["never refreshed"]
    assert refreshed["accuracy"] >= 0.97 and refreshed["recall@1"] >= 0.97 and refreshed["alone"] <= 0.05
    assert not refreshed["alarms"] and refreshed["own_index"]["recall@1"] >= 0.97
    assert stale["own_index"]["recall@1"] < refreshed["own_index"]["recall@1"] - 0.02
    assert get_last_figure(stale["dev"]["recall@1"]) < get_last_figure(refreshed["dev"]["recall@1"]) - 0.1
    for collapsed in (rows["fast retriever"], rows["no warm start"]):
        assert collapsed["accuracy"] < 0.1
        assert any("recall" not in line for line in collapsed["alarms"])  # alarms that need no held-out questions


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("arms", [("RAG-Token", "joint"), ("RAG-Sequence",), ("closed book",)])
def test_held_out_facts_are_answered_by_retrieval_alone(
    tmp_path: Path, arms: tuple[str, ...], one_thread: None
) -> None:
    """Retrieval is learned from the loss of generation; a closed book cannot know held-out facts."""
    rows = make_rows(ClosedWorldConfig(table="questions", work=tmp_path, arms=arms, counts=(0,)))
    for arm, row in rows.items():
        if arm == "closed book":
            assert row["em"] <= 0.05
        else:
            assert row["em"] >= 0.97 and row["recall@1"] >= 0.97 and not row["alarms"]
    if len(rows) == 2:  # joint training saw no more questions
        alone, both = (rows[arm] for arm in arms)
        assert get_last_figure(both["seen"]) <= get_last_figure(alone["seen"])


COLLAPSED = ("are memorised", "all texts get the same", "no passage is preferred", "recall has fallen")
"""Phrases of the alarms of a collapse; other alarms warn before it."""


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_two_hundred_questions_are_enough_after_masked_words_and_too_few_without(
    tmp_path: Path, one_thread: None
) -> None:
    arms = ("RAG alone", "joint from the first step", "REALM, then joint", "REALM, then RAG", "joint")
    rows = make_rows(ClosedWorldConfig(table="questions", work=tmp_path, arms=arms, counts=(200,)))
    for learned in arms[2:]:
        assert rows[learned]["em"] >= 0.97
        assert not any(phrase in line for line in rows[learned]["alarms"] for phrase in COLLAPSED)
    for collapsed in arms[:2]:
        assert rows[collapsed]["em"] < 0.1
        assert any(phrase in line for line in rows[collapsed]["alarms"] for phrase in COLLAPSED)
