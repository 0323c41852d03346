"""A recipe in several processes, started by Ray Train."""

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Any

from index.cluster import connect
from pipelines.common.relay import Teller, repeat
from ragqa.errors import BadInput, RagqaError
from ragqa.progress import SILENT, Progress
from ragqa.runtime.runner import check_device
from ragqa.training import parallel

_PATIENCE = 7 * 24 * 3600
"""Seconds that processes wait for the first, which may embed a corpus; a lost one is seen at once by other means."""


def together(main: Callable[..., Path], config: Any, **options: Any) -> Path:
    """``main(config, **options)`` in ``config.processes`` processes of a Ray cluster, or simply here where that is 1.

    Each has a CPU core or, if ``config.gpus``, a GPU of its own; all machines see the paths of the configuration.
    ``options``, which are ``progress`` and ``notify``, hear of the first process.
    A process that is lost ends the run; the same command goes on from its newest checkpoint.

    Raises:
        MissingExtra: Ray is not installed.
        RagqaError: as ``main`` does, or a process was lost.
    """
    if config.processes == 1:
        config = replace(config, device=device_of(config))
        use(config.device)
        return main(config, **options)
    if config.processes < 1:
        raise BadInput(f"processes = {config.processes}: at least 1 is needed")
    if config.device != "cpu" and not config.gpus:
        raise BadInput(f"device {config.device} in {config.processes} processes: gpus gives each of them its own")
    connect("training in several processes")
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    config = replace(config, **{name: absolute(value) for name, value in vars(config).items()})
    work: Any = _work  # whose return value Ray Train 2.60 knows, and its types do not
    with _heard(**options) as messages:
        trainer = TorchTrainer(
            work,
            train_loop_config={"main": main, "config": config, "options": list(options), "messages": messages},
            scaling_config=ScalingConfig(num_workers=config.processes, use_gpu=config.gpus),
            run_config=RunConfig(name="ray", storage_path=str(config.out)),
            # Figures, which are on the CPU, are summed as gradients are.
            torch_config=TorchConfig("cpu:gloo,cuda:nccl" if config.gpus else "gloo", timeout_s=_PATIENCE),
        )
        try:
            result: Any = trainer.fit()
        except Exception as error:  # of Ray Train, around whatever went wrong in a process
            raise RagqaError(f"training in {config.processes} processes ended: {cause(error)}") from error
    return Path(result.return_value)


def device_of(config: Any) -> str:
    """Where a single process trains: on a GPU, too, where ``gpus`` alone says so."""
    return "cuda" if config.gpus and config.device == "cpu" else str(config.device)


def use(device: str) -> None:
    """Have torch mean this GPU where none is named; raises BadInput where it sees no such device."""
    check_device(device)
    if device.startswith("cuda:"):
        import torch

        torch.cuda.set_device(device)


@contextmanager
def _heard(progress: Progress = SILENT, notify: Callable[[str], None] = lambda line: None) -> Iterator[Any]:
    """A queue for the messages of a ``Teller``, which are told as they come."""
    from ray.util.queue import Queue

    queue = Queue(actor_options={"num_cpus": 0})
    listener = Thread(target=repeat, args=(iter(queue.get, None), progress, notify), daemon=True)
    listener.start()
    try:
        yield queue
    finally:
        queue.put(None)
        listener.join()
        queue.shutdown()


def absolute(value: Any) -> Any:
    """A setting as it is meant here: a worker is in another directory."""
    if isinstance(value, tuple):
        return tuple(map(absolute, value))
    return Path(os.path.abspath(value)) if isinstance(value, Path) else value


def _work(loop: dict[str, Any]) -> str:
    config, options = loop["config"], {}
    if config.gpus:
        from ray.train.torch import get_device

        config = replace(config, device=str(get_device()))
    if parallel.is_first_process():
        teller = Teller(loop["messages"].put)
        options = {name: {"progress": teller, "notify": teller.notify}[name] for name in loop["options"]}
    return str(loop["main"](config, **options))


def cause(error: BaseException) -> str:
    """What went wrong in a worker, in a line: an error of ours in its own words, of others the end of what is told."""
    while error.__cause__ is not None:
        error = error.__cause__
    ours = re.findall(r"^\s*ragqa\.errors\.\w+: (.+)$", str(error), re.MULTILINE)  # at the end of a worker's traceback
    return ours[-1].strip() if ours else " ".join(str(error).split())[-300:]
