"""What all tests share, and an environment in which none reaches the network or the user's files."""

import os
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def pytest_configure(config: pytest.Config) -> None:
    """Set before any test module is imported: some libraries read these once, at import."""
    cache = tempfile.TemporaryDirectory(prefix="ragqa-tests-")
    config.add_cleanup(cache.cleanup)
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ["XDG_CACHE_HOME"] = cache.name


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder of real data sets: $RAGQA_SHARED_DATA, or ../shared/data beside the checkout."""
    folder = Path(os.environ.get("RAGQA_SHARED_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no data sets at {folder}: set RAGQA_SHARED_DATA to their folder")
    return folder


WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *[f"w{i}" for i in range(1100)]]


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BERT of two narrow layers with random weights, in Hugging Face's own format."""
    torch = pytest.importorskip("torch")
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import BertConfig, BertModel

    path = tmp_path_factory.mktemp("small")
    tokenizer = Tokenizer(models.WordPiece({w: i for i, w in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(path / "tokenizer.json"))
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(WORDS),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
    )
    BertModel(config).save_pretrained(path)
    return path
