"""Run the examples of Markdown files as they are written, and compare what they print.

    .venv/bin/python tests/readme_examples.py README.md docs/ask.md

An example is a block fenced as ```console. Blocks fenced otherwise (```sh, ```python, …) are not
run: that is the place for what needs a network, a GPU or the checkout. In a block

- `$ command` is run by bash. Lines that begin with `> ` continue it, as bash itself shows them (a
  here-document, an open quote); a command line that ends in a backslash goes on in the next line.
- Commands of a block share one shell, so `cd`, variables and a server started with `&` last until
  the block ends. Each block begins in an empty folder of its own, with the commands of this
  interpreter's environment first on PATH, no standard input, and an empty cache that all blocks share.
- A command has to end with status 0, or with N where the line after it says `# exit status N`.
- The other lines are what it prints (standard output and standard error). They have to be found in
  the real output, in this order and with nothing between them. White space does not count, so that a
  line may be wrapped elsewhere. A line `...` stands for any lines, none included; `…` inside a line
  stands for any characters: timings, paths, digits that differ. What is printed before the first and
  after the last line shown need not be shown; a command shown without output may print anything.
- Lines before the first command that begin with `#` are comments, and blank lines are nothing.

The exit status is 0 if every command of every block did what is shown and there is at least one.
"""

import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

BLOCK_SECONDS = 300
"""Time limit of a block, in seconds."""
_FENCE = re.compile(r"^(?P<indent> {0,3})(?P<fence>`{3,}|~{3,})\s*(?P<language>[\w-]*)")
_STATUS = re.compile(r"^# exit status (\d+)$")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_COLUMNS = "100"


class BadBlock(Exception):
    """Error in a block that is not a transcript."""


@dataclass
class Command:
    """A command of a block and the output shown for it."""

    text: str
    line: int
    status: int = 0
    shown: list[str] = field(default_factory=list)


def blocks(markdown: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the number of the first line, and the lines, of each console block."""
    lines = iter(enumerate(markdown.splitlines(), start=1))
    for number, line in lines:
        if opened := _FENCE.match(line):
            body = []
            for _, inner in lines:
                if re.fullmatch(rf" {{0,3}}{opened['fence'][0]}{{{len(opened['fence'])},}}\s*", inner):
                    break
                body.append(inner.removeprefix(opened["indent"]))
            if opened["language"] == "console":
                yield number + 1, body


def parse(first_line: int, lines: list[str]) -> list[Command]:
    """Return the commands of a block.

    Raises:
        BadBlock: it shows no command, or output before the first one.
    """
    commands: list[Command] = []
    for number, line in enumerate(lines, start=first_line):
        last = commands[-1] if commands else None
        if line.startswith("$ "):
            commands.append(Command(line[2:], number))
        elif last is None:
            if line.strip() and not line.startswith("#"):
                raise BadBlock(f"line {number}: output before the first command")
        elif not last.shown and last.text.endswith("\\"):
            last.text += "\n" + line.removeprefix("> ")
        elif not last.shown and re.match(r">( |$)", line):
            last.text += "\n" + line[2:]
        elif not last.shown and (status := _STATUS.match(line)):
            last.status = int(status[1])
        else:
            last.shown.append(line)
    if not commands:
        raise BadBlock(f"line {first_line}: no line begins with '$ '")
    return commands


def is_shown_in(shown: list[str], real: str) -> bool:
    """Tell whether the real output holds the lines shown, by the rules of this module."""
    chunks = re.split(r"^\s*\.\.\.\s*$", "\n".join(shown), flags=re.MULTILINE)
    pattern = ".*".join(_pattern(chunk) for chunk in chunks)
    plain = " ".join(_COLOUR.sub("", real).split())
    return re.search(pattern, f" {plain} ") is not None


def _pattern(chunk: str) -> str:
    words = [".*?".join(map(re.escape, word.split("…"))) for word in chunk.split()]
    return rf"(?<=\s){' '.join(words)}(?=\s)" if words else ""


def run(commands: list[Command], folder: Path, environment: dict[str, str]) -> list[tuple[int | None, str]]:
    """Return exit status and output of each command; the status is None if the block ended before it."""
    mark = f"--{os.urandom(8).hex()}--"
    script = f"_mark() {{ local status=$?; printf '\\n{mark} %d\\n' $status; return $status; }}\n"
    script += "".join(f"eval {shlex.quote(command.text)}\n_mark\n" for command in commands)
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as output:
        shell = subprocess.Popen(
            ["bash", "-c", script],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            shell.wait(BLOCK_SECONDS)
        except subprocess.TimeoutExpired:
            print(f"    stopped after {BLOCK_SECONDS} s")
        finally:
            _end_session(shell)
        output.seek(0)
        *ended, rest = re.split(rf"\n{mark} (\d+)\n", output.read())
    results: list[tuple[int | None, str]] = [
        (int(status), text) for text, status in zip(ended[::2], ended[1::2], strict=True)
    ]
    return [*results, *[(None, rest)] * (len(commands) - len(results))]


def _end_session(shell: subprocess.Popen) -> None:
    """Kill the processes that the block left running."""
    with suppress(ProcessLookupError):
        os.killpg(shell.pid, signal.SIGKILL)
    shell.wait()


def describe_problem(command: Command, status: int | None, real: str) -> str | None:
    """Return what is wrong with a command that has run, or None."""
    if status is None:
        return "did not end"
    if status != command.status:
        return f"exit status {status}, not {command.status}"
    if not is_shown_in(command.shown, real):
        return "does not print what is shown"
    return None


def check_block(commands: list[Command], folder: Path, environment: dict[str, str]) -> int:
    """Run a block, print how each command went, and return the number that went wrong."""
    folder.mkdir()
    wrong = 0
    for command, (status, real) in zip(commands, run(commands, folder, environment), strict=True):
        problem = describe_problem(command, status, real)
        text = command.text.replace("\n", "\n    > ")
        print(f"  {'FAILED' if problem else 'ok    '} line {command.line}: {text}", flush=True)
        if problem:
            wrong += 1
            print(f"    {problem}; it printed:", *real.strip().splitlines(), sep="\n    | ", flush=True)
    return wrong


def check_file(file: Path, scratch: Path, environment: dict[str, str]) -> tuple[int, int]:
    """Run every console block of a file; return how many commands passed and failed."""
    passed = failed = 0
    for number, (line, lines) in enumerate(blocks(file.read_text("utf-8")), start=1):
        print(f"{file.name}, block {number}, line {line}", flush=True)
        try:
            commands = parse(line, lines)
        except BadBlock as error:
            print(f"  FAILED {error}")
            failed += 1
            continue
        wrong = check_block(commands, scratch / f"{file.stem}-{number}", environment)
        passed, failed = passed + len(commands) - wrong, failed + wrong
    if not passed + failed:
        print(f"{file} shows no ```console block")
        failed += 1
    return passed, failed


def main(files: list[Path]) -> int:
    """Check every console block of the files; return the exit status."""
    passed = failed = 0
    with tempfile.TemporaryDirectory(prefix="ragqa-examples-") as scratch:
        environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
            "XDG_CACHE_HOME": f"{scratch}/cache",
            "COLUMNS": _COLUMNS,
        }
        for file in files:
            counts = check_file(file, Path(scratch), environment)
            passed, failed = passed + counts[0], failed + counts[1]
    print(f"examples: {passed} passed, {failed} failed")
    return 0 if passed and not failed else 1


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: python tests/readme_examples.py FILE.md …")
    sys.exit(main([Path(name) for name in sys.argv[1:]]))
