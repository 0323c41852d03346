"""The rules of the tree (docs/architecture.md), checked on the sources with ``ast``.

An import inside a function counts like any other; one under ``if TYPE_CHECKING`` does not.
"""

import ast
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent

LAYERS = ("ragqa", "index", "pipelines", "eval")
"""Each layer may import those before it, never those after it: eval ──► pipelines ──► index ──► ragqa."""

SHARED_BY_ALL = {"artefacts", "errors", "types", "text", "metrics", "matching"}
SHARED_BY_ALL |= {"question_files", "progress", "terminal", "excerpts", "bounded_http"}
"""Parts of ``ragqa`` that each of its parts may import."""

SHARED_BY_RECIPES = ("pipelines.common",)
"""Parts of ``pipelines`` that every recipe may import."""
COMPOSERS = ("pipelines.joint",)
"""Recipes that are made of other recipes, as is every ``__main__`` of a whole paper."""

LONGEST_FILE = 400
LONGEST_FUNCTION = 75
"""Lines, docstring included."""
LONGEST_FIRST_LINE = 90
"""Characters of the first line of a docstring, without quotes and indentation."""
MOST_PARAMETERS = 9
MOST_MODULES = 20
"""Modules side by side in a folder."""

MODELS = ("ragqa.models", "torch", "transformers")
FILES = ("io", "os", "pathlib", "shutil", "tempfile")

MUST_NOT_KNOW: dict[str, tuple[str, ...]] = {
    "ragqa.types": ("torch",),
    "ragqa.errors": ("torch",),
    "ragqa.text": (*MODELS, *FILES, "ragqa.runtime"),
    "ragqa.metrics": (*MODELS, *FILES, "ragqa.runtime"),
    "ragqa.corpus": (*MODELS, "ragqa.runtime", "onnxruntime"),
    "ragqa.models": ("faiss", "ragqa.retrieval", "ragqa.reading", "ragqa.cli.main"),
    "ragqa.objectives": ("ragqa.models", "ragqa.corpus", "ragqa.question_files", "transformers", "datasets"),
    "ragqa.runtime": ("ragqa.retrieval", "ragqa.reading", "ragqa.training"),
    "ragqa.retrieval": ("ragqa.reading", "ragqa.training"),
    "ragqa.reading": ("ragqa.retrieval", "ragqa.training"),
    "ragqa.pretraining": ("ragqa.models", "ragqa.retrieval", "faiss"),
    "ragqa.training": ("ragqa.models", "ragqa.pipeline"),
    "ragqa.pipeline": ("ragqa.training",),
    "ragqa.integrations": (*MODELS, "ragqa.cli", "ragqa.serve", "ragqa.training"),
    "ragqa.serve": (*MODELS, "ragqa.cli", "ragqa.training", "ragqa.evaluation", "ragqa.pretraining", "faiss"),
    "ragqa.evaluation": ("ragqa.training", "ragqa.models", "ragqa.runtime", "ragqa.indexing.build"),
    "ragqa.risk_control": (*MODELS, "ragqa.training", "ragqa.runtime"),
}
"""Part of ragqa (a module, or a package with all that is in it): modules it may import nowhere."""

BUT = {"ragqa.corpus": ("ragqa.runtime.tokens",)}
"""Exception to the table above: blocks can be cut by wordpieces, and that needs a tokenizer only."""

TYPING_ONLY = ("TYPE_CHECKING", "typing.TYPE_CHECKING")

HEAVY = (
    *("torch", "transformers", "datasets", "faiss", "ray", "jnius", "pyserini"),
    *("kreuzberg", "matplotlib", "jinja2", "fastapi", "uvicorn"),
)
"""Loaded neither by ``import ragqa`` nor by ``ragqa --help``."""


class Import(NamedTuple):
    """One imported module, and where."""

    importer: str
    target: str
    line: int
    at_run_time: bool
    """False under ``if TYPE_CHECKING``."""

    def __str__(self) -> str:
        return f"{self.importer}:{self.line} imports {self.target}"


def inside(module: str, parts: tuple[str, ...]) -> bool:
    """Whether ``module`` is one of ``parts`` or lies in one of them."""
    return any(module == part or module.startswith(part + ".") for part in parts)


def find_modules(root: Path) -> dict[str, Path]:
    """Every module of the four layers: dotted name to file."""
    files = [file for layer in LAYERS for file in sorted((root / layer).rglob("*.py"))]
    return {".".join(f.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): f for f in files}


def read_imports(importer: str, file: Path, known: set[str]) -> Iterator[Import]:
    """All imports of a file; ``from a import b`` is one of ``a.b`` where that is a module in ``known``."""
    package = importer if file.name == "__init__.py" else importer.rpartition(".")[0]
    for node, at_run_time in _import_statements(ast.parse(file.read_text("utf-8")), at_run_time=True):
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        else:
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            named = [f"{base}.{alias.name}" for alias in node.names]
            targets = [name if name in known else base for name in named]
        for target in dict.fromkeys(targets):
            yield Import(importer, target, node.lineno, at_run_time)


def _import_statements(node: ast.AST, *, at_run_time: bool) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child, at_run_time
        else:
            typing_only = isinstance(child, ast.If) and ast.unparse(child.test) in TYPING_ONLY
            yield from _import_statements(child, at_run_time=at_run_time and not typing_only)


def find_forbidden(imports: list[Import]) -> list[str]:
    """The imports that break a rule of ``LAYERS`` or ``MUST_NOT_KNOW``."""
    rules = {layer: LAYERS[place + 1 :] for place, layer in enumerate(LAYERS)} | MUST_NOT_KNOW
    return [
        f"{found}: {part} must not"
        for part, banned in rules.items()
        for found in imports
        if inside(found.importer, (part,))
        and inside(found.target, banned)
        and not inside(found.target, BUT.get(part, ()))
    ]


def find_cycle(imports: list[Import], known: set[str]) -> list[str]:
    """Return a cycle among the modules ``known``, or nothing.

    Loading ``a.b.c`` loads ``a`` and ``a.b`` first. Packages that also hold the importer are already
    being loaded and count only where they are imported by name.
    """
    graph: dict[str, set[str]] = {}
    for found in imports:
        parts = found.target.split(".")
        packages = {".".join(parts[:n]) for n in range(1, len(parts))}
        holders = {package for package in packages if inside(found.importer, (package,))}
        if found.at_run_time:
            graph.setdefault(found.importer, set()).update(({found.target} | packages - holders) & known)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(reversed(error.args[1]))
    return []


def find_borrowing(imports: list[Import]) -> list[str]:
    """Return the imports of one recipe by another."""

    def recipe_of(module: str) -> str:
        return ".".join(module.split(".")[:2])

    return [
        str(found)
        for found in imports
        if inside(found.importer, ("pipelines",))
        and inside(found.target, ("pipelines",))
        and recipe_of(found.importer) != recipe_of(found.target)
        and not inside(found.target, SHARED_BY_RECIPES)
        and found.target != "pipelines"
        and not inside(found.importer, COMPOSERS)
        and not found.importer.endswith(".__main__")
    ]


def write_tree(root: Path, sources: dict[str, str]) -> tuple[list[Import], set[str]]:
    for name, source in sources.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(source, "utf-8")
    return _read_tree(root)


def _read_tree(root: Path) -> tuple[list[Import], set[str]]:
    modules = find_modules(root)
    known = set(modules)
    return [found for name, file in modules.items() for found in read_imports(name, file, known)], known


@pytest.fixture(scope="module")
def tree() -> tuple[list[Import], set[str]]:
    """The imports and the module names of this checkout."""
    return _read_tree(ROOT)


def test_no_import_breaks_a_rule(tree: tuple[list[Import], set[str]]) -> None:
    imports, known = tree
    assert {"ragqa", "ragqa.types", "ragqa.errors"} <= known
    assert find_forbidden(imports) == []


def test_no_modules_import_each_other(tree: tuple[list[Import], set[str]]) -> None:
    assert find_cycle(*tree) == []


def test_the_table_of_the_parts_of_ragqa_is_that_of_the_code(tree: tuple[list[Import], set[str]]) -> None:
    text = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    section = text.partition("\n## Know the layers inside")[2].partition("\n## ")[0]
    rows = [line.split("|")[1:3] for line in section.splitlines() if line.startswith("| `")]
    names = re.compile(r"`(\w+)`")
    described = {part: set(names.findall(imports)) for parts, imports in rows for part in names.findall(parts)}
    found: dict[str, set[str]] = {}
    for each in tree[0]:
        (layer, part, *_), target = f"{each.importer}.".split("."), each.target.split(".")
        if layer == target[0] == "ragqa" and part not in ("", "__main__") and len(target) > 1:
            found.setdefault(part, set()).update({target[1]} - {part})
    assert {part: found.get(part, set()) - SHARED_BY_ALL for part in described} == described
    assert set(found) - SHARED_BY_ALL <= set(described)
    order = list(described)
    assert [(a, b) for a in order for b in described[a] if order.index(b) < order.index(a)] == []
    assert [(a, b) for a in SHARED_BY_ALL for b in found.get(a, set()) - SHARED_BY_ALL] == []
    assert all(f"`{name}`" in section for name in SHARED_BY_ALL)


@pytest.mark.parametrize(
    ("file", "source", "broken"),
    [
        ("ragqa/types.py", "import torch.nn", "imports torch.nn: ragqa.types must not"),
        ("ragqa/text.py", "import re\nfrom pathlib import Path", "imports pathlib: ragqa.text must not"),
        ("ragqa/a.py", "def f():\n    from index import b", "imports index: ragqa must not"),
        ("index/a.py", "import pipelines.b", "imports pipelines.b: index must not"),
        ("pipelines/a.py", "import eval.b as c", "imports eval.b: pipelines must not"),
        ("ragqa/reading/a.py", "from .. import retrieval", "imports ragqa.retrieval: ragqa.reading must not"),
        ("ragqa/corpus/a.py", "from ragqa.runtime import b", "imports ragqa.runtime.b: ragqa.corpus must not"),
        ("ragqa/corpus/a.py", "from ragqa.runtime import tokens", None),
        ("ragqa/corpus/a.py", "from ragqa.runtime.tokens import T", None),
        ("eval/a.py", "import ragqa.types, index, pipelines.b", None),
        ("ragqa/a.py", "import indexes, evaluation", None),
    ],
)
def test_rules_catch(tmp_path: Path, file: str, source: str, broken: str | None) -> None:
    others = dict.fromkeys(("ragqa/retrieval/__init__.py", "ragqa/runtime/b.py", "ragqa/runtime/tokens.py"), "")
    imports, _ = write_tree(tmp_path, {**others, file: source})
    assert [line.partition(" ")[2] for line in find_forbidden(imports)] == ([broken] if broken else [])


def test_no_recipe_imports_another(tree: tuple[list[Import], set[str]]) -> None:
    assert find_borrowing(tree[0]) == []


@pytest.mark.parametrize(
    ("file", "source", "is_borrowing"),
    [
        ("pipelines/dpr/train.py", "from pipelines.rag import step", True),
        ("pipelines/common/run.py", "import pipelines.rag.step", True),
        ("pipelines/rag/train.py", "from pipelines.rag import step", False),
        ("pipelines/rag/train.py", "from pipelines.common import run", False),
        ("pipelines/realm/__main__.py", "from pipelines.rag import step", False),
        ("pipelines/joint/train.py", "from pipelines.rag import step", False),
    ],
)
def test_borrowing_is_found(tmp_path: Path, file: str, source: str, is_borrowing: bool) -> None:
    sources = {"pipelines/rag/step.py": "", "pipelines/common/run.py": "", file: source}
    imports, _ = write_tree(tmp_path, sources)
    assert bool(find_borrowing(imports)) == is_borrowing


class Source(NamedTuple):
    """A parsed file of the four layers."""

    name: str
    file: Path
    tree: ast.Module


@pytest.fixture(scope="module")
def sources() -> list[Source]:
    """All files of the four layers."""
    return [Source(name, file, ast.parse(file.read_text("utf-8"))) for name, file in find_modules(ROOT).items()]


def test_a_class_name_means_one_class(sources: list[Source]) -> None:
    names = Counter(node.name for source in sources for node in source.tree.body if isinstance(node, ast.ClassDef))
    assert [name for name, count in names.items() if count > 1] == []


def test_files_functions_and_folders_stay_small(sources: list[Source]) -> None:
    functions = [
        (source.name, node)
        for source in sources
        for node in ast.walk(source.tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    folders = Counter(source.file.parent for source in sources if source.file.name != "__init__.py")
    assert [s.name for s in sources if len(s.file.read_text("utf-8").splitlines()) > LONGEST_FILE] == []
    assert [f"{name}.{f.name}" for name, f in functions if f.end_lineno - f.lineno >= LONGEST_FUNCTION] == []  # type: ignore[operator]
    assert [f"{name}.{f.name}" for name, f in functions if count_parameters(f) > MOST_PARAMETERS] == []
    assert [str(folder) for folder, count in folders.items() if count > MOST_MODULES] == []


def test_first_lines_of_docstrings_are_short(sources: list[Source]) -> None:
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    nodes = [(s.name, node) for s in sources for node in ast.walk(s.tree) if isinstance(node, documented)]
    first_lines = [(name, (ast.get_docstring(node) or "").partition("\n")[0]) for name, node in nodes]  # type: ignore[arg-type]
    assert [f"{name}: {line}" for name, line in first_lines if len(line) >= LONGEST_FIRST_LINE] == []


def test_each_file_of_tests_has_a_name_of_its_own() -> None:
    names = Counter(file.name for file in (ROOT / "tests").rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == [], "pytest imports files by their name alone"


WRITERS = ("ragqa.terminal", "eval.bench.peer")
"""Modules that may write to a terminal: the one for it, and a program that imports nothing of ragqa."""
_STREAM = re.compile(r"(sys\.(__)?std(out|err)(__)?(\.buffer)?|console(\.file)?)\.(write|writelines|print|log|out)")
_WRITING = re.compile(
    r"(typer|click)\.s?echo|rich\.print(_json)?|traceback\.print_\w+|warnings\.showwarning|pprint(\.pprint)?|os\.write"
)


def find_writing(tree: ast.Module) -> list[int]:
    """Return the lines that write to a terminal by themselves: ``print`` as a name, and methods of streams."""
    lines = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in ("print", "pprint", "Console"):
            lines.append(node.lineno)
        elif isinstance(node, ast.Attribute):
            name = ast.unparse(node)
            if _STREAM.fullmatch(name) or _WRITING.fullmatch(name):
                lines.append(node.lineno)
    return sorted(set(lines))


def test_only_one_module_writes_to_terminals(sources: list[Source]) -> None:
    found = [f"{s.name}:{line}" for s in sources if s.name not in WRITERS for line in find_writing(s.tree)]
    assert found == [], "use ragqa.terminal, which escapes what a terminal would obey"
    assert find_writing(next(source.tree for source in sources if source.name == "eval.bench.peer"))


@pytest.mark.parametrize(
    ("source", "is_found"),
    [
        ("print('a')", True),
        ("run(notify=print)", True),
        ("sys.stderr.write(text)", True),
        ("sys.stdout.buffer.write(data)", True),
        ("console.print(text)", True),
        ("from rich.console import Console\nc = Console()", True),
        ("typer.echo(text)", True),
        ("traceback.print_exc()", True),
        ("print_text('a')", False),
        ("sys.stdout.isatty()", False),
        ("file.write(text)", False),
        ("'print()'", False),
    ],
)
def test_writing_is_found(source: str, is_found: bool) -> None:
    assert bool(find_writing(ast.parse(source))) == is_found


def count_parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Return the number of parameters, but for ``self`` and ``cls``; those of a Typer command are its options."""
    arguments = function.args
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    if any(each.annotation and "typer." in ast.unparse(each.annotation) for each in named):
        return 0
    return len([each for each in named if each.arg not in ("self", "cls")])


@pytest.mark.parametrize(
    ("first", "second", "cyclic"),
    [
        ("import ragqa.b", "import ragqa.a", True),
        ("from ragqa import b", "from .a import x", True),
        ("try:\n    import ragqa.b\nfinally:\n    pass", "class C:\n    import ragqa.a", True),
        ("import ragqa.b", "def f():\n    import ragqa.a", True),
        ("import ragqa.b", "if TYPE_CHECKING:\n    import ragqa.a", False),
        ("import ragqa.b", "from ragqa import __version__", False),
    ],
)
def test_cycles_are_found(tmp_path: Path, first: str, second: str, cyclic: bool) -> None:
    sources = {"ragqa/__init__.py": "", "ragqa/a.py": first, "ragqa/b.py": second}
    assert bool(find_cycle(*write_tree(tmp_path, sources))) == cyclic


def test_a_package_that_loads_what_needs_it_is_a_cycle(tmp_path: Path) -> None:
    sources = {
        "ragqa/a/__init__.py": "from ragqa.b import x",
        "ragqa/a/leaf.py": "",
        "ragqa/b.py": "import ragqa.a.leaf",
    }
    assert set(find_cycle(*write_tree(tmp_path, sources))) == {"ragqa.a", "ragqa.b"}


HELP = "import sys; sys.argv = ['ragqa', '--help']; from ragqa.cli.main import main; main()"


@pytest.mark.parametrize("code", ["import ragqa", HELP], ids=["import ragqa", "ragqa --help"])
def test_heavy_packages_are_not_loaded(code: str) -> None:
    report = f"import atexit, sys; atexit.register(lambda: print('loaded', *sorted(set({HEAVY}) & set(sys.modules))))"
    done = subprocess.run([sys.executable, "-c", f"{report}\n{code}"], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "loaded"


COMMANDS = [
    name.removesuffix(".__main__")
    for name, file in find_modules(ROOT).items()
    if inside(name, ("index", "pipelines")) and 'if __name__ == "__main__":' in file.read_text("utf-8")
]
"""Recipes and jobs, which are run by ``python -m``."""

PRINT_ALL_HELP = """
import io, json, runpy, sys
from contextlib import redirect_stdout

heavy, *commands = json.loads(sys.argv[1])
for command in commands:
    sys.argv, before, text, status = [command, "--help"], set(sys.modules), io.StringIO(), None
    try:
        with redirect_stdout(text):
            runpy.run_module(command, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        status = end.code
    loaded = sorted((sys.modules.keys() - before) & set(heavy))
    print(json.dumps([command, {"text": text.getvalue(), "status": status, "loaded": loaded}]))
"""


@pytest.fixture(scope="module")
def commands_help() -> dict[str, dict[str, Any]]:
    """Help of every command, from one process: many times as fast as a process each."""
    arguments = [sys.executable, "-c", PRINT_ALL_HELP, json.dumps([HEAVY, *COMMANDS])]
    done = subprocess.run(arguments, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return dict(map(json.loads, done.stdout.splitlines()))


def test_there_are_commands_to_ask_for_help() -> None:
    assert {"pipelines.realm", "pipelines.orqa.inverse_cloze", "index.build"} <= set(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example_and_options_and_loads_no_heavy_package(
    command: str, commands_help: dict[str, dict[str, Any]]
) -> None:
    found = commands_help[command]
    assert found["status"] == 0 and found["loaded"] == []
    assert f"    python -m {command} " in found["text"] and "--help" in found["text"]
