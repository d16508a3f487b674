"""Matching the labels in the data to those of a model, if they differ."""

from collections.abc import Sequence

from bert_jax.core.errors import BertJaxError
from bert_jax.data.examples.cells import split_label
from bert_jax.data.examples.example import Example, label_names, labels_of


def match_label_names(
    examples: Sequence[Example], in_model: Sequence[str], known: Sequence[str] = ()
) -> tuple[dict[str, str], list[str]]:
    """Map the data's labels to the model's, and note it if they differ. Refuse labels that cannot be matched."""
    in_data = label_names(examples)
    if set(in_data) <= set(in_model):
        return {label: label for label in in_data}, []
    names = dict(zip(map(str.casefold, in_model), in_model, strict=True))
    distinct = len(names) == len(in_model) == len(set(map(str.casefold, in_model)))
    if distinct and {label.casefold() for label in in_data} <= set(names):
        matched = {label: names[label.casefold()] for label in in_data}
    elif unnamed(in_model):
        order = known if len(known) == len(in_model) else [str(i) for i in range(len(in_model))]
        matched = {label: in_model[order.index(label)] for label in in_data if label in order}
    else:
        matched = {}
    if len(matched) < len(in_data):
        raise unmatched(examples, in_data, in_model, matched)
    pairs = abbreviate_labels([f"{a} = {b}" for a, b in matched.items() if a != b])
    return matched, [f"labels in the data and their names in the model: {pairs}"]


def unnamed(in_model: Sequence[str]) -> bool:
    return list(in_model) == [f"LABEL_{i}" for i in range(len(in_model))]


def unmatched(examples, in_data: Sequence[str], in_model: Sequence[str], matched: dict) -> BertJaxError:
    unread = set(in_data) - set(matched)
    unread = unread - set(in_model) or unread
    odd = next(example for example in examples if unread & set(labels_of(example)))
    joined = any(name != label and name in split_label(label) for name in in_model for label in unread)
    if set(in_model) & set(in_data) and not joined and not unnamed(in_model):
        unknown = " or ".join(f'"{label}"' for label in in_data if label in unread)
        return BertJaxError(
            f"{odd.where}: the model has no label {unknown}; its labels are {abbreviate_labels(in_model)}; "
            "correct the data, or train with these labels"
        )
    hint = (
        "set --label-separator to what stands between several labels in a cell"
        if joined
        else "if they mean the same, rename the model's labels in the id2label of its config.json"
    )
    return BertJaxError(
        f"{odd.where}: the data's labels are {abbreviate_labels(in_data)} and the model's "
        f"{abbreviate_labels(in_model)}, and nothing shows which is which; {hint}"
    )


def abbreviate_labels(labels: Sequence[str]) -> str:
    return ", ".join(labels[:12]) + (f" and {len(labels) - 12} more" if len(labels) > 12 else "")
