"""Write the notebooks of configs/guides/notebooks as pages and for Jupyter: NAME.md and NAME.ipynb in a folder.

    python launch/notebooks.py FOLDER [--run] [NAME ...]

--run runs them, and puts what they print and their pictures into the pages. NOTEBOOKS_ADDRESS is where a hosted service
opens the .ipynb files of FOLDER; each page then begins with a link to it.
"""

import argparse
import json
import os
import re
from contextlib import chdir, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory

SOURCES = Path(__file__).resolve().parents[1] / "configs/guides/notebooks"
NAMES = sorted(path.stem for path in SOURCES.glob("*.py"))
ADDRESS = os.environ.get("NOTEBOOKS_ADDRESS", "")
Cell = tuple[str, str]  # "markdown" or "code", and its text


def split_cells(script: str) -> list[Cell]:
    """Return the cells of a script in the percent format."""
    cells = []
    for cell in re.split(r"^# %%", script, flags=re.M)[1:]:
        head, _, text = cell.partition("\n")
        if "[markdown]" in head:
            cells.append(("markdown", re.sub(r"^# ?", "", text, flags=re.M).strip()))
        else:
            cells.append(("code", text.strip()))
    return cells


def make_notebook(cells: list[Cell]) -> dict:
    """Return a notebook in Jupyter's format, nbformat 4."""
    code = {"outputs": [], "execution_count": None}
    written = [
        {"cell_type": kind, "id": f"cell-{number}", "metadata": {}, "source": link_notebooks(text, ".ipynb")}
        | (code if kind == "code" else {})
        for number, (kind, text) in enumerate(cells)
    ]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    return {"nbformat": 4, "nbformat_minor": 5, "metadata": metadata, "cells": written}


def link_notebooks(text: str, suffix: str) -> str:
    """Let links from one notebook to another lead to files with this suffix."""
    return re.sub(r"\]\((\w+)\.py\)", rf"](\1{suffix})", text)


def make_page(name: str, cells: list[Cell], folder: Path | None) -> str:
    """Return the page of a notebook; with a folder, run it, and write its pictures there."""
    hosted = f"[Open it in a hosted notebook]({ADDRESS.rstrip('/')}/{name}.ipynb) · " if ADDRESS else ""
    parts, scope, pictures = [f"{hosted}[Download {name}.ipynb]({name}.ipynb)"], {"__name__": "__main__"}, 0
    for kind, text in cells:
        parts.append(link_notebooks(text, ".md") if kind == "markdown" else f"```python\n{text}\n```")
        if kind == "code" and folder:
            output = run_cell(text, scope)
            parts += [f"```text\n{output}\n```"] if output else []
            for figure in take_figures():
                pictures += 1
                figure.savefig(folder / f"{name}-{pictures}.png", dpi="figure")
                parts.append(f"![{figure.get_label()}]({name}-{pictures}.png)")
    return "\n\n".join(parts) + "\n"


def run_cell(code: str, scope: dict) -> str:
    """Run a cell and return what it prints."""
    with redirect_stdout(StringIO()) as output, redirect_stderr(output):
        exec(compile(code, "notebook", "exec"), scope)
    return output.getvalue().strip()


def take_figures() -> list:
    """Return the figures that are open, and close them."""
    import matplotlib.pyplot as plt

    figures = [plt.figure(number) for number in plt.get_fignums()]
    plt.close("all")
    return figures


def main(folder: Path, names: list[str], runs: bool) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names or NAMES:
        cells = split_cells((SOURCES / f"{name}.py").read_text(encoding="utf-8"))
        with TemporaryDirectory() as workdir, chdir(workdir):
            page = make_page(name, cells, folder if runs else None)
        (folder / f"{name}.md").write_text(page, encoding="utf-8")
        notebook = json.dumps(make_notebook(cells), indent=1, ensure_ascii=False)
        (folder / f"{name}.ipynb").write_text(notebook + "\n", encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)} (default: all)")
    parser.add_argument(
        "--run", action="store_true", help="run them, and show what they print and their pictures"
    )
    args = parser.parse_args()
    if unknown := set(args.names).difference(NAMES):
        parser.error(f"no notebook is called {', '.join(sorted(unknown))}")
    main(args.folder.resolve(), args.names, args.run)
