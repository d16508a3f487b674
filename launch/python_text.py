"""Writes the docstrings of the installed Python code and Python's own documentation, as text for a first run.

    python launch/python_text.py DIRECTORY

text.jsonl                for pre-training: one document per module, and per topic of the documentation
train.jsonl, test.jsonl   single docstrings labelled with their library, from modules that are in no other file

Every machine has this text: nothing is downloaded, and modules are parsed, not imported. Duplicates are dropped.
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
)  # beside Python's own library: well documented, and enough
SHORTEST = 200  # characters of a module; shorter ones are left out
TELLING, ENOUGH = 60, 200  # characters of a labelled docstring: the fewest, and where it is truncated
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
            new = [docstring for docstring in docstrings(path) if docstring not in seen]
            seen.update(new)
            use = use_of(f"{library}/{name}")
            if use != "text":
                short = dict.fromkeys(docstring[:ENOUGH] for docstring in new if len(docstring) >= TELLING)
                of[use] += [docstring for docstring in short if docstring not in shown]
                shown.update(short)
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
    """A seventh of the modules gives the labelled training set, another seventh the test set."""
    return {0: "train", 1: "test"}.get(drawn(module) % 7, "text")


def drawn(text: str) -> int:
    """A pseudo-random number, the same on every machine."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def docstrings(path: Path) -> Iterable[str]:
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    texts = (ast.get_docstring(node, clean=False) for node in nodes(path) if isinstance(node, documented))
    return dict.fromkeys(inspect.cleandoc(text) for text in texts if text)


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
        return []  # templates, and code of other Python versions


if __name__ == "__main__":
    main(Path(sys.argv[1]))
