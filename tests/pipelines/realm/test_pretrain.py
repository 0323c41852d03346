"""REALM's pretraining: what it proposes, scores and reads, and that a broken run goes on as if unbroken."""

import errno
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from index import refresh
from pipelines.common.config import HeldOutConfig
from pipelines.common.masked_text import (
    NULL,
    MaskedText,
    open_masked_texts,
)
from pipelines.common.retrieval_eval import HeldOutQuestions, evaluate_retrieval
from pipelines.common.tokenized_passages import TokenizedPassages
from pipelines.common.training_index import score_with_towers
from pipelines.orqa import inverse_cloze_loop
from pipelines.realm import pretrain_loop
from pipelines.realm.config import PretrainConfig
from pipelines.realm.pretrain_loop import Realm, make_triviality_test, predict, propose
from ragqa.errors import BadInput, DamagedArtefact, NonFiniteLoss
from ragqa.models.dual_encoder import DualEncoder
from ragqa.models.inputs import pad_rows
from ragqa.models.knowledge_augmented import KnowledgeAugmentedEncoder
from ragqa.objectives import IGNORED, realm_mlm_nll
from ragqa.retrieval.base import Ranking
from ragqa.retrieval.vectors.mips import open_index
from ragqa.runtime.encoder import load_encoder
from ragqa.runtime.tokens import TextTokenizer
from ragqa.settings.groups import collect_settings, replace_settings
from ragqa.training.health import measure_retrieval
from ragqa.training.log import read_rows
from tests.helpers import closed_world

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def world() -> closed_world.World:
    return closed_world.make_world(30, 5, 0)


@pytest.fixture(scope="module")
def folders(world: closed_world.World, tmp_path_factory: pytest.TempPathFactory) -> closed_world.WorldFolders:
    return closed_world.write_world(world, tmp_path_factory.mktemp("world"), width=32)


@pytest.fixture(scope="module")
def start(folders: closed_world.WorldFolders) -> Path:
    return closed_world.init_encoder(folders, folders.root / "start", 0)


@pytest.fixture(scope="module")
def retriever(folders: closed_world.WorldFolders, start: Path) -> Path:
    config = closed_world.inverse_cloze_config(folders, start, folders.root / "cloze", seed=0, steps=3)
    return inverse_cloze_loop.main(replace_settings(config, batch=16))


@pytest.fixture
def config(folders: closed_world.WorldFolders, start: Path, retriever: Path, tmp_path: Path) -> PretrainConfig:
    settings = closed_world.realm_config(folders, start, retriever, tmp_path / "run", seed=0, steps=6)
    return replace_settings(settings, batch=4, k=4, frozen=2, refresh_every=2, save_every=3, eval_every=3, warmup=1)


def run(config: PretrainConfig, world: closed_world.World, **options: Any) -> Path:
    return pretrain_loop.main(config, tagger=closed_world.ObjectTagger(world.objects), **options)


def losses(out: Path) -> list[tuple[int, float]]:
    return [(row["step"], row["nll"]) for row in read_rows(out) if "nll" in row]


def test_blocks_are_what_the_index_embeds(folders: closed_world.WorldFolders, retriever: Path, tmp_path: Path) -> None:
    blocks = TokenizedPassages.open(folders.corpus, TextTokenizer(folders.encoder), tmp_path)
    model = DualEncoder.load(retriever).eval()
    batch = blocks.batch([3, 0, NULL], 32)
    with torch.no_grad():
        live = model.passages(batch.ids_NL, batch.mask_NL).numpy()
    encoder = load_encoder(retriever)
    texts = [passage.titled_text for passage in blocks.store.get([3, 0])]
    assert np.allclose(live, encoder.encode([*texts, ""]), atol=1e-5)
    assert blocks.ids(NULL, 10) == blocks.ids(3, -1) == []
    again = TokenizedPassages.open(folders.corpus, TextTokenizer(folders.encoder), tmp_path)
    assert [again.ids(row, 99) for row in range(len(again))] == [blocks.ids(row, 99) for row in range(len(blocks))]


def test_padding_by_hand() -> None:
    batch = pad_rows([[5, 6], [7], []])
    assert batch.ids_NL.tolist() == [[5, 6], [7, 0], [0, 0]]
    assert batch.mask_NL.tolist() == [[1, 1], [1, 0], [0, 0]]


class Fixed:
    """An index that finds the same rows for everybody."""

    vectors, width = None, 2

    def __init__(self, rows: list[int]) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def search(self, queries_BD: np.ndarray, k: int) -> list[Ranking]:
        rows = np.array(self._rows[:k])
        return [Ranking(rows, -np.arange(len(rows), dtype=np.float32)) for _ in queries_BD]


def test_a_text_does_not_find_the_passage_it_was_taken_from() -> None:
    own = [2, 9, NULL]
    found = propose(Fixed([4, 2, 7, 1]), np.zeros((3, 2)), lambda at, row: row == own[at], 3)
    assert found.tolist() == [[4, 7, 1], [4, 2, 7], [4, 2, 7]]
    with pytest.raises(BadInput, match="2 passages for a text, not 3: lower --k"):
        propose(Fixed([4, 2, 7]), np.zeros((1, 2)), lambda at, row: row == own[at], 3)


def test_a_passage_in_which_the_text_stands_tells_what_is_masked(
    folders: closed_world.WorldFolders, tmp_path: Path
) -> None:
    """Whichever row it has; a text of few wordpieces stands anywhere, and masks do not hide it."""
    blocks = TokenizedPassages.open(folders.corpus, TextTokenizer(folders.encoder), tmp_path)
    ids, other = blocks.ids(3, 99), blocks.ids(5, 99)
    assert len(ids) > 8
    middle = MaskedText(NULL, [4, *ids[2:8], 4], [0, 7], [ids[1], ids[8]])
    tells = make_triviality_test([middle, MaskedText(NULL, ids[2:4], [], []), MaskedText(5, other, [], [])], blocks)
    assert middle.original_ids == ids[1:9]
    assert [tells(0, row) for row in (3, 5)] == [True, False]
    assert not tells(1, 3) and tells(2, 5) and not tells(2, 3)
    shifted = np.asarray(ids[2:8], np.int32).tobytes()
    assert blocks.contains(3, shifted) and not blocks.contains(3, shifted[1:-3])  # not between two wordpieces


def model_of(config: PretrainConfig) -> Realm:
    realm = Realm(DualEncoder.load(config.retriever), KnowledgeAugmentedEncoder.load(config.encoder))
    return realm.eval()


def batch_of(config: PretrainConfig, world: closed_world.World, blocks: TokenizedPassages) -> Any:
    texts = open_masked_texts(
        config.masking,
        blocks,
        closed_world.ObjectTagger(world.objects),
        batch=config.batch,
        seed=config.seed,
        texts=config.texts,
        are_passages=False,
    )
    return texts[0]


@pytest.mark.parametrize("marginal", ["token", "sequence"])
def test_the_loss_of_a_step_is_that_of_the_equations(
    config: PretrainConfig, world: closed_world.World, tmp_path: Path, marginal: str
) -> None:
    """Every pair by itself, unpadded, with all logits; the passages encoded one by one."""
    blocks = TokenizedPassages.open(config.corpus, TextTokenizer(config.encoder), tmp_path)
    model, batch = model_of(config), batch_of(config, world, blocks)
    index = Fixed([4, 2, 7])
    first, last = blocks.tokenizer.special_ids
    with torch.no_grad():
        found = predict(model, index, blocks, batch, replace_settings(config, k=4))
        counted = batch.labels_BM != IGNORED
        loss = pretrain_loop.marginal_nll(found.gold_BKM, found.relevance_BK, counted, marginal=marginal)
        logits, relevance = [], []
        for row, text in enumerate(batch.texts):
            x = [first, *text.ids, last]
            query = model.retriever.questions(torch.tensor([x]), torch.ones(1, len(x), dtype=torch.long))
            for place in (4, 2, 7, NULL):
                z = blocks.ids(place, 99)
                both = torch.tensor([[*x, *z, last]])
                types = torch.tensor([[0] * len(x) + [1] * (len(z) + 1)])
                every = model.reader.model(input_ids=both, token_type_ids=types).logits[0]
                logits.append(every[batch.positions_BM[row]])
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


def test_scores_are_those_of_the_vectors_to_the_last_bit(config: PretrainConfig, tmp_path: Path) -> None:
    """Norms with gain 1 give scores near 100, among which bfloat16 knows halves only."""
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


def test_answers_that_are_patterns_are_found_as_patterns(config: PretrainConfig, tmp_path: Path) -> None:
    blocks = TokenizedPassages.open(config.corpus, TextTokenizer(config.encoder), tmp_path / "blocks")
    file = tmp_path / "questions.jsonl"
    pattern = f"{blocks.store[2].text[:4]}.+"
    file.write_text(json.dumps({"question": "which?", "answers": [pattern]}) + "\n")
    tower = DualEncoder.load(config.retriever).questions
    for regex, recall in ((True, 1.0), (False, 0.0)):
        exam = HeldOutQuestions.read(HeldOutConfig(dev=file, sample=None, regex=regex), blocks, 0)
        assert exam is not None
        assert evaluate_retrieval(exam, tower, Fixed([2]), "cpu", [1]) == {"recall@1": recall}


def test_pretraining_measures_patterns_as_patterns(
    config: PretrainConfig, world: closed_world.World, tmp_path: Path
) -> None:
    file = tmp_path / "questions.jsonl"
    file.write_text(json.dumps({"question": "which?", "answers": [".+"]}) + "\n")
    run(replace_settings(config, steps=1, dev=file, regex=True), world)
    assert {row["recall@5"] for row in read_rows(config.out) if "recall@5" in row} == {1.0}


def test_two_tokenizers_are_refused(config: PretrainConfig, world: closed_world.World, tmp_path: Path) -> None:
    shutil.copytree(config.retriever, tmp_path / "other")
    for file in (tmp_path / "other").rglob("tokenizer.json"):
        file.write_text(file.read_text() + "\n")
    with pytest.raises(BadInput, match=r"other and .+ have different tokenizers"):
        run(replace_settings(config, retriever=tmp_path / "other"), world)
    assert not config.out.exists()


def test_an_approximate_index_may_find_fewer(config: PretrainConfig, world: closed_world.World, tmp_path: Path) -> None:
    """What is missing has no part in the loss and is not counted among the passages."""
    index = Fixed([4, 2, 7, 1, 3, 5])
    index.search = lambda queries_BD, k: [Ranking(np.array([4, 2]), np.zeros(2, np.float32)) for _ in queries_BD]
    found = propose(index, np.zeros((2, 2)), lambda at, row: at == 1 and row == 2, 3)
    assert found.tolist() == [[4, 2, NULL], [4, NULL, NULL]]
    blocks = TokenizedPassages.open(config.corpus, TextTokenizer(config.encoder), tmp_path)
    model, batch = model_of(config), batch_of(config, world, blocks)
    with torch.no_grad():
        few = predict(model, index, blocks, batch, replace_settings(config, k=6))
        two = predict(model, Fixed([4, 2]), blocks, batch, replace_settings(config, k=3))
    counted = batch.labels_BM != IGNORED
    rows = [
        measure_retrieval(g.gold_BKM, g.alone_B1M, g.relevance_BK, counted, g.rows_BK, has_null=True)
        for g in (few, two)
    ]
    losses = [pretrain_loop.marginal_nll(g.gold_BKM, g.relevance_BK, counted).item() for g in (few, two)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-2)  # the step is in bfloat16
    for name in ("utility", "null"):
        assert rows[0][name] == pytest.approx(rows[1][name], rel=5e-2, abs=1e-2)
    assert rows[0]["distinct"] == rows[1]["distinct"] == 0.0  # all texts were given the same two


def test_the_index_embeds_what_the_live_tower_does_and_no_text_finds_itself(
    config: PretrainConfig, world: closed_world.World, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[Any] = []

    def recorded(model: Realm, index: Any, blocks: TokenizedPassages, batch: Any, config: Any) -> Any:
        everything = blocks.batch(range(len(blocks)), config.max_block)
        with torch.no_grad():
            live = model.retriever.passages(everything.ids_NL, everything.mask_NL).numpy()
        (ranking,) = index.search(live[:1], 5)
        assert np.allclose(ranking.scores, live[ranking.rows] @ live[0], rtol=2**-7)  # bfloat16
        found.append(([text.row for text in batch.texts], predict(model, index, blocks, batch, config).rows_BK))
        return predict(model, index, blocks, batch, config)

    monkeypatch.setattr(pretrain_loop, "predict", recorded)
    run(replace_settings(config, texts=config.corpus, masking="words", max_block=6, refresh_every=1, k=20), world)
    assert all(own not in rows for owns, rows_BK in found for own, rows in zip(owns, rows_BK, strict=True))
    assert all(own >= 0 for owns, _ in found for own in owns)
    assert DualEncoder.load(config.out / "model").passages.max_tokens == 6


def test_learning_rates_wait_for_the_reader(config: PretrainConfig) -> None:
    settings = replace_settings(config, steps=100, frozen=40, warmup=10, lr=1.0, retriever_lr=0.5)
    assert settings.rates.compute_rates(39)[:2] == [0.0, 0.0] and settings.rates.compute_rates(39)[2] > 0
    assert settings.rates.compute_rates(40)[0] == pytest.approx(0.05) and settings.rates.compute_rates(49)[
        0
    ] == pytest.approx(0.5)
    assert settings.rates.compute_rates(99)[0] == pytest.approx(0.5 / 50)
    usual = replace_settings(
        settings, frozen=None, retriever_lr=None
    )  # half of the steps, then a fifth of the reader's rate
    assert usual.rates.compute_rates(49)[:2] == [0.0, 0.0] and usual.rates.compute_rates(59)[0] == pytest.approx(0.2)
    assert (
        replace_settings(settings, frozen=0, retriever_lr=1.0).rates.compute_rates(40)[0]
        == settings.rates.compute_rates(40)[2]
    )


def test_a_frozen_retriever_stays_as_it_is(config: PretrainConfig, world: closed_world.World) -> None:
    run(replace_settings(config, frozen=6), world)
    before, after = DualEncoder.load(config.retriever), DualEncoder.load(config.out / "model")
    assert all(torch.equal(a, b) for a, b in zip(before.parameters(), after.parameters(), strict=True))
    reader = KnowledgeAugmentedEncoder.load(config.out / "reader")
    began = KnowledgeAugmentedEncoder.load(config.encoder)
    assert any(not torch.equal(a, b) for a, b in zip(reader.parameters(), began.parameters(), strict=True))


def test_everything_is_logged(config: PretrainConfig, world: closed_world.World) -> None:
    told: list[str] = []
    run(config, world, notify=told.append)
    rows = read_rows(config.out)
    steps = [row for row in rows if "nll" in row]
    assert [row["step"] for row in steps] == list(range(6))
    names = {"nll", "nll_alone", "utility", "utility_top", "entropy", "distinct", "null"}
    names |= {"tokens/s", "utilisation", "staleness"}
    assert all(names <= row.keys() and all(math.isfinite(row[name]) for name in names) for row in steps)
    assert [row["staleness"] for row in steps] == [0, 0, 0, 1, 0, 1]  # the retriever learns from the third on
    assert [row["step"] for row in rows if "recall@5" in row] == [0, 3, 6]
    swaps = [(row["step"], row["swap_version"]) for row in rows if "swap_version" in row]
    assert swaps == [(0, 0), (4, 2), (6, 4)]
    assert [line.partition(":")[0] for line in told if "ALARM" not in line] == ["step 0", "step 3", "step 6"]


def test_models_with_few_positions_read_shorter_texts(
    config: PretrainConfig, world: closed_world.World, folders: closed_world.WorldFolders, tmp_path: Path
) -> None:
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
    run(replace_settings(short, null=False), world)
    rows = [row for row in read_rows(config.out) if "nll" in row]
    assert all(math.isfinite(row["nll_alone"]) and math.isfinite(row["utility"]) for row in rows)
    given = json.loads((config.out / "config.json").read_text())
    assert (given["max_text"], given["max_block"]) == (12, 24)


def test_the_index_is_never_refreshed_where_that_is_wanted(config: PretrainConfig, world: closed_world.World) -> None:
    run(replace_settings(config, refresh_every=None), world)
    rows = read_rows(config.out)
    assert [row["swap_version"] for row in rows if "swap_version" in row] == [0]
    assert [row["staleness"] for row in rows if "nll" in row] == [0, 0, 0, 1, 2, 3]
    assert [row["staleness"] for row in rows if "recall@5" in row] == [0, 1, 4]


SCRIPT = """
import sys, json, time
from pathlib import Path
from ragqa.settings.groups import make_config
from tests.helpers import closed_world
from pipelines.realm import pretrain_loop
arguments = json.loads(sys.argv[1])
world = closed_world.make_world(30, 5, 0)
paths = ("corpus", "encoder", "retriever", "out", "texts", "dev")
fields = {name: Path(value) if name in paths else value for name, value in arguments.items()}
step = pretrain_loop.train_step
def waiting(run, *others, **options):
    if run.step == int(sys.argv[2]):
        print("here", flush=True)
        time.sleep(600)  # until it is killed
    return step(run, *others, **options)
pretrain_loop.train_step = waiting
pretrain_loop.main(make_config(pretrain_loop.PretrainConfig, **fields), tagger=closed_world.ObjectTagger(world.objects))
"""


@pytest.mark.thorough
def test_a_killed_run_goes_on_with_the_very_losses(config: PretrainConfig, world: closed_world.World) -> None:
    """Dropout and all; killed two steps after a checkpoint, or after the second refresh but before a checkpoint."""
    config = replace_settings(config, dropout=0.1, frozen=0)
    run(config, world)
    for at, save_every, kept in ((5, 3, {"step-00000003"}), (3, 5, set())):
        broken = replace_settings(config, out=config.out.with_name(f"broken-{at}"), save_every=save_every)
        arguments = [json.dumps(collect_settings(broken), default=str), str(at)]
        with subprocess.Popen(
            [sys.executable, "-c", SCRIPT, *arguments], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        ) as process:
            assert process.stdout is not None and process.stdout.readline() == b"here\n"
            process.send_signal(signal.SIGKILL)
        saved = {path.name for path in (broken.out / "checkpoints").glob("*")}
        assert saved - {"step-00000000"} == kept
        run(broken, world)
        assert losses(broken.out) == losses(config.out) and len(losses(config.out)) == 6
        one, other = DualEncoder.load(config.out / "model"), DualEncoder.load(broken.out / "model")
        assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


def test_the_versions_that_checkpoints_name_stay(config: PretrainConfig, world: closed_world.World) -> None:
    """Of a run that goes on with other settings of what is saved, too."""
    step = pretrain_loop.train_step
    seen: list[tuple[int, list[str]]] = []

    def stopped(run: Any, *others: Any, **options: Any) -> dict[str, float]:
        seen.append((run.step, sorted(path.name for path in (config.out / "index").glob("index-*"))))
        if len(seen) == 4 or run.step == 9:
            raise KeyboardInterrupt
        return step(run, *others, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pretrain_loop, "train_step", stopped)
        for save_every in (3, 100):
            with pytest.raises(KeyboardInterrupt):
                run(replace_settings(config, steps=12, save_every=save_every, frozen=0), world)
    assert seen[3] == (3, ["index-00000000", "index-00000002"])
    assert seen[-1] == (9, [f"index-0000000{step}" for step in (0, 2, 6, 8)])


def full(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize(
    ("patched", "told"),
    [
        ("index.version_build.embed_shard", "no index could be made from the weights of step 2: .*No space left"),
        ("ragqa.models.dual_encoder.DualEncoder.save_passages", "cannot write the weights .*No space left"),
        ("ragqa.retrieval.vectors.mips.open_index", "index-00000002 is damaged"),
    ],
)
def test_a_refresh_that_fails_is_told_and_does_not_end_the_run(
    config: PretrainConfig, world: closed_world.World, patched: str, told: str
) -> None:
    """The version of step 2 fails; that of step 0 serves until that of step 4 is there."""
    step, lines, versions = pretrain_loop.train_step, list[str](), []

    def damaged(folder: Path, *_: object, **__: object) -> None:
        raise DamagedArtefact(f"{folder} is damaged")

    with pytest.MonkeyPatch.context() as patch:

        def seen(run: Any, model: Any, index: Any, *others: Any) -> dict[str, float]:
            versions.append(run.step - index.staleness)
            figures = step(run, model, index, *others)
            if run.step == 2:  # what comes next is the refresh
                patch.setattr(patched, damaged if "open" in patched else full)
            elif run.step == 3:
                patch.undo()
                patch.setattr(pretrain_loop, "train_step", seen)
            return figures

        patch.setattr(pretrain_loop, "train_step", seen)
        run(replace_settings(config, frozen=0, dev=None), world, notify=lines.append)
    assert versions == [0, 0, 0, 0, 4, 4]
    (alarm,) = [line for line in lines if "ALARM" in line]
    assert re.search(told, alarm) and alarm.startswith("step 2: ")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning:ray", "ignore:unclosed <socket:ResourceWarning")
def test_actors_refresh_the_index_of_a_killed_run(config: PretrainConfig, world: closed_world.World) -> None:
    """Steps, swaps and the bound on staleness, with a Ray actor that embeds; killed and gone on with."""
    ray = pytest.importorskip("ray")
    config = replace_settings(config, workers=1, steps=12, frozen=0, max_staleness=3)
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT, json.dumps(collect_settings(config), default=str), "7"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == b"here\n"
        process.send_signal(signal.SIGKILL)
    try:
        run(config, world)
    finally:
        ray.shutdown()
    rows = read_rows(config.out)
    assert [row["step"] for row in rows if "nll" in row] == list(range(12))
    staleness = [row["staleness"] for row in rows if "nll" in row]
    assert max(staleness) <= 3 and 0 < len([row for row in rows if "swap_version" in row]) <= 7
    vectors = open_index(config.out / "index" / f"index-{rows[-1]['step'] - rows[-1]['staleness']:08d}", "flat").vectors
    assert vectors.shape == (90, DualEncoder.load(config.out / "model").passages.width)


def test_a_loss_that_is_no_number_spoils_nothing(
    config: PretrainConfig, world: closed_world.World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At step 4: what the checkpoint of step 3 holds stays the last word, and the run goes on from it."""
    nll, calls = pretrain_loop.marginal_nll, []

    def broken(*arguments: Any, **options: Any) -> torch.Tensor:
        calls.append(1)
        return nll(*arguments, **options) * (math.nan if len(calls) == 5 else 1.0)

    with monkeypatch.context() as patch, pytest.raises(NonFiniteLoss, match="at step 4"):
        patch.setattr(pretrain_loop, "marginal_nll", broken)
        run(config, world)
    assert len(losses(config.out)) == 4 and not (config.out / "model").exists()
    assert max(path.name for path in (config.out / "checkpoints").glob("step-*")) == "step-00000003"
    run(config, world)
    whole = replace_settings(config, out=config.out.with_name("whole"))
    run(whole, world)
    assert losses(config.out) == losses(whole.out)


def test_a_version_that_cannot_be_made_is_told_and_the_one_before_it_serves(
    config: PretrainConfig, world: closed_world.World, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = refresh.make_version

    def full(plan: Any, step: int, *rest: Any) -> Any:
        if step == 2:
            raise BadInput("the disk is full")
        return made(plan, step, *rest)

    monkeypatch.setattr(refresh, "make_version", full)
    told: list[str] = []
    run(replace_settings(config, dev=None), world, notify=told.append)
    rows = read_rows(config.out)
    assert [row["staleness"] for row in rows if "nll" in row] == [0, 0, 0, 1, 2, 3]
    assert [row["swap_version"] for row in rows if "swap_version" in row] == [0, 4]
    (line,) = [line for line in told if "disk" in line]
    assert line.startswith("step 4: ALARM: no index could be made from the weights of step 2: the disk is full")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"k": 1}, "k = 1"),
        ({"masking": "nothing"}, "masking = nothing"),
        ({"steps": 0, "batch": 0}, "steps = 0, batch = 0"),
        ({"refresh_every": 0}, "refresh_every = 0"),
        ({"max_text": 3, "max_block": 3}, "max_block = 3, max_text = 3"),
        ({"kind": "nearest"}, "kind = nearest"),
        ({"lr": -1.0, "sample": 0, "eval_every": 0, "save_every": 0}, "save_every = 0, lr = -1.0"),
        ({"warmup": -5, "max_staleness": -1, "dropout": 1.5}, "dropout = 1.5, warmup = -5, max_staleness = -1"),
        ({"warmup": 7}, "warmup = 7: out of range .warmup: at most the 6 steps"),
    ],
)
def test_settings_that_cannot_be_meant(config: PretrainConfig, change: dict[str, Any], told: str) -> None:
    with pytest.raises(BadInput, match=told):
        replace_settings(config, **change)


def test_a_run_is_not_gone_on_with_other_settings(config: PretrainConfig, world: closed_world.World) -> None:
    run(replace_settings(config, steps=2), world)
    with pytest.raises(BadInput, match=r"other settings \(steps 2, not 6, lr 0.001, not 0.1\)"):
        run(replace_settings(config, lr=0.1), world)


def test_a_corpus_with_nothing_to_mask(config: PretrainConfig) -> None:
    with pytest.raises(BadInput, match="1000 texts in a row have nothing to mask"):
        pretrain_loop.main(config, tagger=closed_world.ObjectTagger([]))
