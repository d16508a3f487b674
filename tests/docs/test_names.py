"""What comments and docstrings name is there: identifiers in backticks, members of modules, and files."""

import ast
import builtins
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.support.project import ROOT

FOLDERS = ("bert_jax", "tests", "launch", "configs")
FILES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.is_file())
SOURCES = [path for path in FILES if path.suffix == ".py"]
PLACES = [f"/{path.relative_to(ROOT).as_posix()}" for path in FILES]
IDENTIFIER = re.compile(r"`([A-Za-z_][\w.]*?)(?:\(.*?\))?`")
MEMBER = re.compile(r"(?<![\w./`-])([a-z_]+\.[A-Z]\w*[a-z]\w*)")
FILE = re.compile(r"(?<![\w./*{<-])[\w/]+\.(?:py|sh)\b")


@cache
def split_text(path: Path) -> tuple[list[str], list[str]]:
    """Return the comments and docstrings of a module, and everything else that it says."""
    source = path.read_text(encoding="utf-8")
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, documented)]
    docstrings = {node.body[0].lineno for node in nodes if ast.get_docstring(node) is not None}
    output, code = [], []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        is_docstring = token.type == tokenize.STRING and token.start[0] in docstrings
        (output if token.type == tokenize.COMMENT or is_docstring else code).append(token.string)
    return output, code


@cache
def known() -> set[str]:
    """Every word of the code, of texts that are no comments, and of the names of files."""
    words = {*dir(builtins), *re.findall(r"\w+", " ".join([*PLACES, *map(str, ROOT.glob("*.*"))]))}
    for path in FILES:
        if path.suffix == ".py":
            words.update(re.findall(r"\w+", " ".join(split_text(path)[1])))
        elif path.suffix in (".sh", ".txt"):
            words.update(re.findall(r"\w+", path.read_text(encoding="utf-8")))
    return words


def unknown_names(text: str) -> Iterator[str]:
    text = re.sub(r"^ *>>> .*$", "", text, flags=re.M)
    for name in [*IDENTIFIER.findall(text), *MEMBER.findall(text)]:
        if not known() >= {*name.split(".")} - {""}:
            yield name
    yield from (
        name for name in FILE.findall(text) if not any(place.endswith(f"/{name}") for place in PLACES)
    )


@pytest.mark.parametrize("folder", FOLDERS)
def test_what_comments_name_is_there(folder):
    found = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in SOURCES
        if path.is_relative_to(ROOT / folder)
        for text in split_text(path)[0]
        for name in unknown_names(text)
    }
    assert not found, "\n".join(sorted(found))
