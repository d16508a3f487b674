"""`bert_jax.mine_hard_negatives`: `bert-jax mine` from Python, for pairs in memory or in a file."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bert_jax.core.arguments import spell_as_arguments, use_python_spelling
from bert_jax.core.caller_warning import warn_caller
from bert_jax.core.config import Range, check_flag, check_number
from bert_jax.core.errors import BertJaxError
from bert_jax.core.output import refuse_input
from bert_jax.core.paths import require_path
from bert_jax.core.typed_json import type_name
from bert_jax.data.examples.column_names import ANCHOR, POSITIVE
from bert_jax.data.examples.group_columns import GroupColumns
from bert_jax.runs.model_argument import AnyModel, open_model
from bert_jax.search.mining import MinedTable, MiningLimits, MiningSettings, score_bounds, write_rows
from bert_jax.text.array_likes import to_plain_list
from bert_jax.text.input_files import MEMORY_PREFIX, register_tables

TEXT = "text"
Pair = tuple[str, str] | Mapping[str, Any]


def mine_hard_negatives(
    model: AnyModel,
    pairs: str | PathLike[str] | Iterable[Pair],
    *,
    corpus: str | PathLike[str] | Iterable[str] | None = None,
    rescore: AnyModel | None = None,
    negatives: int = 3,
    range_min: int = 0,
    range_max: int = 100,
    margin: float | None = None,
    min_score: float | None = None,
    max_score: float | None = None,
    scores: bool = False,
    text: str = "",
    text_pair: str = "",
    skip_bad: bool = False,
    output: str | PathLike[str] | None = None,
    cache: str | PathLike[str] | None = None,
) -> list[dict[str, Any]]:
    """Find hard negatives for pairs of texts, as `bert-jax mine` does: texts that an embedder finds near an anchor, but
    that are not its positives. Return a row for each anchor with so many `negatives`, and write the rows to `output`
    if it is given.

    `pairs` are pairs (anchor, positive) or dicts, or a file, whose columns `text` and `text_pair` name; `skip_bad`
    skips rows that are no pairs, and counts them. Negatives are chosen from the positives and from the texts of
    `corpus`, a list or a file. Of the `range_max` nearest texts the first `range_min` are skipped. The cosine of a
    negative lies between `min_score` and `max_score`, and below that of the positive by a share `margin` (0.05 by
    default). With `rescore`, a cross-encoder or a multi-vector embedder, its scores replace cosines, and the margin is
    a difference (0 by default). `scores` adds the scores to each row. Vectors are kept in `cache`, by default beside
    `output`.

    >>> pairs = [("the cat", "cats"), ("the mat", "mat ."), ("sat", "the cat sat")]
    >>> rows = bert_jax.mine_hard_negatives("model", pairs, negatives=1, range_max=2, margin=0)
    >>> sorted(rows[0])
    ['anchor', 'negative_1', 'positive']
    """
    for name, value, minimum in (
        ("negatives", negatives, 1),
        ("range_min", range_min, 0),
        ("range_max", range_max, 1),
    ):
        check_number(value, name, is_whole=True, allowed=Range(minimum))
    given = {"margin": margin, "min_score": min_score, "max_score": max_score}
    for name, bound in given.items():
        if bound is not None:
            check_number(bound, name, allowed=Range(0) if name == "margin" else None)
    check_flag(scores, "scores")
    check_flag(skip_bad, "skip_bad")
    for name, column in (("text", text), ("text_pair", text_pair)):
        if not isinstance(column, str):
            raise BertJaxError(f"{name} must be the name of a column, not {column!r:.60}")
    with use_python_spelling(), ExitStack() as stack:
        limits = MiningLimits(negatives, range_min, range_max, **score_bounds(given, rescore is not None))
        data, further = stack.enter_context(open_tables(pairs, corpus))
        directory = stack.enter_context(open_model("model", model))
        rescorer = "" if rescore is None else stack.enter_context(open_model("rescore", rescore))
        if cache is None and output is None:
            folder = Path(stack.enter_context(TemporaryDirectory(prefix="bert-jax-")))
        else:
            folder = require_path(f"{output}.cache" if cache is None else cache, "cache")
        columns = GroupColumns(tuple(name for name in (text, text_pair) if name), skip_bad=skip_bad)
        file = None if output is None else check_output(output, data, further)
        table = MinedTable(
            MiningSettings(data, directory, folder, limits, columns, further, rescorer, scores)
        )
        rows = list(table.rows() if file is None else write_rows(file, table.rows()))
    if left := table.describe_anchors_left_out():
        warn_caller(spell_as_arguments(left))
    return rows


def check_output(output: Any, *sources: str) -> Path:
    path = require_path(output, "output")
    for source in filter(None, sources):
        refuse_input(str(path), source)
    return path


@contextmanager
def open_tables(pairs: Any, corpus: Any) -> Iterator[tuple[str, str]]:
    """Yield the names of the tables to read: of files, or of tables in memory, which exist within the block."""
    data, further = name_file("pairs", pairs), name_file("corpus", corpus)
    tables: dict[str, list[tuple[str, dict]]] = {}
    if data is None:
        data, tables["pairs"] = f"{MEMORY_PREFIX}pairs", list(number_pairs(pairs))
    if further is None and corpus is not None:
        further, tables["corpus"] = f"{MEMORY_PREFIX}corpus", list(number_texts(corpus))
    with register_tables(tables):
        yield data, further or ""


def name_file(argument: str, values: Any) -> str | None:
    return str(require_path(values, argument)) if isinstance(values, str | PathLike) else None


def number_pairs(pairs: Any) -> Iterator[tuple[str, dict]]:
    for number, pair in enumerate(check_list("pairs", pairs, "pairs (anchor, positive)")):
        where = f"pairs[{number}]"
        if isinstance(pair, Mapping):
            yield where, dict(pair)
        elif isinstance(pair, tuple | list) and len(pair) == 2:
            yield where, dict(zip((ANCHOR, POSITIVE), pair, strict=True))
        else:
            raise BertJaxError(
                f"{where} is {type_name(pair)}; give a pair (anchor, positive), or a dict with both"
            )


def number_texts(texts: Any) -> Iterator[tuple[str, dict]]:
    for number, text in enumerate(check_list("corpus", texts, "texts")):
        if not isinstance(text, str):
            raise BertJaxError(f"corpus[{number}] is {type_name(text)}; give a text")
        yield f"corpus[{number}]", {TEXT: text}


def check_list(name: str, values: Any, what: str) -> list[Any]:
    listed = to_plain_list(values)
    if isinstance(listed, bytes | Mapping) or not isinstance(listed, Iterable):
        raise BertJaxError(f"{name} must be a path or a list of {what}, not {values!r:.60}")
    if not (listed := list(listed)):
        raise BertJaxError(f"{name} is empty; give a path or a list of {what}")
    return listed
