"""Fine-tuning from questions and answers: the losses of a step, killed runs, and inputs that are refused."""

import json
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import interrupt, untimed

from pipelines.common.answer_rows import AnsweredQuestions, locate_answers
from pipelines.common.config import TrainingIndexConfig
from pipelines.common.questions import draw_step, read_answerable
from pipelines.common.training_index import NOT_FOUND, FrozenIndex
from pipelines.orqa import fine_tune_loop
from pipelines.orqa.config import FineTuneConfig
from pipelines.orqa.fine_tune_loop import compute_loss, compute_rates, init_model, main
from ragqa.errors import ArtefactError, BadInput, NonFiniteLoss, RagqaError
from ragqa.metrics import has_answer
from ragqa.models.dual_encoder import DualEncoder
from ragqa.models.span_readers import load_reader
from ragqa.reading.windows import make_windows
from ragqa.runtime.encoder import load_encoder
from ragqa.runtime.scorer import make_torch_scorer
from ragqa.settings.groups import make_config, replace_settings
from ragqa.training.log import read_rows
from tests.helpers import tiny


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> tiny.TinyWorld:
    return tiny.write(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def retriever(small: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two towers whose vectors differ more than those of random weights do."""
    torch.manual_seed(3)
    dual = DualEncoder.from_encoder(small, width=8)
    with torch.no_grad():
        for tower in dual.towers:
            tower.project.weight.mul_(30)
    dual.save(path := tmp_path_factory.mktemp("retriever"))
    return path


@pytest.fixture
def config(world: tiny.TinyWorld, small: Path, retriever: Path, tmp_path: Path) -> FineTuneConfig:
    return make_config(
        FineTuneConfig,
        corpus=world.corpus,
        retriever=retriever,
        encoder=small,
        questions=world.train,
        dev=world.dev,
        out=tmp_path / "run",
        steps=6,
        batch=4,
        beam=20,
        read=3,
        max_input=64,
        max_span=3,
        hidden=16,
        lr=1e-3,
        warmup=2,
        eval_every=3,
        save_every=3,
    )


def open_inputs(config: FineTuneConfig) -> tuple[FrozenIndex, AnsweredQuestions]:
    """Return the index and the training questions of a run."""
    library = FrozenIndex.open(config.corpus, config.retriever, config, config.index)
    training = read_answerable(config.questions)
    answered, _ = locate_answers(
        library.store, library.corpus_fingerprint, training, [], config.out / "answers", regex=config.held_out.regex
    )
    return library, answered


def compute_nll(scores: list[float], right: list[bool]) -> float:
    """Return -log of the probability of the right entries; 0 if no entry is right."""
    share = np.exp(np.array(scores, np.float64) - max(scores))
    return float(-np.log(share[np.array(right)].sum() / share.sum())) if any(right) else 0.0


def test_the_losses_of_a_step_agree_with_loops(config: FineTuneConfig, monkeypatch) -> None:
    """The loops sort the scores of all passages and score one span after the other."""
    config = replace_settings(config, dropout=0.0)
    library, answered = open_inputs(config)
    torch.manual_seed(5)
    model, _ = init_model(config)
    with torch.no_grad():
        model.reader.score.weight.mul_(30)
    batch = draw_step(len(answered), batch=config.batch, seed=config.seed, step=2)
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: nullcontext())  # bfloat16 would hide small mistakes
    batch_loss = compute_loss(model, library, answered, batch, config)
    rows = [compute_loss(model, library, answered, [number], config).figures for number in batch]

    encoder = load_encoder(config.retriever)
    passages = library.store.get(list(range(len(library.store))))
    scorer = make_torch_scorer(model.reader.eval(), model.tokenizer, Path(), "", device="cpu")
    vectors = encoder.encode([passage.titled_text for passage in passages]).astype(np.float16).astype(np.float32)
    expected: dict[str, list[Any]] = {"retrieval": [], "span": [], "beam": [], "read": []}
    for number in batch:
        question = answered.questions[number]
        relevance = vectors @ encoder.encode_questions([question.text])[0]
        beam = np.argsort(-relevance)[:20]
        marks = [has_answer(passages[row].text, question.answers) for row in beam]
        scores, right = [], []
        for row in beam[:3]:
            text = passages[row].text
            (window,) = make_windows(model.tokenizer, question.text, [("", text)], 64)
            table = scorer.score([window.tokens])[0].make_table(slice(window.offset, None), 3)
            words = text.split()
            for first in range(len(words)):
                for last in range(first, min(first + 3, len(words))):
                    scores.append(table[first, last - first] + relevance[row])
                    right.append(" ".join(words[first : last + 1]) in question.answers)
        expected["retrieval"].append(compute_nll(relevance[beam].tolist(), marks))
        expected["span"].append(compute_nll(scores, right))
        expected["beam"].append(any(marks))
        expected["read"].append(any(right))
    assert [row["retrieval_nll"] for row in rows] == pytest.approx(expected["retrieval"], abs=1e-4)
    assert [row["span_nll"] for row in rows] == pytest.approx(expected["span"], abs=1e-3)
    assert [(row["in_beam"], row["in_read"]) for row in rows] == list(
        zip(expected["beam"], expected["read"], strict=True)
    )
    assert batch_loss.loss.item() == pytest.approx(np.mean(expected["retrieval"]) + np.mean(expected["span"]), abs=1e-3)
    assert any(expected["read"]) and any(expected["beam"])  # otherwise the losses are 0


def test_a_question_without_a_right_passage_has_no_loss_and_no_gradient(config: FineTuneConfig) -> None:
    config = replace_settings(config, beam=1, read=1, dropout=0.0)
    library, answered = open_inputs(config)
    model, _ = init_model(config)
    losses = [compute_loss(model, library, answered, [number], config) for number in range(len(answered))]
    wrong = next(loss for loss in losses if not loss.figures["in_beam"])
    assert (wrong.figures["retrieval_nll"], wrong.figures["span_nll"], wrong.loss.item()) == (0.0, 0.0, 0.0)
    wrong.loss.backward()
    assert all(p.grad is None or not p.grad.any() for p in model.parameters())


def test_relevance_has_a_gradient_for_questions_and_missing_passages_have_no_weight(config: FineTuneConfig) -> None:
    library, _ = open_inputs(config)
    query = torch.randn(2, 8, requires_grad=True)
    rows = np.array([[3, 5, NOT_FOUND], [0, 1, 2]])
    score = library.score(query, rows)
    vectors = np.asarray(library.vectors[np.arange(len(library.store))], np.float32)
    assert score[0, :2].tolist() == pytest.approx((vectors[[3, 5]] @ query[0].detach().numpy()).tolist(), rel=1e-5)
    assert score.softmax(-1)[0, 2] == 0.0
    score[0, 0].backward()
    assert query.grad is not None and np.allclose(query.grad[0], vectors[3])


def test_missing_passages_of_an_index_are_padded(config: FineTuneConfig) -> None:
    library, _ = open_inputs(config)
    search = library.mips.search
    library.mips.search = lambda queries, k: search(queries, k - 2)  # type: ignore[method-assign]
    rows = library.propose(np.zeros((1, 8), np.float32), 5)
    assert rows.shape == (1, 5) and rows[0, 3:].tolist() == [NOT_FOUND, NOT_FOUND]
    assert [passage.id for passage in library.passages(rows[0])] == rows[0, :3].tolist()
    assert library.propose(np.zeros((1, 8), np.float32), 10_000).shape == (1, 40)


def test_each_epoch_trains_on_each_question_once(config: FineTuneConfig) -> None:
    steps = [
        draw_step(6, batch=config.batch, seed=config.seed, step=step) for step in range(6)
    ]  # batches of 4: four epochs
    flat = [number for step in steps for number in step]
    for epoch in range(4):
        assert sorted(flat[6 * epoch : 6 * epoch + 6]) == list(range(6))
    assert flat[:6] != flat[6:12]
    assert steps == [draw_step(6, batch=config.batch, seed=config.seed, step=step) for step in range(6)]


def test_learning_rates_by_hand(config: FineTuneConfig) -> None:
    config = replace_settings(config, steps=2000, warmup=None, lr=1.0, retriever_lr=0.5)
    assert compute_rates(99, config) == [0.25, 0.25, 0.5, 0.5]  # a tenth of the steps is 200
    assert compute_rates(1100, config) == [0.25, 0.25, 0.5, 0.5]
    assert compute_rates(0, replace_settings(config, steps=50))[2] == 1 / 5


def read_untimed_rows(folder: Path) -> list[dict[str, Any]]:
    return [untimed(row) for row in read_rows(folder)]


def test_a_killed_run_takes_the_same_steps(config: FineTuneConfig) -> None:
    """With dropout, and killed twice: before and after the first checkpoint."""
    whole = main(config)
    broken = replace_settings(config, out=config.out.with_name("broken"))
    interrupt(main, broken, 1, 4)
    assert main(broken) == broken.out / "model"
    assert read_untimed_rows(broken.out) == read_untimed_rows(config.out)
    assert [row["step"] for row in read_untimed_rows(broken.out) if "nll" in row] == list(range(6))
    for part in ("model/questions", "model/passages", "reader"):
        one, other = (root / part / "model.safetensors" for root in (whole.parent, broken.out))
        assert one.read_bytes() == other.read_bytes(), part


def test_the_weights_of_the_best_evaluation_are_saved(config: FineTuneConfig, monkeypatch) -> None:
    weights: list[dict[str, torch.Tensor]] = []

    def record_weights(model: Any, *rest: Any) -> dict[str, float]:
        weights.append({name: value.clone() for name, value in model.state_dict().items()})
        return {"em": (0.1, 0.6, 0.5)[len(weights) - 1]}

    monkeypatch.setattr(fine_tune_loop, "evaluate", record_weights)
    lines: list[str] = []
    out = main(config, notify=lines.append).parent
    reader, questions = load_reader(out / "reader").state_dict(), DualEncoder.load(out / "model").questions.state_dict()
    written = {
        f"{part}.{name}": v
        for part, state in (("reader", reader), ("questions", questions))
        for name, v in state.items()
    }
    assert all(torch.equal(weights[1][name], written[name]) for name in weights[1])
    assert not all(torch.equal(weights[2][name], written[name]) for name in weights[2])
    assert lines[-1] == "the run keeps the weights of step 3, the best on held-out questions: em 0.6"
    assert [row["best_step"] for row in read_rows(out) if "em" in row] == [0, 3, 3]


@pytest.mark.parametrize("freeze", [False, True])
def test_the_question_tower_learns_unless_the_retriever_is_frozen(config: FineTuneConfig, freeze: bool) -> None:
    out = main(replace_settings(config, freeze_retriever=freeze, steps=2, read=20, dev=None)).parent
    before, after = DualEncoder.load(config.retriever), DualEncoder.load(out / "model")
    same = {
        side: all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))
        for side, one, other in (
            ("questions", before.questions, after.questions),
            ("passages", before.passages, after.passages),
        )
    }
    assert same == {"questions": freeze, "passages": True}
    assert load_reader(out / "reader").max_tokens == 64
    assert all(row["grad_norm"] > 0 and row["in_read"] > 0 for row in read_rows(out))


def test_one_tower_becomes_two(config: FineTuneConfig, small: Path, tmp_path: Path) -> None:
    """The vectors of passages stay the same, so the passage tower must not change with the question tower."""
    DualEncoder.from_encoder(small, width=8, shared=True).save(tmp_path / "one")
    tuned = DualEncoder.load(main(replace_settings(config, retriever=tmp_path / "one", steps=2, dev=None)))
    assert not tuned.is_shared
    before = DualEncoder.load(tmp_path / "one")
    assert torch.equal(before.passages.project.weight, tuned.passages.project.weight)
    assert not torch.equal(before.questions.project.weight, tuned.questions.project.weight)


def test_answers_can_be_patterns(config: FineTuneConfig, tmp_path: Path) -> None:
    rows = [json.loads(line) for line in config.questions.read_text().splitlines()]
    for row in rows:
        row["answers"] = [row["answers"][0].replace("w", "[Ww]")]
    (tmp_path / "q.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    patterns = replace_settings(
        config, questions=tmp_path / "q.jsonl", regex=True, dropout=0.0, out=tmp_path / "patterns"
    )
    figures = []
    for settings in (patterns, replace_settings(config, dropout=0.0)):
        library, answered = open_inputs(settings)
        torch.manual_seed(1)
        model, _ = init_model(settings)
        figures.append([compute_loss(model, library, answered, [n], settings).figures for n in range(len(answered))])
    assert any(row["in_read"] for row in figures[0])
    assert figures[0] == figures[1]


def test_a_loss_that_is_not_finite_stops_the_run(config: FineTuneConfig, monkeypatch) -> None:
    def init_broken_model(config: FineTuneConfig) -> Any:
        model, retriever = init_model(config)
        model.reader.score.weight.data[:] = float("nan")
        return model, retriever

    monkeypatch.setattr(fine_tune_loop, "init_model", init_broken_model)
    with pytest.raises(NonFiniteLoss, match="at step 0"):
        main(replace_settings(config, dev=None))
    assert not (config.out / "model").exists()


def test_questions_without_a_right_span_are_not_read(config: FineTuneConfig) -> None:
    from pipelines.common.examples.gold_spans import GoldSpans
    from pipelines.common.examples.spans import make_reader_batch

    library, _ = open_inputs(config)
    model, _ = init_model(config)
    passages = [library.store[0], library.store[1]]
    word = next(word for word in passages[1].text.split() if word not in passages[0].text.split())
    golds = [GoldSpans(model.tokenizer, [answer]) for answer in ("w999", word)]
    read = partial(make_reader_batch, model.tokenizer, ["w60", "w61"], [passages, passages], max_tokens=64, max_span=3)
    both = read(golds)
    assert both.question_N.tolist() == [1, 1] and both.rank_N.tolist() == [0, 1]
    assert both.correct_NLW.flatten(1).any(-1).tolist() == [False, True]
    neither = read([golds[0], golds[0]])  # a batch needs at least one question
    assert neither.question_N.tolist() == [0, 0] and not neither.correct_NLW.any()


@pytest.mark.parametrize("text", ["\u200b \n", " ", None])
def test_passages_without_words_have_no_span(config: FineTuneConfig, text: str | None) -> None:
    """Retrieval can return passages whose text has no wordpieces, or no passage."""
    from pipelines.common.examples.gold_spans import GoldSpans
    from pipelines.common.examples.spans import make_reader_batch, score_spans

    library, _ = open_inputs(config)
    model, _ = init_model(config)
    passages = [] if text is None else [replace(library.store[0], text=text)]
    gold = GoldSpans(model.tokenizer, ["w1"])
    reads = make_reader_batch(model.tokenizer, ["w60"], [passages], [gold], max_tokens=64, max_span=3)
    scores, correct = score_spans(model.reader, reads, (1, 2))
    assert scores.shape[:2] == correct.shape[:2] == (1, 2)
    assert not correct.any()


def make_bad_config(config: FineTuneConfig, tmp_path: Path, case: str) -> FineTuneConfig:
    strange = tmp_path / "strange.jsonl"
    strange.write_text('{"question": "w60 w61 w100", "answers": ["nowhere"]}\n')
    unanswered = tmp_path / "unanswered.jsonl"
    unanswered.write_text('{"question": "w60 w61 w100", "answers": []}\n')
    options: dict[str, dict[str, Any]] = {
        "answers in no passage": {"questions": strange},
        "questions without answers": {"questions": unanswered},
        "held-out questions without answers": {"dev": unanswered},
        "a corpus with fewer passages than are read": {"read": 41, "beam": 50},
        "no file of questions": {"questions": tmp_path / "none.jsonl"},
        "no encoder": {"encoder": tmp_path},
        "an encoder that does not exist": {"encoder": tmp_path / "none"},
        "no retriever": {"retriever": tmp_path},
        "no index": {"corpus": tmp_path},
        "a directory of something else": {"out": tmp_path},
    }
    return replace_settings(config, **options[case])


@pytest.mark.parametrize(
    ("case", "kind", "message"),
    [
        (
            "answers in no passage",
            BadInput,
            r"no passage of the corpus contains an answer",
        ),
        ("questions without answers", BadInput, r"no questions with answers in .*unanswered\.jsonl"),
        ("held-out questions without answers", BadInput, r"no questions with answers in .*unanswered\.jsonl"),
        (
            "a corpus with fewer passages than are read",
            BadInput,
            r"has only 40 passages, but 41 are to be read: lower --read",
        ),
        ("no file of questions", BadInput, r"none\.jsonl cannot be read: No such file"),
        ("no encoder", ArtefactError, "is not an encoder that can be loaded"),
        ("an encoder that does not exist", ArtefactError, "none: no such directory"),
        ("no retriever", ArtefactError, "is not an encoder that can be loaded"),
        ("no index", ArtefactError, "is not a ragqa directory"),
        ("a directory of something else", BadInput, "is not the directory of a run, because it holds strange.jsonl"),
    ],
)
def test_bad_input_is_one_clear_line(
    config: FineTuneConfig, tmp_path: Path, case: str, kind: type[RagqaError], message: str
) -> None:
    config = make_bad_config(config, tmp_path, case)
    with pytest.raises(kind, match=message) as error:
        main(config)
    assert "\n" not in str(error.value)
    if config.out == tmp_path:  # no other file was written
        assert {file.name for file in tmp_path.iterdir()} <= {"strange.jsonl", "unanswered.jsonl", ".lock"}


def test_an_index_of_another_kind_is_refused(config: FineTuneConfig) -> None:
    """A run that is killed before its first checkpoint leaves an index, and may begin again with other settings."""
    open_inputs(config)
    open_inputs(config)
    for _ in range(2):
        with pytest.raises(BadInput, match="index is not a training index of kind hnsw: choose another"):
            FrozenIndex.open(config.corpus, config.retriever, config, TrainingIndexConfig(kind="hnsw"))
        (config.out / "index" / "search.json").unlink(missing_ok=True)  # then it is a folder of unknown origin


def test_all_settings_out_of_range_are_named_together(config: FineTuneConfig) -> None:
    with pytest.raises(BadInput, match=r"batch = 0, read = 0, max_span = 0: out of range"):
        replace_settings(config, batch=0, read=0, max_span=0)
    with pytest.raises(BadInput, match="kind: one of"):
        replace_settings(config, kind="nearest")
    with pytest.raises(BadInput, match="beam = 2"):
        replace_settings(config, beam=2, read=3)
