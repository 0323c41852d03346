"""A recipe in several processes, started by Ray Train."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from index.cluster import connect
from ragqa.errors import BadInput, RagqaError

_PATIENCE = 7 * 24 * 3600
"""Seconds that processes wait for the first, which may embed a corpus; a lost one is seen at once by other means."""


def together(main: Callable[..., Path], config: Any, **options: Any) -> Path:
    """``main(config)`` in ``config.processes`` processes of a Ray cluster, or simply here where that is 1.

    Each has a CPU core or, if ``config.gpus``, a GPU of its own; all machines see the paths of the configuration.
    A process that is lost ends the run; the same command goes on from its newest checkpoint.

    Raises:
        MissingExtra: Ray is not installed.
        RagqaError: as ``main`` does, or a process was lost.
    """
    if config.processes == 1:
        return main(config, **options)
    if config.processes < 1:
        raise BadInput(f"processes = {config.processes}: at least 1 is needed")
    connect("training in several processes")
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    config = replace(config, **{name: absolute(value) for name, value in vars(config).items()})
    trainer = TorchTrainer(
        _work,
        train_loop_config={"main": main, "config": config},
        scaling_config=ScalingConfig(num_workers=config.processes, use_gpu=config.gpus),
        run_config=RunConfig(name="ray", storage_path=str(config.out)),
        torch_config=TorchConfig(timeout_s=_PATIENCE),
    )
    try:
        trainer.fit()
    except Exception as error:  # of Ray Train, around whatever went wrong in a process
        raise RagqaError(f"training in {config.processes} processes ended: {_cause(error)}") from error
    return Path(config.out) / "model"


def absolute(value: Any) -> Any:
    """A setting as it is meant here: a worker is in another directory."""
    if isinstance(value, tuple):
        return tuple(map(absolute, value))
    return Path(os.path.abspath(value)) if isinstance(value, Path) else value


def _work(loop: dict[str, Any]) -> None:
    config = loop["config"]
    if config.gpus:
        from ray.train.torch import get_device

        config = replace(config, device=str(get_device()))
    loop["main"](config)


def _cause(error: BaseException) -> str:
    while error.__cause__ is not None:
        error = error.__cause__
    return " ".join(str(error).split())[-300:]
