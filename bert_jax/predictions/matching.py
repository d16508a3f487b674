"""The labels of the data and those of a model: which is which, where they differ."""

from collections.abc import Sequence

from bert_jax.data.examples.cells import split_label
from bert_jax.data.examples.example import Example, label_names, labels_of
from bert_jax.errors import BertJaxError


def match(
    examples: Sequence[Example], ours: Sequence[str], known: Sequence[str] = ()
) -> tuple[dict[str, str], list[str]]:
    """The data's labels -> the model's, where it is plain which is which; and a note of it, where they differ."""
    theirs = label_names(examples)
    if set(theirs) <= set(ours):
        return {label: label for label in theirs}, []
    names = dict(zip(map(str.casefold, ours), ours, strict=True))
    distinct = len(names) == len(ours) == len(set(map(str.casefold, ours)))
    if distinct and {label.casefold() for label in theirs} <= set(names):
        matched = {label: names[label.casefold()] for label in theirs}
    elif list(ours) == [f"LABEL_{i}" for i in range(len(ours))]:
        order = known if len(known) == len(ours) else [str(i) for i in range(len(ours))]
        matched = {label: ours[order.index(label)] for label in theirs if label in order}
    else:
        matched = {}
    if len(matched) < len(theirs):
        raise unmatched(examples, theirs, ours, matched)
    pairs = shortened([f"{a} = {b}" for a, b in matched.items()])
    return matched, [f"labels of the data, as the model calls them: {pairs}"]


def unmatched(examples, theirs: Sequence[str], ours: Sequence[str], matched: dict) -> BertJaxError:
    unread = set(theirs) - set(matched)
    unread = unread - set(ours) or unread
    odd = next(example for example in examples if unread & set(labels_of(example)))
    joined = any(name != label and name in split_label(label) for name in ours for label in unread)
    hint = (
        "several labels in a cell are told apart by --separator"
        if joined
        else "if they mean the same, name the model's in the id2label of its config.json"
    )
    return BertJaxError(
        f"{odd.where}: the data's labels are {shortened(theirs)} and the model's {shortened(ours)}, and nothing "
        f"shows which is which; {hint}"
    )


def shortened(labels: Sequence[str]) -> str:
    return ", ".join(labels[:12]) + (f" and {len(labels) - 12} more" if len(labels) > 12 else "")
