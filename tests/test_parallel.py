"""Two processes take the steps of one: through Ray Train, and the arithmetic of it without."""

import json
import os
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from eval import closed_world
from pipelines import pretrain, warm_start
from pipelines.cluster import together
from ragqa.errors import BadInput
from ragqa.models.dual_encoder import DualEncoder
from ragqa.training import gradient_cache, parallel
from ragqa.training.log import read_rows

ROOT = Path(__file__).parent.parent

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

rows = parallel.share(list(range(8)))
own = counted[rows]
loss = (model(x[rows]).square().sum(-1) * own).sum() / own.sum().clamp_min(1)
weight = parallel.weight(own)
(loss * weight).backward()
parallel.sum_gradients(model.parameters())
tokens = float(parallel.total(len(rows)))
mean = model.weight.grad.tolist(), parallel.mean({"nll": loss.item()}, weight)["nll"]

model.zero_grad()
questions, passages = (parallel.share(list(torch.randn(8, 5))) for _ in range(2))
halves = [(side[:2], side[2:]) for side in (questions, passages)]
parts = [[lambda some=some: model(torch.stack(some)) for some in side] for side in halves]
value = gradient_cache.backward(parts, lambda q, p: in_batch_nll(q, p, torch.arange(8)))
parallel.sum_gradients(model.parameters())
if not parallel.world()[0]:
    print(json.dumps([*mean, model.weight.grad.tolist(), value.item(), tokens]))
"""


def printed(*arguments: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", SCRIPT, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def test_gradients_of_two_are_those_of_one() -> None:
    """Of a mean over what counts, unevenly shared, and of a contrastive loss over the whole batch."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
    processes = [printed(), printed(port, "0"), printed(port, "1")]
    one, two, _ = [process.communicate(timeout=120)[0] for process in processes]
    assert not any(process.returncode for process in processes)
    for alone, shared in zip(json.loads(one), json.loads(two), strict=True):
        assert torch.allclose(torch.tensor(alone), torch.tensor(shared), atol=1e-6)


def test_alone_everything_stays_as_it_is() -> None:
    assert parallel.world() == (0, 1)
    assert parallel.share([1, 2, 3]) == [1, 2, 3]
    assert parallel.weight(torch.tensor([False])) == 1
    assert parallel.mean({"a": 2.0}, torch.tensor(0.3)) == {"a": 2.0}
    assert parallel.told(7) == parallel.total(7) == 7
    rows, own = parallel.gathered(torch.ones(2, 3, requires_grad=True))
    assert not rows.requires_grad and own == slice(0, 2)
    weight = torch.nn.Parameter(torch.ones(2))
    value = gradient_cache.backward([[lambda: weight[:1]], [lambda: weight[1:]]], lambda a, b: (a * b).sum() * 3)
    assert value == 3 and weight.grad is not None and weight.grad.tolist() == [3, 3]


@pytest.mark.filterwarnings("ignore:.use_:DeprecationWarning")  # Ray Train copies Ray Data's settings
def test_recipes_in_two_workers_of_ray_train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Warm start and pretraining, index and all: the losses and the weights of one process."""
    ray = pytest.importorskip("ray", reason="the extra ray is not installed")
    for name, value in {"PYTHONPATH": str(ROOT), "RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    world = closed_world.make(30, 5, 0)
    folders = closed_world.write(world, tmp_path / "world", width=32)
    start = closed_world.begin(folders, tmp_path / "start", 0)
    cloze = replace(closed_world.warm_up(folders, start, tmp_path / "cloze", seed=0, steps=3), batch=16, warmup=1)
    alone = warm_start.main(cloze)
    settings = closed_world.pretraining(folders, start, alone, tmp_path / "one", seed=0, steps=3)
    one = replace(settings, batch=4, k=4, frozen=0, refresh_every=2, warmup=1, masking="words", questions=None)
    pretrain.main(one)
    try:
        ray.init(address="local", num_cpus=3, include_dashboard=False, log_to_driver=False, configure_logging=False)
        both = together(warm_start.main, replace(cloze, out=tmp_path / "cloze-2", processes=2))
        together(pretrain.main, replace(one, out=tmp_path / "two", processes=2))
    finally:
        ray.shutdown()
    for first, second in ((cloze.out, tmp_path / "cloze-2"), (one.out, tmp_path / "two")):
        pairs = zip(read_rows(first), read_rows(second), strict=True)
        losses = [(a["nll"], b["nll"]) for a, b in pairs if "nll" in a]
        assert len(losses) == 3
        assert all(a == pytest.approx(b, rel=1e-2) for a, b in losses)
    for first, second in ((alone, both), (one.out / "model", tmp_path / "two" / "model")):
        weights = zip(DualEncoder.load(first).parameters(), DualEncoder.load(second).parameters(), strict=True)
        assert all(torch.allclose(a, b, atol=5e-3) for a, b in weights)


def test_a_batch_that_cannot_be_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "world", lambda: (1, 2))
    assert parallel.share([1, 2, 3, 4]) == [3, 4]
    with pytest.raises(BadInput, match="a batch of 3 cannot be shared by 2 processes"):
        parallel.share([1, 2, 3])
