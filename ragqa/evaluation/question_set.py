"""Questions for an evaluation, counted in advance and read one by one."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from ragqa.errors import BadInput
from ragqa.question_files import read_questions, sample_questions
from ragqa.types import Question


@dataclass(frozen=True)
class QuestionSet:
    """Named set of questions that can be read more than once."""

    read: Callable[[], Iterable[Question]]
    """Function that returns all questions."""
    count: int
    """Number of questions."""
    name: str = "questions"
    split: str = ""
    """Split of the data set: dev, test or another name."""

    @classmethod
    def from_file(cls, file: Path, *, name: str | None = None, split: str = "") -> "QuestionSet":
        """Open a question file and check all its lines.

        Args:
            file: question file in a format of ``read_questions``.
            name: name of the set; by default the file's name.
            split: split of the data set: dev, test or another name.

        Raises:
            BadInput: the file cannot be read, or its format is unknown.
            BadLine: a line is not a question.
        """
        count = sum(1 for _ in read_questions(file))
        return cls(lambda: read_questions(file), count, file.name if name is None else name, split)

    def sample(self, limit: int | None) -> "QuestionSet":
        """Return a reproducible random sample of the questions.

        Args:
            limit: number of questions; for None, or if the set is not larger, the set itself is returned.

        Raises:
            BadInput: ``limit`` is less than 1.
        """
        if limit is None or limit >= self.count:
            return self
        if limit < 1:
            raise BadInput(f"limit = {limit}: at least one question must be asked")
        return replace(
            self,
            read=lambda: sample_questions(self.read(), self.count, limit),
            count=limit,
            split=f"{limit:,} of {self.split or 'them'}, drawn by chance",
        )

    def __iter__(self) -> Iterator[Question]:
        return iter(self.read())

    def __len__(self) -> int:
        return self.count
