"""Language model in a GGUF file, run in this process by ``llama-cpp-python``."""

import hashlib
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any

from ragqa.artefacts.machine import count_cores
from ragqa.errors import ArtefactError, DamagedArtefact, MissingExtra, RemoteError
from ragqa.reading.chat.language_model import COMPLETE, ContextOverflow

MAX_CONTEXT = 8192
"""Maximum context length in tokens; a longer context takes gigabytes of memory in many models."""
MAX_WAIT = 600.0
"""Maximum time in seconds to wait until the model has written another reply."""
_MAGIC = b"GGUF"
_HASHED = 1 << 20
"""Number of bytes at the start of the file that, with the file's size, identify the model."""


class LocalModel:
    """Language model of a GGUF file, which is loaded with the first question."""

    def __init__(self, path: str | Path, *, device: str = "cpu") -> None:
        """Check that a file can be a model, without loading it.

        Args:
            path: a GGUF file.
            device: ``cpu``, or ``cuda`` if llama.cpp was built with CUDA.

        Raises:
            ArtefactError: there is no such file.
            DamagedArtefact: the file is not in the format GGUF.
            MissingExtra: ``llama-cpp-python`` is not installed.
        """
        self._path, self._device = Path(path), device
        if not self._path.is_file():
            raise ArtefactError(f"{path}: no such file")
        with self._path.open("rb") as file:
            start = file.read(_HASHED)
        if not start.startswith(_MAGIC):
            raise DamagedArtefact(f"{path} is not a GGUF file: it begins with {start[:4]!r}")
        try:
            import llama_cpp  # noqa: F401
        except ImportError as error:
            raise MissingExtra("a language model in a GGUF file", "llama") from error
        size = self._path.stat().st_size
        self._digest = hashlib.sha256(start + str(size).encode()).hexdigest()[:12]
        self._llama: Any = None
        self._lock = Lock()
        """Lock for the model, which can write only one reply at a time."""

    @property
    def name(self) -> str:
        """Name of the file."""
        return self._path.name

    @property
    def identity(self) -> str:
        """Name of the file, with a digest of its first MiB and its size."""
        return f"{self._path.name}#{self._digest}"

    def find_context(self) -> int:
        """Return the context length of the model in tokens, ``MAX_CONTEXT`` at most.

        Raises:
            DamagedArtefact: the model cannot be loaded.
            RemoteError: the model is still writing another reply after ``MAX_WAIT`` seconds.
        """
        with self._take_turn():
            return _find_context(self._load().metadata)

    def count_tokens(self, text: str) -> int:
        """Return the number of tokens of a text; errors are as for ``find_context``."""
        with self._take_turn():
            return len(self._load().tokenize(text.encode("utf-8", "replace"), add_bos=False))

    def write(self, messages: list[dict[str, str]], max_tokens: int) -> Generator[str, None, str]:
        """Yield the reply to messages in pieces; return the reason why it ended.

        The arguments are as for ``LanguageModel.write``.

        Raises:
            ContextOverflow: the messages are too long.
            DamagedArtefact, RemoteError: as for ``find_context``.
        """
        reason = COMPLETE
        with self._take_turn():
            try:
                events = self._load().create_chat_completion(
                    messages, max_tokens=max_tokens, temperature=0.0, stream=True
                )
                for event in events:
                    choice = event["choices"][0]
                    if text := choice["delta"].get("content"):
                        yield text
                    reason = choice["finish_reason"] or reason
            except ValueError as error:  # llama-cpp-python has no class of its own for this
                if "context window" not in str(error):
                    raise
                raise ContextOverflow(f"{self._path}: the prompt is too long ({error})") from error
        return str(reason)

    @contextmanager
    def _take_turn(self) -> Iterator[None]:
        # A reply that is neither read to its end nor closed keeps its turn.
        if not self._lock.acquire(timeout=MAX_WAIT):
            raise RemoteError(f"{self._path} writes another reply: read or close that one first")
        try:
            yield
        finally:
            self._lock.release()

    def _load(self) -> Any:
        if self._llama is None:
            import llama_cpp

            threads = max(1, count_cores() // 2)  # physical cores, if each runs two threads
            layers = -1 if self._device.startswith("cuda") else 0
            try:
                self._llama = llama_cpp.Llama(
                    str(self._path),
                    n_ctx=MAX_CONTEXT,
                    n_gpu_layers=layers,
                    n_threads=threads,
                    n_threads_batch=threads,
                    verbose=False,
                )
            except (ValueError, OSError) as error:
                raise DamagedArtefact(f"{self._path} cannot be loaded ({error}): download it again") from error
        return self._llama


def _find_context(metadata: dict[str, str]) -> int:
    lengths = [int(value) for name, value in metadata.items() if name.endswith(".context_length") and value.isdigit()]
    return min([MAX_CONTEXT, *lengths])
