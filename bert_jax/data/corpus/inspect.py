"""`bert-jax inspect`: the examples of a step as text, and the rates they were made with."""

import os
import sys
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from bert_jax.data.corpus.stream import Batch, Stream

# How a target shows: in colour, and in signs for who has none. {new} stands in the row, {old} is asked for.
STYLES = {
    "masked": ("\x1b[31m", "[MASK:{old}]"),
    "replaced": ("\x1b[33m", "{{{new}<{old}}}"),
    "kept": ("\x1b[32m", "={old}="),
}
PLAIN = "\x1b[0m"


def report(config, step: int, rows: int, colour: bool | None = None) -> str:
    """Of a pre-training config, what its `data`, `seed` and `steps` decide."""
    from bert_jax.data.corpus.stream import Stream

    stream = Stream(config.data, config.seed, config.steps)
    batch = stream.batch(step)
    if colour is None:
        colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    facts = stream.facts(step)
    shown = [example(stream, batch, row, facts[row], step, colour) for row in range(min(rows, len(facts)))]
    legend = "Asked for are x and its like: " + ", ".join(
        f"{tint}x{PLAIN} {fate}" if colour else f"{signs.format(new='y', old='x')} {fate}"
        for fate, (tint, signs) in STYLES.items()
    )
    return "\n\n".join([*shown, legend, rates(stream, batch, stream.length(step))])


def example(stream: "Stream", batch: "Batch", row: int, fact: dict[str, int], step: int, colour: bool) -> str:
    targets = int(batch["target_weight"][row].sum())
    facts = [f"step {step} row {row}", *(f"{name} {value}" for name, value in fact.items())]
    facts += [f"{int(batch['mask'][row].sum())} tokens", f"{targets} targets"]
    if "labels" in batch:
        facts.append(LABELS[stream.config.examples][int(batch["labels"][row]) if batch["weight"][row] else 2])
    pieces = marked(stream, batch, row, colour)
    groups = batch["packs"][row] if stream.packed else batch["segments"][row] + batch["mask"][row]
    names = "pack {}" if stream.packed else "segment {}"
    lines = [", ".join(facts)]
    for group in range(1, int(groups.max()) + 1):
        text = "".join(pieces[i] for i in np.flatnonzero(groups == group)).strip()
        lines.append(f"  {names.format(group if stream.packed else 'AB'[group - 1])}: {text}")
    return "\n".join(lines)


LABELS = {
    "next_sentence": ("B follows A (label 0)", "B is from elsewhere (label 1)", "no pair"),
    "sentence_order": ("in order (label 0)", "swapped (label 1)", "no pair (weight 0)"),
}


def marked(stream: "Stream", batch: "Batch", row: int, colour: bool) -> list[str]:
    """The row's tokens as text, each with the space before it if it has one, targets marked."""
    ids = batch["tokens"][row]
    names = stream.tokenizer.tokens(ids.tolist())
    pieces = [spaced(name, bool(stream.continues[i])) for name, i in zip(names, ids, strict=True)]
    for position, target, weight in zip(
        *(batch[name][row] for name in ("target_positions", "targets", "target_weight")), strict=True
    ):
        if not weight:
            continue
        old = stream.tokenizer.tokens([int(target)])[0]
        tint, signs = STYLES[fate(stream, ids[position], target)]
        text = signs.format(new=names[position], old=old)
        pieces[position] = f" {tint}{text}{PLAIN}" if colour else f" {text}"
    return pieces


def spaced(entry: str, continues: bool) -> str:
    bare = entry.removeprefix("##") if continues else entry.lstrip("▁Ġ")
    return bare if continues else f" {bare}"


def fate(stream: "Stream", token, target) -> str:
    """What became of a target; a random token that happens to be the original counts as kept."""
    if token == stream.tokenizer.special.mask:
        return "masked"
    return "kept" if token == target else "replaced"


def rates(stream: "Stream", batch: "Batch", length: int) -> str:
    config, mask = stream.config, batch["mask"]
    rows, here = np.nonzero(batch["target_weight"])
    tokens = batch["tokens"][rows, batch["target_positions"][rows, here]]
    fates = [fate(stream, *pair) for pair in zip(tokens, batch["targets"][rows, here], strict=True)]
    table = [
        ("targets of all tokens", len(rows) / mask.sum(), config.rate),
        ("  masked", fates.count("masked") / len(fates), config.masked),
        ("  replaced at random", fates.count("replaced") / len(fates), config.replaced),
        ("  kept", fates.count("kept") / len(fates), 1 - config.masked - config.replaced),
    ]
    if "labels" in batch:
        name = "random" if config.examples == "next_sentence" else "swapped"
        table.append((f"{name} pairs", np.average(batch["labels"], weights=batch["weight"]), 0.5))
    plain = [
        ("rows", f"{len(mask)} x {length}"),
        ("tokens, not padding", f"{mask.mean():.1%}"),
        (
            "targets a row at most",
            f"{batch['target_weight'].sum(axis=1).max():.0f} of {config.targets(length)}",
        ),
    ]
    if stream.packed:
        plain.append(("packs a row", f"{batch['packs'].max(axis=1).mean():.2f}"))
    lines = [f"{'this batch':<24}{'measured':>10}{'config':>10}"]
    lines += [f"{name:<24}{found:>10.2%}{wanted:>10.1%}" for name, found, wanted in table]
    return "\n".join(lines + [f"{name:<24}{text:>10}" for name, text in plain])
