"""ORQA and REALM from an encoder to a pipeline that answers, over a world of forty passages."""

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from index.embed import EmbedConfig, embed, reuse_vectors
from pipelines.common import assemble
from pipelines.common.assemble import AssembleConfig
from pipelines.orqa import __main__ as orqa
from pipelines.orqa import fine_tune_loop, inverse_cloze_loop
from pipelines.orqa.__main__ import OrqaConfig
from pipelines.orqa.config import CLOZE, TUNE
from pipelines.realm import __main__ as realm
from pipelines.realm.__main__ import RealmConfig
from pipelines.realm.config import PRETRAIN
from ragqa import artefacts
from ragqa.errors import ArtefactError, BadInput, Mismatch, RagqaError
from ragqa.metrics import exact_match, has_answer
from ragqa.models.dual_encoder import DualEncoder
from ragqa.models.knowledge_augmented import KnowledgeAugmentedEncoder
from ragqa.pipeline import Pipeline
from ragqa.reading.calibration import Calibration
from ragqa.settings.command_line import parse_config
from ragqa.settings.groups import replace_settings
from ragqa.training.log import read_rows
from tests.helpers import tiny


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> tiny.TinyWorld:
    return tiny.write(tmp_path_factory.mktemp("tiny"))


def make_orqa_config(world: tiny.TinyWorld, small: Path, out: Path) -> OrqaConfig:
    few = {"save_every": 100, "dropout": 0.0, "warmup": 10}
    return OrqaConfig(
        corpus=world.corpus,
        encoder=small,
        questions=world.train,
        dev=world.dev,
        out=out,
        cloze=replace(
            CLOZE, steps=120, batch=32, lr=2e-3, drop_rate=0.5, width=16, max_block=32, pooling="mean", gain=0.5, **few
        ),
        tune=replace(TUNE, steps=120, batch=8, lr=3e-3, max_input=64, hidden=32, max_span=3, beam=20, read=3, **few),
    )


def fail_if_repeated(*arguments: Any, **options: Any) -> None:
    raise AssertionError("this stage is finished")


@pytest.fixture(scope="module")
def trained(world: tiny.TinyWorld, small: Path, tmp_path_factory: pytest.TempPathFactory) -> OrqaConfig:
    """Run ORQA; fine-tuning is interrupted once and continued."""
    config = make_orqa_config(world, small, tmp_path_factory.mktemp("orqa") / "run")
    draw_share = fine_tune_loop.draw_share
    with pytest.MonkeyPatch.context() as patch:

        def stop(answered: Any, config: Any, step: int) -> list[int]:
            if step == 3:
                raise KeyboardInterrupt
            return draw_share(answered, config, step)

        patch.setattr(fine_tune_loop, "draw_share", stop)
        with pytest.raises(KeyboardInterrupt):
            orqa.main(config)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inverse_cloze_loop, "main", fail_if_repeated)
        assert orqa.main(config) == config.out / "system" / "pipeline"
    return config


def read_question_rows(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_orqa_learns_to_retrieve_and_to_read(trained: OrqaConfig) -> None:
    rows = read_rows(trained.out / "tune")
    question_rows = [row for row in rows if "em" in row]
    for name, share in (("retrieval_nll", 0.85), ("span_nll", 0.5)):
        losses = [row[name] for row in rows if name in row]
        assert np.mean(losses[-10:]) < share * np.mean(losses[:5]), name
    # No training question is about these facts. A random word would be right one time in ten.
    assert question_rows[0]["em"] <= 0.2
    assert question_rows[-1]["em"] >= 0.25 and question_rows[-1]["recall@1"] >= 0.5


def test_the_pipeline_answers_without_torch(trained: OrqaConfig, tmp_path: Path) -> None:
    """The moved directory answers its training questions by the command."""
    shutil.copytree(trained.out / "system", tmp_path / "moved")
    shutil.copytree(trained.out / "system" / "pipeline", tmp_path / "alone")
    code = (
        "import sys; from ragqa.cli import main as cli\n"
        "try: cli.main()\n"
        "finally: print(sorted({'torch', 'transformers', 'faiss', 'ray', 'datasets'} & set(sys.modules)))"
    )
    question_rows = read_question_rows(trained.questions)
    done = subprocess.run(
        [sys.executable, "-c", code, "ask", "--json", "--min-confidence", "0", "--pipeline", "moved/pipeline"],
        input="\n".join(question["question"] for question in question_rows),
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    *answers, heavy = done.stdout.splitlines()
    assert heavy == "[]"
    right = [
        json.loads(answer)["answer"] in question["answers"]
        for answer, question in zip(answers, question_rows, strict=True)
    ]
    assert sum(right) >= 24, f"{sum(right)} of {len(question_rows)}"
    with pytest.raises(ArtefactError, match="no such directory"):
        Pipeline.load(tmp_path / "alone")


def test_the_pipeline_scores_like_the_last_evaluation(trained: OrqaConfig) -> None:
    """In float32 the scores are equal; the export in 8 bits answers nearly as many questions."""
    tune, question_rows = trained.out / "tune", read_question_rows(trained.dev)  # type: ignore[arg-type]
    rows = [row for row in read_rows(tune) if "em" in row]
    (lines,) = [row for row in rows if row["step"] == rows[-1]["best_step"]]
    system = trained.out / "system" / "pipeline"
    texts = [question["question"] for question in question_rows]
    em = {}
    for name, pipeline in {
        "float32": Pipeline.load(system, encoder=str(tune / "model"), reader=tune / "reader", k=3),
        "8 bits": Pipeline.load(system),
    }.items():
        assert pipeline.k == 3
        answers = pipeline.ask(texts, min_confidence=0)
        em[name] = np.mean([exact_match(a.text, q["answers"]) for a, q in zip(answers, question_rows, strict=True)])
    assert lines["em"] == pytest.approx(em["float32"])
    assert em["8 bits"] >= em["float32"] - 0.2
    found = Pipeline.load(system, encoder=str(tune / "model")).retriever.search(texts, 20)
    for k, name in ((1, "recall@1"), (5, "recall@5"), (20, "recall@20"), (20, "in_beam"), (3, "in_read")):
        held = [
            any(has_answer(hit.passage.text, question["answers"]) for hit in hits[:k])
            for question, hits in zip(question_rows, found, strict=True)
        ]
        assert lines[name] == pytest.approx(np.mean(held)), name


def test_confidence_is_calibrated_on_unseen_questions(trained: OrqaConfig, tmp_path: Path) -> None:
    """A regression with a constant expects as many right answers as its data have."""
    shutil.copytree(trained.out / "system", tmp_path / "system")
    question_rows = read_question_rows(trained.questions) + read_question_rows(trained.dev)  # type: ignore[arg-type]
    question_rows += [{"question": f"w60 w61 w{900 + n}", "answers": ["w5"]} for n in range(20)]
    (tmp_path / "dev.jsonl").write_text("".join(json.dumps(row) + "\n" for row in question_rows))
    config = replace(
        fine_tune_loop.plan_pipeline(orqa.plan_stages(trained)[1], trained.out / "system"),
        out=tmp_path / "system",
        dev=tmp_path / "dev.jsonl",
        train=None,
        selection_sample=0,
    )
    lines: list[str] = []
    answers = Pipeline.load(assemble.save_pipeline(config, notify=lines.append)).ask(
        [row["question"] for row in question_rows], min_confidence=0
    )
    right = [exact_match(a.text, row["answers"]) for a, row in zip(answers, question_rows, strict=True)]
    assert min(sum(right), len(right) - sum(right)) >= 10
    assert lines[0].startswith(
        f"confidence calibrated on 60 answers to held-out questions, {sum(right)} of them right; "
    )
    confidences = np.array([answer.confidence for answer in answers])
    assert confidences.mean() == pytest.approx(np.mean(right), abs=1e-3)
    assert confidences[right].mean() > confidences[~np.array(right)].mean()
    before = Pipeline.load(trained.out / "system" / "pipeline").ask(
        [row["question"] for row in question_rows], min_confidence=0
    )
    assert [answer.text for answer in before] == [answer.text for answer in answers]
    fitted = Calibration.load(tmp_path / "system" / "reader")
    assert (
        fitted.fitted_on == "60 questions of dev.jsonl that were not used in training, k = 3" and fitted.answers == 60
    )


def test_confidence_is_raw_without_enough_questions(trained: OrqaConfig, tmp_path: Path) -> None:
    shutil.copytree(trained.out / "system", tmp_path / "system")
    few = replace_settings(
        fine_tune_loop.plan_pipeline(orqa.plan_stages(trained)[1], trained.out / "system"), out=tmp_path / "system"
    )
    lines: list[str] = []
    for config in (few, replace_settings(few, dev=None)):
        assemble.save_pipeline(config, notify=lines.append)
    assert lines[0].startswith("confidence is the raw probability: ") and " of 10 held-out questions were " in lines[0]
    assert lines[1] == "confidence is the raw probability, because there are no held-out questions to calibrate on"
    assert not (tmp_path / "system" / "reader" / "calibration.json").exists()
    shipped_reader = replace_settings(few, dev=None, reader=None, read=7)
    assert Pipeline.load(assemble.save_pipeline(shipped_reader)).k == 7


def test_passages_are_embedded_once(trained: OrqaConfig, world: tiny.TinyWorld) -> None:
    before, after = trained.out / "tune" / "vectors", trained.out / "system" / "vectors"
    assert [file.read_bytes() for file in sorted(before.glob("*.npy"))] == [
        file.read_bytes() for file in sorted(after.glob("*.npy"))
    ]
    assert all(file.stat().st_nlink > 1 for file in after.glob("*.npy"))
    encoder = artefacts.read_manifest(trained.out / "system" / "encoder", "encoder")
    index = artefacts.read_manifest(trained.out / "system" / "index", "index")
    assert index.parents["encoder"] == encoder.config["identity"]
    assert index.parents["encoder"] != artefacts.read_manifest(before, "vectors").parents["encoder"]
    assert (index.config["retriever"], index.config["encoder"]) == ("hybrid", str(trained.out / "system" / "encoder"))
    assert (trained.out / "system" / "index" / "bm25").is_dir()  # BM25's terms are copied from the corpus


def test_finished_stages_are_not_repeated(trained: OrqaConfig, monkeypatch) -> None:
    for module in (inverse_cloze_loop, fine_tune_loop, assemble):
        monkeypatch.setattr(module, "main", fail_if_repeated)
    assert orqa.main(trained) == trained.out / "system" / "pipeline"


def test_a_finished_run_with_other_settings_is_refused(trained: OrqaConfig) -> None:
    with pytest.raises(BadInput, match=r"holds a run with other settings \(lr 0\.003, not 1\.0\)"):
        orqa.main(replace_settings(trained, tune=replace_settings(trained.tune, lr=1.0)))


def test_vectors_are_reused_only_with_their_tower(trained: OrqaConfig, world: tiny.TinyWorld, tmp_path: Path) -> None:
    vectors = trained.out / "tune" / "vectors"
    other = DualEncoder.load(trained.out / "tune" / "model")
    with torch.no_grad():
        other.passages.project.bias.add_(1)
    other.save(tmp_path / "other")
    assert not reuse_vectors(vectors, tmp_path / "other", tmp_path / "v")
    assert not (tmp_path / "v").exists()
    assert reuse_vectors(vectors, trained.out / "tune" / "model", tmp_path / "v")
    assert reuse_vectors(vectors, trained.out / "tune" / "model", tmp_path / "v")  # a second call finds the files
    config = EmbedConfig(
        corpus=world.corpus, out=tmp_path / "v", encoder=str(trained.out / "tune" / "model"), workers=0, verify=True
    )
    assert embed(config).embedded == 0
    assert {path.name for path in (tmp_path / "v").iterdir()} == {path.name for path in vectors.iterdir()}


def test_an_index_refuses_the_encoder_of_other_vectors(
    trained: OrqaConfig, world: tiny.TinyWorld, tmp_path: Path
) -> None:
    from index.build import BuildConfig, build

    config = BuildConfig(
        corpus=world.corpus,
        vectors=trained.out / "tune" / "vectors",
        out=tmp_path / "i",
        kind="flat",
        encoder=str(trained.out / "system" / "encoder"),
    )
    with pytest.raises(Mismatch, match="is not the one that made"):
        build(config)
    assert not (tmp_path / "i").exists()


def make_realm_config(world: tiny.TinyWorld, small: Path, root: Path) -> RealmConfig:
    """Return settings with two steps for each stage, and write the encoder that they start from."""
    torch.manual_seed(0)
    KnowledgeAugmentedEncoder.from_config(small).save(root / "encoder")
    few = {"steps": 2, "batch": 4, "dropout": 0.0}
    return RealmConfig(
        corpus=world.corpus,
        encoder=root / "encoder",
        questions=world.train,
        dev=world.dev,
        out=root / "run",
        cloze=replace_settings(CLOZE, **few, drop_rate=0.5, width=8, max_block=32),
        pretrain=replace_settings(PRETRAIN, **few, k=3, masking="uniform", max_text=16, max_block=32, lr=1e-3),
        tune=replace_settings(TUNE, **few, max_input=64, hidden=8, beam=10, read=2, freeze_retriever=True),
    )


def test_each_stage_of_realm_starts_from_the_result_of_the_previous_stage(
    world: tiny.TinyWorld, small: Path, tmp_path: Path, monkeypatch
) -> None:
    config = make_realm_config(world, small, tmp_path)
    configs: list[AssembleConfig] = []

    def record_config(config: AssembleConfig, **options: Any) -> Path:
        configs.append(config)
        config.out.mkdir()
        return config.out / "pipeline"

    monkeypatch.setattr(assemble, "main", record_config)
    lines: list[str] = []
    realm.main(config, notify=lines.append)
    out = config.out
    assert [line for line in lines if line.endswith("begins")] == [
        f"{out / name}: begins" for name in ("cloze", "pretrain", "tune", "system")
    ]
    assert all(any("recall@5" in row for row in read_rows(out / name)) for name in ("cloze", "pretrain", "tune"))
    assert any("em" in line for line in lines)
    encoder = KnowledgeAugmentedEncoder.load(out / "pretrain" / "reader").model.get_input_embeddings().weight
    start, _ = fine_tune_loop.init_model(realm.plan_stages(config)[2])
    assert torch.equal(start.reader.encoder.embeddings.word_embeddings.weight, encoder)
    warm, pretrained, tuned = (DualEncoder.load(out / name / "model") for name in ("cloze", "pretrain", "tune"))
    assert not torch.equal(warm.questions.project.weight, pretrained.questions.project.weight)
    assert all(torch.equal(a, b) for a, b in zip(pretrained.parameters(), tuned.parameters(), strict=True))
    (system,) = configs
    assert system.device == "cpu"
    tuning = replace_settings(realm.plan_stages(config)[2], gpus=True)
    assert fine_tune_loop.plan_pipeline(tuning, out).device == "cuda"
    assert (system.retriever, system.reader) == (out / "tune" / "model", out / "tune" / "reader")
    assert (system.vectors, system.read) == (out / "tune" / "vectors", 2)


@pytest.mark.slow
def test_realm_makes_a_pipeline_that_answers(world: tiny.TinyWorld, small: Path, tmp_path: Path) -> None:
    pipeline = Pipeline.load(realm.main(make_realm_config(world, small, tmp_path)))
    answer = pipeline.ask("w60 w61 w100", min_confidence=0)
    assert answer.text is not None and len(answer.sources) >= 1


def test_orqa_checks_its_inputs_first(world: tiny.TinyWorld, small: Path, tmp_path: Path) -> None:
    config = make_orqa_config(world, small, tmp_path / "run")
    with pytest.raises(BadInput, match=r"none\.jsonl cannot be read"):
        orqa.main(replace_settings(config, dev=tmp_path / "none.jsonl"))
    with pytest.raises(BadInput, match=r"kind = nearest: out of range \(kind: one of"):
        orqa.main(replace_settings(config, kind="nearest"))
    assert not config.out.exists()


def test_realm_checks_the_inputs_of_later_stages_first(world: tiny.TinyWorld, small: Path, tmp_path: Path) -> None:
    config = make_realm_config(world, small, tmp_path)
    salient = replace_settings(config.pretrain, masking="salient", tagger="spacy:none_at_all")
    maskless = tmp_path / "maskless"
    shutil.copytree(config.encoder, maskless)
    file = maskless / "tokenizer.json"
    file.write_text(file.read_text().replace("[MASK]", "[HIDE]"))
    for change, lines in (
        ({"texts": tmp_path}, "index"),
        ({"encoder": small}, r"lacks \d+ weights of its masked language model"),
        ({"encoder": maskless}, r"neither \[MASK\]"),
        ({"pretrain": salient}, "none_at_all|spacy"),
    ):
        with pytest.raises(RagqaError, match=lines):
            realm.main(replace_settings(config, **change))
        assert not config.out.exists()


def test_a_setting_of_a_stage_wins_over_that_of_the_recipe(world: tiny.TinyWorld, small: Path, tmp_path: Path) -> None:
    """It also wins if it equals the default of the stage."""
    options = ["--corpus", "c", "--encoder", "e", "--questions", "q", "--out", "o", "--kind", "sq8", "--seed", "3"]
    config = parse_config(RealmConfig, None, [*options, "--tune.kind", "flat", "--tune.seed", "0"])
    cloze, pretraining, tune = realm.plan_stages(config)
    assert (cloze.seed, pretraining.seed, tune.seed) == (3, 3, 0)
    assert (pretraining.index.kind, tune.index.kind) == ("sq8", "flat")


def test_other_held_out_questions_only_repeat_the_calibration(
    trained: OrqaConfig, world: tiny.TinyWorld, tmp_path: Path, monkeypatch
) -> None:
    """No weights depend on held-out questions."""
    other = tmp_path / "other.jsonl"
    other.write_text("".join(world.dev.read_text().splitlines(keepends=True)[5:]))
    for module in (inverse_cloze_loop, fine_tune_loop):
        monkeypatch.setattr(module, "main", fail_if_repeated)
    configs: list[AssembleConfig] = []

    def record(config: AssembleConfig, **options: Any) -> Path:
        configs.append(config)
        return config.out

    monkeypatch.setattr(assemble, "main", record)
    mark = trained.out / "system" / "finished.json"
    before = mark.read_text()
    orqa.main(replace_settings(trained, dev=other))
    assert [config.dev for config in configs] == [other]
    mark.write_text(before)


def test_questions_that_are_all_held_out_are_refused_first(world: tiny.TinyWorld, small: Path, tmp_path: Path) -> None:
    config = replace_settings(make_orqa_config(world, small, tmp_path / "run"), dev=world.train)
    with pytest.raises(BadInput, match="choose other held-out questions"):
        orqa.main(config)
    with pytest.raises(BadInput, match="choose other held-out questions"):
        realm.main(replace_settings(make_realm_config(world, small, tmp_path), dev=world.train))
    assert not config.out.exists()


def test_every_stage_gets_the_regex_setting(world: tiny.TinyWorld, small: Path, tmp_path: Path) -> None:
    _, pretraining, tune = realm.plan_stages(replace_settings(make_realm_config(world, small, tmp_path), regex=True))
    assert pretraining.held_out.regex and tune.held_out.regex
