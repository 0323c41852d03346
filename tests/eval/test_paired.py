"""Published tables, paired question by question."""

from pathlib import Path

import pytest

from eval.paired import compared, main
from ragqa.errors import BadInput, Mismatch


def table(file: Path, *rows: tuple[str, str]) -> Path:
    lines = [f"{id_}\t{em}\t{em}\t0.5\t\tright" for id_, em in rows]
    file.write_text("\n".join(["id\tem\tf1\tconfidence\trank\tloss", *lines]) + "\n")
    return file


def test_the_difference_by_hand(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of four questions one more is right after, whatever their order; the one without gold answers counts nowhere."""
    before = table(tmp_path / "a.tsv", ("1", "1"), ("2", "0"), ('"3', "0"), ("4", "0"), ("5", ""))
    after = table(tmp_path / "b.tsv", ("4", "0"), ("2", "1"), ('"3', "0"), ("1", "1"), ("5", ""))
    found = compared(before, after)
    assert (found["questions"], found["before"], found["after"]) == (4, 0.25, 0.5)
    assert found["difference"]["value"] == 0.25 and found["p"] == 1.0  # one question that changed is none
    main([str(before), str(after)])
    assert capsys.readouterr().out.startswith("4 questions: EM 25.0 before, 50.0 after; +25.0 (+0.0 to +75.0), p = 1")


def test_what_cannot_be_paired(tmp_path: Path) -> None:
    one, other = table(tmp_path / "a.tsv", ("1", "1")), table(tmp_path / "b.tsv", ("2", "1"))
    with pytest.raises(Mismatch, match="of other questions"):
        compared(one, other)
    with pytest.raises(BadInput, match="none"):
        compared(tmp_path / "none.tsv", one)
    with pytest.raises(BadInput, match="no question was answered"):
        compared(table(tmp_path / "c.tsv"), one)
    (tmp_path / "d.tsv").write_text("some text\n\x00")
    with pytest.raises(BadInput, match=r"d\.tsv"):
        compared(tmp_path / "d.tsv", one)
