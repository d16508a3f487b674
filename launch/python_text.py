"""Write the docstrings of the installed Python code and Python's own documentation, as text for a first run.

reference.jsonl               to search in: the chapters of Python's language reference
text.jsonl                    for pre-training: these chapters, and one document per module
train-1.jsonl ... test.jsonl  single docstrings labelled with their library, from modules that are in no other file;
                              each training set is a random draw

Every machine has this text: nothing is downloaded, and modules are parsed, not imported. Duplicates are dropped.
"""

import argparse
import ast
import hashlib
import inspect
import json
import sysconfig
import warnings
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

# Used besides Python's standard library: all are well documented.
PACKAGES = ("jax", "matplotlib", "numpy", "scipy")
SHORTEST = 200  # characters of a module's docstrings; modules with fewer are left out
TELLING, ENOUGH = 60, 200  # characters of a labelled docstring: the fewest, and the most that are kept
TRAIN, TEST = 50, 100  # labelled docstrings of each library
DRAWS = 3  # training sets


def main(directory: Path) -> None:
    stdlib, installed = (Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib"))
    libraries = {"python": stdlib} | {package: installed / package for package in PACKAGES}
    seen: set[str] = set()
    shown: set[str] = set()
    reference = chapters(stdlib / "pydoc_data" / "topics.py")
    text = list(reference)
    # test.jsonl is written last: if it exists, all files do.
    labelled: dict[str, list] = {f"train-{draw}": [] for draw in range(1, DRAWS + 1)} | {"test": []}
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
                text.append({"title": f"{library}/{name}", "text": "\n\n".join(new)})
        for name, rows in labelled.items():
            use, most = ("test", TEST) if name == "test" else ("train", TRAIN)
            chosen = sorted(of[use], key=lambda docstring, name=name: drawn(name + docstring))[:most]
            rows += [{"text": docstring, "label": library} for docstring in chosen]
    for name, rows in {"reference": reference, "text": text, **labelled}.items():
        with open(directory / f"{name}.jsonl", "w", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
    print(
        f"{len(text):,} documents; {DRAWS} draws of {len(labelled['train-1']):,} labelled docstrings to train on, "
        f"{len(labelled['test']):,} to test on"
    )


def use_of(module: str) -> str:
    """Return "train" for a seventh of the modules, "test" for another seventh, and "text" for the others."""
    return {0: "train", 1: "test"}.get(drawn(module) % 7, "text")


def drawn(text: str) -> int:
    """Return a pseudo-random number, which is the same on every machine."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def docstrings(path: Path) -> Iterable[str]:
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    texts = (ast.get_docstring(node, clean=False) for node in nodes(path) if isinstance(node, documented))
    return dict.fromkeys(inspect.cleandoc(text) for text in texts if text)


def chapters(path: Path) -> list[dict]:
    """Return the chapters of the language reference that `help()` shows."""
    for node in nodes(path):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict):
            return [{"title": name, "text": text} for name, text in ast.literal_eval(node.value).items()]
    return []


def nodes(path: Path) -> Iterable[ast.AST]:
    try:
        with warnings.catch_warnings(action="ignore"):  # about invalid escapes in old code
            return ast.walk(ast.parse(path.read_bytes()))
    except (OSError, SyntaxError, ValueError):
        return []  # templates, and code of other Python versions


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("directory", type=Path)
    main(parser.parse_args().directory)
