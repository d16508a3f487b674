"""The package reads top to bottom: a file imports only what stands above it."""

import ast
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.support.package_order import INSIDE, ORDER
from tests.support.project import PACKAGE

# Imports for types alone that close a cycle. Without them a protocol would be written that serves nothing else.
FOR_TYPES_ALONE = {
    (
        "training.task",
        "training.opened_run",
    ),  # a task is told of the run that it is in, and an opened run has a task
}


@cache
def imports(file: Path) -> set[str]:
    """Modules of the package that a file imports, wherever in it the import stands."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{file} imports by a relative name"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name.removeprefix("bert_jax.") for name in found if name.startswith("bert_jax.")}


def room(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def test_every_room_stands_in_the_order():
    assert {room(path) for path in PACKAGE.rglob("*.py")} - {"__init__"} == set(ORDER)


def test_a_file_imports_only_what_stands_above_it():
    upward = [
        f"{path.relative_to(PACKAGE)} imports {name}"
        for path in PACKAGE.rglob("*.py")
        if room(path) != "__init__"
        for name in imports(path)
        if name.split(".")[0] in ORDER and ORDER.index(name.split(".")[0]) > ORDER.index(room(path))
    ]
    assert not upward


def test_the_loop_knows_no_task_by_name():
    of_tasks = {
        name
        for path in (PACKAGE / "training").glob("*.py")
        for name in imports(path)
        if name.startswith("tasks.")
    }
    assert not of_tasks


def test_what_computes_a_step_knows_an_objective_and_no_run():
    """What a run asks of a task changes no compiled step."""
    for name in ("objective", "step", "gradient", "state"):
        known = imports(PACKAGE / "training" / f"{name}.py")
        of_runs = {other for other in known if other.startswith(("training.task.", "training.opened_run."))}
        assert not of_runs, f"training/{name}.py imports {of_runs}"


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")


@cache
def imported_modules() -> dict[str, set[str]]:
    """Of each file the others that it imports: what is named is a module, or something within one."""
    files = {module_name(path): path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py"}
    graph = {
        module: {part for name in imports(path) for part in (name, name.rpartition(".")[0])} & files.keys()
        for module, path in files.items()
    }
    for module, other in FOR_TYPES_ALONE:
        graph[module].remove(other)
    return graph


def reached_modules(*modules: str) -> set[str]:
    """These modules, and all that they import, however far away."""
    pending, reached = [*modules], set(modules)
    while pending:
        new = imported_modules()[pending.pop()] - reached
        pending += new
        reached |= new
    return reached


def modules_in(name: str) -> list[str]:
    """The module of this name, or those in the folder."""
    modules = [module for module in imported_modules() if f"{module}.".startswith(f"{name}.")]
    assert modules, f"there is no {name}"
    return modules


def test_no_file_imports_itself_by_way_of_others():
    """Wherever an import stands: in a function and for types, too."""
    try:
        TopologicalSorter(imported_modules()).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])), pytrace=False)


@pytest.mark.parametrize("folder", INSIDE)
def test_inside_a_folder_a_file_imports_only_what_stands_above_it(folder: str):
    names = [f"{folder}.{name}" for name in INSIDE[folder]]
    upward = [
        f"{module} imports {later}"
        for place, name in enumerate(names)
        for module in modules_in(name)
        for below in names[place + 1 :]
        for later in reached_modules(module).intersection(modules_in(below))
    ]
    assert not upward


def test_the_folder_of_blocks_may_import_any_of_them():
    """A block imports nothing, however far away, that needs the folder itself to be imported already."""
    blocks = modules_in("models.blocks")
    reached = reached_modules(*(module for module in blocks if module != "models.blocks"))
    assert "models.encoder_config" in reached and "models.blocks" not in reached
