"""Errors that users can mend; one line names the problem, the place and the remedy."""


class RagqaError(Exception):
    """Base class of errors that are caused by the input or the machine, not by a bug."""


def summarize_error(error: Exception) -> str:
    """Return the first line of an error's message, or else the name of its class."""
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")


class BadInput(RagqaError):
    """Question, document, option or file that cannot be used as it is."""


class BadLine(BadInput):
    """Malformed record of a file; the message names the file and the line."""


class ArtefactError(RagqaError):
    """Directory that is missing, incomplete, or not an artefact of the expected kind."""


class DamagedArtefact(ArtefactError):
    """Artefact with files that differ from its manifest."""


class Mismatch(ArtefactError):
    """Two artefacts that do not fit together."""


class MissingExtra(RagqaError):
    """Optional extra of the package that a feature needs and that is not installed."""

    def __init__(self, feature: str, extra: str) -> None:
        super().__init__(
            f"{feature} needs the extra '{extra}'; in the checkout: pip install -c constraints.txt -e '.[{extra}]'"
        )


class MissingPackage(MissingExtra):
    """Package of the core that is not installed, for example on a machine for training only."""

    def __init__(self, feature: str, package: str) -> None:
        RagqaError.__init__(self, f"{feature} needs the package '{package}'; install it: pip install {package}")


class RemoteError(RagqaError):
    """Server that cannot be reached, answers incorrectly, or lacks a shard."""


class NonFiniteLoss(RagqaError):
    """Loss or gradient that is not finite; training stopped before it changed the weights."""


class StaleIndex(RagqaError):
    """Index that is older than training allows, while no newer one is being built."""


class RefreshFailed(RagqaError):
    """Failed build of an index from a snapshot; the previous index is still in use."""
