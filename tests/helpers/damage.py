"""Artefacts with damage or with a hostile manifest, each opened in a process of its own.

``python -m tests.helpers.damage GOOD WORK FIRST LAST`` opens the cases with these numbers and prints a JSON line for
each. Cases are made from their number, so that a failure can be repeated.
"""

import json
import os
import random
import resource
import select
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ragqa import artefacts
from ragqa.errors import RagqaError

KINDS = ("index", "approximate", "pipeline", "report", "encoder", "reader")
QUESTION = "Who built the tower of Skarvik?"
LIMIT = 60.0
"""Seconds after which an artefact counts as one that hangs; a good one takes about two."""

Damage = Callable[[Path, random.Random], str]


@dataclass(frozen=True)
class Outcome:
    """Result of opening one artefact."""

    case: str
    result: str
    """``right``, ``refused``, ``wrong``, ``bug``, ``hang`` or ``crash``."""
    message: str
    seconds: float
    megabytes: float
    """Largest memory of the process."""


def make_good(folder: Path) -> Path:
    """Make one artefact of each of ``KINDS``."""
    from ragqa.artefacts.paths import get_weights_dir
    from ragqa.evaluation import evaluate
    from ragqa.indexing.build import IndexConfig, build_index
    from ragqa.pipeline import Pipeline
    from ragqa.types import Question

    documents = folder / "documents"
    documents.mkdir(parents=True)
    for number in range(60):
        text = f"Tower {number} of the coast was built in {1800 + number} by the engineer Holm."
        (documents / f"{number}.md").write_text(text if number else "Ada Holm built the tower of Skarvik in 1871.")
    build_index([documents], folder / "index")
    build_index([documents], folder / "approximate", IndexConfig(retriever="dense", kind="hnsw"))
    pipeline = Pipeline.load(folder / "index")
    pipeline.save(folder / "pipeline")
    pipeline = Pipeline.load(folder / "pipeline")
    evaluate(pipeline, [Question(QUESTION, ("Ada Holm",)), Question("When?", ("1871",))], out=folder / "report")
    for name in ("encoder", "reader"):
        shutil.copytree(get_weights_dir() / name, folder / name, copy_function=_link)
    return folder


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def use_artefact(kind: str, folder: Path) -> Any:
    """Open an artefact and return what it answers."""
    from ragqa.evaluation import Report, rebuild_report
    from ragqa.evaluation.compare import compare
    from ragqa.evaluation.report.summary import format_comparison, format_summary
    from ragqa.pipeline import Pipeline
    from ragqa.reading.span import ExtractiveReader
    from ragqa.retrieval.live import open_retriever
    from ragqa.runtime.encoder import load_encoder
    from ragqa.types import Hit, Passage

    if kind in ("index", "approximate"):
        (hits,) = open_retriever(folder).search([QUESTION], 3)
        return [hits[0].passage.text, round(hits[0].score, 3)]
    if kind == "pipeline":
        return Pipeline.load(folder).ask(QUESTION).text
    if kind == "report":
        report = Report.load(folder)
        with artefacts.report_damage(folder):
            texts = [format_summary(report), format_comparison(compare(report, report))]
        return [texts[1], rebuild_report(folder).em]
    if kind == "encoder":
        return load_encoder(folder).encode([QUESTION])[0, :50].round(3).tolist()
    hit = Hit(Passage(0, "a", "", "Ada Holm built the tower of Skarvik in 1871.", "a.md", 0, 44), 1.0)
    return ExtractiveReader.load(folder).read([QUESTION], [[hit]])[0].text


def copy_good(good: Path, work: Path, kind: str) -> Path:
    """Copy a good artefact, with its neighbours if it names them by relative paths, by hard links."""
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    names = {"pipeline": ("pipeline", "index"), "reader": ("reader", "encoder")}.get(kind, (kind,))
    for name in names:
        shutil.copytree(good / name, work / name, copy_function=_link)
    return work / kind


def rewrite(file: Path, data: bytes) -> None:
    """Replace a file; others that share it by a hard link keep their content."""
    aside = file.with_name("aside.new")
    aside.write_bytes(data)
    aside.replace(file)


def sign(folder: Path, edit: Callable[[dict[str, Any]], None] | None = None, *, rescan: bool = True) -> None:
    """Write a valid manifest for the files as they are now, after ``edit`` has changed its fields."""
    row = json.loads((folder / artefacts.MANIFEST).read_text())
    row.pop("fingerprint")
    if rescan:
        for name in [name for name in row["files"] if not (folder / name).is_file()]:
            del row["files"][name]
        for name in row["files"]:
            row["files"][name] = {"size": (folder / name).stat().st_size, "sha256": artefacts.checksum(folder / name)}
    if edit:
        edit(row)
    manifest = artefacts.Manifest(**row)
    rewrite(folder / artefacts.MANIFEST, json.dumps({"fingerprint": manifest.fingerprint, **row}).encode())


def _choose_file(folder: Path, rng: random.Random) -> Path:
    return rng.choice(sorted(file for file in folder.rglob("*") if file.is_file()))


def truncate(folder: Path, rng: random.Random) -> str:
    file = _choose_file(folder, rng)
    data = file.read_bytes()
    size = rng.randrange(len(data)) if data else 0
    rewrite(file, data[:size])
    return f"truncate {file.name} to {size}"


def flip_bits(folder: Path, rng: random.Random) -> str:
    file = _choose_file(folder, rng)
    data = bytearray(file.read_bytes())
    for _ in range(rng.choice([1, 1, 4, 64]) if data else 0):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    rewrite(file, bytes(data))
    return f"flip bits of {file.name}"


def remove(folder: Path, rng: random.Random) -> str:
    file = _choose_file(folder, rng)
    file.unlink()
    return f"remove {file.name}"


def swap(folder: Path, rng: random.Random) -> str:
    first, second = _choose_file(folder, rng), _choose_file(folder, rng)
    one, other = first.read_bytes(), second.read_bytes()
    rewrite(first, other)
    rewrite(second, one)
    return f"swap {first.name} and {second.name}"


def place_special(folder: Path, rng: random.Random) -> str:
    """Put a pipe, a device or a link in place of a file, or beside it under a name that is read."""
    file = _choose_file(folder, rng)
    if rng.random() < 0.5:
        file = file.with_name({"00000.arrow": "00001.arrow", "vectors.npy": "added-000001.npy"}.get(file.name, "x.npy"))
    file.unlink(missing_ok=True)
    how = rng.choice(["pipe", "zero", "random", "passwd", "loop", "folder", "nothing"])
    if how == "pipe":
        os.mkfifo(file)
    elif how == "folder":
        file.mkdir()
    else:
        targets = {"zero": "/dev/zero", "random": "/dev/urandom", "passwd": "/etc/passwd", "loop": str(file)}
        file.symlink_to(targets.get(how, "/nonexistent/file"))
    if rng.random() < 0.7 and how in ("passwd",) and file.name != artefacts.MANIFEST:
        sign(folder)
    return f"{how} as {file.name}"


HOSTILE: list[Any] = [
    *(None, True, -1, 0, 10**12, 10**40, 1e308, float("nan"), "", "x", "\ud800", "\0", "../../../etc/passwd"),
    *("/dev/zero", "org/model", [], [[]], {}, {"a": 1}, ["x"], "a" * 100_000),
]


def _nest(depth: int) -> Any:
    value: Any = 0
    for _ in range(depth):
        value = [value]
    return value


def _change_value(row: dict[str, Any], rng: random.Random) -> str:
    """Change one value anywhere in nested objects to a hostile one, or delete it."""
    holders: list[tuple[Any, Any]] = []

    def collect(value: Any) -> None:
        for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
            holders.append((value, key))
            collect(value[key])

    collect(row)
    holder, key = rng.choice(holders)
    if isinstance(holder, dict) and rng.random() < 0.2:
        del holder[key]
        return f"without {key}"
    holder[key] = _nest(500) if rng.random() < 0.05 else rng.choice(HOSTILE)
    return f"{key} = {holder[key]!r:.40}"


def sign_hostile_value(folder: Path, rng: random.Random) -> str:
    said: list[str] = []

    def edit(row: dict[str, Any]) -> None:
        part = rng.choice([row, row["config"] or row, row["files"] or row])
        said.append(_change_value(part, rng))

    try:
        sign(folder, edit)
    except (TypeError, KeyError):  # a manifest that ragqa's own class cannot hold
        return sign_hostile_value(folder, rng)
    return f"sign {said[0]}"


def sign_hostile_name(folder: Path, rng: random.Random) -> str:
    names = ["../../../etc/passwd", "/dev/zero", "/etc/passwd", "a/../../b", ".", "", "a//b", "\0", "\ud800", "pipe"]
    name = rng.choice(names)
    if name == "pipe":
        os.mkfifo(folder / "pipe")
    entry = {"size": rng.choice([0, 1, 10**15]), "sha256": "0" * 64}
    sign(folder, lambda row: row["files"].update({name: entry}))
    return f"sign the file {name!r}"


def sign_truncated(folder: Path, rng: random.Random) -> str:
    said = (truncate if rng.random() < 0.6 else remove)(folder, rng)
    if not (folder / artefacts.MANIFEST).is_file():
        return said
    try:
        sign(folder)
    except ValueError:  # the manifest itself was truncated
        return said
    return f"signed {said}"


def change_json(folder: Path, rng: random.Random) -> str:
    """Change a value in one of the JSON files beside the manifest, and sign."""
    files = [file for file in sorted(folder.rglob("*.json*")) if file.name != artefacts.MANIFEST]
    if not files:
        return sign_hostile_value(folder, rng)
    file = rng.choice(files)
    lines = file.read_text().splitlines() if file.suffix == ".jsonl" else [file.read_text()]
    rows = [json.loads(line) for line in lines]
    place = rng.randrange(len(rows))
    said = _change_value(rows[place], rng) if isinstance(rows[place], dict | list) and rows[place] else "unchanged"
    rewrite(file, "\n".join(json.dumps(row) for row in rows).encode() + b"\n")
    sign(folder)
    return f"sign {file.name} with {said}"


def spoil_manifest(folder: Path, rng: random.Random) -> str:
    texts = [
        "",
        "{}",
        "[]",
        "[" * 100_000,
        '{"a":' * 100_000,
        "1" * 10_000,
        '{"format": 1e999, "fingerprint": ""}',
        "\0",
    ]
    text = rng.choice(texts)
    rewrite(folder / artefacts.MANIFEST, text.encode())
    return f"manifest {text[:30]!r}"


DAMAGES: tuple[Damage, ...] = (
    *(truncate, flip_bits, remove, swap, place_special, sign_hostile_value, sign_hostile_name, sign_truncated),
    *(sign_hostile_value, change_json, change_json, spoil_manifest),
)


def damage(good: Path, work: Path, number: int) -> tuple[str, Path, str]:
    """Make case ``number``: return kind, directory and description."""
    rng = random.Random(number)
    kind = KINDS[number % len(KINDS)]
    folder = copy_good(good, work, kind)
    said = DAMAGES[number // len(KINDS) % len(DAMAGES)](folder, rng)
    return kind, folder, f"{number} {kind}: {said}"


def run_case(kind: str, folder: Path, said: str, expected: str | None) -> Outcome:
    """Use an artefact in a child process, which is killed after ``LIMIT`` seconds."""
    reading, writing = os.pipe()
    start = time.monotonic()
    child = os.fork()
    if not child:
        os.close(reading)
        result, message = _judge(kind, folder, expected)
        os.write(writing, json.dumps([result, message[-8000:]]).encode())
        os._exit(0)
    os.close(writing)
    data = b""
    try:
        while (rest := start + LIMIT - time.monotonic()) > 0 and select.select([reading], [], [], rest)[0]:
            if not (piece := os.read(reading, 1 << 16)):
                break
            data += piece
        is_late = time.monotonic() - start >= LIMIT
        if is_late:
            os.kill(child, signal.SIGKILL)
    finally:
        os.close(reading)
        _, status, usage = os.wait4(child, 0)
    seconds, megabytes = time.monotonic() - start, usage.ru_maxrss / 1024
    if is_late:
        return Outcome(said, "hang", "", seconds, megabytes)
    if status or not data:
        return Outcome(said, "crash", f"status {status}", seconds, megabytes)
    result, message = json.loads(data)
    return Outcome(said, result, message, seconds, megabytes)


def _judge(kind: str, folder: Path, expected: str | None) -> tuple[str, str]:
    try:
        answer = json.dumps(use_artefact(kind, folder))
    except RagqaError as error:
        message = str(error)
        is_clear = message and "\n" not in message and len(message) < 1000
        return ("refused" if is_clear else "bug"), message
    except BaseException:
        return "bug", traceback.format_exc()
    return ("right" if expected is None or answer == expected else "wrong"), answer


def measure(good: Path, work: Path, numbers: range) -> Iterator[Outcome]:
    """Yield the outcome of the good artefact of each kind, then of each case."""
    expected: dict[str, str] = {}
    for kind in KINDS:
        outcome = run_case(kind, copy_good(good, work, kind), f"good {kind}", None)
        expected[kind] = outcome.message
        yield outcome
    for number in numbers:
        kind, folder, said = damage(good, work, number)
        yield run_case(kind, folder, said, expected[kind])
    shutil.rmtree(work, ignore_errors=True)


def main() -> None:
    """Print the outcomes of the cases named on the command line."""
    good, work, first, last = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.modules["matplotlib"] = None  # type: ignore[assignment]  # plots take seconds for each report
    if not good.is_dir():
        make_good(good)
        return
    for outcome in measure(good, work, range(first, last)):
        print(json.dumps(vars(outcome)), flush=True)


if __name__ == "__main__":
    main()
