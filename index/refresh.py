"""Dense index that is refreshed with the current weights in training (REALM, section 3.3).

    settings = RefreshSettings(max_staleness=1000)
    refresher = open_ray_refresher(corpus, work, settings, workers=8, gpus=True)
    for step in range(first, last):
        if step % 500 == 0:
            refresher.refresh(tower, step)      # writes a snapshot and returns at once
        index = refresher.poll(step)            # the newest finished index, swapped in between two steps
        …                                       # search candidates in it; train on their scores by the current tower

``open_blocking_refresher`` builds the index without Ray, while training waits. ``index/versions.py`` describes the
files in ``work``, and ``Swap`` in ``index/refresher.py`` the logged figures.
"""

from collections.abc import Callable
from pathlib import Path

from index.refresh_actors import RayBuilder
from index.refresher import IndexRefresher as IndexRefresher
from index.refresher import Swap as Swap
from index.version_build import BuildSeconds, LocalEmbedder, VersionPlan, describe_error, make_version, plan_versions
from index.version_build import RefreshSettings as RefreshSettings
from index.versions import Versions
from ragqa.errors import BadInput, RagqaError
from ragqa.retrieval.vectors.mips import Mips


def open_blocking_refresher(
    corpus: Path,
    work: Path,
    settings: RefreshSettings | None = None,
    *,
    device: str = "cpu",
    version: int | None = None,
    step: int | None = None,
) -> IndexRefresher:
    """Open a refresher that builds versions in this process, inside ``refresh``.

    It continues with the newest version in ``work``, if there is one.

    Args:
        corpus: index directory whose passages are embedded.
        work: directory of the versions.
        settings: settings of the index; None for the defaults.
        device: device on which passages are encoded.
        version: version that a checkpoint names (a training step); None without a checkpoint.
        step: training step of the checkpoint, by default ``version``; versions of later steps are deleted first.

    Raises:
        BadInput: the questions cannot be read, ``work`` cannot be written, another process trains with ``work``, or
            ``version`` does not exist.
        Mismatch: ``work`` holds indexes of other passages.
        ArtefactError, DamagedArtefact: ``corpus`` is not a complete index, or ``version`` is damaged.
    """
    plan = plan_versions(corpus, work, settings or RefreshSettings())
    return IndexRefresher(Versions(plan), lambda: _BlockingBuilder(plan, device), version=version, step=step)


def open_ray_refresher(
    corpus: Path,
    work: Path,
    settings: RefreshSettings | None = None,
    *,
    workers: int = 1,
    gpus: bool = False,
    insecure: bool = False,
    version: int | None = None,
    step: int | None = None,
) -> IndexRefresher:
    """Open a refresher whose versions Ray actors build while training continues.

    The actors run until ``close``. An actor that dies is restarted, on another machine if its own is gone.

    Args:
        corpus: index directory whose passages are embedded. All machines must see ``corpus``, ``work`` and the file
            of questions.
        work: directory of the versions.
        settings: settings of the index; None for the defaults.
        workers: number of encoding actors, at least 1.
        gpus: True to give each actor a GPU; otherwise each has one CPU thread.
        insecure: True to accept a Ray cluster that asks for no token.
        version: as for ``open_blocking_refresher``.
        step: as for ``open_blocking_refresher``.

    Raises:
        MissingExtra: Ray is not installed.
        BadInput: the Ray cluster cannot be used, ``workers`` is less than 1, or as for ``open_blocking_refresher``.
        Mismatch, ArtefactError, DamagedArtefact: as for ``open_blocking_refresher``.
    """
    if workers < 1:
        raise BadInput(f"workers = {workers}: at least one is needed")
    plan = plan_versions(corpus, work, settings or RefreshSettings())
    return IndexRefresher(Versions(plan), lambda: RayBuilder(plan, workers, gpus, insecure), version=version, step=step)


def make_version_opener(corpus: Path, work: Path, settings: RefreshSettings) -> Callable[[int], Mips]:
    """Return a function that opens the index of a training step, built by another process.

    Its errors are as for ``Versions.open``.

    Args:
        corpus: index directory whose passages were embedded.
        work: directory of the versions.
        settings: settings of the index.

    Raises:
        BadInput, Mismatch, ArtefactError, DamagedArtefact: as for ``plan_versions`` and ``Versions``.
    """
    versions = Versions(plan_versions(corpus, work, settings))
    return versions.open


class _BlockingBuilder:
    """Builder that builds a version inside ``start``, in this process."""

    attempts = 1

    def __init__(self, plan: VersionPlan, device: str) -> None:
        self._plan, self._embedder = plan, LocalEmbedder(plan.open_passages(), device)
        self._result: BuildSeconds | str | None = None

    def start(self, step: int) -> None:
        try:
            self._result = make_version(self._plan, step, self._embedder)
        except (RagqaError, OSError) as error:
            self._result = describe_error(error)

    def wait_for_result(self, timeout: float) -> BuildSeconds | str | None:
        result, self._result = self._result, None
        return result

    def close(self) -> None:
        pass
