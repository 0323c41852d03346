"""Errors that ragqa raises on purpose: one line that says what is wrong, where, and what to do."""


class RagqaError(Exception):
    """Base class of errors that are caused by the input or the machine, not by a bug."""


def summarize_error(error: Exception) -> str:
    """Return the first line of an error's message without a full stop; the name of its class if it has none."""
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")


class BadInput(RagqaError):
    """A question, document, option or file that cannot be used as it is."""


class BadLine(BadInput):
    """A malformed record of a corpus file; names the file and the line."""


class ArtefactError(RagqaError):
    """A directory that is not an artefact of the expected kind, or is incomplete."""


class DamagedArtefact(ArtefactError):
    """An artefact whose files are not those its manifest describes."""


class Mismatch(ArtefactError):
    """Two artefacts that do not fit together."""


class MissingExtra(RagqaError):
    """A feature needs an optional extra of the package that is not installed."""

    def __init__(self, feature: str, extra: str) -> None:
        super().__init__(
            f"{feature} needs the extra '{extra}'; in the checkout: pip install -c constraints.txt -e '.[{extra}]'"
        )


class MissingPackage(MissingExtra):
    """A package of the core is not installed, as on a machine that was set up for training only."""

    def __init__(self, feature: str, package: str) -> None:
        RagqaError.__init__(self, f"{feature} needs the package '{package}'; install it: pip install {package}")


class RemoteError(RagqaError):
    """A server that cannot be reached, answers incorrectly, or lacks a shard."""


class NonFiniteLoss(RagqaError):
    """A loss or gradient is not finite; training stopped before it changed the weights."""


class StaleIndex(RagqaError):
    """The index is older than training allows, and no newer one is being built."""


class RefreshFailed(RagqaError):
    """Building an index from a snapshot of the weights failed; the previous index is still in use."""
