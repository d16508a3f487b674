"""What a reader may count on: files of a page or a few, short signatures, names that say what they hold."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import bert_jax
from tests.support.project import PACKAGE, ROOT

FOR_USERS = {*bert_jax.__all__, "build", "open"}
# The arguments of sentence-transformers' `encode`, and the parameters of an estimator of scikit-learn.
AS_ELSEWHERE = {"inference/embedder.py: encode": 14, "sklearn.py: __init__": 10}
EMPTY_NAMES = {"found", "each", "said", "one"}  # they name no value
# A name that is taken again for something that has a word of its own -> that word.
OTHER_WORDS = {
    "EncodedExample": "EncodedWindow",
    "embed_windows": "embed_chunks",
    "judge": "evaluator, reranker",
    "kind_of": "vector_form_of",
    "make_pieces": "make_encoded_windows",
    "max_pieces": "max_windows",
    "may_be_missing": "allow_no_answer",
    "module_kind": "module_type",
    "own_values": "owned_chunk",
    "piece_starts": "window_starts",
    "place": "position, index, location",
    "places": "positions, indices, locations",
    "take_place": "replace_directory",
    "trial": "candidate, eval_config, fold_runs",
}


@cache
def trees() -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(PACKAGE.rglob("*.py"))}


def functions() -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for path, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield f"{path.relative_to(PACKAGE)}: {node.name}", node


def test_no_file_is_longer_than_400_lines():
    lengths = {path.name: len(path.read_text(encoding="utf-8").splitlines()) for path in trees()}
    assert {name: length for name, length in lengths.items() if length > 400} == {}


def test_a_function_takes_at_most_seven_parameters():
    """Besides the options of a function for users, which are those of a command and are given by name alone."""
    counts: dict[str, int] = {}
    for name, node in functions():
        options = [] if node.name in FOR_USERS else node.args.kwonlyargs
        parameters = [*node.args.posonlyargs, *node.args.args, *options]
        count = sum(parameter.arg not in ("self", "cls") for parameter in parameters)
        counts[name] = max(count, counts.get(name, 0))
    assert {name: count for name, count in counts.items() if count > 7} == AS_ELSEWHERE


def test_a_class_has_at_most_fifteen_methods_of_its_own():
    counts = {
        f"{path.relative_to(PACKAGE)}: {node.name}": len(
            {part.name for part in node.body if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef)}
        )
        for path, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }
    assert {name: count for name, count in counts.items() if count > 15} == {}


def test_a_class_has_a_name_of_its_own():
    """Besides those that each task and each block defines, by which they are found."""
    lines: dict[str, list[str]] = {}
    for path, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and node.name not in ("Config", "Block"):
                lines.setdefault(node.name, []).append(f"{path.relative_to(PACKAGE)}:{node.lineno}")
    assert {name: found for name, found in lines.items() if len(found) > 1} == {}


def test_names_say_what_they_hold():
    empty = [
        f"{path.relative_to(PACKAGE)}:{node.lineno}: {name}"
        for path, tree in trees().items()
        for node in ast.walk(tree)
        for name in [bound_name(node)]
        if name in EMPTY_NAMES
    ]
    assert empty == []


def test_one_idea_has_one_word():
    others = {
        f"{path.relative_to(PACKAGE)}:{node.lineno}: {name} is called {OTHER_WORDS[name]}"
        for path, tree in trees().items()
        for node in ast.walk(tree)
        for name in [getattr(node, "name", None) or bound_name(node)]
        if name in OTHER_WORDS
    }
    assert others == set()


def bound_name(node: ast.AST) -> str | None:
    """The name that a node gives to a value, a parameter or a field."""
    match node:
        case (
            ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()) | ast.arg(arg=name)
        ):
            return name
    return None


def test_functions_say_what_they_do():
    assert [name for name, node in functions() if node.name == "report"] == []


def test_no_test_imports_another():
    """What several share stands in tests/support."""
    texts = {path: path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py")}
    imports = {
        f"{path.relative_to(ROOT)} imports {node.module}"
        for path, text in texts.items()
        if re.search(r"(from|import) tests\S*( import .*)?\btest_", text)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "tests"
        for name in [node.module.split(".")[-1], *(alias.name for alias in node.names)]
        if name.startswith("test_")
    }
    assert imports == set()
