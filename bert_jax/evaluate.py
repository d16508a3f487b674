"""How well a model directory does on labelled texts: what the verb `evaluate` runs.

The directory says what is scored: its head, and for a classifier its problem_type.
"""

import json
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

from bert_jax import metrics
from bert_jax.api import Model, load
from bert_jax.data import labelled
from bert_jax.data.labelled import Columns, Example
from bert_jax.errors import BertJaxError
from bert_jax.tasks.classify import kind_of

EVIDENT = Columns()  # columns that are found by themselves
TASKS = ("classify", "tag", "answer")
CHUNK = 4096  # texts whose tokens are counted at once


@dataclass
class Scored:
    """The outcome: what was scored, its metrics, and what a reader of them should know."""

    task: str
    examples: int
    metrics: dict[str, float] = field(default_factory=dict)
    by_kind: dict[str, dict[str, float]] = field(default_factory=dict)  # of tagged spans
    notes: list[str] = field(default_factory=list)


def report(directory, data: str, columns: Columns = EVIDENT, long: str = "cut", as_json: bool = False) -> str:
    model = load(directory)
    scored = evaluate(model, data, columns, long)
    if as_json:
        return json.dumps({"model": str(directory), "data": data} | asdict(scored), ensure_ascii=False)
    lines = [f"{directory} on {scored.examples:,} examples of {data}: {scored.task}", *scored.notes]
    width = max(map(len, scored.metrics))
    lines += [f"  {name:<{width}}  {value:.4f}" for name, value in scored.metrics.items()]
    if scored.by_kind:
        width = max(map(len, scored.by_kind))
        lines += [
            f"  {'':<{width}}  " + "".join(f"{name:>11}" for name in ("f1", "precision", "recall", "spans"))
        ]
        for kind, found in scored.by_kind.items():
            shares = "".join(f"{found[name]:11.4f}" for name in ("f1", "precision", "recall"))
            lines.append(f"  {kind:<{width}}  {shares}{found['spans']:>11,}")
    return "\n".join(lines)


def evaluate(model: Model, data: str, columns: Columns = EVIDENT, long: str = "cut") -> Scored:
    task = task_of(model)
    if task == "answer":
        return answers(model, labelled.answering(data, columns))
    known = labelled.known_labels(data, columns)
    if task == "tag":
        return tags(model, labelled.tagging(data, columns), known)
    return classes(model, labelled.classification(data, columns, kind_of(model)), known, long)


def task_of(model: Model) -> str:
    # The last head is the one that the directory is named after.
    for head in reversed(model.layout.heads):
        if head in TASKS:
            return head
    has = ", ".join(model.layout.heads) or "none"
    raise BertJaxError(
        f"this model has no head that gives labels, tags or answers; its heads are: {has}. Train one with "
        "`bert-jax train --config configs/classify.py`, tag.py or answer.py"
    )


def classes(
    model: Model, examples: Sequence[Example], known: Sequence[str] = (), long: str = "cut"
) -> Scored:
    kind = kind_of(model)
    texts = [example.text for example in examples]
    scored = Scored(f"classify ({kind})", len(examples))
    names, notes = ({}, []) if kind == "number" else read_as(examples, model.labels, known)
    scored.notes += notes
    if long == "cut":
        scored.notes += cut(model, texts)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of what is cut, of which all is said already
        found = model.classify(texts, long=long)
    if kind == "number":
        scored.metrics = metrics.numbers(found, [example.label for example in examples])
    elif kind == "labels":
        truth = [{names[label] for label in example.label} for example in examples]
        scored.metrics = metrics.several([{one.label for one in each} for each in found], truth, model.labels)
    else:
        # Where the data has an order of its own, as GLUE, its second label is the one that f1 is about.
        order = [names[label] for label in known if label in names]
        order = order if sorted(order) == sorted(model.labels) else model.labels
        truth = [names[example.label] for example in examples]
        scored.metrics = metrics.classes([each.label for each in found], truth, order)
        if "f1" in scored.metrics:
            scored.notes.append(f'f1 is that of "{order[1]}"')
    return scored


def cut(model: Model, texts: Sequence) -> list[str]:
    longest, dropped = model.config.max_positions, []
    for start in range(0, len(texts), CHUNK):
        encodings = model.tokenizer.encode(texts[start : start + CHUNK], max_length=longest)
        dropped += [encoding.dropped for encoding in encodings if encoding.dropped]
    if not dropped:
        return []
    return [
        f"{len(dropped):,} of {len(texts):,} texts are longer than {longest} tokens and were cut, the longest by "
        f"{max(dropped):,} tokens; --long windows reads all of them"
    ]


def tags(model: Model, examples: Sequence[Example], known: Sequence[str] = ()) -> Scored:
    names, notes = read_as(examples, model.labels, known)
    found = model.tag_words([example.text for example in examples])
    truth = [[names[tag] for tag in example.label] for example in examples]
    kinds = {
        kind: {
            "f1": metrics.f1(right, said, true),
            "precision": metrics.ratio(right, said),
            "recall": metrics.ratio(right, true),
            "spans": true,
        }
        for kind, (right, said, true) in metrics.span_counts(found, truth).items()
    }
    return Scored("tag", len(examples), metrics.spans(found, truth), kinds, notes)


def answers(model: Model, examples: Sequence[Example]) -> Scored:
    without = sum(not example.label for example in examples)
    scored = Scored("answer", len(examples))
    if without:
        scored.notes.append(
            f"{without:,} questions have no answer: the model may give none (SQuAD 2.0; none where it is likelier)"
        )
    else:
        scored.notes.append("every question has an answer: the model must give one (SQuAD 1.1)")
    found = model.answer(
        *zip(*(example.text for example in examples), strict=True), may_be_missing=bool(without)
    )
    said = [answer.text if answer else "" for answer in found]
    scored.metrics = metrics.answers(said, [[text for _, text in example.label] for example in examples])
    return scored


def read_as(
    examples: Sequence[Example], ours: Sequence[str], known: Sequence[str] = ()
) -> tuple[dict[str, str], list[str]]:
    """The data's labels -> the model's, where it is plain which is which; and a note of it, where they differ."""
    theirs = labelled.label_names(examples, "tags")
    if set(theirs) <= set(ours):
        return {label: label for label in theirs}, []
    names = dict(zip(map(str.casefold, ours), ours, strict=True))
    if len(names) == len(ours) == len(set(map(str.casefold, ours))) and {t.casefold() for t in theirs} <= set(
        names
    ):
        found = {label: names[label.casefold()] for label in theirs}
    elif list(ours) == [f"LABEL_{i}" for i in range(len(ours))]:
        numbers = [str(i) for i in range(len(ours))]
        order = known if len(known) == len(ours) else numbers
        found = {label: ours[order.index(label)] for label in theirs if label in order}
    else:
        found = {}
    if len(found) < len(theirs):
        unread = set(theirs) - set(found)
        unread = unread - set(ours) or unread
        odd = next(example for example in examples if unread & set(labelled.labels_of(example)))
        raise BertJaxError(
            f"{odd.where}: the data's labels are {shortened(theirs)} and the model's {shortened(ours)}, and nothing "
            "says which is which; name the model's in the id2label of its config.json"
        )
    return found, [
        "labels of the data, as the model calls them: " + shortened([f"{a} = {b}" for a, b in found.items()])
    ]


def shortened(labels: Sequence[str]) -> str:
    return ", ".join(labels[:12]) + (f" and {len(labels) - 12} more" if len(labels) > 12 else "")
