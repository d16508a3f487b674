"""`bert-jax inspect`: show the examples of a step as text, and the rates of targets and masks."""

import numpy as np

from bert_jax.core.terminal import GREEN, RED, RESET, YELLOW, is_coloured
from bert_jax.data.corpus.stream import Stream
from bert_jax.text.tokenizer import Batch

# How a target is shown: (its colour, or its notation without colour). {new} is the token in the row, {old} the target.
STYLES = {
    "masked": (RED, "[MASK:{old}]"),
    "replaced": (YELLOW, "{{{new}<{old}}}"),
    "kept": (GREEN, "={old}="),
}
LABELS = {
    "next_sentence": ("B follows A (label 0)", "B is from another document (label 1)", "no pair"),
    "sentence_order": ("in order (label 0)", "swapped (label 1)", "no pair (weight 0)"),
}


def show_step(stream: Stream, step: int, rows: int, colour: bool | None = None) -> str:
    """Show the first `rows` rows of a step of the stream."""
    batch = stream.batch(step)
    if colour is None:
        colour = is_coloured()
    facts = [
        {"step": step, "row": row} | fact for row, fact in enumerate(stream.example_origins(step)[:rows])
    ]
    legend = "Targets, here x: " + ", ".join(
        f"{tint}x{RESET} {fate}" if colour else f"{signs.format(new='y', old='x')} {fate}"
        for fate, (tint, signs) in STYLES.items()
    )
    shown = [show_row(stream, batch, row, fact, colour) for row, fact in enumerate(facts)]
    return "\n\n".join([*shown, legend, table_of_rates(stream, batch, stream.row_length(step))])


def show_row(stream: Stream, batch: Batch, row: int, fact: dict[str, int], colour: bool) -> str:
    facts = [f"{name} {value}" for name, value in fact.items()]
    facts[:2] = [" ".join(facts[:2])]
    real, weights = batch["attention_mask"][row], batch["target_weights"][row]
    facts += [f"{real.sum()} tokens", f"{weights.sum():.0f} targets"]
    if "labels" in batch:
        label = int(batch["labels"][row]) if batch["label_weights"][row] else 2
        facts.append(LABELS[stream.config.sentence_objective][label])
    pieces = mark_targets(stream, batch, row, colour)
    if stream.config.packed:
        groups = batch["segment_ids"][row]
        names = [f"sequence {n}" for n in range(1, stream.config.max_documents_per_row + 1)]
    else:
        groups, names = batch["token_type_ids"][row] + real, ["segment A", "segment B"]
    lines = [", ".join(facts)]
    for group, name in zip(range(1, int(groups.max()) + 1), names, strict=False):
        text = "".join(pieces[i] for i in np.flatnonzero(groups == group)).strip()
        lines.append(f"  {name}: {text}")
    return "\n".join(lines)


def mark_targets(stream: Stream, batch: Batch, row: int, colour: bool) -> list[str]:
    """Return the row's tokens as text, each with the space before it if there is one, and with targets marked."""
    input_ids = batch["input_ids"][row]
    names = stream.tokenizer.tokens(input_ids.tolist())
    pieces = [
        name.removeprefix("##") if stream.continues[i] else " " + name.lstrip("▁Ġ")
        for name, i in zip(names, input_ids, strict=True)
    ]
    count = int(batch["target_weights"][row].sum())
    targets = batch["targets"][row, :count]
    originals = stream.tokenizer.tokens(targets.tolist())
    for position, target, old in zip(batch["target_positions"][row, :count], targets, originals, strict=True):
        tint, signs = STYLES[fate(stream, input_ids[position], target)]
        text = signs.format(new=names[position], old=old)
        pieces[position] = f" {tint}{text}{RESET}" if colour else f" {text}"
    return pieces


def fate(stream: Stream, token, target) -> str:
    """Return what was done to a target. A random token that happens to be the original counts as kept."""
    if token == stream.tokenizer.special.mask:
        return "masked"
    return "kept" if token == target else "replaced"


def table_of_rates(stream: Stream, batch: Batch, length: int) -> str:
    config, attention_mask = stream.config, batch["attention_mask"]
    rows, here = np.nonzero(batch["target_weights"])
    tokens = batch["input_ids"][rows, batch["target_positions"][rows, here]]
    fates = [fate(stream, *pair) for pair in zip(tokens, batch["targets"][rows, here], strict=True)]
    masked, replaced = config.mask_replace_prob, config.random_replace_prob
    rates = [
        ("targets of all tokens", len(rows) / attention_mask.sum(), config.mlm_probability),
        ("  masked", fates.count("masked") / len(fates), masked),
        ("  replaced at random", fates.count("replaced") / len(fates), replaced),
        ("  kept", fates.count("kept") / len(fates), 1 - masked - replaced),
    ]
    if "labels" in batch and batch["label_weights"].any():
        name = "random" if config.sentence_objective == "next_sentence" else "swapped"
        rates.append((f"{name} pairs", np.average(batch["labels"], weights=batch["label_weights"]), 0.5))
    most = batch["target_weights"].sum(axis=1).max()
    plain = [
        ("rows", f"{len(attention_mask)} x {length}"),
        ("tokens, not padding", f"{attention_mask.mean():.1%}"),
        ("most targets in a row", f"{most:.0f} of {config.max_targets(length)}"),
    ]
    if config.packed:
        plain.append(("sequences per row", f"{batch['segment_ids'].max(axis=1).mean():.2f}"))
    lines = [f"{'this batch':<24}{'measured':>10}{'config':>10}"]
    lines += [f"{name:<24}{measured:>10.2%}{configured:>10.1%}" for name, measured, configured in rates]
    return "\n".join(lines + [f"{name:<24}{text:>10}" for name, text in plain])
