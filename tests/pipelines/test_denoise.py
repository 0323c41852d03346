"""Seq2seq pretraining: what a model reads and writes, that it learns, and that a broken run goes on as if unbroken."""

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
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import BertModel, PreTrainedTokenizerFast

from pipelines.common.plot import PANELS
from pipelines.denoise import loop as denoise
from pipelines.denoise.config import DenoiseConfig
from pipelines.denoise.texts import (
    DenoisedTexts,
    DenoisingBatch,
    Frame,
    Marks,
    make_corruption,
    split_sentences,
    truncate_sentences,
)
from ragqa.corpus.store import PassageStore
from ragqa.errors import ArtefactError, BadInput, NonFiniteLoss
from ragqa.models.generation.seq2seq import Seq2Seq
from ragqa.models.pretrained import set_dropout
from ragqa.objectives import IGNORED
from ragqa.settings.groups import replace_settings
from ragqa.training.log import read_rows
from ragqa.training.meter import count_seq2seq_weights
from tests.helpers import seq2seq

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True, scope="module")
def _a_known_peak() -> Iterator[None]:
    """To measure it takes a second."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pipelines.common.run.measure_peak_flops", lambda device: 1e12)
        yield


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return seq2seq.counting(tmp_path_factory.mktemp("counting"))


@pytest.fixture(scope="module")
def shapes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Directories of the three kinds, without weights."""
    root = tmp_path_factory.mktemp("shapes")
    return {kind: seq2seq.write(kind, root / kind) for kind in ("t5", "bart", "bert")}


@pytest.fixture
def config(corpus: Path, shapes: dict[str, Path], tmp_path: Path) -> DenoiseConfig:
    few = {"steps": 6, "batch": 4, "max_text": 24, "lr": 1e-2, "save_every": 3, "warmup": 1}
    return DenoiseConfig(corpus=corpus, generator=shapes["t5"], fresh=True, out=tmp_path / "run", **few)


def opened(config: DenoiseConfig) -> tuple[DenoisedTexts, Any]:
    model = Seq2Seq.load(config.generator, fresh=config.fresh)
    marks = Marks.from_tokenizer(model.tokens.tokenizer, model.vocabulary)
    return denoise._open_texts(
        config, PassageStore.open(config.corpus / "passages"), model, marks
    ), model.tokens.tokenizer


def read_of(batch: DenoisingBatch) -> list[list[int]]:
    return [ids[mask.bool()].tolist() for ids, mask in zip(batch.x.ids_NL, batch.x.mask_NL, strict=True)]


def written_of(batch: DenoisingBatch) -> list[list[int]]:
    return [row[row != IGNORED].tolist() for row in batch.labels_BT]


class Vocabulary:
    """A tokenizer of which nothing but the vocabulary is asked."""

    def __init__(self, *pieces: str) -> None:
        self._pieces = pieces

    def get_vocab(self) -> dict[str, int]:
        return {piece: at for at, piece in enumerate(self._pieces)}


def test_sentinels_are_ids_that_stand_for_nothing_else() -> None:
    t5 = Marks.from_tokenizer(Vocabulary("a", "<extra_id_10>", "<extra_id_2>", "<extra_id_0>", "[unused0]"), 9)
    assert t5 == Marks([3, 2, 1], 3)  # by their numbers, as T5 uses them; the first is the mask
    assert Marks.from_tokenizer(Vocabulary("a", "▁<extra_id_1>", "▁<extra_id_0>"), 3).sentinels == [2, 1]  # mT5
    assert Marks.from_tokenizer(Vocabulary("[unused1]", "[MASK]", "[unused0]", "x"), 9) == Marks([2, 0], 1)  # BERT
    assert Marks.from_tokenizer(Vocabulary("a", "b", "<mask>"), 5) == Marks([3, 4], 2)  # embeddings that no piece has
    assert Marks.from_tokenizer(Vocabulary("a", "b"), 2) == Marks([], None)


def test_what_stands_around_a_text(shapes: dict[str, Path]) -> None:
    """As transformers makes inputs and labels; the decoder starts from what a label does not repeat."""
    wanted = {
        "t5": Frame(([], [1]), ([], [1])),  # starts from padding
        "bart": Frame(([0], [2]), ([0], [2])),  # starts from </s>, so that <s> is written
        "bert": Frame(([2], [3]), ([], [3])),  # starts from [CLS]
    }
    for kind, frame in wanted.items():
        model = Seq2Seq.load(shapes[kind], fresh=True)
        own = model.conventions
        assert Frame.from_tokenizer(model.tokens.tokenizer, own.start, own.ends[0], own.pad) == frame
    bare = seq2seq.tokenizer("bert")
    bare.post_processor = None
    plain = PreTrainedTokenizerFast(tokenizer_object=bare)
    assert Frame.from_tokenizer(plain, 2, 3, 0) == Frame(([2], [3]), ([], [3]))
    assert Frame.from_tokenizer(plain, 0, 1, 0) == Frame(([], [1]), ([], [1]))


def test_what_is_read_and_written_makes_a_stretch_of_a_passage_again(config: DenoiseConfig) -> None:
    texts, tokenizer = opened(config)
    store = PassageStore.open(config.corpus / "passages")
    whole = [
        tokenizer(passage.text, add_special_tokens=False)["input_ids"] for passage in store.read_rows(0, len(store))
    ]
    sentinels = Marks.from_tokenizer(tokenizer, 0).sentinels
    for step in range(3):
        batch = texts[step]
        reads, labels = read_of(batch), written_of(batch)
        for read, label in zip(reads, labels, strict=True):
            assert read.pop() == label.pop() == 1
            answers: dict[int, list[int]] = {}
            for each in label:
                answers.setdefault(each, []) if each in sentinels else answers[list(answers)[-1]].append(each)
            assert list(answers) == sentinels[: len(answers)]
            text = [part for each in read for part in answers.get(each, [each])]
            assert 20 <= len(text) <= 22  # of 24, as </s> and the last sentinel need room
            assert any(text == passage[at : at + len(text)] for passage in whole for at in range(6))
        assert batch.x.ids_NL.shape[1] == max(map(len, reads)) + 1  # padded to the longest, no further


def test_a_batch_is_a_function_of_seed_step_and_number(config: DenoiseConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    texts, _ = opened(config)
    one, again, other = texts[5], texts[5], texts[6]
    assert torch.equal(one.x.ids_NL, again.x.ids_NL) and torch.equal(one.labels_BT, again.labels_BT)
    assert not torch.equal(one.x.ids_NL, other.x.ids_NL)
    parts = []
    for rank in (0, 1):
        monkeypatch.setattr("ragqa.training.parallel.get_rank", lambda rank=rank: rank)
        monkeypatch.setattr("ragqa.training.parallel.count_processes", lambda: 2)
        parts += read_of(texts[5])
    assert parts == read_of(one)


@pytest.mark.parametrize("permute", [False, True])
def test_infilling_reads_masks_and_writes_the_text(
    config: DenoiseConfig, shapes: dict[str, Path], permute: bool
) -> None:
    changed = replace_settings(config, generator=shapes["bart"], objective="infilling", permute=permute, batch=10)
    texts, tokenizer = opened(changed)
    batch, stop = texts[0], tokenizer.get_vocab()["."]
    orders = set()
    for read, label in zip(read_of(batch), written_of(batch), strict=True):
        assert read[0] == label[0] == tokenizer.get_vocab()["<s>"] and read[-1] == label[-1] == 2
        words = [each for each in label[1:-1] if each != stop]
        assert all((after - before) % 40 == 1 for before, after in pairwise(words))
        kept = [each for each in read[1:-1] if each != tokenizer.get_vocab()["<mask>"]]
        assert len(kept) == len(label) - 2 - round(0.3 * (len(label) - 2))
        assert not Counter(kept) - Counter(label)
        left = [each for each in kept if each != stop]
        orders.add([each for each in words if each in left] == left)
    assert False in orders if permute else orders == {True}


def test_sentences_keep_the_white_space_before_them() -> None:
    text = "One two. Three four!\n\nFive  six."
    assert split_sentences(text) == ["One two.", " Three four!", "\n\nFive  six."]
    assert "".join(split_sentences(text)) == text
    assert truncate_sentences([[1, 2], [3, 4], [5]], 3) == [[1, 2], [3]]
    assert truncate_sentences([[], [1]], 9) == [[1]] and truncate_sentences([], 9) == []


def test_a_mask_too_many_is_cut() -> None:
    """Empty spans could make what is read longer than the model's positions."""
    marks = Marks([], 9)
    corrupts = make_corruption(
        "infilling", marks, room=2, rate=0.1, mean=0.001, permute=False, source="it"
    )  # never a config's
    pair = corrupts([[1, 2]], np.random.default_rng(0))
    assert pair is not None and len(pair[0]) == 2 and pair[1] == [1, 2]


@pytest.mark.parametrize(
    ("kind", "objective", "share"), [("t5", "spans", 0.3), ("bart", "infilling", 0.2), ("bert", "spans", 0.3)]
)
def test_it_learns(config: DenoiseConfig, shapes: dict[str, Path], kind: str, objective: Any, share: float) -> None:
    """To count on: far below what single tokens, be they ever so well known, would give."""
    few = {"steps": 70, "batch": 16, "max_text": 32, "dropout": 0.0, "save_every": 1000, "warmup": None}
    config = replace_settings(config, generator=shapes[kind], objective=objective, **few)
    texts, tokenizer = opened(config)
    said = Counter(each for step in range(20) for row in written_of(texts[step]) for each in row)
    shares = np.array(list(said.values())) / said.total()
    entropy = -(shares * np.log(shares)).sum()
    out = denoise.main(config)
    rows = read_rows(config.out)
    assert entropy > 2.5 and rows[0]["nll"] > entropy
    assert np.mean([row["nll"] for row in rows[-10:]]) < share * entropy
    names = {"nll", "tokens", "seconds", "tokens/s", "utilisation", "grad_norm", "lr"}
    assert all(names <= row.keys() and row["tokens"] > 0 for row in rows)
    assert [row["step"] for row in rows] == list(range(70))
    again = Seq2Seq.load(out)  # in transformers' own format, the ids told beside
    same, marks = again.tokens.tokenizer, Marks.from_tokenizer(tokenizer, again.vocabulary)
    told = json.loads((out / "denoising.json").read_text())
    assert told == {"objective": objective, "mask": marks.mask, "sentinels": marks.sentinels}
    assert same("W3 W4. W5")["input_ids"] == tokenizer("W3 W4. W5")["input_ids"]
    batch = texts[0]
    with torch.no_grad():
        assert denoise.compute_loss(again.eval(), batch, (0, 0)).loss.item() < share * entropy


def test_a_generator_is_made_of_an_encoder_and_copies(
    config: DenoiseConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = seq2seq.write("bert", tmp_path / "encoder")
    torch.manual_seed(0)
    BertModel(seq2seq.shape("bert", 32).encoder).save_pretrained(encoder)
    given: dict[str, Any] = {"generator": None, "fresh": False, "encoder": encoder, "decoder_layers": 1}
    config = replace_settings(config, objective="infilling", dropout=0.0, **given)
    out = denoise.main(config)
    assert Seq2Seq.load(out).model.config.decoder.num_hidden_layers == 1
    assert (out / "tokenizer.json").read_bytes() == (encoder / "tokenizer.json").read_bytes()
    fitted: list[int] = []
    monkeypatch.setattr(denoise, "initialise_copying", lambda _, texts: fitted.append(len(texts)))
    denoise.main(replace_settings(config, out=tmp_path / "from nothing"))
    assert fitted == [40]  # all passages of a small index
    copying, nothing = (read_rows(path)[0]["nll"] for path in (config.out, tmp_path / "from nothing"))
    assert copying < nothing - 0.3
    denoise.main(config)  # it is done, and begins nothing again
    assert fitted == [40]


def test_runs_are_drawn() -> None:
    drawn = {name for fields in PANELS.values() for name in fields}
    assert {"nll", "tokens/s", "utilisation"} <= drawn


SCRIPT = """
import sys, time
from ragqa.settings.command_line import parse_config
from pipelines.common import run
from pipelines.denoise import loop as denoise
begin_step = run.Run.begin_step
def wait(under_way):
    if under_way.step == 5:
        print("here", flush=True)
        time.sleep(600)  # until it is killed
    begin_step(under_way)
run.Run.begin_step = wait
run.measure_peak_flops = lambda device: 1e12  # not measured: that takes a second
denoise.main(parse_config(denoise.DenoiseConfig, None, ["--config", sys.argv[1]]))
"""


def written(config: DenoiseConfig, file: Path) -> str:
    file.write_text(json.dumps(asdict(config), default=str))
    return str(file)


@pytest.mark.thorough
def test_a_killed_run_goes_on_with_the_very_losses(config: DenoiseConfig, tmp_path: Path) -> None:
    """Dropout and all; killed two steps after a checkpoint."""
    denoise.main(config)
    broken = replace_settings(config, out=tmp_path / "broken")
    command = [sys.executable, "-c", SCRIPT, written(broken, tmp_path / "broken.json")]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None and process.stdout.readline() == b"here\n"
        process.send_signal(signal.SIGKILL)
    assert [path.name for path in (broken.out / "checkpoints").glob("step-*")] == ["step-00000003"]
    denoise.main(broken)
    one, other = ([row["nll"] for row in read_rows(run.out)] for run in (config, broken))
    assert one == other and len(one) == 6
    weights, same = (load_file(run.out / "model" / "model.safetensors") for run in (config, broken))
    assert all(torch.equal(weights[name], same[name]) for name in weights)


SECOND = """
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
dist.destroy_process_group()  # or its threads may end the process their own way
"""


@pytest.mark.thorough
def test_two_processes_learn_what_one_learns(
    config: DenoiseConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This process and another, to the rounding of 32 bits."""
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: nullcontext())  # bfloat16 would hide small mistakes
    one = replace_settings(config, dropout=0.0, steps=2)
    denoise.main(one)
    two = replace_settings(one, out=tmp_path / "two")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    other = subprocess.Popen([sys.executable, "-c", SECOND, written(two, tmp_path / "two.json"), str(port)], cwd=ROOT)
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


def test_the_weights_of_each_side(shapes: dict[str, Path]) -> None:
    """Of T5, width 32: attention of 2 heads of 16, feed-forward 64; the head, which shares the 54 embeddings."""
    square, wide = 32 * 32, 32 * 64
    model = Seq2Seq.load(shapes["t5"], fresh=True).model
    read = 4 * square + 2 * wide + 2 * square  # and keys and values of cross-attention
    assert count_seq2seq_weights(model) == (read, 4 * square + 2 * square + 2 * wide + 54 * 32)
    assert not any(part._forward_hooks for part in model.modules())
    bert = Seq2Seq.load(shapes["bert"], fresh=True).model
    both = count_seq2seq_weights(bert.train())
    head = 32 * 32 + 32 * bert.config.decoder.vocab_size
    assert both == (read, 4 * square + 2 * square + 2 * wide + head) and bert.training


def test_every_dropout_is_set(shapes: dict[str, Path]) -> None:
    """BART keeps its shares as plain numbers: two passes in training are the same with none."""
    for kind, path in shapes.items():
        torch.manual_seed(0)
        model = Seq2Seq.load(path, fresh=True).model
        ids = torch.arange(10).view(1, -1)
        for share, equal in ((0.5, False), (0, True), (0.5, False)):
            set_dropout(model.train(), share)
            one, two = (model(input_ids=ids, decoder_input_ids=ids).logits for _ in range(2))
            assert torch.equal(one, two) == equal, (kind, share)
    layer = nn.Dropout(0.1)
    set_dropout(layer, 0.3)
    assert layer.p == 0.3


def test_a_model_reads_no_more_than_its_positions(config: DenoiseConfig, shapes: dict[str, Path]) -> None:
    denoise.main(replace_settings(config, generator=shapes["bart"], objective="infilling", max_text=500, steps=1))
    assert json.loads((config.out / "config.json").read_text())["max_text"] == 32


def test_bytes_are_read_where_there_are_no_words(config: DenoiseConfig, tmp_path: Path) -> None:
    """ByT5: its tokenizer has no file of pieces, and names 125 ids behind the bytes."""
    from transformers import ByT5Tokenizer

    path = seq2seq.write("t5", tmp_path / "byt5")
    (path / "tokenizer.json").unlink()
    ByT5Tokenizer().save_pretrained(path)
    row = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(row | {"vocab_size": 384}))
    out = denoise.main(replace_settings(config, generator=path, max_text=40, steps=1, warmup=None))
    assert json.loads((out / "denoising.json").read_text())["sentinels"] == list(range(259, 384))
    texts, tokenizer = opened(replace_settings(config, generator=out, fresh=False, max_text=40))
    read = read_of(texts[0])[0]
    assert max(map(len, read_of(texts[0]))) <= 40 and read[-1] == 1
    first = min(at for at, each in enumerate(read) if each >= 259)
    assert tokenizer.decode(read[:first]).startswith("W")


def test_a_loss_that_is_no_number_spoils_nothing(config: DenoiseConfig) -> None:
    with pytest.raises(NonFiniteLoss, match="at step"):
        denoise.main(replace_settings(config, lr=1e30, clip=1e30))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"objective": "nothing"}, "objective = nothing"),
        ({"rate": 1.0, "mean_span": 0.5}, "rate = 1.0, mean_span = 0.5"),
        ({"generator": None}, "generator = None: out of range .generator: give either a generator or an encoder"),
        ({"encoder": Path("e")}, "generator = .+, fresh = True: out of range .generator: give either a gen"),
        ({"decoder_layers": 1}, "decoder_layers = 1: out of range .decoder_layers: above 0, with an encoder"),
        ({"permute": True}, "permute = True: out of range .permute: for infilling only"),
        ({"max_text": 5, "batch": 0}, "batch = 0, max_text = 5"),
        ({"warmup": 7}, "warmup = 7: out of range .warmup: at most the 6 steps"),
    ],
)
def test_settings_that_cannot_be_meant(config: DenoiseConfig, change: dict[str, Any], told: str) -> None:
    with pytest.raises(BadInput, match=told):
        replace_settings(config, **change)


def test_models_that_cannot_be_trained_so(config: DenoiseConfig, shapes: dict[str, Path], tmp_path: Path) -> None:
    def told(kind: type[Exception], match: str, **changes: Any) -> None:
        with pytest.raises(kind, match=match) as error:
            denoise.main(replace_settings(config, **changes))
        assert "\n" not in str(error.value) and not config.out.exists()

    told(BadInput, r"bart has 0 ids for sentinels .+ need 2: lower --max-text", generator=shapes["bart"])
    told(BadInput, r"t5 has 10 ids for sentinels .+ texts of 598 tokens need 31", max_text=600)
    told(ArtefactError, "none: no such directory", generator=tmp_path / "none")
    told(ArtefactError, "t5 is not a seq2seq that can be loaded: .+safetensors", fresh=False)
    encoder = seq2seq.write("t5", tmp_path / "encoder")
    seq2seq.shape("bert", 32).encoder.save_pretrained(encoder)
    told(ArtefactError, "encoder is a bert, not one of the supported seq2seqs", generator=encoder)
    row = json.loads((shapes["t5"] / "config.json").read_text())
    for change, match in (
        ({"vocab_size": 20}, "other: the tokenizer has 54 pieces, the model 20 embeddings"),
        ({"eos_token_id": None}, "other: a t5 without .+eos_token_id"),
    ):
        other = seq2seq.write("t5", tmp_path / "other")
        (other / "config.json").write_text(json.dumps(row | change))
        told(ArtefactError, match, generator=other)


def test_weights_that_are_missing_or_broken(config: DenoiseConfig, shapes: dict[str, Path], tmp_path: Path) -> None:
    made = denoise.main(replace_settings(config, steps=1, warmup=None))
    file = made / "model.safetensors"
    weights = load_file(file)
    left = {name: value for name, value in weights.items() if "decoder.block.0.layer.0" not in name}
    save_file(left, file, {"format": "pt"})
    with pytest.raises(ArtefactError, match=r"lacks \d+ weights of its seq2seq, for example decoder.block.0"):
        Seq2Seq.load(made)
    file.write_bytes(b"nothing")
    with pytest.raises(ArtefactError, match="is not a seq2seq that can be loaded"):
        Seq2Seq.load(made)


def test_a_corpus_with_nothing_to_leave_out(config: DenoiseConfig) -> None:
    texts, _ = opened(config)
    texts._pieces = lambda texts: [[7] for _ in texts]
    with pytest.raises(BadInput, match="100 passages in a row are too short"):
        texts[0]
