"""Who may import whom. The rules are the tables below; the checks read the sources with ``ast``.

An import inside a function counts for the layers and for what a part must not know. Only imports
that run when a module is loaded count for cycles.
"""

import ast
import subprocess
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent

LAYERS = ("ragqa", "index", "pipelines", "eval")
"""Each may import those before it, never those after it."""

MODELS = ("ragqa.models", "torch", "transformers")
FILES = ("io", "os", "pathlib", "shutil", "tempfile")

MUST_NOT_KNOW: dict[str, tuple[str, ...]] = {
    "ragqa.types": ("torch",),
    "ragqa.errors": ("torch",),
    "ragqa.text": (*MODELS, *FILES, "ragqa.runtime"),
    "ragqa.metrics": (*MODELS, *FILES, "ragqa.runtime"),
    "ragqa.corpus": (*MODELS, "ragqa.runtime", "onnxruntime"),
    "ragqa.models": ("faiss", "ragqa.retrieval", "ragqa.reading", "ragqa.cli.main"),
    "ragqa.objectives": ("ragqa.models", "ragqa.corpus", "ragqa.questions", "transformers", "datasets"),
    "ragqa.runtime": ("ragqa.retrieval", "ragqa.reading", "ragqa.training"),
    "ragqa.retrieval": ("ragqa.reading", "ragqa.training"),
    "ragqa.reading": ("ragqa.retrieval", "ragqa.training"),
    "ragqa.pretraining": ("ragqa.models", "ragqa.retrieval", "faiss"),
    "ragqa.training": ("ragqa.models", "ragqa.pipeline"),
    "ragqa.pipeline": ("ragqa.training",),
    "ragqa.evaluation": ("ragqa.training", "ragqa.models", "ragqa.runtime", "ragqa.indexing.build"),
    "ragqa.serve": ("ragqa.training",),
}
"""Part of ragqa (a module, or a package with all that is in it): modules it may import nowhere."""

BUT = {"ragqa.corpus": ("ragqa.runtime.tokens",)}
"""Exceptions to the table above: blocks can be cut by wordpieces, and that needs a tokenizer only."""

TYPING_ONLY = ("TYPE_CHECKING", "typing.TYPE_CHECKING")

HEAVY = ("torch", "transformers", "datasets", "faiss", "ray", "jnius", "pyserini", "pypdf", "matplotlib", "jinja2")
"""Loaded neither by ``import ragqa`` nor by ``ragqa --help``."""


class Import(NamedTuple):
    """One imported module, and where."""

    importer: str
    target: str
    line: int
    at_load: bool
    """Runs when the importer is loaded: outside functions and ``if TYPE_CHECKING``."""

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
    for node, at_load in _import_statements(ast.parse(file.read_text("utf-8")), at_load=True):
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        else:
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            named = [f"{base}.{alias.name}" for alias in node.names]
            targets = [name if name in known else base for name in named]
        for target in dict.fromkeys(targets):
            yield Import(importer, target, node.lineno, at_load)


def _import_statements(node: ast.AST, *, at_load: bool) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child, at_load
        else:
            deferred = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            typing_only = isinstance(child, ast.If) and ast.unparse(child.test) in TYPING_ONLY
            yield from _import_statements(child, at_load=at_load and not deferred and not typing_only)


def forbidden(imports: list[Import]) -> list[str]:
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
    """A cycle among the modules ``known`` while they load, or nothing.

    Loading ``a.b.c`` loads ``a`` and ``a.b`` first; those that hold the importer too are already
    on their way and count only where they are imported by name.
    """
    graph: dict[str, set[str]] = {}
    for found in imports:
        parts = found.target.split(".")
        packages = {".".join(parts[:n]) for n in range(1, len(parts))}
        holders = {package for package in packages if inside(found.importer, (package,))}
        if found.at_load:
            graph.setdefault(found.importer, set()).update(({found.target} | packages - holders) & known)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(reversed(error.args[1]))
    return []


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
    assert forbidden(imports) == []


def test_no_cycle_at_import_time(tree: tuple[list[Import], set[str]]) -> None:
    assert find_cycle(*tree) == []


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
    assert [line.partition(" ")[2] for line in forbidden(imports)] == ([broken] if broken else [])


@pytest.mark.parametrize(
    ("first", "second", "cyclic"),
    [
        ("import ragqa.b", "import ragqa.a", True),
        ("from ragqa import b", "from .a import x", True),
        ("try:\n    import ragqa.b\nfinally:\n    pass", "class C:\n    import ragqa.a", True),
        ("import ragqa.b", "def f():\n    import ragqa.a", False),
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
