"""`bert-jax inspect` for embedders: show the groups of texts of a step."""

from collections.abc import Sequence

from bert_jax.core.terminal import CYAN, GREEN, RED, RESET, is_coloured, pluralize
from bert_jax.data.examples.epochs import Epochs
from bert_jax.data.examples.row_packing import EncodedExample
from bert_jax.finetuning.inspect_examples import check_step
from bert_jax.text.tokenizer import Tokenizer

MARKS = (CYAN, GREEN, RED)
ROLES = ("anchor", "positive", "negative")


def list_groups(data: Epochs, step: int, texts_per_group: int) -> list[list[EncodedExample]]:
    """Return the pieces of each group of a step."""
    return [[data.train[i] for i in group] for group in data.chosen[step].reshape(-1, texts_per_group)]


def decode_texts(group: Sequence[EncodedExample], tokenizer: Tokenizer) -> list[str]:
    return [" ".join(tokenizer.tokens(piece.encoding.input_ids)) for piece in group]


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
