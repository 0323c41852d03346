"""Settings and models that seq2seq pretraining refuses."""

import json
from pathlib import Path
from typing import Any

import pytest

from pipelines.denoise import loop as denoise
from pipelines.denoise.config import DenoiseConfig
from ragqa.errors import ArtefactError, BadInput
from ragqa.settings.groups import replace_settings
from tests.helpers import seq2seq
from tests.helpers.denoise import make_denoise_config, write_shapes


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
    ("change", "message"),
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
def test_settings_out_of_range_are_refused(config: DenoiseConfig, change: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        replace_settings(config, **change)


def test_unsuitable_models_are_refused_in_one_line(
    config: DenoiseConfig, shapes: dict[str, Path], tmp_path: Path
) -> None:
    def assert_refused(kind: type[Exception], match: str, **changes: Any) -> None:
        with pytest.raises(kind, match=match) as error:
            denoise.main(replace_settings(config, **changes))
        assert "\n" not in str(error.value) and not config.out.exists()

    assert_refused(BadInput, r"bart has 0 ids for sentinels .+ need 2: lower --max-text", generator=shapes["bart"])
    assert_refused(BadInput, r"t5 has 10 ids for sentinels .+ texts of 598 tokens need 31", max_text=600)
    assert_refused(ArtefactError, "none: no such directory", generator=tmp_path / "none")
    assert_refused(ArtefactError, "t5 is not a seq2seq that can be loaded: .+safetensors", fresh=False)
    encoder = seq2seq.write_shape("t5", tmp_path / "encoder")
    seq2seq.make_shape("bert", 32).encoder.save_pretrained(encoder)
    assert_refused(ArtefactError, "encoder is a bert, not one of the supported seq2seqs", generator=encoder)
    row = json.loads((shapes["t5"] / "config.json").read_text())
    for change, match in (
        ({"vocab_size": 20}, "other: the tokenizer has 54 pieces, the model 20 embeddings"),
        ({"eos_token_id": None}, "other: a t5 without .+eos_token_id"),
    ):
        other = seq2seq.write_shape("t5", tmp_path / "other")
        (other / "config.json").write_text(json.dumps(row | change))
        assert_refused(ArtefactError, match, generator=other)
