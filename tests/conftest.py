"""What all tests share, and an environment in which none reaches the network or the user's files."""

import os
import sys
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


DOCUMENTS = {
    "lighthouse.md": "# Skarvik Lighthouse\n\nSkarvik Lighthouse was built in 1871 by the engineer Ada Holm. "
    "The lighthouse is 34 metres tall and stands on the island of Brenna.\n",
    "bakery.txt": "The bakery on Mill Street was founded by Otto Brandt in 1923. It is known for rye bread.\n",
    "comet.html": "<html><head><title>Comet Varga</title></head><body><p>Comet Varga was discovered by Ilona "
    "Varga in Szeged in 1956.</p><script>alert('no')</script></body></html>",
}


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("documents")
    for name, text in DOCUMENTS.items():
        (path / name).write_text(text)
    (path / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n\x00\x00" * 20)
    return path


@pytest.fixture(scope="session")
def index(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("indexes") / "documents.index"
    from ragqa.indexing import build_index

    build_index([folder], out)
    return out


def run(*arguments: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    """Exit status, stdout and stderr of the command, run in this process."""
    from ragqa import cli

    before, sys.argv = sys.argv, ["ragqa", *arguments]
    try:
        with pytest.raises(SystemExit) as stop:
            cli.main()
    finally:
        sys.argv = before
    printed = capsys.readouterr()
    assert "Traceback" not in printed.err
    return int(stop.value.code or 0), printed.out, printed.err
