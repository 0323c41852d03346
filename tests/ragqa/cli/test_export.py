"""``ragqa export``: what it prints."""

from pathlib import Path

import pytest
from conftest import run

from ragqa import artefacts


def test_a_path_with_a_newline_is_shown_on_one_line(
    index: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = artefacts.peek_manifest(index)  # a real export needs torch
    monkeypatch.setattr("ragqa.runtime.export.export", lambda *args, **options: manifest)
    status, out, _ = run("export", "model", "--out", "a\nb", capsys=capsys)
    assert status == 0 and out.startswith(f"index {manifest.fingerprint} in a b: ")
    assert len(out.splitlines()) == 1
