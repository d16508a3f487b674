"""`bert_jax.finetune`: texts and labels that a program holds, learnt as those of a file are."""

import math
from collections.abc import Iterable, Mapping, Set

from bert_jax.errors import BertJaxError, nearest
from bert_jax.inference.model import Model
from bert_jax.runs.fit import Run, begin, call, merged
from bert_jax.text.in_memory import PREFIX, tables_in_memory
from bert_jax.text.series import as_list

CLASSIFY, TAG = "classify", "tag"


def finetune(model, /, texts, labels, *, heldout=None, workdir=None, **keys) -> Run:
    """Train a classifier or a tagger from texts and their labels, beginning with a model directory or a loaded model.

        run = bert_jax.finetune("model", frame["text"], frame["label"], epochs=3)
        run.model.classify("a text")

    `texts` and `labels` are lists, arrays, or columns of pandas, polars or pyarrow. A text is a string; a pair is a
    tuple of two; words are a list of them. The labels tell what is learnt: strings and whole numbers are classes,
    fractions are numbers, a list is several labels of a text or, beside words, a tag for each word. The keys `task` and
    `kind` say otherwise. `heldout`, a pair (texts, labels), is the validation set; without it a share is held out, and
    fewer than 2,000 examples are cross-validated. `keys` are those of configs/classify.py and configs/tag.py, and
    `workdir` is that of `fit`.
    """
    parts = {"texts": series_of(texts, labels)}
    data = {"train": f"{PREFIX}texts"}
    if heldout is not None:
        if not isinstance(heldout, list | tuple) or len(heldout) != 2:
            raise BertJaxError("heldout is a pair: heldout=(texts, labels)")
        parts["heldout"] = series_of(*heldout)
        data["heldout"] = f"{PREFIX}heldout"
    task = keys.get("task") or (TAG if are_tagged(*parts["texts"]) else CLASSIFY)
    if task not in ROWS:
        raise BertJaxError(f"finetune has no task {task!r:.60}; {nearest(task, ROWS)}; fit has the others")
    kind = {"kind": kind_of(parts["texts"][1])} if task == CLASSIFY else {}
    tables = {
        name: [ROWS[task](f"{name}[{n}]", *pair) for n, pair in enumerate(zip(*both, strict=True))]
        for name, both in parts.items()
    }
    given = ["model" if isinstance(model, Model) else repr(str(model)), "texts", "labels"]
    with tables_in_memory(tables):
        values = merged({"task": task, "data": data} | kind, {"init": model} | keys)
        return begin(values, workdir, call("finetune", given, keys))


def series_of(texts, labels) -> tuple[list, list]:
    both = []
    for name, values in (("texts", texts), ("labels", labels)):
        values = as_list(values)
        if isinstance(values, str | bytes | Mapping | Set) or not isinstance(values, Iterable):
            raise BertJaxError(f"{name} are a list, an array or a column, not a {type(values).__name__}")
        both.append(list(values))
    if len(both[0]) != len(both[1]):
        raise BertJaxError(
            f"{len(both[0]):,} texts and {len(both[1]):,} labels; give one label for each text"
        )
    return both[0], both[1]


def are_tagged(texts: list, labels: list) -> bool:
    """Whether the texts are words with a tag each; two words may be a pair of texts."""
    if not all(isinstance(text, list) for text in texts) or not all(
        isinstance(label, list | tuple) for label in labels
    ):
        return False
    alike = all(len(text) == len(label) for text, label in zip(texts, labels, strict=True))
    return alike or any(len(text) != 2 for text in texts)


def kind_of(labels: list) -> str:
    """The kind of the predictions that labels ask for.

    >>> kind_of(["a", "b"]), kind_of([["a", "b"], []]), kind_of([0.5, 1.0])
    ('classes', 'labels', 'number')
    """
    if any(isinstance(label, list | tuple | Set) for label in labels):
        return "labels"
    fractions = (label for label in labels if isinstance(label, float) and math.isfinite(label))
    return "classes" if all(label.is_integer() for label in fractions) else "number"


def labelled_row(where: str, text, label) -> dict:
    label = sorted(label) if isinstance(label, Set) else label
    if not isinstance(text, list | tuple):
        return {"text": text, "label": label}
    if len(text) != 2:
        raise BertJaxError(f"{where} has {len(text)} texts; a pair has two, and words have a tag each")
    return {"text1": text[0], "text2": text[1], "label": label}


def tagged_row(where: str, words, tags) -> dict:
    return {"tokens": words, "tags": tags}


ROWS = {CLASSIFY: labelled_row, TAG: tagged_row}
