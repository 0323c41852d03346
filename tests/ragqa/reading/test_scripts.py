"""Questions in scripts that the shipped models do not read."""

import pytest

from ragqa.indexing.build import build_index
from ragqa.pipeline import Pipeline
from ragqa.text import is_latin

NEAREST = "Маяк Скарвик построила Ада Хольм в 1871 году."


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    folder = tmp_path_factory.mktemp("scripts")
    (folder / "ru.txt").write_text(NEAREST)
    (folder / "en.txt").write_text("The teacher Li Wei (李伟) founded the school in Brenna in 1923.")
    (folder / "fr.txt").write_text("La boulangerie fut fondée par Otto Brandt.")
    build_index([folder], folder / "index")
    return Pipeline.load(folder / "index")


@pytest.mark.parametrize(
    "question",
    [
        "Кто построил маяк?",
        "谁建造了灯塔?",
        "誰が灯台を建てましたか",
        "누가 등대를 지었습니까?",
        "من بنى المنارة؟",
        "מי בנה את המגדלור?",
        "Ποιος έχτισε τον φάρο;",
        "प्रकाशस्तंभ किसने बनाया?",
        "ใครสร้างประภาคาร",
    ],
)
def test_a_question_in_another_script_is_declined_with_its_reason(pipeline: Pipeline, question: str) -> None:
    answer = pipeline.ask(question, min_confidence=0)
    assert (answer.text, answer.supported, answer.reason) == (None, None, "only English is read well")
    assert {source.hit.passage.text for source in answer.sources} <= {NEAREST}  # only it can share a word


def test_the_nearest_passages_share_words_with_the_question(pipeline: Pipeline) -> None:
    sources = pipeline.ask("Кто построила Маяк?").sources
    assert [source.hit.passage.text for source in sources] == [NEAREST]


def test_mixed_and_latin_questions_are_answered_as_before(pipeline: Pipeline) -> None:
    assert pipeline.ask("Which school did 李伟 found in 1923?", min_confidence=0).text is not None
    assert pipeline.ask("Qui a fondé la boulangerie?", min_confidence=0).text is not None
    assert is_latin("İstanbul'da kim? 1923") and is_latin("1923?") and not is_latin("Кто Li?")
