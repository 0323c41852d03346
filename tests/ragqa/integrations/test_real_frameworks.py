"""The integrations in an environment with the frameworks, and the message without them."""

import os
import subprocess
import sys
import sysconfig
import venv
from importlib.util import find_spec
from pathlib import Path

import pytest

from ragqa.errors import MissingPackage

ROOT = Path(__file__).resolve().parents[3]
FRAMEWORKS = {"haystack": "haystack-ai>=3", "langchain": "langchain-core>=1", "llama_index": "llama-index-core>=0.14"}
SENTENCE_TRANSFORMERS = "sentence-transformers>=5"


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_a_missing_framework_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    package = {"haystack": "haystack", "langchain": "langchain_core", "llama_index": "llama_index"}[name]
    for module in [each for each in sys.modules if each.split(".")[0] == package]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, f"ragqa.integrations.{name}", raising=False)
    wanted = FRAMEWORKS[name].partition(">")[0]
    with pytest.raises(MissingPackage, match=f"install it: pip install {wanted}"):
        __import__(f"ragqa.integrations.{name}")


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_integrations_work_with_the_real_frameworks(tmp_path: Path) -> None:
    venv.create(tmp_path / "v", with_pip=True)
    python = tmp_path / "v" / "bin" / "python"
    site = next((tmp_path / "v" / "lib").glob("python*")) / "site-packages"
    (site / "ours.pth").write_text(sysconfig.get_path("purelib"))  # torch, pytest and ragqa's own packages
    wanted = [*FRAMEWORKS.values(), SENTENCE_TRANSFORMERS, "mcp>=2.3"]
    install = [str(python), "-m", "pip", "install", "-q", "-c", str(ROOT / "constraints.txt"), *wanted]
    done = subprocess.run(install, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"the frameworks cannot be installed here: {done.stderr.strip().splitlines()[-1][:200]}")
    files = ["tests/ragqa/integrations", "tests/ragqa/models/test_sentence_transformers.py"]
    command = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", "-rs", "-m", "not slow and not gpu", *files]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "HAYSTACK_TELEMETRY_ENABLED": "False"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-5000:]
    assert "skipped" not in done.stdout, done.stdout


@pytest.mark.skipif(find_spec("haystack") is None, reason="haystack-ai is not installed; `make test-slow` installs it")
def test_haystack_answers_without_torch(index: Path) -> None:
    code = (
        "import sys; sys.modules['torch'] = sys.modules['transformers'] = None\n"
        "from ragqa.integrations.haystack import HaystackReader, HaystackRetriever\n"
        "documents = HaystackRetriever(sys.argv[1]).run(sys.argv[2])['documents']\n"
        "sys.stdout.write(HaystackReader().run(sys.argv[2], documents)['answers'][0].data)"
    )
    command = [sys.executable, "-c", code, str(index), "Who built Skarvik Lighthouse?"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "Ada Holm"), done.stderr
