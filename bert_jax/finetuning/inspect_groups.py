"""`bert-jax inspect` for embedders: show the groups of texts of a step."""

from bert_jax.core.terminal import CYAN, GREEN, RED, RESET, is_coloured, pluralize
from bert_jax.data.examples.epochs import Epochs
from bert_jax.finetuning.inspect_examples import check_step

MARKS = (CYAN, GREEN, RED)
ROLES = ("anchor", "positive", "negative")


def format_groups(data: Epochs, step: int, groups: int, texts_per_group: int) -> str:
    """Show the first `groups` groups of a step."""
    check_step(data, step)
    indices, colour = data.chosen[step].reshape(-1, texts_per_group), is_coloured()
    rows = f"{pluralize(data.rows_per_step, 'row')} of {data.row_length(step)} tokens"
    lines = [f"step {step}: {pluralize(len(indices), 'group')} in {rows}"]
    for number, pieces in enumerate([data.train[i] for i in group] for group in indices[:groups]):
        lines.append(f"group {number}: {sum(map(len, pieces))} tokens")
        for n, piece in enumerate(pieces):
            role = min(n, 2)
            name = f"{MARKS[role]}{ROLES[role]}{RESET}" if colour else ROLES[role]
            lines.append(f"  {name}: {' '.join(data.tokenizer.tokens(piece.encoding.input_ids))}")
        if scores := pieces[0].targets.get("scores"):
            lines.append(f"  score: {', '.join(f'{score:g}' for score in scores)}")
    return "\n".join(lines)
