"""Notices about the labels before a run: labels that differ only in case, labels with few examples, and duplicate
texts."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from bert_jax.data.examples.example import Example
from bert_jax.data.examples.split import text_key
from bert_jax.finetuning.finetune_config import ExamplesConfig
from bert_jax.predictions.kind import Kind

MAX_LISTED = 5  # at most this many labels, or groups of labels, are named in a notice


def label_warnings(kind: Kind, examples: Sequence[Example], data: ExamplesConfig) -> Iterator[str]:
    if advice := kind.label_hint(examples, data.columns):
        yield advice
    counts = kind.count_labels(examples)
    known = {label: counts[label] for label in kind.labels}
    yield from case_variant_warnings(known)
    if data.folds:
        alone = [labels[0] for labels in group_case_variants(known).values() if len(labels) == 1]
        yield from rare_label_warnings({label: known[label] for label in alone}, data.folds)
    yield from duplicate_warnings(examples)


def case_variant_warnings(counts: Mapping[str, int]) -> Iterator[str]:
    """
    >>> next(case_variant_warnings({"Bug Report": 89, "BUG REPORT": 3, "Question": 20}))
    'labels that differ only in case stay separate: "Bug Report" (89), "BUG REPORT" (3); write them alike to merge them'
    """
    several = [
        format_counts(group, counts) for group in group_case_variants(counts).values() if len(group) > 1
    ]
    if several:
        listed = "; ".join(several[:MAX_LISTED]) + f"; and {len(several) - MAX_LISTED} more" * (
            len(several) > MAX_LISTED
        )
        yield f"labels that differ only in case stay separate: {listed}; write them alike to merge them"


def group_case_variants(labels: Iterable[str]) -> dict[str, list[str]]:
    """Group labels that differ only in case or spaces."""
    groups: dict[str, list[str]] = {}
    for label in labels:
        groups.setdefault(" ".join(label.casefold().split()), []).append(label)
    return groups


def rare_label_warnings(counts: Mapping[str, int], folds: int) -> Iterator[str]:
    """
    >>> next(rare_label_warnings({"bug": 89, "praise": 3}, 5))
    'fewer examples than the 5 folds: "praise" (3); their scores say little, so label more of them'
    """
    few = sorted((label for label, count in counts.items() if 0 < count < folds), key=counts.__getitem__)
    if few:
        more = f" and {len(few) - MAX_LISTED} more labels" * (len(few) > MAX_LISTED)
        listed = format_counts(few[:MAX_LISTED], counts) + more
        yield f"fewer examples than the {folds} folds: {listed}; their scores say little, so label more of them"


def duplicate_warnings(examples: Sequence[Example]) -> Iterator[str]:
    """
    >>> next(duplicate_warnings([Example("A", "x", "row 1"), Example("b", "x", "row 2"), Example("a", "x", "row 3")]))
    '1 of 3 training texts is a duplicate; identical texts stay together when the data are split'
    """
    count = len(examples) - len({text_key(example.text) for example in examples})
    if count:
        together = "" if any(example.document for example in examples) else (
            "; identical texts stay together when the data are split"
        )  # fmt: skip
        verb = "is a duplicate" if count == 1 else "are duplicates"
        yield f"{count:,} of {len(examples):,} training texts {verb}{together}"


def format_counts(labels: list[str], counts: Mapping[str, int]) -> str:
    return ", ".join(f'"{label}" ({counts[label]:,})' for label in labels)
