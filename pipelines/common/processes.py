"""Training in several processes of Ray Train; the first process reports the progress."""

import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import is_dataclass, replace
from pathlib import Path
from threading import Thread
from time import monotonic
from typing import Any, TypeVar

from index.ray_cluster import connect
from pipelines.common.config import TrainingConfig
from ragqa.errors import BadInput, RagqaError
from ragqa.progress import SILENT, Notify, Progress, Step, ignore_line
from ragqa.runtime.runner import check_device
from ragqa.training import parallel

Settings = TypeVar("Settings", bound=TrainingConfig)

_TIMEOUT = 7 * 24 * 3600
"""Number of seconds that processes wait for the first process, which sometimes embeds a whole corpus."""
_MESSAGE_INTERVAL = 0.2
"""Minimum number of seconds between two progress messages."""


def train_in_processes(main: Callable[..., Path], config: Settings, **options: Any) -> Path:
    """Run a recipe in this process, or in several processes of a Ray cluster.

    A single process runs ``main`` directly. In a cluster, each process has a CPU core, or a GPU if ``config.gpus`` is
    True. All machines must see the paths of the config. A lost process ends the run; the same command then continues
    from the newest checkpoint.

    Args:
        main: function that runs the recipe and returns its directory.
        config: settings of the recipe, whose ``processes`` is the number of processes.
        options: further arguments of ``main``: ``progress`` and ``notify``.

    Returns:
        The result of ``main`` in the first process.

    Raises:
        MissingExtra: torch or Ray is not installed.
        BadInput: torch does not see the device, several processes would share a GPU, or the cluster cannot be used.
        RagqaError: in a cluster, ``main`` has failed or a process was lost. In a single process, errors of ``main``
            pass unchanged.
    """
    if config.processes == 1:
        config = replace(config, device=config.single_device)
        check_device(config.device)
        if config.device.startswith("cuda:"):
            import torch

            torch.cuda.set_device(config.device)
        return main(config, **options)
    if config.device != "cpu" and not config.gpus:
        raise BadInput(f"device {config.device} in {config.processes} processes: --gpus gives each of them its own")
    connect("training in several processes", config.insecure)
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    config = replace(config, **{name: _make_absolute(value) for name, value in vars(config).items()})
    work: Any = _run_process  # Any, because the types of Ray Train 2.60 forbid a return value, which it supports
    with _receive_messages(**options) as messages:
        trainer = TorchTrainer(
            work,
            train_loop_config={"main": main, "config": config, "options": list(options), "messages": messages},
            scaling_config=ScalingConfig(num_workers=config.processes, use_gpu=config.gpus),
            run_config=RunConfig(name="ray", storage_path=str(config.out)),
            # gloo as well as nccl, because figures are summed over processes and lie on the CPU.
            torch_config=TorchConfig("cpu:gloo,cuda:nccl" if config.gpus else "gloo", timeout_s=_TIMEOUT),
        )
        try:
            result: Any = trainer.fit()
        except Exception as error:  # Ray Train wraps the error of a process in its own class
            reason = describe_failure(error)
            raise RagqaError(f"training in {config.processes} processes ended: {reason}") from error
    return Path(result.return_value)


def _make_absolute(value: Any) -> Any:
    """Return a setting with absolute paths; a worker has another working directory."""
    if isinstance(value, tuple):
        return tuple(map(_make_absolute, value))
    if isinstance(value, Path):
        return Path(os.path.abspath(value))
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{name: _make_absolute(inner) for name, inner in vars(value).items()})
    return value


def _run_process(loop: dict[str, Any]) -> str:
    config, options = loop["config"], {}
    if config.gpus:
        from ray.train.torch import get_device

        config = replace(config, device=str(get_device()))
    if parallel.is_first_process():
        sender = ProgressSender(loop["messages"].put)
        options = {name: {"progress": sender, "notify": sender.notify}[name] for name in loop["options"]}
    return str(loop["main"](config, **options))


def describe_failure(error: BaseException) -> str:
    """Return the message of a worker's RagqaError, or the last 300 characters of another error."""
    while error.__cause__ is not None:
        error = error.__cause__
    # The text of Ray's error holds the worker's traceback, which ends with the name and the message of its error.
    messages = re.findall(r"^\s*ragqa\.errors\.\w+: (.+)$", str(error), re.MULTILINE)
    return messages[-1].strip() if messages else " ".join(str(error).split())[-300:]


class ProgressSender:
    """Progress bar of a worker, which sends messages for ``replay_messages`` to show."""

    def __init__(self, send: Callable[[tuple[Any, ...]], object]) -> None:
        """Prepare to send messages.

        Args:
            send: function that sends a message. A message is a tuple of its kind and its values.
        """
        self._send, self._last, self._sent_at = send, (0, ""), float("-inf")

    @contextmanager
    def step(self, name: str, total: int, unit: str = "", done: int = 0) -> Iterator[Step]:
        """Send the start and the end of a piece of work.

        Arguments are as for ``ragqa.progress.Progress.step``.
        """
        self._last = done, ""
        self._send(("begin", name, total, unit, done))
        try:
            yield self
        finally:
            self._send(("at", *self._last))
            self._send(("end",))

    def advance_to(self, done: int, status: str = "") -> None:
        """Send the number of finished units and a status text, at most five times per second."""
        self._last, now = (done, status), monotonic()
        if now - self._sent_at >= _MESSAGE_INTERVAL:
            self._sent_at = now
            self._send(("at", *self._last))

    def notify(self, line: str) -> None:
        """Send a line for the user."""
        self._send(("notify", line))


def replay_messages(
    messages: Iterable[tuple[Any, ...]], progress: Progress, notify: Notify, step: Step | None = None
) -> None:
    """Show the progress and the lines that a ``ProgressSender`` has sent.

    Args:
        messages: messages in the order in which they were sent.
        progress: shows the pieces of work.
        notify: receives the lines for the user.
        step: piece of work that began before the first message, if any.
    """
    messages = iter(messages)
    for kind, *values in messages:
        if kind == "begin":
            with progress.step(*values) as inner:
                replay_messages(messages, progress, notify, inner)
        elif kind == "at" and step is not None:
            step.advance_to(*values)
        elif kind == "notify":
            notify(*values)
        else:
            return


@contextmanager
def _receive_messages(progress: Progress = SILENT, notify: Notify = ignore_line) -> Iterator[Any]:
    from ray.util.queue import Queue

    queue = Queue(actor_options={"num_cpus": 0})
    listener = Thread(target=replay_messages, args=(iter(queue.get, None), progress, notify), daemon=True)
    listener.start()
    try:
        yield queue
    finally:
        queue.put(None)
        listener.join()
        queue.shutdown()
