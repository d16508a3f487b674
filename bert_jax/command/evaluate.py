"""The verb `evaluate`."""

import shlex
import sys
from pathlib import Path

from bert_jax.command.flags import (
    ENGINE,
    JSON,
    LONG,
    PAIR,
    PREDICTORS,
    RERANK_TOP,
    SKIP_BAD,
    TEXT,
    engine_of,
    exactly_one,
    flag,
    given_flags,
    positive_integer,
    verb,
)
from bert_jax.core.errors import BertJaxError
from bert_jax.core.terminal import print_line

DIMENSIONS = flag(
    "--dimensions",
    type=positive_integer,
    metavar="N",
    help="for an embedder: use only the first N dimensions of its vectors",
)
TEXT_FLAGS = (
    "data", "text", "text_pair", "label", "label_separator", "long_texts", "out_of_scope", "split", "report"
)  # fmt: skip
# Flags that do not apply if an index is measured, and those that apply to nothing else.
TABLE_FLAGS = ("text", "text_pair", "label", "label_separator", "skip_bad", "out_of_scope", "dimensions")
INDEX_FLAGS = ("rerank", "rerank_top", "embedder", "sparse_model", "multi_vector_model")


@verb(
    "measure a model or an embedder on labelled data, or compare two",
    "bert-jax evaluate --model DIR --data dev.csv --text review --json",
    exactly_one(
        flag("--model", metavar="DIR", help=f"model directory: {PREDICTORS}, an embedder or a cross-encoder"),
        flag(
            "--compare", nargs=2, metavar=("DIR_A", "DIR_B"),
            help="two model directories to compare; on a folder of documents one may be bm25, or an index, which "
            "stands for its embedder and has the vectors of documents already",
        ),
        flag("--index", metavar="INDEX", help="index: measure its retrievers and fusions on a folder of documents"),
    ),
    flag(
        "--data", required=True, metavar="FILE",
        help="test set: .csv .tsv .jsonl .json .parquet, CoNLL columns, SQuAD's JSON, or tfds:NAME/CONFIG:SPLIT; for "
        "an embedder a table of pairs or of pairs with scores, or a folder with corpus.jsonl, queries.jsonl and "
        "qrels.tsv",
    ),
    TEXT,
    PAIR,
    flag("--label", default="", metavar="COLUMN", help="column of labels, tags, answers or scores"),
    flag("--label-separator", help='separator of several labels in one cell (default: as in training, or ",")'),
    SKIP_BAD,
    LONG,
    JSON,
    flag(
        "--out-of-scope", metavar="FILE",
        help="file of texts that the model should refuse, as `predict` reads them: measure how well it detects them",
    ),
    flag("--report", metavar="DIR", help="directory to write report.md and its pictures to"),
    flag("--split", default="", metavar="NAME", help="for a folder of documents: use the judgements of qrels/NAME.tsv"),
    DIMENSIONS,
    flag("--embedder", metavar="DIR", help="for an index: directory of its model, if it was moved"),
    flag("--sparse-model", metavar="DIR", help="for an index: directory of its sparse model, if it was moved"),
    flag(
        "--multi-vector-model", metavar="DIR",
        help="for an index: directory of its multi-vector embedder, if it was moved",
    ),
    flag(
        "--rerank", metavar="DIR",
        help="for an index: cross-encoder or multi-vector embedder that reranks the top passages",
    ),
    RERANK_TOP,
    *ENGINE,
)  # fmt: skip
def evaluate(args):
    command = shlex.join(["bert-jax", *sys.argv[1:]])
    if args.index:
        measure_index(args, command)
    else:
        if given := given_flags(args, INDEX_FLAGS):
            raise BertJaxError(f"{given[0]} is for an index; leave it out, or give --index")
        measure_models(args, command)
    if args.report:
        print_line(f"the report is {Path(args.report) / 'report.md'}")


def measure_models(args, command: str) -> None:
    from bert_jax.report.model_evaluation import EvaluationSettings, evaluate_models

    given = {name: getattr(args, name) or "" for name in TEXT_FLAGS}
    settings = EvaluationSettings(
        skip_bad=args.skip_bad, dimensions=args.dimensions, command=command, **given
    )
    models = [open_to_evaluate(name, engine_of(args)) for name in args.compare or [args.model]]
    evaluation, table = evaluate_models(models, settings)
    if table:
        print_line(table)
    print(evaluation.format(args.json))


def open_to_evaluate(name: str, computed: dict):
    """Return the model or the index of a directory, or the name of BM25, which has none."""
    from bert_jax.inference.engine import open_directory
    from bert_jax.report.embedders.evaluated_embedder import BM25
    from bert_jax.search.index import Index
    from bert_jax.search.index_manifest import is_index

    if name == BM25.name:
        return name
    return Index.open(name, **computed) if is_index(name) else open_directory(name, **computed)


def measure_index(args, command: str) -> None:
    from bert_jax.report.evaluate_index import IndexEvalConfig, describe_index_evaluation
    from bert_jax.search.index import Index

    if unused := given_flags(args, TABLE_FLAGS) + ["--long-texts"] * (args.long_texts != "truncate"):
        raise BertJaxError(f"{unused[0]} is not for an index; leave it out")
    eval_config = IndexEvalConfig(args.data, args.split, args.rerank, args.rerank_top)
    index = Index.open(
        args.index, args.embedder, sparse_model=args.sparse_model, multi_vector_model=args.multi_vector_model,
        **engine_of(args),
    )  # fmt: skip
    print(describe_index_evaluation(index, eval_config, args.report, command).format(args.json))
