"""The tables of systems: every arm's settings are valid, arms differ in what they are named for, and tables go on."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from eval.registry import SUITES
from eval.suite import Split
from eval.systems import corpus, generators, realm_ablation
from eval.systems.corpus import CorpusConfig
from eval.systems.generators import GeneratorsConfig
from eval.systems.realm_ablation import AblationConfig, RandomRanker
from eval.systems.runner import TableRunner, TowersConfig, format_table, make_towers, select_arms
from pipelines.realm import pretrain_loop
from ragqa.corpus.store import PassageStore
from ragqa.errors import BadInput
from ragqa.models.dual_encoder import DualEncoder
from ragqa.models.knowledge_augmented import KnowledgeAugmentedEncoder
from ragqa.models.span_readers import SpanReader
from ragqa.settings.groups import collect_settings
from tests.helpers.data_sets import write_data_sets


@pytest.fixture
def runner(tmp_path: Path) -> TableRunner:
    paths = {name: Path(name) for name in ("work", "corpus", "encoder", "minilm", "reader")}
    return TableRunner(paths=paths, out=tmp_path / "rows.json", about={})


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> CorpusConfig:
    data = write_data_sets(tmp_path_factory.mktemp("data"))
    config = CorpusConfig(
        data=data, out=tmp_path_factory.mktemp("corpora") / "corpus", blocks=60, recall=12, dev=8, squad_train=True
    )
    corpus.main(config)
    return config


def test_each_arm_of_the_ablation_differs_in_what_it_is_named_for(runner: TableRunner) -> None:
    full = collect_settings(runner.configure(realm_ablation.ARMS["full"].stages[-1]))
    for name, expected in {
        "stale": {"refresh_every": None},
        "no-null": {"null": False, "k": full["k"] - 1},  # as many passages are retrieved
        "spans": {"masking": "spans"},
        "uniform": {"masking": "uniform"},
    }.items():
        own = collect_settings(runner.configure(realm_ablation.ARMS[name].stages[-1]))
        assert {key: value for key, value in own.items() if value != full[key]} == {
            "out": Path("work") / name / "pretrain",
            **expected,
        }
    assert full["null"] and full["masking"] == "salient"


def test_every_reader_of_the_ablation_starts_from_its_own_language_model(runner: TableRunner) -> None:
    tuned = {name: runner.configure(realm_ablation.ARMS[name].reading[-1]) for name in ("full", "orqa", "dpr")}
    assert {name: config.encoder for name, config in tuned.items()} == {
        "full": Path("work/full/pretrain/reader"),
        "orqa": Path("work/reading/model"),
        "dpr": Path("work/reading/model"),
    }
    assert [config.freeze_retriever for config in tuned.values()] == [False, False, True]


def test_a_closed_book_has_the_steps_of_the_start_more(runner: TableRunner) -> None:
    configs = {
        name: collect_settings(runner.configure(arm.reading[-1]))
        for name, arm in generators.ARMS.items()
        if arm.reading
    }
    start, closed = runner.configure(generators.START), configs.pop("closed-book")
    assert closed["generator"] == Path("work/start/generator")
    assert closed["steps"] == start.steps + configs["fid"]["steps"]
    rhythm, passages = {"steps", "warmup", "eval_every", "save_every"}, {"k", "retriever", "index"}
    for config in configs.values():
        both = closed.keys() & config.keys() - {"out"}
        same = {"batch", "questions", "dev", "lr", "clip", "weight_decay", "dropout", "seed", "generator"}
        assert same <= both and all(config[key] == closed[key] for key in both - rhythm - passages)
    token, sequence = (configs[f"rag-{marginal}"] for marginal in ("token", "sequence"))
    assert {key for key in token if token[key] != sequence[key]} == {"out", "marginal"}


def test_towers_keep_the_cosines_of_their_encoder(small: Path, tmp_path: Path) -> None:
    """Inner products are ``scale`` times the cosines of the mean hidden states, these less their own mean."""
    made = make_towers(TowersConfig(encoder=small, out=tmp_path, scale=20.0))
    towers, plain = DualEncoder.load(made), DualEncoder.load(small)
    assert towers.is_shared
    ids, mask = torch.tensor([[2, 7, 9, 3], [2, 8, 3, 0]]), torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]])
    with torch.no_grad():
        hidden_NLH = plain.questions.encoder(input_ids=ids, attention_mask=mask).last_hidden_state
        mean_NH = torch.stack([hidden_NLH[0].mean(0), hidden_NLH[1, :3].mean(0)])
        unit_NH = torch.nn.functional.normalize(mean_NH - mean_NH.mean(-1, keepdim=True), dim=-1)
        vectors_ND = towers.questions(ids, mask)
    torch.testing.assert_close(vectors_ND @ vectors_ND.T, 20 * unit_NH @ unit_NH.T, rtol=1e-3, atol=1e-3)


def test_random_passages_depend_on_the_question_alone(made: CorpusConfig) -> None:
    store = PassageStore.open(made.out / corpus.INDEX / "passages")
    one, other, again = RandomRanker(store).rank(["who", "when", "who"], 60)
    assert sorted(one.rows) == list(range(len(store))) and list(one.rows) == list(again.rows) != list(other.rows)


def test_a_table_shows_intervals_differences_and_notes() -> None:
    arms = realm_ablation.ARMS
    interval = {"value": 0.125, "low": 0.1, "high": 0.15}
    less = {"answer_recall": {"20": {"difference": {"value": -0.031}, "p": 0.004}}}
    rows = {"dpr": {"recall": {"answer_recall": {"5": interval}}, "less full": {"recall": less}}, "bm25": {}}
    table = format_table(rows, arms, dict(list(realm_ablation.COLUMNS.items())[:3]))
    assert table.splitlines()[2:] == [
        "| DPR [1] | 12.5 (10.0 to 15.0) | – | -3.1 (p 0.004) |",
        "| BM25 | – | – | – |",
        "",
        f"[1] {arms['dpr'].note}",
    ]
    with pytest.raises(BadInput, match="--arms none: choose from random, bm25"):
        select_arms(arms, ["none"])


def shrink_suites(monkeypatch: pytest.MonkeyPatch, **questions: int) -> None:
    """Make the default splits of suites as small as the data."""
    for key, count in questions.items():
        suite = SUITES[key]
        split = Split(file=suite.splits[suite.default_split].file, questions=count)
        monkeypatch.setitem(SUITES, key, replace(suite, splits={suite.default_split: split}))


@pytest.fixture
def ablation(made: CorpusConfig, small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AblationConfig:
    torch.manual_seed(0)
    KnowledgeAugmentedEncoder.from_config(small).save(tmp_path / "encoder")
    shrink_suites(monkeypatch, nq=10, squad=6)
    return AblationConfig(
        data=made.data, corpus=made.out, encoder=tmp_path / "encoder", work=tmp_path / "work", limit=4, smoke=True
    )


@pytest.mark.thorough
def test_an_interrupted_ablation_goes_on(ablation: AblationConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    config = replace(ablation, arms=("bm25", "orqa", "full"), recall_only=True)
    step = pretrain_loop.train_step

    def stop(run: Any, *others: Any, **options: Any) -> Any:
        if run.step == 2:
            raise KeyboardInterrupt
        return step(run, *others, **options)

    with monkeypatch.context() as patch:
        patch.setattr(pretrain_loop, "train_step", stop)
        with pytest.raises(KeyboardInterrupt):
            realm_ablation.main(config)
    rows = realm_ablation.main(config)
    for row in rows.values():
        recall = row["recall"]["answer_recall"]
        assert row["recall"]["questions"] == 12 and set(recall) == {"1", "5", "20"}
        rounding = 1e-12  # of equal means that are summed in another order
        assert recall["5"]["low"] - rounding <= recall["5"]["value"] <= recall["5"]["high"] + rounding
        assert recall["20"]["value"] <= row["recall"]["coverage_bound"]["corpus"] + rounding
    assert rows["bm25"]["less full"]["recall"]["answer_recall"]["20"]["p"] <= 1
    monkeypatch.setattr(TableRunner, "train", lambda *_: pytest.fail("trained again"))
    assert realm_ablation.main(config) == rows
    encoder = KnowledgeAugmentedEncoder.load(config.encoder)
    torch.nn.init.ones_(encoder.model.get_input_embeddings().weight)
    encoder.save(config.encoder)  # rows of another encoder are not its own
    with pytest.raises(pytest.fail.Exception, match="trained again"):
        realm_ablation.main(config)


@pytest.mark.slow
def test_all_arms_of_the_ablation_run(ablation: AblationConfig) -> None:
    rows = realm_ablation.main(ablation)
    assert list(rows) == list(ablation.arms)
    for name, row in rows.items():
        assert ("nq" in row) == (name in ("orqa", "dpr", "full", "stale"))
        if "nq" in row:
            assert (row["nq"]["questions"], row["squad"]["questions"]) == (4, 4)


@pytest.mark.slow
def test_all_generators_run(made: CorpusConfig, small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shrink_suites(monkeypatch, nq=10, webq=5, curatedtrec=1, squad=6)
    SpanReader.from_encoder(small).save(tmp_path / "reader")
    (tmp_path / "reader" / "tokenizer.json").write_bytes((small / "tokenizer.json").read_bytes())
    config = GeneratorsConfig(
        data=made.data, corpus=made.out, encoder=small, work=tmp_path / "work", reader=tmp_path / "reader", smoke=True,
        limit=4,
    )  # fmt: skip
    rows = generators.main(config)
    assert list(rows) == list(generators.ARMS)
    for name, row in rows.items():
        assert [row[suite]["questions"] for suite in generators.SUITES] == [4, 4, 1, 4]
        assert name == "closed-book" or row["less closed book"]["nq"]["em"]["p"] <= 1
