"""Matching the labels in the data to those of a model, if they differ."""

from collections.abc import Iterable, Sequence

import numpy as np

from bert_jax.core.errors import BertJaxError
from bert_jax.data.examples.example import Example, label_names, labels_of


def match_label_names(
    examples: Sequence[Example], in_model: Sequence[str], known: Sequence[str] = ()
) -> tuple[dict[str, str], list[str]]:
    """Map the data's labels to the model's, and note it if they differ. A label that the model does not know is left
    out; refuse the data if nothing shows which labels are which."""
    in_data = label_names(examples)
    names = dict(zip(map(str.casefold, in_model), in_model, strict=True))
    distinct = len(names) == len(in_model) == len(set(map(str.casefold, in_model)))
    if set(in_data) <= set(in_model) or not distinct:
        matched = {label: label for label in in_data if label in in_model}
    else:
        matched = {label: names[label.casefold()] for label in in_data if label.casefold() in names}
    unnamed = list(in_model) == [f"LABEL_{i}" for i in range(len(in_model))]
    if unnamed and len(matched) < len(in_data):
        order = known if len(known) == len(in_model) else [str(i) for i in range(len(in_model))]
        matched = {label: in_model[order.index(label)] for label in in_data if label in order}
        if len(matched) < len(in_data):
            raise unmatched_labels(examples, in_model)
    if in_data and not matched:
        raise unmatched_labels(examples, in_model)
    pairs = abbreviate_labels([f"{a} = {b}" for a, b in matched.items() if a != b])
    return matched, [f"labels in the data and their names in the model: {pairs}"] if pairs else []


def label_indices(labels: Sequence[str], in_model: Sequence[str]) -> np.ndarray:
    """Return the indices of labels among the model's; -1 for one that the model does not know."""
    number = {label: i for i, label in enumerate(in_model)}
    return np.array([number.get(label, -1) for label in labels])


def find_label(examples: Sequence[Example], labels: Iterable[str]) -> str:
    """Return where the first example with one of the labels stands."""
    wanted = set(labels)
    return next(example.where for example in examples if not wanted.isdisjoint(labels_of(example)))


def unmatched_labels(examples: Sequence[Example], in_model: Sequence[str], hint: str = "") -> BertJaxError:
    in_data = label_names(examples)
    where = find_label(examples, set(in_data) - set(in_model) or in_data)
    hint = hint or "if they mean the same, rename the model's labels in the id2label of its config.json"
    return BertJaxError(
        f"{where}: the data's labels are {abbreviate_labels(in_data)} and the model's "
        f"{abbreviate_labels(in_model)}, and nothing shows which is which; {hint}"
    )


def abbreviate_labels(labels: Sequence[str]) -> str:
    return ", ".join(labels[:12]) + (f" and {len(labels) - 12} more" if len(labels) > 12 else "")


def quote_labels(labels: Sequence[str]) -> str:
    return abbreviate_labels([f'"{label}"' for label in labels])
