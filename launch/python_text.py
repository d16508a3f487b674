"""Writes the docstrings of the installed Python code as a corpus, one document a module.

    python launch/python_text.py OUTPUT.jsonl

Text that every machine has: nothing is downloaded, and nothing is imported, only parsed.
"""

import ast
import inspect
import json
import sys
import sysconfig
import warnings
from pathlib import Path

PACKAGES = (
    "flax",
    "jax",
    "matplotlib",
    "numpy",
    "optax",
)  # beside Python's own library: well described, and enough
SHORTEST = 200  # characters of a module worth a document


def main(output: Path) -> None:
    stdlib, installed = (Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib"))
    modules = [path for path in stdlib.rglob("*.py") if "site-packages" not in path.parts]
    modules += [path for package in PACKAGES for path in (installed / package).rglob("*.py")]
    modules = sorted(path for path in modules if not any("test" in part for part in path.parts))
    seen: set[str] = set()
    with open(output, "w", encoding="utf-8") as file:
        for path in modules:
            new = [text for text in docstrings(path) if text not in seen]
            seen.update(new)
            if sum(map(len, new)) >= SHORTEST:
                file.write(json.dumps({"module": path.stem, "text": "\n\n".join(new)}) + "\n")


def docstrings(path: Path) -> list[str]:
    try:
        with warnings.catch_warnings(action="ignore"):  # of old code's invalid escapes
            tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        return []  # templates and code of other Python versions are text of no use here
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found = [ast.get_docstring(node, clean=False) for node in ast.walk(tree) if isinstance(node, documented)]
    return [inspect.cleandoc(text) for text in found if text]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
