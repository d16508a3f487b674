"""`bert_jax.finetune`: fine-tuning on texts and labels in memory, as on those of a file."""

import math
from collections.abc import Iterable, Mapping, Set
from os import PathLike
from typing import Any

from bert_jax.core.caller_warning import warn_caller
from bert_jax.core.errors import BertJaxError, suggest_name
from bert_jax.core.terminal import print_line
from bert_jax.core.typed_json import type_name
from bert_jax.data.examples.column_names import LABELS, MEMORY_PAIR, TAGS, TEXTS, WORDS
from bert_jax.finetuning.label_descriptions import spell_descriptions
from bert_jax.inference.encoder import Encoder
from bert_jax.runs.train import Run, check_arguments, format_call, merge_keys, start_run
from bert_jax.text.array_likes import to_plain_list
from bert_jax.text.input_files import MEMORY_PREFIX, register_tables

SKIPPING = 'data={"columns": {"skip_bad": True}}'
CLASSIFY, TAG = "classify", "tag"
MULTI_LABEL, NUMBER = "multi_label_classification", "regression"


def finetune(
    model: str | PathLike[str] | Encoder,
    /,
    texts: Iterable[Any],
    labels: Iterable[Any],
    *,
    validation: tuple[Iterable[Any], Iterable[Any]] | None = None,
    workdir: str | PathLike[str] | None = None,
    **keys: Any,
) -> Run:
    """Train a classifier or a tagger on texts and their labels, starting from a model directory or a loaded model.

    >>> texts = [f"{word} {n}" for n in range(8) for word in ("cat", "mat")]
    >>> run = bert_jax.finetune("model", texts, ["pet", "thing"] * 8, data={"folds": 0}, epochs=1, report=False)
    >>> run.model.labels
    ('pet', 'thing')

    `texts` and `labels` are lists, arrays, or columns of pandas, polars or pyarrow. A text is a string, a pair is a
    tuple of two strings, and words are a list of strings. The labels decide what is learnt: strings and whole numbers
    are classes, fractions are numbers, and a list holds several labels of a text or, for words, a tag for each word.
    The keys `task` and `problem_type` override this. `validation`, a pair (texts, labels), is the validation set;
    without it a share of the examples is held out, and fewer than 2,000 examples are cross-validated. `keys` are those
    of configs/classify.py and configs/tag.py; `label_descriptions` may be a dict. `workdir` is the directory of the
    run; without it the directory is temporary, and `run.model.save(DIR)` keeps the model.
    """
    check_arguments("finetune", ("texts", "labels", "validation", "workdir"), keys)
    parts = {"texts": check_series(texts, labels)}
    data = {"train": f"{MEMORY_PREFIX}texts"}
    if validation is not None:
        if not isinstance(validation, list | tuple) or len(validation) != 2:
            raise BertJaxError("validation must be a pair, validation=(texts, labels)")
        parts["validation"] = check_series(*validation)
        data["validation"] = f"{MEMORY_PREFIX}validation"
    task = keys.get("task") or (TAG if are_tagged(*parts["texts"]) else CLASSIFY)
    if task not in ROW_MAKERS:
        raise BertJaxError(
            f"finetune has no task {task!r:.60}; {suggest_name(task, ROW_MAKERS)}; use bert_jax.train for others"
        )
    problem = {"problem_type": infer_problem_type(parts["texts"][1])} if task == CLASSIFY else {}
    if problem == {"problem_type": NUMBER} and "problem_type" not in keys:
        print_line(
            'the labels hold fractions, so they are learnt as numbers; problem_type="single_label" learns them as '
            "classes"
        )
    if "label_descriptions" in keys:
        keys["label_descriptions"] = spell_descriptions(keys["label_descriptions"])
    values = merge_keys({"task": task, "data": data} | problem, {"init": model} | keys)
    columns = values["data"].get("columns", {})
    skips = isinstance(columns, Mapping) and columns.get("skip_bad") is True
    tables = {
        name: [
            (f"{name}[{n}]", ROW_MAKERS[task](f"{name}[{n}]", text, label))
            for n, text, label in keep_complete(
                name, *both, skips, str(values.get("problem_type")).startswith("multi_label")
            )
        ]
        for name, both in parts.items()
    }
    given = ["model" if isinstance(model, Encoder) else repr(str(model)), "texts", "labels"]
    with register_tables(tables):
        return start_run(values, workdir, format_call("finetune", given, keys))


def keep_complete(
    name: str, texts: list, labels: list, skips: bool, may_be_blank: bool = False
) -> list[tuple[int, Any, Any]]:
    """Return (index, text, label) of the examples that have a text and a label.

    Refuse other examples, or skip and count them if `skips`. With `may_be_blank`, a blank label means a text without
    labels.
    """
    texts_location, labels_location = (name, "labels") if name == "texts" else (f"{name}[0]", f"{name}[1]")
    kept, bad = [], []
    for n, (text, label) in enumerate(zip(texts, labels, strict=True)):
        fault = find_text_fault(f"{texts_location}[{n}]", text)
        blank = isinstance(label, str) and not label.strip() and not may_be_blank
        if not fault and (blank or is_missing(label)):
            fault = f"{labels_location}[{n}] is empty ({label!r})"
        if fault:
            bad.append(fault)
        else:
            kept.append((n, text, label))
    if bad and (not skips or not kept):
        counted = f"bad examples: {len(bad):,} of {len(texts):,}"
        raise BertJaxError(f"{bad[0]}; {counted}" + ("" if skips else f", which {SKIPPING} skips"))
    if bad:
        warn_caller(f"skipped {len(bad):,} of {len(texts):,} examples, the first: {bad[0]}")
    return kept


def find_text_fault(location: str, text) -> str:
    """Return why a value is not a text, a pair or a list of words; "" if it is one."""
    if is_missing(text) or (isinstance(text, str) and not text.strip()):
        return f"{location} is empty ({text!r})"
    if isinstance(text, tuple):
        return next(
            filter(None, (find_text_fault(f"{location}[{n}]", part) for n, part in enumerate(text))), ""
        )
    return "" if isinstance(text, str | list) else f"{location} holds {type_name(text)}, not text"


def is_missing(value) -> bool:
    """Return whether a value is missing: None, NaN, or NA or NaT of pandas."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, float) and math.isnan(value)


def check_series(texts, labels) -> tuple[list, list]:
    """Return texts and labels as lists of the same length; refuse anything else."""
    both = []
    for name, values in (("texts", texts), ("labels", labels)):
        values = to_plain_list(values)
        if isinstance(values, str | bytes | Mapping | Set) or not isinstance(values, Iterable):
            raise BertJaxError(f"{name} must be a list, an array or a column, not {type_name(values)}")
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
    has_lengths = all(len(text) == len(label) for text, label in zip(texts, labels, strict=True))
    return has_lengths or any(len(text) != 2 for text in texts)


def infer_problem_type(labels: list) -> str:
    """Return Hugging Face's problem_type for these labels.

    >>> infer_problem_type(["a", "b"]), infer_problem_type([["a", "b"], []]), infer_problem_type([0.5, 1.0])
    ('single_label_classification', 'multi_label_classification', 'regression')
    """
    if any(isinstance(label, list | tuple | Set) for label in labels):
        return MULTI_LABEL
    fractions = (label for label in labels if isinstance(label, float) and math.isfinite(label))
    return "single_label_classification" if all(label.is_integer() for label in fractions) else NUMBER


def labelled_row(where: str, text, label) -> dict:
    label = sorted(label) if isinstance(label, Set) else label
    if not isinstance(text, list | tuple):
        return {TEXTS[0]: text, LABELS[0]: label}
    if len(text) != 2:
        raise BertJaxError(f"{where} has {len(text)} texts; a pair has two, and words have a tag each")
    first, second = MEMORY_PAIR
    return {first: text[0], second: text[1], LABELS[0]: label}


def tagged_row(where: str, words, tags) -> dict:
    return {WORDS[0]: words, TAGS[0]: tags}


ROW_MAKERS = {CLASSIFY: labelled_row, TAG: tagged_row}
