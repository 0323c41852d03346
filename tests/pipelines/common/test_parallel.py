"""Two processes take the steps of one, without Ray."""

import json
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import untimed

from pipelines.common.contrastive import ContrastiveBatch
from pipelines.dpr import loop as dpr
from pipelines.fid import loop as fid
from pipelines.joint import loop as joint
from pipelines.orqa import fine_tune_loop, inverse_cloze_loop
from pipelines.rag import loop as rag
from pipelines.rag import warm_generator_loop
from pipelines.rag.warm_generator_loop import WarmGeneratorConfig
from pipelines.realm import pretrain_loop
from pipelines.span_reader import loop as span_reader
from pipelines.span_reader.config import ReaderConfig
from ragqa.errors import BadInput
from ragqa.models.dual_encoder import DualEncoder
from ragqa.models.knowledge_augmented import KnowledgeAugmentedEncoder
from ragqa.models.span_readers import SpanReader
from ragqa.settings.groups import make_config, replace_settings
from ragqa.training import gradient_cache, parallel
from ragqa.training.log import read_rows
from tests.helpers import closed_world, tiny
from tests.helpers.two_processes import (
    free_port,
    make_supervised_configs,
    measure_distance,
    read_weights,
    save_spread_retriever,
    start_script,
    wait_for_success,
)

SCRIPT = """
import json, sys
import torch
import torch.distributed as dist
from ragqa.objectives import in_batch_nll
from ragqa.training import gradient_cache, parallel

if len(sys.argv) > 1:
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{sys.argv[1]}", rank=int(sys.argv[2]), world_size=2)
torch.manual_seed(0)
model = torch.nn.Linear(5, 3)
x, counted = torch.randn(8, 5), torch.tensor([True, False, True, True, False, False, False, True])

rows = parallel.take_share(list(range(8)))
own = counted[rows]
loss = (model(x[rows]).square().sum(-1) * own).sum() / own.sum().clamp_min(1)
weight = parallel.compute_loss_weight(own)
(loss * weight).backward()
parallel.sum_gradients(model.parameters())
tokens = float(parallel.sum_over_processes(len(rows)))
mean = model.weight.grad.tolist(), parallel.average_over_processes({"nll": loss.item()}, weight)["nll"]

model.zero_grad()
questions, passages = (parallel.take_share(list(torch.randn(8, 5))) for _ in range(2))
halves = [(side[:2], side[2:]) for side in (questions, passages)]
parts = [[lambda some=some: model(torch.stack(some)) for some in side] for side in halves]
value = gradient_cache.backward(parts, lambda q, p: in_batch_nll(q, p, torch.arange(8)))
parallel.sum_gradients(model.parameters())
if parallel.is_first_process():
    print(json.dumps([*mean, model.weight.grad.tolist(), value.item(), tokens]))
if dist.is_initialized():
    dist.destroy_process_group()  # otherwise its threads may crash the process at its end
"""


def test_two_processes_compute_the_gradients_of_one() -> None:
    """The losses are a mean over an uneven number of counted rows, and a contrastive loss over the whole batch."""
    port = free_port()
    processes = [start_script(SCRIPT), start_script(SCRIPT, port, "0"), start_script(SCRIPT, port, "1")]
    one, two, _ = [process.communicate(timeout=120)[0] for process in processes]
    assert not any(process.returncode for process in processes)
    for alone, shared in zip(json.loads(one), json.loads(two), strict=True):
        assert torch.allclose(torch.tensor(alone), torch.tensor(shared), atol=1e-6)


def test_a_single_process_changes_nothing() -> None:
    assert (parallel.get_rank(), parallel.count_processes()) == (0, 1)
    assert parallel.take_share([1, 2, 3]) == [1, 2, 3]
    assert parallel.compute_loss_weight(torch.tensor([False])) == 1
    assert parallel.average_over_processes({"a": 2.0}, torch.tensor(0.3)) == {"a": 2.0}
    assert parallel.broadcast_from_first(7) == parallel.sum_over_processes(7) == 7
    rows, own = parallel.gather_rows(torch.ones(2, 3, requires_grad=True))
    assert not rows.requires_grad and own == slice(0, 2)
    weight = torch.nn.Parameter(torch.ones(2))
    value = gradient_cache.backward([[lambda: weight[:1]], [lambda: weight[1:]]], lambda a, b: (a * b).sum() * 3)
    assert value == 3 and weight.grad is not None and weight.grad.tolist() == [3, 3]


RECIPES = """
import json, sys
from contextlib import nullcontext
import torch
import torch.distributed as dist
from ragqa.settings.command_line import parse_config
from pipelines.dpr import loop as dpr
from pipelines.orqa import fine_tune_loop

torch.autocast = lambda *_, **__: nullcontext()
dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{sys.argv[3]}", rank=int(sys.argv[4]), world_size=2)
dpr.main(parse_config(dpr.DprConfig, None, ["--config", sys.argv[1]]))
fine_tune_loop.main(parse_config(fine_tune_loop.FineTuneConfig, None, ["--config", sys.argv[2]]))
dist.destroy_process_group()
"""


SAME = {"step", "nll", "retrieval_nll", "span_nll", "in_beam", "in_read", "grad_norm", "accuracy", "passages", "lr"}


@pytest.mark.thorough
def test_dpr_and_fine_tuning_learn_the_same_in_two_processes(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two rounds of DPR, then fine-tuning; results differ by rounding in float32."""
    world, retriever = tiny.write(tmp_path / "world"), save_spread_retriever(small, tmp_path / "retriever")
    again = world.train.read_text().replace(
        "w60 w61", "w62 w63"
    )  # two questions share a passage, so a batch can have an odd number of passages
    world.train.write_text(world.train.read_text() + again)
    files = [str(tmp_path / name) for name in ("dpr.json", "tuned.json")]
    for file, config in zip(files, make_supervised_configs(world, small, retriever, tmp_path / "two"), strict=True):
        Path(file).write_text(json.dumps(asdict(config), default=str))
    port = free_port()
    processes = [start_script(RECIPES, *files, port, rank) for rank in "01"]
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: nullcontext())  # bfloat16 would hide small mistakes
    dpr_config, fine_tune_config = make_supervised_configs(world, small, retriever, tmp_path / "one")
    dpr.main(dpr_config)
    fine_tune_loop.main(fine_tune_config)
    wait_for_success(processes)
    for part in ("dpr/round-1", "tuned"):
        one, two = (read_rows(tmp_path / count / part) for count in ("one", "two"))
        assert len(one) == len(two)
        for a, b in zip(one, two, strict=True):
            same = {name: a[name] for name in SAME & set(a)}
            assert {name: b[name] for name in same} == pytest.approx(same, rel=1e-3, abs=1e-6)
        assert part == "tuned" or any(
            row["passages"] % 2 for row in one if "nll" in row
        )  # a batch had an odd number of passages
    # The negatives of the second round depend on how almost equal scores are rounded.
    assert [row["step"] for row in read_rows(tmp_path / "two" / "dpr" / "round-2")] == [0, 0, 1, 2, 2, 3, 4]
    assert (tmp_path / "two" / "dpr" / "model").is_dir()
    for part in ("dpr/round-1/model", "tuned/model", "tuned/reader"):
        pairs = list(zip(*(read_weights(tmp_path / count / part) for count in ("one", "two")), strict=True))
        assert pairs and all(torch.allclose(a, b, atol=1e-4) for a, b in pairs), part


MASKED = """
import sys
from contextlib import nullcontext
import torch
import torch.distributed as dist
from ragqa.settings.command_line import parse_config
from pipelines.orqa import inverse_cloze_loop as warm_start
from pipelines.realm import pretrain_loop

torch.autocast = lambda *_, **__: nullcontext()
dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{sys.argv[4]}", rank=int(sys.argv[5]), world_size=2)
warm_start.main(parse_config(warm_start.InverseClozeConfig, None, ["--config", sys.argv[1]]))
for file in sys.argv[2:4]:
    pretrain_loop.main(parse_config(pretrain_loop.PretrainConfig, None, ["--config", file]))
dist.destroy_process_group()
"""


@pytest.mark.thorough
def test_inverse_cloze_and_realm_learn_the_same_in_two_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A warm start, then REALM with both marginals and a refreshed index; results differ by rounding in float32."""
    world = closed_world.make_world(30, 5, 0)
    folders = closed_world.write_world(world, tmp_path / "world", width=32)
    start = closed_world.init_encoder(folders, tmp_path / "start", 0)

    def recipes(out: Path) -> tuple[inverse_cloze_loop.InverseClozeConfig, list[pretrain_loop.PretrainConfig]]:
        cloze = replace_settings(
            closed_world.inverse_cloze_config(folders, start, out / "cloze", seed=0, steps=3), batch=16, warmup=1
        )
        few = {"batch": 4, "k": 4, "frozen": 0, "refresh_every": 2, "warmup": 1, "masking": "words", "eval_every": 2}
        towers = tmp_path / "one" / "cloze" / "model"  # both runs start from the towers of one process
        made = closed_world.realm_config(folders, start, towers, out, seed=0, steps=4)
        return cloze, [replace_settings(made, out=out / name, marginal=name, **few) for name in ("token", "sequence")]

    cloze, pretrainings = recipes(tmp_path / "one")
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: nullcontext())
    inverse_cloze_loop.main(cloze)
    files = [tmp_path / f"{name}.json" for name in ("cloze", "token", "sequence")]
    first, rest = recipes(tmp_path / "two")
    for file, config in zip(files, [first, *rest], strict=True):
        file.write_text(json.dumps(asdict(config), default=str))
    port = free_port()
    processes = [start_script(MASKED, *map(str, files), port, rank) for rank in "01"]
    for config in pretrainings:
        pretrain_loop.main(config)
    wait_for_success(processes)
    for part in ("cloze", "token", "sequence"):
        one, two = ([untimed(row) for row in read_rows(tmp_path / count / part)] for count in ("one", "two"))
        assert len(one) == len(two) and sum("nll" in row for row in one) == len(range(3 if part == "cloze" else 4))
        for a, b in zip(one, two, strict=True):
            same = {name: value for name, value in a.items() if name != "tokens" and not name.startswith("swap_")}
            assert {name: b[name] for name in same} == pytest.approx(same, rel=1e-3, abs=1e-5)
    for part in ("token", "sequence"):
        one, two = tmp_path / "one", tmp_path / "two" / part
        towers = [DualEncoder.load(each) for each in (one / "cloze" / "model", one / part / "model", two / "model")]
        readers = [KnowledgeAugmentedEncoder.load(each) for each in (start, one / part / "reader", two / "reader")]
        for before, first, second in (towers, readers):
            ratio = measure_distance(first, second) / measure_distance(before, first)
            assert ratio < 0.02, (part, ratio)


RECIPE = """
import sys
from contextlib import nullcontext
from importlib import import_module
import torch
import torch.distributed as dist
from ragqa.settings.command_line import parse_config

torch.autocast = lambda *_, **__: nullcontext()
dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{sys.argv[4]}", rank=int(sys.argv[5]), world_size=2)
recipe = import_module(sys.argv[1])
recipe.main(parse_config(getattr(recipe, sys.argv[2]), None, ["--config", sys.argv[3]]))
dist.destroy_process_group()
"""


def train_in_one_and_two_processes(
    recipe: Any, config: Any, monkeypatch: pytest.MonkeyPatch
) -> list[list[dict[str, Any]]]:
    """Return the logs of a run in this process and of the same run in two processes."""
    both = config.out.with_name("two")
    row = {name: value for name, value in asdict(config).items() if value not in (None, ())} | {"out": both}
    file = config.out.with_name("two.json")
    file.write_text(json.dumps(row, default=str))
    port, arguments = free_port(), (recipe.__name__, type(config).__name__, str(file))
    processes = [start_script(RECIPE, *arguments, port, rank) for rank in "01"]
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: nullcontext())  # bfloat16 would hide small mistakes
    recipe.main(config)
    wait_for_success(processes)
    return [read_rows(config.out), read_rows(both)]


@pytest.mark.thorough
def test_the_span_reader_learns_the_same_in_two_processes(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each process takes its half of the batch in two parts; the first process mines and evaluates."""
    world = tiny.write(tmp_path / "world")
    config = ReaderConfig(
        train=(world.train,), index=world.corpus, dev=world.dev, encoder=small, out=tmp_path / "one", steps=4, batch=8,
        accumulate=2, dropout=0.0, lr=1e-3, warmup=1, eval_every=2, patience=2, sample=4, max_input=32, max_span=3,
    )  # fmt: skip
    one, two = train_in_one_and_two_processes(span_reader, config, monkeypatch)
    assert [row["step"] for row in one] == [row["step"] for row in two] == [0, 1, 2, 2, 3, 4]
    for a, b in zip(one, two, strict=True):
        same = {name: a[name] for name in {"loss", "span_nll", "relevance_bce", "right", "grad_norm", "em"} & set(a)}
        assert {name: b[name] for name in same} == pytest.approx(same, rel=1e-3, abs=1e-6)


GENERATORS = """
import sys
from contextlib import nullcontext
import torch
import torch.distributed as dist
from tests.helpers import closed_world
from ragqa.settings.command_line import parse_config
from pipelines.fid import loop as fid
from pipelines.joint import loop as joint
from pipelines.rag import loop as rag

torch.autocast = lambda *_, **__: nullcontext()
dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{sys.argv[4]}", rank=int(sys.argv[5]), world_size=2)
tagger = closed_world.ObjectTagger(closed_world.make_world(30, 5, 0, words=2).objects)
rag.main(parse_config(rag.RagConfig, None, ["--config", sys.argv[1]]))
joint.main(parse_config(joint.JointConfig, None, ["--config", sys.argv[2]]), tagger=tagger)
fid.train(parse_config(fid.FidConfig, None, ["--config", sys.argv[3]]))
dist.destroy_process_group()
"""


def make_generator_configs(
    folders: closed_world.WorldFolders, start: Path, retriever: Path, generator: Path, out: Path
) -> list[Any]:
    """Return settings of four steps of RAG, of joint training, and of the closed book."""
    few = {"save_every": 2, "eval_every": 2, "warmup": 1, "lr": 1e-4}
    both = {"frozen": 1, "refresh_every": 2, "retriever_lr": 1e-4}
    inputs = folders.train_questions, retriever, generator
    written = closed_world.rag_config(folders, *inputs, out / "rag", seed=0, steps=4)
    together = closed_world.joint_config(folders, start, retriever, generator, out / "joint", seed=0, steps=4)
    together = replace_settings(
        together,
        realm=replace_settings(together.realm, batch=4, k=4),
        rag=replace_settings(together.rag, batch=4, k=3),
        **few,
        **both,
    )
    closed = closed_world.closed_book_config(folders, generator, out / "closed", seed=0, steps=4)
    return [
        replace_settings(written, batch=4, k=3, smoothing=0.1, **few, **both),
        together,
        replace_settings(closed, batch=4, **few),
    ]


@pytest.mark.slow
def test_generators_learn_the_same_in_two_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Indexes are refreshed, and losses of joint training begin later."""
    world = closed_world.make_world(30, 5, 0, words=2)
    folders = closed_world.write_world(world, tmp_path / "world", width=32)
    start = closed_world.init_encoder(folders, tmp_path / "start", 0)
    cloze = closed_world.inverse_cloze_config(folders, start, tmp_path / "cloze", seed=0, steps=3)
    start_files = (folders, start, inverse_cloze_loop.main(replace_settings(cloze, batch=16)))
    start_files = (*start_files, closed_world.init_generator(start, tmp_path / "generator", 0))
    files = [str(tmp_path / f"{name}.json") for name in ("rag", "joint", "closed")]
    for file, config in zip(files, make_generator_configs(*start_files, tmp_path / "two"), strict=True):
        Path(file).write_text(json.dumps(asdict(config), default=str))
    port = free_port()
    processes = [start_script(GENERATORS, *files, port, rank) for rank in "01"]
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: nullcontext())  # bfloat16 would hide small mistakes
    first, second, third = make_generator_configs(*start_files, tmp_path / "one")
    rag.main(first)
    joint.main(second, tagger=closed_world.ObjectTagger(world.objects))
    fid.train(third)
    wait_for_success(processes)
    for part in ("rag", "joint", "closed"):
        one, two = (read_rows(tmp_path / count / part) for count in ("one", "two"))
        assert len(one) == len(two)
        for a, b in zip(one, two, strict=True):
            names = {"nll", "loss", "gen_nll", "utility", "gen_utility", "em", "recall@5", "staleness", "grad_norm"}
            same = {name: a[name] for name in names & set(a)}
            assert {name: b[name] for name in same} == pytest.approx(same, rel=2e-3, abs=1e-5)


@pytest.mark.thorough
def test_a_generator_made_of_a_reader_learns_the_same_in_two_processes(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Passages and answers are the same. The attention loss is a mean over the few answers in a passage."""
    reader = tmp_path / "reader"
    SpanReader.from_encoder(small).save(reader)
    (reader / "tokenizer.json").write_bytes((small / "tokenizer.json").read_bytes())
    rows = [
        {"question": f"w50 w{n}", "answers": [f"w{60 + n}"], "passages": [f"w7 w{60 + n + n % 2} w8", f"w{60 + n} w9"]}
        for n in range(12)
    ]
    (tmp_path / "q.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    few: dict[str, Any] = {"steps": 4, "batch": 4, "fitted": 12, "warmup": 1, "max_input": 32, "max_answer": 4}
    out = tmp_path / "one"
    config = make_config(
        WarmGeneratorConfig, reader=reader, questions=tmp_path / "q.jsonl", out=out, dropout=0.0, **few
    )
    for a, b in zip(*train_in_one_and_two_processes(warm_generator_loop, config, monkeypatch), strict=True):
        same = {name: a[name] for name in ("nll", "guided", "grad_norm")}
        assert {name: b[name] for name in same} == pytest.approx(same, rel=1e-3)


def test_passages_are_shared_evenly_among_processes() -> None:
    batch = ContrastiveBatch(
        [[1], [2]], [[3], [4], [5]], torch.tensor([0, 2]), torch.tensor([[False, True, False]] * 2)
    )
    assert batch.pad_passages(1).passages == batch.pad_passages(3).passages == [[3], [4], [5]]
    assert batch.pad_passages(2).passages == [[3], [4], [5], [3]]
    assert batch.pad_passages(2).masked_BP.tolist() == [[False, True, False, True]] * 2


def test_a_batch_that_cannot_be_divided_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "get_rank", lambda: 1)
    monkeypatch.setattr(parallel, "count_processes", lambda: 2)
    assert parallel.take_share([1, 2, 3, 4]) == [3, 4]
    with pytest.raises(BadInput, match="a batch of 3 cannot be divided among 2 processes"):
        parallel.take_share([1, 2, 3])
