"""Light markup, LaTeX and notebooks: passages know their headings and places."""

import json
from pathlib import Path

import pytest

from ragqa.corpus.passages import make_passages, split_document
from ragqa.corpus.splitters import make_splitter
from ragqa.types import Passage
from tests.helpers.documents import read_one

RST = """=======
 Walks
=======
We walk.

Hills
-----
High up::

   Not a heading
   -------------

Rivers
------
Wide.

Fish
~~~~
Small.
"""
ADOC = """= Walks
:author: Ada

We walk.

== Hills
----
== code
----
High.

== Rivers
Wide.

=== Fish
Small.
"""
ORG = """#+TITLE: Walks
#+DATE: <2024-05-01>
* Hills :outdoors:
#+BEGIN_SRC
* code
#+END_SRC
* TODO Rivers
** Fish
Small.
"""
TEX = r"""\documentclass{article}
\title{Walks \& \emph{more}}
\date{2024-05-01}
\begin{document}
% a comment
We walk.
\section{Hills}
High.
\section*{Rivers}\label{r}
\subsection[F]{The \textbf{fish}}
Small.
\end{document}
after
"""


def split(path: Path, content: str) -> list[Passage]:
    document = read_one(path, content)
    passages = list(make_passages(document, split_document(document, make_splitter("sentences"))))
    assert all(document.text[p.start : p.end] == p.text for p in passages)
    return passages


@pytest.mark.parametrize(
    ("name", "content", "last", "number"),
    [
        ("a.rst", RST, ("Rivers", "Fish"), 19),
        ("a.adoc", ADOC, ("Rivers", "Fish"), 16),
        ("a.org", ORG, ("Rivers", "Fish"), 9),
    ],
)
def test_headings_of_markup_stand_above_passages(
    tmp_path: Path, name: str, content: str, last: tuple[str, ...], number: int
) -> None:
    passages = split(tmp_path / name, content)
    assert (passages[-1].title, passages[-1].headings, passages[-1].text) == ("Walks", last, "Small.")
    assert (passages[-1].unit, passages[-1].number) == ("line", number)
    hills = [p for p in passages if p.headings == ("Hills",)]
    assert hills and all("Rivers" not in p.text for p in passages)
    assert any(word in hills[-1].text for word in ("code", "Not a heading"))
    assert not any("TITLE" in p.text or "DATE" in p.text for p in passages)


def test_latex_has_its_title_date_and_sections(tmp_path: Path) -> None:
    passages = split(tmp_path / "a.tex", TEX)
    assert [(p.headings, p.text, p.number) for p in passages] == [
        ((), "We walk.", 6),
        (("Hills",), "High.", 8),
        (("Rivers",), "\\label{r}", 9),
        (("Rivers", "The fish"), "Small.", 11),
    ]
    assert {(p.title, p.date) for p in passages} == {("Walks \\& more", "2024-05-01")}
    assert split(tmp_path / "b.tex", "Only text.")[0].text == "Only text."


def make_notebook(*cells: tuple[str, object, list[object]]) -> str:
    rows = [{"cell_type": kind, "source": source, "outputs": outputs} for kind, source, outputs in cells]
    return json.dumps({"cells": rows, "nbformat": 4})


def test_cells_of_a_notebook_are_numbered_and_have_headings(tmp_path: Path) -> None:
    content = make_notebook(
        ("markdown", ["# Kiln\n", "We fire clay."], []),
        ("markdown", "## Result\nSee below.\n```\n# no heading\n```", []),
        ("code", "# a comment\nprint(heat)", [{"text": ["1240\n"]}, {"data": {"text/plain": "degrees"}}]),
        ("code", "log()", [{"text": "x" * 10_000}, {"data": {"image/png": "iVBOR"}}]),
    )
    passages = split(tmp_path / "kiln-1.ipynb", content)
    assert [(p.headings, p.number, p.unit) for p in passages] == [
        ((), 1, "cell"),
        (("Result",), 2, "cell"),
        (("Result",), 3, "cell"),
        (("Result",), 4, "cell"),
    ]
    assert passages[0].title == "Kiln"
    assert passages[2].text == "# a comment\nprint(heat)\n1240\n\ndegrees" and passages[3].text == "log()"


@pytest.mark.parametrize("content", ["{", '{"cells": [{"cell_type": "code"}]}', '{"cells": 3}', "[]", '{"a": 1}'])
def test_a_damaged_notebook_is_text(tmp_path: Path, content: str) -> None:
    assert read_one(tmp_path / "a.ipynb", content).text == content
