"""A world in which only retrieval can help: does REALM's objective alone teach a retriever what to find?"""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from copying import CopyingReader

from eval import closed_world
from eval.bench import closed_world as bench
from pipelines.orqa import inverse_cloze
from pipelines.realm import pretrain
from ragqa.errors import Mismatch
from ragqa.runtime.tokens import TextTokenizer
from ragqa.training.log import read_rows


@pytest.fixture(scope="module")
def world() -> closed_world.World:
    return closed_world.make(150, 50, 0)


def test_the_facts_that_are_asked_are_never_trained_on(world: closed_world.World, tmp_path: Path) -> None:
    folders = closed_world.write(world, tmp_path)
    known = (tmp_path / "known.jsonl").read_text() + (tmp_path / "texts.jsonl").read_text()
    corpus = (tmp_path / "corpus.jsonl").read_text()
    assert len(world.known) + len(world.asked) == corpus.count("\n") == 450 and len(world.asked) == 50
    for fact in world.asked:
        both = [line for line in known.splitlines() if f" {fact.entity} " in line and f" {fact.object} " in line]
        others = [other.object for other in world.known if other.entity == fact.entity]
        assert not both or fact.object in others
        assert any(form in corpus for form in closed_world._passages(fact))
    tokenizer = TextTokenizer(folders.encoder)
    names = [tokenizer.pieces(fact.entity).ids for fact in world.known]
    (unknown,) = tokenizer.pieces("?").ids
    assert all(len(name) >= 3 and unknown not in name for name in names)
    assert len({piece for name in names for piece in name}) < 230  # so each stands in several names


def test_a_world_is_whole_or_not_there_and_no_other_is_taken_for_it(
    world: closed_world.World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(closed_world, "_write_shape", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            closed_world.write(world, tmp_path / "world")
    assert not any(tmp_path.iterdir())
    folders = closed_world.write(world, tmp_path / "world")
    before = folders.taught.stat().st_mtime_ns
    assert closed_world.write(world, folders.root) == folders and folders.taught.stat().st_mtime_ns == before
    with pytest.raises(Mismatch, match=r"'seed': 0}, and .*'seed': 1} is wanted: give another folder") as caught:
        closed_world.write(world, folders.root, seed=1)
    assert "\n" not in str(caught.value)


def test_a_retriever_learns_from_a_reader_that_copies(
    world: closed_world.World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The faster cousin: the reader need not learn first, so the retriever turns within some steps."""
    folders = closed_world.write(world, tmp_path / "world")
    start = closed_world.begin(folders, tmp_path / "start", 0)
    cloze = replace(closed_world.warm_up(folders, start, tmp_path / "cloze", seed=0, steps=200), batch=64, warmup=20)
    config = closed_world.pretraining(folders, start, inverse_cloze.main(cloze), tmp_path / "run", seed=0, steps=100)
    config = replace(config, frozen=0, warmup=10, refresh_every=20, eval_every=50, retriever_lr=5e-4)
    tokenizer = TextTokenizer(folders.encoder)
    objects = [tokenizer.pieces(name).ids[0] for name in world.objects]
    reader = CopyingReader(objects, 5 + max(objects + list(tokenizer.ordinary)))
    monkeypatch.setattr(pretrain.KnowledgeAugmentedEncoder, "from_encoder", lambda folder: reader)
    pretrain.main(config, finds=closed_world.ObjectTagger(world.objects))
    recall = {row["step"]: row["recall@1"] for row in read_rows(config.out) if "recall@1" in row}
    assert recall[0] < 0.4 and recall[100] > 0.6


@pytest.mark.slow
@pytest.mark.timeout(2400)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_only_retrieval_helps_and_it_is_learnt_from_masked_words_alone(tmp_path: Path, seed: int) -> None:
    out, threads = tmp_path / "figures.json", torch.get_num_threads()
    bench.main(["--work", str(tmp_path), "--seeds", str(seed), "--out", str(out)])
    torch.set_num_threads(threads)
    rows = {row["arm"]: row for row in json.loads(out.read_text())["rows"]}
    learnt, stale = rows["refreshed"], rows["never refreshed"]
    assert learnt["accuracy"] >= 0.97 and learnt["recall@1"] >= 0.97 and learnt["alone"] <= 0.05
    assert not learnt["alarms"] and learnt["own_index"]["recall@1"] >= 0.97
    assert stale["own_index"]["recall@1"] < learnt["own_index"]["recall@1"] - 0.02
    assert last(stale["questions"]["recall@1"]) < last(learnt["questions"]["recall@1"]) - 0.1
    for collapsed in (rows["fast retriever"], rows["no warm start"]):
        assert collapsed["accuracy"] < 0.1
        assert any("recall" not in line for line in collapsed["alarms"])  # without held-out questions, too


def last(figures: dict[str, float]) -> float:
    """That of the last step."""
    return figures[max(figures, key=int)]
