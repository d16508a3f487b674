"""Write what the site is built from: the pages, what they link to, the generated reference, and mkdocs.yml.

The reference has a page for each public name, one for the flags of all verbs, and one for the keys of all configs.
"""

import argparse
import inspect
import re
import shutil
import subprocess
import sys
from collections.abc import Collection, Iterator, Sequence
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, is_typeddict

import griffe
import yaml

import bert_jax
from bert_jax.command.config import collect_keys, is_changed
from bert_jax.command.main import VERBS, make_parser
from bert_jax.core.config_files import bundled_configs
from bert_jax.core.config_help import ConfigKey, comments_of, format_config_value, list_config_keys

ROOT = Path(__file__).parents[1]
FOLDERS = ("bert_jax", "configs", "launch", "tests")
CODE = re.compile(r"^```.*?^```$|`[^`\n]*`", re.M | re.S)
LINK = re.compile(r"\]\(([^)#:]+)[)#]")
ESTIMATORS = ["BertClassifier", "BertRegressor", "TextEmbedder"]  # of bert_jax.sklearn
SHOWN = 5  # keys listed for a recipe; if it sets more, only their number is given
KEYS = """\
# Config keys

`bert-jax config NAME` shows those of one config, with their values. A key has several rows if its meaning or default
differs between tasks. [Configs](../configs/README.md) shows how keys are set.
"""


class FencedExamples(griffe.Extension):
    """Makes code blocks of the examples in docstrings."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring:
            blocks = r"```pycon\n\g<0>\n```"
            obj.docstring.value = re.sub(r"^>>> .*(\n.+)*", blocks, obj.docstring.value, flags=re.M)


def write_sources(folder: Path, repository: str | None, run_notebooks: bool) -> None:
    docs = folder / "docs"
    shutil.rmtree(docs, ignore_errors=True)
    pages = [*ROOT.glob("*.md"), *(page for name in FOLDERS for page in (ROOT / name).rglob("*.md"))]
    for page in pages:
        for path in {page, *find_links(page)}:
            copy = docs / path.resolve().relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
    notebooks = ROOT / "launch/notebooks.py"
    if notebooks.is_file():
        command = [sys.executable, notebooks, docs / "configs/guides/notebooks", *["--run"] * run_notebooks]
        subprocess.run(command, check=True)
    (docs / "llms.txt").write_text(llms_text(), encoding="utf-8")
    (docs / "reference/python").mkdir(parents=True)
    for name, text in python_pages():
        (docs / f"reference/python/{name}.md").write_text(text, encoding="utf-8")
    (docs / "reference/commands.md").write_text("\n".join(list_commands()), encoding="utf-8")
    (docs / "reference/keys.md").write_text("\n".join(list_keys()), encoding="utf-8")
    site = yaml.safe_load((ROOT / "launch/mkdocs.yml").read_text(encoding="utf-8"))
    site["nav"] = list(find_pages(site["nav"], docs))
    python = site["plugins"][1]["mkdocstrings"]["handlers"]["python"]
    python["paths"] = [str(ROOT)]
    python["options"]["extensions"] = [f"{ROOT}/launch/docs.py:{FencedExamples.__name__}"]
    if repository:
        site["repo_url"] = repository
    (folder / "mkdocs.yml").write_text(yaml.safe_dump(site, sort_keys=False), encoding="utf-8")


def llms_text() -> str:
    """Return llms.txt for the root of the site, where tools look for it, with the addresses of the site's pages."""
    source = ROOT / "configs/guides/llms.txt"

    def address(link: re.Match) -> str:
        page = (source.parent / link[1]).resolve().relative_to(ROOT)
        return f"]({(page.parent if page.stem == 'README' else page.with_suffix('')).as_posix()}/)"

    return LINK.sub(address, source.read_text(encoding="utf-8"))


def find_links(page: Path) -> list[Path]:
    """Return the files that a page links to, which must exist: Zensical checks only links to pages and headings."""
    prose = CODE.sub("", page.read_text(encoding="utf-8"))
    files = [page.parent / link for link in LINK.findall(prose)]
    for file in files:
        if not file.is_file():
            raise SystemExit(f"{page}: the link to {file} leads nowhere; mend it")
    return files


def find_pages(entries: list[dict], docs: Path) -> Iterator[dict]:
    """Yield the entries of a navigation; of a folder its pages, and nothing of what is not there."""
    for entry in entries:
        ((title, target),) = entry.items()
        if isinstance(target, list):
            yield {title: list(find_pages(target, docs))}
        elif (docs / target).is_dir():
            pages = sorted((docs / target).glob("*.md"), key=lambda page: (page.stem != "index", page.stem))
            yield {title: [page.relative_to(docs).as_posix() for page in pages]}
        elif (docs / target).is_file():
            yield entry


def python_pages() -> Iterator[tuple[str, str]]:
    """Yield name and text of a page for each public name, after one that lists them all."""
    rows = []
    for name in bert_jax.__all__:
        value = getattr(bert_jax, name)
        members = list_members(value) if inspect.isclass(value) else []
        options = {"show_root_full_path": False, "members": members, "inherited_members": bool(members)}
        entry = f"---\ntitle: {name}\n---\n\n::: bert_jax.{name}\n    options: {options}\n"
        yield name, "\n".join([entry, *(list_fields(value) if inspect.isclass(value) else ())])
        rows.append((f"[{name}]({name}.md)", first_sentence(value)))
    options = {"members": ESTIMATORS, "inherited_members": True, "merge_init_into_class": True}
    yield "sklearn", f"---\ntitle: sklearn\n---\n\n::: bert_jax.sklearn\n    options: {options}\n"
    rows.append(("[sklearn](sklearn.md)", "Estimators for scikit-learn's pipelines and cross-validation."))
    yield "index", "\n".join(["# All public names\n", *format_table(("`bert_jax.`", "what it is"), rows)])


def list_members(kind: type) -> list[str]:
    """Return the methods that show an example, or all if the class shows one, but for those of another public class."""
    public = {getattr(bert_jax, name) for name in bert_jax.__all__} - {kind}
    members = []
    for name, method in inspect.getmembers(kind, inspect.isroutine):
        owner = next(base for base in kind.__mro__ if name in vars(base))
        is_own = owner.__module__.startswith("bert_jax") and owner not in public
        shown = method.__doc__ and ">>> " in f"{kind.__doc__}{method.__doc__}"
        members += [name] if is_own and shown and name[0] != "_" else []
    return members


def list_fields(kind: type) -> Iterator[str]:
    """Yield a table of the fields of a dataclass or a typed dict, with the comments on them."""
    if is_dataclass(kind) or is_typeddict(kind):
        meanings, hints = comments_of(kind), inspect.get_annotations(kind)
        rows = [
            (f"`{name}`", f"`{inspect.formatannotation(hint)}`", meanings.get(name, ""))
            for name, hint in hints.items()
        ]
        yield from format_table(("field", "type", "meaning"), rows)


def first_sentence(value: Any) -> str:
    return re.split(r"(?<=\.)\s", inspect.getdoc(value) or "", maxsplit=1)[0].replace("\n", " ")


def list_commands() -> Iterator[str]:
    """Yield the lines of a page with a table of flags for each verb."""
    yield "# Command line\n"
    for name in VERBS:
        yield from describe_parser(make_parser(name), 2)


def describe_parser(parser: argparse.ArgumentParser, level: int) -> Iterator[str]:
    yield f"{'#' * level} {parser.prog}\n\n{parser.description}\n"
    yield f"```sh\n{(parser.epilog or '').removeprefix('example: ')}\n```\n"
    formatter, rows, nested = parser._get_formatter(), [], []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            nested = list(action.choices.values())
        elif "--help" not in action.option_strings:
            rows.append((f"`{formatter._format_action_invocation(action)}`", action.help or ""))
    yield from format_table(("flag", "meaning"), rows)
    for other in nested:
        yield from describe_parser(other, level + 1)


def list_keys() -> Iterator[str]:
    """Yield the lines of a page with all keys of all tasks, and what the installed configs set."""
    # It imports JAX, for which the site's builder need not wait when it imports this file.
    from bert_jax.tasks import TASKS

    yield KEYS
    tasks = sorted(TASKS.names(), key=lambda task: (task != "pretrain", task))
    yield from describe_keys({task: list_config_keys(TASKS[task].Config) for task in tasks})
    yield "## Recipes\n"
    recipes = bundled_configs()
    rows = [(f"`{recipe.name}`", recipe.purpose, changed_keys(recipe.name)) for recipe in recipes]
    yield from format_table(("config", "what it does", "keys that it sets besides `task`"), rows)
    for recipe in recipes:
        if recipe.names:
            yield f"### Names of `{recipe.name}`\n"
            variants = [(f"`{recipe.name}:{name}`", purpose) for name, purpose in recipe.names.items()]
            yield from format_table(("config", "what it is"), variants)


def changed_keys(config: str) -> str:
    """Describe the keys that a config sets if it is used without a variant's name."""
    keys = [key for key in collect_keys(config, [])["keys"] if is_changed(key) and key["name"] != "task"]
    if len(keys) > SHOWN:
        return f"{len(keys)} keys, a size and what goes with it: `bert-jax config {config}` shows them"
    return ", ".join(f"`{key['name']}={format_config_value(key['value'])}`" for key in keys) or "nothing"


def describe_keys(keys_of: dict[str, list[ConfigKey]]) -> Iterator[str]:
    """Yield a table of the keys of each section."""
    tasks_of: dict[ConfigKey, list[str]] = {}
    for task, keys in keys_of.items():
        for key in keys:
            tasks_of.setdefault(key, []).append(task)
    names = list(dict.fromkeys(key.name for key in tasks_of))
    sections: dict[str, list[ConfigKey]] = {}
    for key in sorted(tasks_of, key=lambda key: names.index(key.name)):
        sections.setdefault(key.name.rpartition(".")[0], []).append(key)
    for section, keys in sections.items():
        yield f"## `{section}`\n" if section else "## The run\n"
        rows = [
            (
                f"`{key.name}`",
                key.meaning,
                f"`{format_config_value(key.default)}`",
                key.allowed,
                name_tasks(tasks_of[key], keys_of),
            )
            for key in keys
        ]
        yield from format_table(("key", "meaning", "default", "allowed", "tasks"), rows)


def name_tasks(tasks: Sequence[str], every: Collection[str]) -> str:
    missing = [task for task in every if task not in tasks]
    if not missing:
        return "all"
    return f"all but {missing[0]}" if len(missing) == 1 else ", ".join(tasks)


def format_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    for row in (heads, ["---"] * len(heads), *rows):
        yield f"| {' | '.join(cell.replace('|', '&#124;') for cell in row)} |"
    yield ""


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, help="folder to write")
    parser.add_argument("--repository", metavar="ADDRESS", help="address that the site's pages link to")
    parser.add_argument(
        "--run-notebooks", action="store_true", help="show what they print, and their pictures"
    )
    args = parser.parse_args()
    write_sources(args.folder, args.repository, args.run_notebooks)
