"""`bert_jax.finetune`: fine-tuning on texts and labels in memory, as on those of a file."""

import math
from collections.abc import Iterable, Mapping, Set
from typing import Any

from bert_jax.core.errors import BertJaxError, nearest
from bert_jax.core.terminal import say
from bert_jax.inference.model import Model
from bert_jax.runs.fit import Run, begin, call, check_arguments, merged
from bert_jax.text.in_memory import PREFIX, tables_in_memory
from bert_jax.text.series import as_list
from bert_jax.text.tables import type_of
from bert_jax.text.truncation import warn

SKIPPING = 'data={"columns": {"skip_bad": True}}'
CLASSIFY, TAG = "classify", "tag"
NUMBER = "number"


def finetune(model, /, texts, labels, *, heldout=None, workdir=None, **keys) -> Run:
    """Train a classifier or a tagger on texts and their labels, starting from a model directory or a loaded model.

        run = bert_jax.finetune("model", frame["text"], frame["label"], epochs=3)
        run.model.classify("a text")

    `texts` and `labels` are lists, arrays, or columns of pandas, polars or pyarrow. A text is a string, a pair is a
    tuple of two strings, and words are a list of strings. The labels decide what is learnt: strings and whole numbers
    are classes, fractions are numbers, and a list holds several labels of a text or, for words, a tag for each word.
    The keys `task` and `kind` override this. `heldout`, a pair (texts, labels), is the validation set; without it a
    share of the examples is held out, and fewer than 2,000 examples are cross-validated. `keys` are those of
    configs/classify.py and configs/tag.py. `workdir` is the directory of the run; without it the directory is
    temporary, and `run.model.save(DIR)` keeps the model.
    """
    check_arguments("finetune", ("texts", "labels", "heldout", "workdir"), keys)
    parts = {"texts": series_of(texts, labels)}
    data = {"train": f"{PREFIX}texts"}
    if heldout is not None:
        if not isinstance(heldout, list | tuple) or len(heldout) != 2:
            raise BertJaxError("heldout must be a pair, heldout=(texts, labels)")
        parts["heldout"] = series_of(*heldout)
        data["heldout"] = f"{PREFIX}heldout"
    task = keys.get("task") or (TAG if are_tagged(*parts["texts"]) else CLASSIFY)
    if task not in ROWS:
        raise BertJaxError(
            f"finetune has no task {task!r:.60}; {nearest(task, ROWS)}; use bert_jax.fit for others"
        )
    kind = {"kind": kind_of(parts["texts"][1])} if task == CLASSIFY else {}
    if kind == {"kind": NUMBER} and "kind" not in keys:
        say('the labels hold fractions, so they are learnt as numbers; kind="classes" learns them as classes')
    values = merged({"task": task, "data": data} | kind, {"init": model} | keys)
    columns = values["data"].get("columns", {})
    skips = isinstance(columns, Mapping) and columns.get("skip_bad") is True
    tables = {
        name: [
            (f"{name}[{n}]", ROWS[task](f"{name}[{n}]", text, label))
            for n, text, label in complete(name, *both, skips, values.get("kind") == "labels")
        ]
        for name, both in parts.items()
    }
    given = ["model" if isinstance(model, Model) else repr(str(model)), "texts", "labels"]
    with tables_in_memory(tables):
        return begin(values, workdir, call("finetune", given, keys))


def complete(
    name: str, texts: list, labels: list, skips: bool, may_be_blank: bool = False
) -> list[tuple[int, Any, Any]]:
    """Return (index, text, label) of the examples that have a text and a label.

    Refuse other examples, or skip and count them if `skips`. With `may_be_blank`, a blank label means a text without
    labels.
    """
    of_texts, of_labels = (name, "labels") if name == "texts" else (f"{name}[0]", f"{name}[1]")
    whole, bad = [], []
    for n, (text, label) in enumerate(zip(texts, labels, strict=True)):
        fault = fault_of_text(f"{of_texts}[{n}]", text)
        blank = isinstance(label, str) and not label.strip() and not may_be_blank
        if not fault and (blank or is_missing(label)):
            fault = f"{of_labels}[{n}] is empty ({label!r})"
        if fault:
            bad.append(fault)
        else:
            whole.append((n, text, label))
    if bad and (not skips or not whole):
        counted = f"bad examples: {len(bad):,} of {len(texts):,}"
        raise BertJaxError(f"{bad[0]}; {counted}" + ("" if skips else f", which {SKIPPING} skips"))
    if bad:
        warn(f"skipped {len(bad):,} of {len(texts):,} examples, the first: {bad[0]}")
    return whole


def fault_of_text(place: str, text) -> str:
    """Return why a value is not a text, a pair or a list of words; "" if it is one."""
    if is_missing(text) or (isinstance(text, str) and not text.strip()):
        return f"{place} is empty ({text!r})"
    if isinstance(text, tuple):
        return next(filter(None, (fault_of_text(f"{place}[{n}]", part) for n, part in enumerate(text))), "")
    return "" if isinstance(text, str | list) else f"{place} holds {type_of(text)}, not text"


def is_missing(value) -> bool:
    """Return whether a value is missing: None, NaN, or NA or NaT of pandas."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, float) and math.isnan(value)


def series_of(texts, labels) -> tuple[list, list]:
    """Return texts and labels as lists of the same length; refuse anything else."""
    both = []
    for name, values in (("texts", texts), ("labels", labels)):
        values = as_list(values)
        if isinstance(values, str | bytes | Mapping | Set) or not isinstance(values, Iterable):
            raise BertJaxError(f"{name} must be a list, an array or a column, not a {type(values).__name__}")
        both.append(list(values))
    if len(both[0]) != len(both[1]):
        raise BertJaxError(
            f"{len(both[0]):,} texts and {len(both[1]):,} labels; give one label for each text"
        )
    return both[0], both[1]


def are_tagged(texts: list, labels: list) -> bool:
    """Return whether the texts are lists of words with lists of tags, rather than pairs of texts in lists.

    Two strings may be words or a pair. If every text has two, they are words only if each also has two labels.
    """
    if not all(isinstance(text, list) for text in texts) or not all(
        isinstance(label, list | tuple) for label in labels
    ):
        return False
    alike = all(len(text) == len(label) for text, label in zip(texts, labels, strict=True))
    return alike or any(len(text) != 2 for text in texts)


def kind_of(labels: list) -> str:
    """Return the kind of prediction that these labels need.

    >>> kind_of(["a", "b"]), kind_of([["a", "b"], []]), kind_of([0.5, 1.0])
    ('classes', 'labels', 'number')
    """
    if any(isinstance(label, list | tuple | Set) for label in labels):
        return "labels"
    fractions = (label for label in labels if isinstance(label, float) and math.isfinite(label))
    return "classes" if all(label.is_integer() for label in fractions) else NUMBER


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
