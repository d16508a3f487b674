"""The package reads top to bottom: a file imports only what stands above it."""

import ast
from functools import cache
from pathlib import Path

from tests.support.package_order import ORDER
from tests.support.project import PACKAGE


@cache
def imports(file: Path) -> set[str]:
    """Modules of the package that a file imports, wherever in it the import stands."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
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


def test_the_folder_of_blocks_may_import_any_of_them():
    """A block imports nothing, however far away, that needs the folder itself to be imported already."""
    blocks = PACKAGE / "models/blocks"
    pending = [file for file in blocks.glob("*.py") if file.name != "__init__.py"]
    seen = set(pending)
    while pending:
        for name in imports(pending.pop()):
            # What is named is a module, or something within one.
            for parts in (name.split("."), name.split(".")[:-1]):
                path = PACKAGE.joinpath(*parts)
                file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
                if file.is_file() and file not in seen:
                    seen.add(file)
                    pending.append(file)
    assert PACKAGE / "models/encoder_config.py" in seen and blocks / "__init__.py" not in seen
