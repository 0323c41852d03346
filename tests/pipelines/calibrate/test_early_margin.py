"""Choice of the margin by which windows are left out after a reader's early layer."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pipelines.calibrate.conditions import OWN_PARAGRAPH, CalibrationSet, judge_exactly
from pipelines.calibrate.early_margin import choose_early_margin
from pipelines.calibrate.fit import PRIOR_WEIGHTS, make_rows
from ragqa.reading.span import ExtractiveReader
from ragqa.reading.span_candidates import ScoredPassages
from ragqa.types import Hit, Passage, Question


class ScoredStandIn(SimpleNamespace):
    """Scored passages whose windows are early scores; the answer is right if the window of ``needed`` is read."""

    windows: list[float]
    needed: float

    def read_on(self, margin: float) -> "ScoredStandIn":
        top = max(self.windows)
        return ScoredStandIn(windows=[early for early in self.windows if early >= top - margin], needed=self.needed)


class ReaderStandIn:
    """Reader whose answer says whether the needed window was read."""

    def merge_spans(self, scored: ScoredStandIn, prior_weight: float) -> list[bool]:
        return [scored.needed in scored.windows]


def choose(scored: list[ScoredStandIn], **changes: Any) -> tuple[float | None, dict[str, Any]]:
    questions = [Question("q", "who?", ("x",)) for _ in scored]
    name = changes.pop("name", "an index")
    judge = lambda answers, gold: [float(answer) for answer in answers]  # noqa: E731
    questions_set = CalibrationSet(Path("f"), name, questions, cast(Any, None), judge, **changes)
    reader = cast(ExtractiveReader, ReaderStandIn())
    return choose_early_margin(reader, [questions_set], [cast(list[ScoredPassages], scored)])


def test_the_smallest_margin_that_loses_nothing_is_chosen() -> None:
    """The second question needs a window that is 2.5 behind; margins are tried at 2 and 2.5."""
    near = ScoredStandIn(windows=[5.0, 4.0, 0.0, -9.0], needed=5.0)
    far = ScoredStandIn(windows=[1.0, -1.5, -2.5, -9.0], needed=-1.5)
    margin, figures = choose([near, far])
    assert margin == 2.5
    assert figures["all windows"] == {"right": 1.0, "read": 1.0}
    assert figures["2.0"] == {"right": 0.5, "read": 3 / 8}
    assert figures["2.5"] == {"right": 1.0, "read": 4 / 8}


def test_a_loss_of_three_thousandths_is_accepted() -> None:
    near = ScoredStandIn(windows=[5.0, 0.0], needed=5.0)
    far = ScoredStandIn(windows=[5.0, 0.0], needed=0.0)
    assert choose([near] * 399 + [far])[0] == 0.5  # loses 1 of 400
    assert choose([near] * 199 + [far])[0] == 5.0  # 0.5 would lose 1 of 200
    assert choose([near] * 19 + [ScoredStandIn(windows=[9.0, 0.0], needed=0.0)])[0] is None


def test_own_paragraphs_and_removed_documents_do_not_count() -> None:
    far = ScoredStandIn(windows=[5.0, 0.0], needed=0.0)
    for changes in ({"name": OWN_PARAGRAPH}, {"is_unanswerable": True}):
        assert choose([far], **changes) == (None, {})


def test_an_answer_from_fewer_passages_has_the_margin_of_these_passages() -> None:
    """The fourth passage is far ahead of the first three, of which the reader reads all if it gets no others."""
    texts = ["Wheat is a grass.", "The bread was good.", "Sheep eat grass.", "Skarvik was built in 1871 by Ada Holm."]
    hits = [Hit(Passage(n, str(n), "", text, "", 0, len(text)), 4.0 - n) for n, text in enumerate(texts)]
    question = Question("When was Skarvik built?", ("1871",))
    reader = ExtractiveReader.load()
    asked = CalibrationSet(Path("f"), "an index", [question], lambda _: [hits], judge_exactly)
    scored = reader.score([question.text], [hits], reads_all=True)
    rows = make_rows(reader, asked, scored, 0.5)[PRIOR_WEIGHTS.index(reader._calibration.prior)]
    ((expected, *_),) = reader.find_answers([question.text], [hits[:3]])
    assert [row.is_shallow for row in rows] == [False, True, True]
    assert rows[1].evidence.compute_features(reader.features) == pytest.approx(
        expected.evidence.compute_features(reader.features), abs=1e-4
    )
