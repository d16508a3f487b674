"""What `import bert_jax` offers: exactly the public names, with types, and nothing that takes long to import."""

import ast
import inspect
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from operator import attrgetter
from pathlib import Path

import pytest

import bert_jax
from tests.support.processes import process_environment
from tests.support.project import PACKAGE, ROOT

# `load` is shown with a model, in README.md and by the methods of the model.
FUNCTIONS = [
    name for name in bert_jax.__all__ if inspect.isfunction(getattr(bert_jax, name)) and name != "load"
]
METHODS = [
    bert_jax.Index.open,
    bert_jax.Index.build,
    bert_jax.Index.add,
    bert_jax.Index.remove,
    bert_jax.Index.search,
]


def test_what_is_listed_is_what_is_there():
    assert dir(bert_jax) == bert_jax.__all__ == sorted(bert_jax.__all__) == sorted(bert_jax.DEFINED)
    imported: dict[str, object] = {}
    exec("from bert_jax import *", imported)
    del imported["__builtins__"]
    assert imported == {name: getattr(bert_jax, name) for name in bert_jax.__all__}
    with pytest.raises(AttributeError, match="no attribute 'lod'"):
        bert_jax.lod  # noqa: B018


def test_type_checkers_import_what_programs_get():
    (block,) = (
        node for node in ast.parse((PACKAGE / "__init__.py").read_text()).body if isinstance(node, ast.If)
    )
    imported = {alias.name: node.module for node in block.body for alias in node.names}
    assert imported == bert_jax.DEFINED


@pytest.mark.parametrize(
    "function", [*(getattr(bert_jax, name) for name in FUNCTIONS), *METHODS], ids=lambda f: f.__name__
)
def test_every_argument_has_a_name_and_a_type_and_there_is_an_example(function):
    parameters = inspect.signature(function).parameters
    untyped = [name for name, p in parameters.items() if p.annotation is p.empty and name != "self"]
    assert untyped == []
    assert ">>> " in function.__doc__


def public_calls() -> Iterator[tuple[str, Callable, object]]:
    """Yield what a person calls, by name, each with what it belongs to: functions, and methods that show an example."""
    for name in bert_jax.__all__:
        value = getattr(bert_jax, name)
        if inspect.isfunction(value):
            yield name, value, bert_jax
        elif inspect.isclass(value):
            for method_name, method in inspect.getmembers(value, inspect.isroutine):
                if ">>> " in (method.__doc__ or ""):
                    yield f"{name}.{method_name}", method, value


@pytest.mark.parametrize(
    ("function", "owner"), [pytest.param(*call, id=name) for name, *call in public_calls()]
)
def test_every_argument_with_a_default_is_described(function, owner):
    """In the docstring, or in those of what it names: "the other arguments are those of `Encoder.load`"."""
    text = f"{owner.__doc__} {function.__doc__}"
    for word in re.findall(r"`(?:bert_jax\.)?([A-Za-z_.]+)`", text):
        for place in (owner, bert_jax):
            with suppress(AttributeError):
                text += attrgetter(word)(place).__doc__ or ""
    optional = [
        word for word, p in inspect.signature(function).parameters.items() if p.default is not p.empty
    ]
    assert [word for word in optional if not re.search(rf"`{word}\b", text)] == []


@pytest.mark.slow
def test_the_names_are_there_before_anything_large_is_imported(tmp_path: Path):
    code = (
        "import sys, bert_jax; dir(bert_jax); bert_jax.BertJaxError; "
        "from bert_jax.command import main; main.main(['--help']); main.make_parser('info'); "
        "print(sorted({'jax', 'flax', 'numpy', 'tensorflow'} & set(sys.modules)))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], env=process_environment(), capture_output=True, text=True, cwd=tmp_path
    )
    assert ran.stdout.endswith("\n[]\n"), ran.stderr


@pytest.mark.long
def test_a_strict_type_checker_sees_types_and_misspelt_names(tmp_path: Path):
    shutil.copy(ROOT / "tests/examples/result_types.py", tmp_path)
    (tmp_path / "program.py").write_text(
        "import bert_jax\n"
        "hits = bert_jax.Index.open('index').search('a text')\n"
        "reveal_type(hits)\n"
        "reveal_type(bert_jax.train('classify').scores)\n"
        "bert_jax.lod\n"
    )
    ran = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", f"--cache-dir={tmp_path}/cache",
         "program.py", "result_types.py"],
        env=process_environment() | {"MYPYPATH": str(PACKAGE.parent)}, capture_output=True, text=True, cwd=tmp_path,
    )  # fmt: skip
    output = [line.partition(": ")[2] for line in ran.stdout.splitlines()]
    assert output[:2] == [
        'note: Revealed type is "list[bert_jax.search.index.Hit]"',
        'note: Revealed type is "dict[str, float]"',
    ], ran.stdout
    assert 'has no attribute "lod"' in output[2] and len(output) == 4, ran.stdout
