"""Errors that users can fix; each message is one line with problem, place and remedy."""


class RagqaError(Exception):
    """Base class of errors due to input, settings or machine; other exceptions are bugs."""


def summarize_error(error: Exception) -> str:
    """Return an error's first line without its full stop; its class name if it has no message."""
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")


class BadInput(RagqaError):
    """Question, document, option or file that ragqa cannot use."""


class BadLine(BadInput):
    """Malformed record of a file; the message names the file and the line."""


class SlowPattern(BadInput):
    """Pattern, given as a gold answer, whose search in a text takes too long."""

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
    """Directory or model that is missing, incomplete, or not of the expected kind."""


class DamagedArtefact(ArtefactError):
    """Artefact with a missing, changed or unusable file."""


class Mismatch(ArtefactError):
    """Artefacts, models, settings or a version of ragqa that do not fit together."""


class MissingExtra(RagqaError):
    """Extra of ragqa that a feature needs, but that is not installed."""

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
    """Required package that is not installed, for example on a machine used only for training."""

    def __init__(self, feature: str, package: str) -> None:
        """Create the error.

        Args:
            feature: noun phrase for the part that needs the package, which begins the message.
            package: name of the package.
        """
        RagqaError.__init__(self, f"{feature} needs the package '{package}'; install it: pip install {package}")


class RemoteError(RagqaError):
    """Server that cannot be reached, answers incorrectly, or lacks a shard."""


class NonFiniteLoss(RagqaError):
    """Loss or gradient that is not finite; training stops before it changes the weights."""


class StaleIndex(RagqaError):
    """Index that is older than training allows, while no newer index is being built."""


class RefreshFailed(RagqaError):
    """Failed build of an index from a snapshot; the previous index is still in use."""
