"""Errors that users can fix; a message names the problem, the place and often the remedy."""


class RagqaError(Exception):
    """Base class of errors that are due to the input, the settings or the machine."""


def summarize_error(error: Exception) -> str:
    """Return the first line of an error's message without a final full stop, or its class name."""
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")


class BadInput(RagqaError):
    """Question, document, option or file that ragqa cannot use."""


class Locked(BadInput):
    """Artefact that another process is changing."""


class BadLine(BadInput):
    """Malformed record of a file; the message names the file and the line."""


class SlowPattern(BadInput):
    """Gold answer that is a pattern, and whose search in a text takes too long."""

    def __init__(self, pattern: str, characters: int, seconds: float, question: str | None = None) -> None:
        """Create the error.

        Args:
            pattern: pattern of the search.
            characters: length of the searched text in characters.
            seconds: time limit that the search exceeded, in seconds.
            question: id of the pattern's question; None if it is unknown.
        """
        self.pattern, self.characters, self.seconds = pattern, characters, seconds
        place = "" if question is None else f" of question {question}"
        super().__init__(
            f"the pattern {pattern[:80]!r}{place} takes more than {seconds:g} s to search {characters} characters: "
            "write it without repetitions inside repetitions, as in (a+)+"
        )

    def add_question(self, question: str) -> "SlowPattern":
        """Return a copy of the error that also names the id of the pattern's question."""
        return SlowPattern(self.pattern, self.characters, self.seconds, question)


class ArtefactError(RagqaError):
    """Directory or model that is missing, unreadable, incomplete, or not of the expected kind."""


class DamagedArtefact(ArtefactError):
    """Artefact with a missing, changed or unusable file."""


class Mismatch(ArtefactError):
    """Artefacts, models, settings or versions of ragqa that do not fit together."""


class MissingExtra(RagqaError):
    """Missing extra of ragqa that a feature needs."""

    def __init__(self, feature: str, extra: str) -> None:
        """Create the error.

        Args:
            feature: noun phrase for the part that needs the extra, which begins the message.
            extra: name of the extra.
        """
        super().__init__(
            f"{feature} needs the extra '{extra}'; in the checkout: pip install -c constraints.txt -e '.[{extra}]'"
        )


class MissingPackage(MissingExtra):
    """Missing package that a feature needs, and that no extra of ragqa installs."""

    def __init__(self, feature: str, package: str) -> None:
        """Create the error.

        Args:
            feature: noun phrase for the part that needs the package, which begins the message.
            package: name of the package.
        """
        RagqaError.__init__(self, f"{feature} needs the package '{package}'; install it: pip install {package}")


class RemoteError(RagqaError):
    """Server, shard or language model that cannot be reached or used."""


class NonFiniteLoss(RagqaError):
    """Loss or gradient that is not finite; the training step has not changed the weights."""


class StaleIndex(RagqaError):
    """Index that is older than training allows, while no newer index is being built."""


class RefreshFailed(RagqaError):
    """Failed build of an index from a training step; the previous index stays in use."""
