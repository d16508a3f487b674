"""The verb `config`: the keys of a config, their values and their meanings."""

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from bert_jax.command.flags import JSON, OVERRIDES, flag, verb
from bert_jax.core import terminal
from bert_jax.core.config import check_values, merge_overrides, parse_config
from bert_jax.core.config_files import bundled_configs, run_config_file
from bert_jax.core.config_help import flatten_config_values, format_config_value, list_config_keys
from bert_jax.core.errors import BertJaxError
from bert_jax.core.files import to_json

NAME, VALUE = 18, 13  # widths of the columns of names and of values, in characters


@verb(
    "show the keys of a config: values, defaults, meanings",
    "bert-jax config classify:mrpc --config.data.batch_size=16",
    flag(
        "spec",
        nargs="?",
        metavar="FILE[:NAME]",
        help="config file, or the name of an installed one (default: list the installed ones); "
        "--config.KEY=VALUE changes a key",
    ),
    JSON,
    OVERRIDES,
)
def config(args):
    if args.spec is None:
        print(describe_recipes(args.json))
    else:
        print(describe_config(args.spec, args.overrides, args.json))


def collect_keys(spec: str, overrides: Sequence[str]) -> dict:
    """Return the task of a config, its keys with their values, and the reason why it cannot run (None if it can)."""
    from bert_jax import tasks
    from bert_jax.hub.model_directory import ModelDirectories

    values = run_config_file(spec)
    module = tasks.find_task_module(values, overrides)
    reader = module.Config
    keys = list_config_keys(reader)
    values = merge_overrides(tasks.choose_values(values, overrides, "cpu"), overrides, reader)
    try:
        values = tasks.complete_values(module, values, ModelDirectories())
        parse_config(values, (), reader)
        refused = None
    except BertJaxError as error:
        refused = str(error)
    value_of = flatten_config_values(keys, check_values(values, reader))
    facts = [asdict(key) | {"value": value_of[key.name]} for key in keys]
    return {"config": spec, "task": value_of["task"], "keys": facts, "refused": refused}


def describe_config(spec: str, overrides: Sequence[str], as_json: bool) -> str:
    facts = collect_keys(spec, overrides)
    if as_json:
        return to_json(facts, indent=2)
    changed = sum(map(is_changed, facts["keys"]))
    lines = [
        *wrap_text(
            f"{spec}, task {facts['task']}: {len(facts['keys'])} keys, {changed} of them set (*). "
            "--config.KEY=VALUE sets a key, --config.SECTION.KEY=VALUE a key of a section.",
            "",
        )
    ]
    section = None
    for key in facts["keys"]:
        above, _, name = key["name"].rpartition(".")
        if above != section:
            lines += ["", tint(above, terminal.BOLD)] if above else [""]
            section = above
        lines += format_key(key, name)
    if facts["refused"]:
        lines += ["", *wrap_text(f"This config cannot run yet: {facts['refused']}.", "")]
    return "\n".join(lines)


def is_changed(key: dict) -> bool:
    return key["value"] != key["default"]


def format_key(key: dict, name: str) -> Iterator[str]:
    value, meaning = format_config_value(key["value"]), key["meaning"]
    if key["has_choices"]:
        meaning += f"; one of: {key['allowed']}"
    if is_changed(key):
        meaning += f" (default: {format_config_value(key['default'])})"
    colour, sign = (terminal.YELLOW, "*") if is_changed(key) else ("", " ")
    indent = " " * (NAME + VALUE + 5)
    first, *others = wrap_text(meaning, indent)
    head = f"  {name:<{NAME}} {sign}"
    # The meaning starts on the next line after a long name, or a long value such as a path or a list.
    if len(name) > NAME or len(value) > VALUE:
        yield head + tint(value, colour)
        yield first
    else:
        yield head + tint(f"{value:<{VALUE}}", colour) + first[NAME + VALUE + 4 :]
    yield from others


def wrap_text(text: str, indent: str) -> list[str]:
    return textwrap.wrap(
        text, terminal.table_width(), initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False
    )


def tint(text: str, colour: str) -> str:
    return f"{colour}{text}{terminal.RESET}" if colour and terminal.is_coloured() else text


def describe_recipes(as_json: bool) -> str:
    known = bundled_configs()
    if as_json:
        return to_json([asdict(recipe) for recipe in known], indent=2)
    lines = []
    for recipe in known:
        first, *others = wrap_text(recipe.purpose, " " * 10)
        lines += [tint(f"{recipe.name:<10}", terminal.BOLD) + first.strip(), *others]
        if recipe.names:
            lines += wrap_text(
                f"{recipe.name}:NAME, where NAME is one of {', '.join(recipe.names)}", " " * 10
            )
    return "\n".join([*lines, "", "`bert-jax config NAME` shows the keys of a config."])
