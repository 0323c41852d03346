"""Errors that users can fix; a one-line message names the problem, the place and the remedy."""


class RagqaError(Exception):
    """Base class of errors that the input or the machine causes, not a bug."""


def summarize_error(error: Exception) -> str:
    """Return the first line of an error's message; the name of its class if there is none."""
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")


class BadInput(RagqaError):
    """Question, document, option or file that ragqa cannot use."""


class BadLine(BadInput):
    """Malformed record of a file; the message names file and line."""


class SlowPattern(BadInput):
    """Gold answer that is a pattern and whose search in a text takes too long."""

    def __init__(self, pattern: str, characters: int, seconds: float, question: str | None = None) -> None:
        self.pattern, self.characters, self.seconds = pattern, characters, seconds
        place = "" if question is None else f" of question {question}"
        super().__init__(
            f"the pattern {pattern[:80]!r}{place} takes more than {seconds:g} s to search {characters} characters: "
            "write it without repetitions inside repetitions, as in (a+)+"
        )

    def add_question(self, question: str) -> "SlowPattern":
        """Return a copy of the error that also names the pattern's question, by its id."""
        return SlowPattern(self.pattern, self.characters, self.seconds, question)


class ArtefactError(RagqaError):
    """Directory that is missing, incomplete, or not an artefact of the expected kind."""


class DamagedArtefact(ArtefactError):
    """Artefact with files that differ from its manifest."""


class Mismatch(ArtefactError):
    """Two artefacts that do not fit together."""


class MissingExtra(RagqaError):
    """Optional extra of ragqa that a feature needs and that is not installed."""

    def __init__(self, feature: str, extra: str) -> None:
        super().__init__(
            f"{feature} needs the extra '{extra}'; in the checkout: pip install -c constraints.txt -e '.[{extra}]'"
        )


class MissingPackage(MissingExtra):
    """Required package that is not installed, for example on a machine used only for training."""

    def __init__(self, feature: str, package: str) -> None:
        RagqaError.__init__(self, f"{feature} needs the package '{package}'; install it: pip install {package}")


class RemoteError(RagqaError):
    """Server that cannot be reached, answers incorrectly, or lacks a shard."""


class NonFiniteLoss(RagqaError):
    """Loss or gradient that is not finite; training stopped before it changed the weights."""


class StaleIndex(RagqaError):
    """Index that is older than training allows, while no newer index is being built."""


class RefreshFailed(RagqaError):
    """Failed build of an index from a snapshot; the previous index is still in use."""
