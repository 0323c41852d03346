"""Ray actors of a refreshed index: access to them, and patches that let them hang, fail or note their work."""

import os
import time
from collections.abc import Callable
from pathlib import Path

from index.refresh import IndexRefresher


def get_directory(refresher: IndexRefresher) -> Path:
    return refresher._versions.plan.work


def get_actors(refresher: IndexRefresher) -> tuple[object, list[object]]:
    """Return the coordinator and the encoding actors."""
    builder = refresher._builder
    return builder._coordinator, builder._encoders


def run_in_actor(ray, actor, act: Callable[..., object]) -> object:
    return ray.get(actor.__ray_call__.options(max_task_retries=-1).remote(act))  # also works on an actor that restarts


def make_recording_patch(
    file: Path, fault: str | None = None, waits_for: Path | None = None
) -> Callable[[object], None]:
    """Return a patch for an actor that records each shard in ``file`` or fails, after ``waits_for`` exists."""

    def patch(_: object) -> None:
        from index import version_build

        real = version_build.__dict__.setdefault("real", version_build.embed_shard)

        def embed_and_record(*args: object) -> object:
            if fault:
                raise OSError(28, fault)
            while waits_for and not waits_for.exists():
                time.sleep(0.01)
            with file.open("a") as out:
                out.write(f"{args[3].first}\n")
            return real(*args)

        version_build.embed_shard = embed_and_record

    return patch


def make_hanging_patch(
    module: str, name: str, mark: Path, calls: int = 0, *, after: bool = False
) -> Callable[[object], int]:
    """Return a patch for an actor: a call of ``name`` after ``calls`` others writes ``mark`` and hangs."""

    def patch(_: object) -> int:
        import importlib

        where, remaining = importlib.import_module(module), [calls]
        real = getattr(where, name)

        def run_or_hang(*args: object, **options: object) -> object:
            remaining[0] -= 1
            if remaining[0] >= 0 or after:
                result = real(*args, **options)
            if remaining[0] < 0:
                mark.touch()
                time.sleep(600)
            return result

        setattr(where, name, run_or_hang)
        return os.getpid()

    return patch


def make_swap_condition(refresher: IndexRefresher, step: int, version: int) -> Callable[[], bool]:
    """Return a condition that is true once a poll swaps in the version."""
    return lambda: refresher.poll(step) is not None and refresher.version == version
