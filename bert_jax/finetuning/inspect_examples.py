"""`bert-jax inspect` for fine-tuning: show the examples or the groups of a step as text, with their labels."""

from collections.abc import Sequence

from bert_jax.core.errors import BertJaxError
from bert_jax.core.terminal import CYAN, GREEN, RED, RESET, YELLOW, is_coloured, pluralize
from bert_jax.data.examples.epochs import Epochs
from bert_jax.data.examples.row_packing import EncodedWindow
from bert_jax.predictions.kind import Kind
from bert_jax.text.tokenizer import Tokenizer


def format_examples(kind: Kind, data: Epochs, step: int, rows: int) -> str:
    check_step(data, step)
    lines, colour = [], is_coloured()
    for row, encoded_windows in enumerate(list_rows(data, step)[:rows]):
        tokens = f"{sum(map(len, encoded_windows))} of {data.row_length(step)} tokens"
        lines.append(f"step {step} row {row}: {pluralize(len(encoded_windows), 'example')}, {tokens}")
        lines += [f"  {format_window(kind, window, data.tokenizer, colour)}" for window in encoded_windows]
    return "\n".join(lines)


def check_step(data: Epochs, step: int) -> None:
    if not 0 <= step < len(data.chosen):
        raise BertJaxError(
            f"the run has {pluralize(len(data.chosen), 'step')}; --step must be from 0 to {len(data.chosen) - 1}"
        )


def format_window(kind: Kind, window: EncodedWindow, tokenizer: Tokenizer, colour: bool) -> str:
    label, marks = kind.targets.describe(window.targets)
    text, end = "", -1
    for position, name in enumerate(tokenizer.tokens(window.encoding.input_ids)):
        start, stop = window.encoding.offsets[position]
        continues = start == end and stop > start
        bare = name.removeprefix("##").lstrip("▁Ġ") if stop > start else name
        if mark := marks.get(position):
            bare = f"{YELLOW}{bare}/{mark}{RESET}" if colour else f"{bare}/{mark}"
        text += bare if continues else f" {bare}"
        end = stop if stop > start else -1
    return f"{label}:{text}" if label else text.strip()


MARKS = (CYAN, GREEN, RED)
ROLES = ("anchor", "positive", "negative")


def list_rows(data: Epochs, step: int) -> list[list[EncodedWindow]]:
    encoded_windows = [data.train[i] for i in data.chosen[step]]
    return [[encoded_windows[i] for i in row] for row in data.arrangement.steps[step]]


def list_groups(data: Epochs, step: int, texts_per_group: int) -> list[list[EncodedWindow]]:
    return [[data.train[i] for i in group] for group in data.chosen[step].reshape(-1, texts_per_group)]


def decode_texts(group: Sequence[EncodedWindow], tokenizer: Tokenizer) -> list[str]:
    return [" ".join(tokenizer.tokens(window.encoding.input_ids)) for window in group]


def format_groups(data: Epochs, step: int, most: int, texts_per_group: int) -> str:
    """Show the first groups of a step, at most `most`."""
    check_step(data, step)
    groups, colour = list_groups(data, step, texts_per_group), is_coloured()
    rows = f"{pluralize(data.rows_per_step, 'row')} of {data.row_length(step)} tokens"
    lines = [f"step {step}: {pluralize(len(groups), 'group')} in {rows}"]
    for number, group in enumerate(groups[:most]):
        lines.append(f"group {number}: {sum(map(len, group))} tokens")
        for n, text in enumerate(decode_texts(group, data.tokenizer)):
            role = min(n, 2)
            name = f"{MARKS[role]}{ROLES[role]}{RESET}" if colour else ROLES[role]
            lines.append(f"  {name}: {text}")
        if scores := group[0].targets.get("scores"):
            lines.append(f"  score: {', '.join(f'{score:g}' for score in scores)}")
    return "\n".join(lines)
