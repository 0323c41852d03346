"""``ragqa index`` and ``ragqa update``: what they print."""

from pathlib import Path

import pytest
from conftest import run


def test_a_path_with_a_newline_is_shown_on_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Else the second line of the path would look like a line of the summary."""
    for name in ("first", "second"):
        (tmp_path / f"{name}.md").write_text(f"A {name} text about foxes.")
    index = str(tmp_path / "docs\n9 documents")
    arguments = ("index", str(tmp_path / "first.md"), "--retriever", "bm25", "--out", index)
    status, out, _ = run(*arguments, capsys=capsys)
    assert (status, out) == (0, f"1 document, 1 passage, 0.0 MB in {tmp_path}/docs 9 documents\n")
    status, out, _ = run("update", index, "--add", str(tmp_path / "second.md"), capsys=capsys)
    assert status == 0 and out.startswith(f"1 added, compacted: 2 passages in {tmp_path}/docs 9 documents (")
    assert len(out.splitlines()) == 1
