"""How well an embedder does: the documents that it finds for queries, or how alike it finds pairs of texts."""

from dataclasses import asdict, dataclass

import numpy as np

from bert_jax import metrics, retrieval
from bert_jax.data.examples.groups import GroupColumns, read_groups
from bert_jax.data.examples.judged import is_judged, read_judged
from bert_jax.errors import BertJaxError
from bert_jax.files import to_json
from bert_jax.hub import directory as hub
from bert_jax.inference.model import Model, load
from bert_jax.metrics import Sums
from bert_jax.predictions.kind import known_kind
from bert_jax.report.compare import score_lines
from bert_jax.report.intervals import differences, intervals


@dataclass(frozen=True)
class Comparison:
    """What embedders are measured on."""

    data: str  # a folder in BEIR's layout, or a table of pairs with scores
    split: str = ""  # of the judgements of a folder
    columns: GroupColumns = GroupColumns()
    dimensions: int | None = None  # of the vectors; None: all


@dataclass(frozen=True)
class Measured:
    what: str  # was measured, for people
    sums: Sums


def is_of_embeddings(directory, data: str) -> bool:
    """Whether vectors are what is measured: the data has documents and queries, or the model has no predictions."""
    return is_judged(data) or known_kind(hub.survey(directory)[0]) is None


def measure(model: Model, on: Comparison) -> Measured:
    if is_judged(on.data):
        return of_documents(model, on)
    return of_pairs(model, on)


def of_documents(model: Model, on: Comparison) -> Measured:
    judged = read_judged(on.data, on.split)
    documents, queries = (
        embedded(model, list(texts.values()), name, on.dimensions)
        for name, texts in (("document", judged.documents), ("query", judged.queries))
    )
    ids = list(judged.documents)
    given = [[ids[i] for i in order] for order, _ in retrieval.nearest(queries, documents, ids)]
    sums = retrieval.ranking(given, list(judged.relevant.values()))
    count = int(sums.rows[:, -1].sum())
    return Measured(f"{count:,} queries and {len(ids):,} documents of {on.data}", sums)


def of_pairs(model: Model, on: Comparison) -> Measured:
    groups = read_groups(on.data, on.columns)
    if len(groups[0].texts) != 2 or len(groups[0].scores) != 1:
        raise BertJaxError(
            f"{on.data} is neither a folder with corpus.jsonl, queries.jsonl and qrels.tsv nor a table of two texts "
            "and their score; name its columns with --text, --pair and --label"
        )
    first, second = (
        embedded(model, [group.texts[n] for group in groups], "", on.dimensions) for n in range(2)
    )
    cosines = (first * second).sum(-1)
    sums = metrics.numbers(cosines.tolist(), [group.scores[0] for group in groups])
    correlations = Sums(
        sums.rows, lambda rows: {name: sums.scores_of(rows)[name] for name in ("spearman", "pearson")}
    )
    return Measured(f"{len(groups):,} pairs of {on.data}", correlations)


def embedded(model: Model, texts: list[str], prompt: str, dimensions: int | None) -> np.ndarray:
    """Vectors of length 1, with the prompt of that name if the model has one."""
    name = prompt if prompt in model.embedder.prompts else None
    return model.embed(texts, prompt=name, normalize=True, dimensions=dimensions)


def describe(directory, on: Comparison, as_json: bool = False) -> str:
    measured = measure(load(directory), on)
    known = intervals(measured.sums)
    if as_json:
        scores = {name: asdict(interval) for name, interval in known.items()}
        return to_json({"model": str(directory), "data": on.data, "metrics": scores})
    width = max(map(len, known))
    lines = [f"{directory} on {measured.what}", f"  {'':<{width}}           95 % interval"]
    lines += [
        f"  {name:<{width}}  {interval.value:.4f}   {interval.low:.4f} to {interval.high:.4f}"
        for name, interval in known.items()
    ]
    return "\n".join(lines)


def compare(a, b, on: Comparison, as_json: bool = False) -> str:
    """Two embedders on the same queries or pairs."""
    first, second = (measure(load(directory), on) for directory in (a, b))
    scores, apart = [first.sums.scores, second.sums.scores], differences(first.sums, second.sums)
    if as_json:
        gaps = {name: asdict(interval) for name, interval in apart.items()}
        return to_json({"models": [str(a), str(b)], "data": on.data, "scores": scores, "differences": gaps})
    return "\n".join([f"A {a}, B {b}, on {first.what}", *score_lines(scores, apart)])
