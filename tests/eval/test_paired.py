"""Published tables, paired question by question."""

from pathlib import Path

import pytest

from eval.paired import PairedConfig, compare_tables, main
from ragqa.errors import BadInput, Mismatch


def write_table(file: Path, *rows: tuple[str, str]) -> Path:
    lines = [f"{id_}\t{em}\t{em}\t0.5\t\tright" for id_, em in rows]
    file.write_text("\n".join(["id\tem\tf1\tconfidence\trank\tloss", *lines]) + "\n")
    return file


def test_the_difference_matches_a_count_by_hand(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One of four questions becomes right. Order does not matter; the question without gold answers is left out."""
    before = write_table(tmp_path / "a.tsv", ("1", "1"), ("2", "0"), ('"3', "0"), ("4", "0"), ("5", ""))
    after = write_table(tmp_path / "b.tsv", ("4", "0"), ("2", "1"), ('"3', "0"), ("1", "1"), ("5", ""))
    figures = compare_tables(before, after)
    assert (figures["questions"], figures["before"], figures["after"]) == (4, 0.25, 0.5)
    assert figures["difference"]["value"] == 0.25 and figures["p"] == 1.0  # a single change proves nothing
    main(PairedConfig(before=before, after=after))
    assert capsys.readouterr().out.startswith("4 questions: EM 25.0 before, 50.0 after; +25.0 (+0.0 to +75.0), p = 1")


def test_tables_of_other_questions_are_refused(tmp_path: Path) -> None:
    one, other = write_table(tmp_path / "a.tsv", ("1", "1")), write_table(tmp_path / "b.tsv", ("2", "1"))
    with pytest.raises(Mismatch, match="have different questions"):
        compare_tables(one, other)
    with pytest.raises(BadInput, match=r"none\.tsv cannot be read: No such file"):
        compare_tables(tmp_path / "none.tsv", one)
    with pytest.raises(BadInput, match="no question was answered"):
        compare_tables(write_table(tmp_path / "c.tsv"), one)
    (tmp_path / "d.tsv").write_text("some text\n\x00")
    wrong = [write_table(tmp_path / f"{em}.tsv", ("1", em)) for em in ("nan", "1e400", "-5")]
    for table in (tmp_path / "d.tsv", *wrong):
        with pytest.raises(BadInput, match=r"\.tsv is not a table"):
            compare_tables(table, one)
