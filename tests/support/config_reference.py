"""Generate configs/README.md: all recipes and all keys of all tasks, from the config files and the dataclasses.

python -m tests.support.config_reference > configs/README.md
"""

from collections.abc import Collection, Iterator, Sequence

from bert_jax.command.config import collect_keys, is_changed
from bert_jax.core.config_files import bundled_configs
from bert_jax.core.config_help import ConfigKey, format_config_value, list_config_keys
from bert_jax.tasks import TASKS

HEAD = """\
# Configs

A config is a Python file that defines `get_config()`. It sets what differs from the defaults; `--config.KEY=VALUE`
changes a key on the command line. The files of this folder are installed with the package; from any directory, give
their names without folder and suffix:

```sh
bert-jax config                                             # the installed configs
bert-jax config classify:mrpc --config.data.batch_size=16   # every key: its value, its default, its meaning
bert-jax train --config classify --workdir runs/tickets --config.init=path/to/bert \\
    --config.data.train=train.csv --dry-run
```

`--dry-run` reads the data, times a few steps, says what the run would do and how long it would take, and stops.
`--config classify` and `--config configs/classify.py` name the same file; name a file of your own by its path. An
unknown key is an error that suggests the right key, also for the names of other libraries (`lr`, `num_epochs`,
`max_seq_length`).

Three sections of a config file hold in some runs only, and replace its other values there: `from_init` in a run from a
model directory, `on_tpu` on TPUs, `on_gpu` on GPUs. What you set on the command line comes first.

The guides in `configs/guides/` explain the tasks.
"""
KEYS = """\
## Keys

A key has several rows if its meaning or default differs between tasks. Lists are written with commas, as in
`--config.data.lengths=128,512`; `""` is an empty text, `()` an empty list. With `steps=0` a run of any task takes no
step: it measures the model that it starts from, and saves it.
"""


SHOWN = 5  # keys listed for a recipe; if it sets more, only their number is given


def written() -> str:
    tasks = TASKS.names()
    readers = {
        task: list_config_keys(TASKS[task].Config)
        for task in ("pretrain", *(t for t in tasks if t != "pretrain"))
    }
    return "\n".join([HEAD, *of_recipes(), KEYS, *of_keys(readers)])


def of_recipes() -> Iterator[str]:
    yield "## Recipes\n"
    known = bundled_configs()
    rows = [(f"`{recipe.name}`", recipe.purpose, set_by(recipe.name)) for recipe in known]
    yield from table(("config", "what it does", "keys that it sets besides `task`"), rows)
    for recipe in known:
        if recipe.names:
            yield f"### Names of `{recipe.name}`\n"
            variants = [(f"`{recipe.name}:{name}`", what) for name, what in recipe.names.items()]
            yield from table(("config", "what it is"), variants)


def set_by(config: str) -> str:
    """Describe the keys that a config sets if it is used without a variant's name."""
    keys = [key for key in collect_keys(config, [])["keys"] if is_changed(key) and key["name"] != "task"]
    if len(keys) > SHOWN:
        return f"{len(keys)} keys, a size and what goes with it: `bert-jax config {config}` shows them"
    return ", ".join(f"`{key['name']}={format_config_value(key['value'])}`" for key in keys) or "nothing"


def of_keys(readers: dict[str, list[ConfigKey]]) -> Iterator[str]:
    """Yield a Markdown table of the keys of each section."""
    tasks_of: dict[ConfigKey, list[str]] = {}
    for task, keys in readers.items():
        for key in keys:
            tasks_of.setdefault(key, []).append(task)
    names = list(dict.fromkeys(key.name for key in tasks_of))
    sections: dict[str, list[ConfigKey]] = {}
    for key in sorted(tasks_of, key=lambda key: names.index(key.name)):
        sections.setdefault(key.name.rpartition(".")[0], []).append(key)
    for section, keys in sections.items():
        yield f"### `{section}`\n" if section else "### The run\n"
        rows = [
            (
                f"`{key.name}`",
                key.meaning,
                f"`{format_config_value(key.default)}`",
                key.allowed,
                in_words(tasks_of[key], readers),
            )
            for key in keys
        ]
        yield from table(("key", "meaning", "default", "allowed", "tasks"), rows)


def in_words(tasks: Sequence[str], every: Collection[str]) -> str:
    missing = [task for task in every if task not in tasks]
    if not missing:
        return "all"
    return f"all but {missing[0]}" if len(missing) == 1 else ", ".join(tasks)


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    for row in (heads, ["---"] * len(heads), *rows):
        yield f"| {' | '.join(cell.replace('|', '&#124;') for cell in row)} |"
    yield ""


if __name__ == "__main__":
    print(written(), end="")
