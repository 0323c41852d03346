"""Measure the answers to follow-up and misspelt questions about the demo encyclopedia.

    python -m eval.bench.questions --out questions.json

A follow-up question is asked alone, and in a conversation after its first question, with which ragqa rewrites it. A
misspelt question is a question of the demo with one random mistake in one word of at least four letters. It is asked as
it is, and after ragqa has corrected it.
"""

import json
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from string import ascii_lowercase
from typing import Any

from eval.bench.process import time_call
from eval.bench.record import report
from eval.command import run_command
from ragqa.artefacts.paths import get_demo_dir
from ragqa.conversation import Conversation
from ragqa.demo import demo_index
from ragqa.metrics import exact_match
from ragqa.pipeline import Pipeline
from ragqa.question_files import read_questions
from ragqa.types import Answer


@dataclass(frozen=True, kw_only=True)
class QuestionsConfig:
    """Settings of the measurement."""

    follow_ups: Path = Path("tests/data/follow_ups.jsonl")
    """JSON lines with a pair of questions each. Keys: first, second, answers (to the second question), follows (false
    if the second question stands alone), and part (dev or test)."""
    seeds: int = 3
    """Number of sets of misspelt questions, each with other random mistakes."""
    out: Path
    """JSON file to write the figures to."""


def main(config: QuestionsConfig) -> None:
    """Measure follow-up questions and misspelt questions; write the figures.

    Raises:
        OSError: the file of follow-up questions cannot be read.
    """
    pipeline = Pipeline.load(demo_index())
    rows = [json.loads(line) for line in config.follow_ups.read_text().splitlines()]
    figures = {
        **{
            part: measure_follow_ups(pipeline, [row for row in rows if row["part"] == part]) for part in ("dev", "test")
        },
        "misspelt": measure_misspelt(pipeline, config.seeds),
    }
    report(config.out, figures, corpus="demo encyclopedia", questions=f"{len(rows)} pairs, and the demo's questions")


def measure_follow_ups(pipeline: Pipeline, rows: list[dict[str, Any]]) -> dict[str, float]:
    """Return the figures of follow-up questions and of independent questions.

    Args:
        pipeline: pipeline to ask.
        rows: pairs of questions, with the keys of ``QuestionsConfig.follow_ups``.

    Returns:
        Exact match in percent of the follow-up questions as asked and as rewritten, and three numbers: follow-up
        questions, independent questions, and independent questions that were rewritten.
    """
    followed, alone, changed = [], [], 0
    for row in rows:
        conversation = Conversation(pipeline)
        conversation.ask(row["first"])
        answer = conversation.ask(row["second"], min_confidence=0)
        if row["follows"]:
            followed.append(answer)
            alone.append(pipeline.ask(row["second"], min_confidence=0))
        else:
            changed += answer.asked is not None
    golds = [row["answers"] for row in rows if row["follows"]]
    return {
        "follow_ups": len(golds),
        "em_as_asked": score(alone, golds),
        "em_rewritten": score(followed, golds),
        "independent_questions": len(rows) - len(golds),
        "independent_questions_changed": changed,
    }


def measure_misspelt(pipeline: Pipeline, seeds: int) -> dict[str, Any]:
    """Return the figures of the demo's questions, without mistakes and misspelt.

    Args:
        pipeline: pipeline to ask.
        seeds: number of sets of misspelt questions.

    Returns:
        The number of ``questions``, and figures for the questions without mistakes (``right``) and for each set of
        misspelt questions (``seed 1`` and so on): exact match in percent as asked and as corrected, number of questions
        that ragqa changed, and mean milliseconds of a correction.
    """
    questions = [question for question in read_questions(get_demo_dir() / "questions.jsonl") if question.answers]
    golds = [question.answers for question in questions]
    variants = {"right": [question.text for question in questions]}
    for seed in range(1, seeds + 1):
        generator = random.Random(seed)
        variants[f"seed {seed}"] = [misspell(question.text, generator) for question in questions]
    figures = {}
    for name, texts in variants.items():
        timed = [time_call(pipeline.prepare_question, text) for text in texts]
        hits = pipeline.retriever.search(texts, pipeline.k)
        figures[name] = {
            "em_as_asked": score(pipeline.reader.read(texts, hits), golds),
            "em_corrected": score(pipeline.ask(texts, min_confidence=0), golds),
            "questions_changed": sum(result != text for (_, result), text in zip(timed, texts, strict=True)),
            "mean_ms": round(1000 * sum(seconds for seconds, _ in timed) / len(texts), 2),
        }
    return {"questions": len(questions), **figures}


def misspell(question: str, generator: random.Random) -> str:
    """Return the question with one random mistake in a word of at least four letters."""
    word = generator.choice(list(re.finditer(r"[A-Za-z]{4,}", question)))
    text = word[0]
    while text.lower() == word[0].lower():
        place, letter = generator.randrange(1, len(word[0]) - 1), generator.choice(ascii_lowercase)
        before, after = word[0][:place], word[0][place:]
        forms = (
            before + after[1:],
            before + letter + after,
            before + letter + after[1:],
            before + after[1::-1] + after[2:],
        )
        text = generator.choice(forms)
    return question[: word.start()] + text + question[word.end() :]


def score(answers: list[Answer], golds: Sequence[Sequence[str]]) -> float:
    """Return the share of answers that match a gold answer exactly, in percent."""
    right = sum(exact_match(answer.text or "", gold) for answer, gold in zip(answers, golds, strict=True))
    return round(100 * right / len(golds), 1)


if __name__ == "__main__":
    run_command(main, QuestionsConfig, __doc__)
