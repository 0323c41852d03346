"""Seq2seq pretraining: a model learns, and a killed or distributed run takes the same steps."""

import json
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file
from transformers import BertModel

from pipelines.denoise import loop as denoise
from pipelines.denoise.config import DenoiseConfig
from pipelines.denoise.texts import (
    Marks,
)
from ragqa.errors import NonFiniteLoss
from ragqa.models.generation.seq2seq import Seq2Seq
from ragqa.settings.groups import replace_settings
from ragqa.training.log import read_rows
from tests.helpers import seq2seq
from tests.helpers.denoise import list_inputs, list_targets, make_denoise_config, open_texts, write_shapes

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True, scope="module")
def _set_peak_flops() -> Iterator[None]:
    """Set the peak of the device, because measuring it takes a second."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pipelines.common.run.measure_peak_flops", lambda device: 1e12)
        yield


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return seq2seq.write_counting_index(tmp_path_factory.mktemp("counting"))


@pytest.fixture(scope="module")
def shapes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return write_shapes(tmp_path_factory.mktemp("shapes"))


@pytest.fixture
def config(corpus: Path, shapes: dict[str, Path], tmp_path: Path) -> DenoiseConfig:
    return make_denoise_config(corpus, shapes["t5"], tmp_path / "run")


@pytest.mark.parametrize(
    ("kind", "objective", "share"), [("t5", "spans", 0.3), ("bart", "infilling", 0.2), ("bert", "spans", 0.3)]
)
def test_a_model_learns_to_count(
    config: DenoiseConfig, shapes: dict[str, Path], kind: str, objective: Any, share: float
) -> None:
    """Its loss falls far below the entropy of single tokens, so it uses the words around a gap."""
    few = {"steps": 70, "batch": 16, "max_text": 32, "dropout": 0.0, "save_every": 1000, "warmup": None}
    config = replace_settings(config, generator=shapes[kind], objective=objective, **few)
    texts, tokenizer = open_texts(config)
    counts = Counter(id_ for step in range(20) for row in list_targets(texts[step]) for id_ in row)
    shares = np.array(list(counts.values())) / counts.total()
    entropy = -(shares * np.log(shares)).sum()
    out = denoise.main(config)
    rows = read_rows(config.out)
    assert entropy > 2.5 and rows[0]["nll"] > entropy
    assert np.mean([row["nll"] for row in rows[-10:]]) < share * entropy
    names = {"nll", "tokens", "seconds", "tokens/s", "utilisation", "grad_norm", "lr"}
    assert all(names <= row.keys() and row["tokens"] > 0 for row in rows)
    assert [row["step"] for row in rows] == list(range(70))
    trained = Seq2Seq.load(out)  # in transformers' own format, with the ids of mask and sentinels in a file of its own
    marks = Marks.from_tokenizer(tokenizer, trained.vocabulary)
    saved = json.loads((out / "denoising.json").read_text())
    assert saved == {"objective": objective, "mask": marks.mask, "sentinels": marks.sentinels}
    assert trained.tokens.tokenizer("W3 W4. W5")["input_ids"] == tokenizer("W3 W4. W5")["input_ids"]
    batch = texts[0]
    with torch.no_grad():
        assert denoise.compute_loss(trained.eval(), batch, (0, 0)).loss.item() < share * entropy


def test_a_generator_made_of_an_encoder_begins_by_copying(
    config: DenoiseConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = seq2seq.write_shape("bert", tmp_path / "encoder")
    torch.manual_seed(0)
    BertModel(seq2seq.make_shape("bert", 32).encoder).save_pretrained(encoder)
    changes: dict[str, Any] = {"generator": None, "fresh": False, "encoder": encoder, "decoder_layers": 1}
    config = replace_settings(config, objective="infilling", dropout=0.0, **changes)
    out = denoise.main(config)
    assert Seq2Seq.load(out).model.config.decoder.num_hidden_layers == 1
    assert (out / "tokenizer.json").read_bytes() == (encoder / "tokenizer.json").read_bytes()
    sample_sizes: list[int] = []
    monkeypatch.setattr(denoise, "initialise_copying", lambda _, texts: sample_sizes.append(len(texts)))
    denoise.main(replace_settings(config, out=tmp_path / "plain"))
    assert sample_sizes == [40]  # all passages: 40 of the 80 rows repeat others
    copying, plain = (read_rows(path)[0]["nll"] for path in (config.out, tmp_path / "plain"))
    assert copying < plain - 0.3
    denoise.main(config)  # a finished run does not initialise a model again
    assert sample_sizes == [40]


TRAIN_UNTIL_KILLED = """
import sys, time
from ragqa.settings.command_line import parse_config
from pipelines.common import run
from pipelines.denoise import loop as denoise
begin_step = run.Run.begin_step
def wait_at_step_5(self):
    if self.step == 5:
        print("here", flush=True)
        time.sleep(600)  # until it is killed
    begin_step(self)
run.Run.begin_step = wait_at_step_5
run.measure_peak_flops = lambda device: 1e12  # not measured: that takes a second
denoise.main(parse_config(denoise.DenoiseConfig, None, ["--config", sys.argv[1]]))
"""


def write_config(config: DenoiseConfig, file: Path) -> str:
    file.write_text(json.dumps(asdict(config), default=str))
    return str(file)


@pytest.mark.thorough
def test_a_killed_run_continues_with_the_same_losses(config: DenoiseConfig, tmp_path: Path) -> None:
    """With dropout; killed two steps after a checkpoint."""
    denoise.main(config)
    broken = replace_settings(config, out=tmp_path / "broken")
    command = [sys.executable, "-c", TRAIN_UNTIL_KILLED, write_config(broken, tmp_path / "broken.json")]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None and process.stdout.readline() == b"here\n"
        process.send_signal(signal.SIGKILL)
    assert [path.name for path in (broken.out / "checkpoints").glob("step-*")] == ["step-00000003"]
    denoise.main(broken)
    losses, continued = ([row["nll"] for row in read_rows(run.out)] for run in (config, broken))
    assert losses == continued and len(losses) == 6
    weights, others = (load_file(run.out / "model" / "model.safetensors") for run in (config, broken))
    assert all(torch.equal(weights[name], others[name]) for name in weights)


TRAIN_AS_SECOND_PROCESS = """
import sys
from contextlib import nullcontext
from datetime import timedelta
import torch, torch.distributed as dist
from ragqa.settings.command_line import parse_config
from pipelines.common import run
from pipelines.denoise import loop as denoise
torch.autocast = lambda *_, **__: nullcontext()
run.measure_peak_flops = lambda device: 1e12
address = f"tcp://127.0.0.1:{sys.argv[2]}"
dist.init_process_group("gloo", init_method=address, rank=1, world_size=2, timeout=timedelta(seconds=300))
denoise.main(parse_config(denoise.DenoiseConfig, None, ["--config", sys.argv[1]]))
dist.destroy_process_group()  # otherwise its threads may crash the process at its end
"""


@pytest.mark.thorough
def test_two_processes_take_the_steps_of_one(
    config: DenoiseConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This process and a second one; results differ by rounding in float32."""
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: nullcontext())  # bfloat16 would hide small mistakes
    one = replace_settings(config, dropout=0.0, steps=2)
    denoise.main(one)
    two = replace_settings(one, out=tmp_path / "two")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    other = subprocess.Popen(
        [sys.executable, "-c", TRAIN_AS_SECOND_PROCESS, write_config(two, tmp_path / "two.json"), str(port)], cwd=ROOT
    )
    try:
        address = f"tcp://127.0.0.1:{port}"
        dist.init_process_group("gloo", init_method=address, rank=0, world_size=2, timeout=timedelta(seconds=300))
        try:
            denoise.main(two)
        finally:
            dist.destroy_process_group()
        assert other.wait(timeout=300) == 0
    finally:
        other.kill()
        other.wait()
    for a, b in zip(read_rows(one.out), read_rows(two.out), strict=True):
        same = {name: a[name] for name in ("step", "nll", "grad_norm", "lr")}
        assert {name: b[name] for name in same} == pytest.approx(same, rel=1e-4)
    weights, shared = (load_file(run.out / "model" / "model.safetensors") for run in (one, two))
    assert all(torch.allclose(weights[name], shared[name], atol=1e-4) for name in weights)


def test_texts_are_cut_to_the_positions_of_bart(config: DenoiseConfig, shapes: dict[str, Path]) -> None:
    denoise.main(replace_settings(config, generator=shapes["bart"], objective="infilling", max_text=500, steps=1))
    assert json.loads((config.out / "config.json").read_text())["max_text"] == 32


def test_byt5_learns_from_bytes(config: DenoiseConfig, tmp_path: Path) -> None:
    """The tokenizer of ByT5 has no file of pieces; its 125 sentinels follow the bytes."""
    from transformers import ByT5Tokenizer

    path = seq2seq.write_shape("t5", tmp_path / "byt5")
    (path / "tokenizer.json").unlink()
    ByT5Tokenizer().save_pretrained(path)
    row = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(row | {"vocab_size": 384}))
    out = denoise.main(replace_settings(config, generator=path, max_text=40, steps=1, warmup=None))
    assert json.loads((out / "denoising.json").read_text())["sentinels"] == list(range(259, 384))
    texts, tokenizer = open_texts(replace_settings(config, generator=out, fresh=False, max_text=40))
    inputs = list_inputs(texts[0])
    assert max(map(len, inputs)) <= 40 and inputs[0][-1] == 1
    first_sentinel = min(place for place, id_ in enumerate(inputs[0]) if id_ >= 259)
    assert tokenizer.decode(inputs[0][:first_sentinel]).startswith("W")


def test_a_loss_that_is_not_finite_stops_the_run(config: DenoiseConfig) -> None:
    with pytest.raises(NonFiniteLoss, match="at step"):
        denoise.main(replace_settings(config, lr=1e30, clip=1e30))
