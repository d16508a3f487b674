"""Writes the docstrings of the installed Python code and Python's own documentation, for a first run.

    python launch/python_text.py DIRECTORY

text.jsonl                to pre-train on: a document for each module, and for each topic of the documentation
train.jsonl, test.jsonl   single docstrings and the library that each is from, of modules that are in no other file

Text that every machine has: nothing is downloaded, and nothing is imported, only parsed. What stands in two places is
taken once.
"""

import ast
import hashlib
import inspect
import json
import sys
import sysconfig
import warnings
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

PACKAGES = (
    "flax",
    "jax",
    "matplotlib",
    "numpy",
    "optax",
)  # beside Python's own library: well described, and enough
SHORTEST = 200  # characters of a module worth a document
TELLING, ENOUGH = 60, 200  # characters of a docstring that are worth a label, and of it those that are shown
TRAIN, TEST = 50, 300  # labelled docstrings of each library


def main(directory: Path) -> None:
    stdlib, installed = (Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib"))
    libraries = {"python": stdlib} | {package: installed / package for package in PACKAGES}
    seen: set[str] = set()
    shown: set[str] = set()
    text, labelled = topics(stdlib / "pydoc_data" / "topics.py"), {"train": [], "test": []}
    for library, root in libraries.items():
        of: dict[str, list[str]] = defaultdict(list)
        for path in sorted(root.rglob("*.py")):
            name = path.relative_to(root)
            if "site-packages" in name.parts or any("test" in part for part in name.parts):
                continue
            new = [found for found in docstrings(path) if found not in seen]
            seen.update(new)
            use = use_of(f"{library}/{name}")
            if use != "text":
                begun = dict.fromkeys(found[:ENOUGH] for found in new if len(found) >= TELLING)
                of[use] += [found for found in begun if found not in shown]
                shown.update(begun)
            elif sum(map(len, new)) >= SHORTEST:
                text.append({"module": f"{library}/{name}", "text": "\n\n".join(new)})
        for use, most in (("train", TRAIN), ("test", TEST)):
            chosen = sorted(of[use], key=drawn)[:most]
            labelled[use] += [{"text": docstring, "label": library} for docstring in chosen]
    for name, rows in {"text": text, **labelled}.items():
        with open(directory / f"{name}.jsonl", "w", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
    counts = {use: f"{len(rows):,}" for use, rows in labelled.items()}
    print(
        f"{len(text):,} documents; labelled docstrings: {counts['train']} to learn from, {counts['test']} to test"
    )


def use_of(module: str) -> str:
    """A seventh of the modules gives what is learnt with labels, another what tests it."""
    return {0: "train", 1: "test"}.get(drawn(module) % 7, "text")


def drawn(text: str) -> int:
    """As good as a number drawn at random, and the same on every machine."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def docstrings(path: Path) -> Iterable[str]:
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found = (ast.get_docstring(node, clean=False) for node in nodes(path) if isinstance(node, documented))
    return dict.fromkeys(inspect.cleandoc(text) for text in found if text)


def topics(path: Path) -> list[dict]:
    """The chapters of the language reference that `help()` shows."""
    for node in nodes(path):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict):
            return [{"module": name, "text": text} for name, text in ast.literal_eval(node.value).items()]
    return []


def nodes(path: Path) -> Iterable[ast.AST]:
    try:
        with warnings.catch_warnings(action="ignore"):  # of old code's invalid escapes
            return ast.walk(ast.parse(path.read_bytes()))
    except (OSError, SyntaxError, ValueError):
        return []  # templates and code of other Python versions are text of no use here


if __name__ == "__main__":
    main(Path(sys.argv[1]))
