"""The verb `evaluate`."""

import shlex
import sys
from pathlib import Path

from bert_jax.command.flags import (
    JSON,
    LONG,
    PAIR,
    PREDICTORS,
    SKIP_BAD,
    TEXT,
    exactly_one,
    flag,
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
# Flags that do not apply if an index is measured.
TABLE_FLAGS = ("text", "text_pair", "label", "label_separator", "skip_bad", "out_of_scope", "dimensions")


@verb(
    "measure a model or an embedder on labelled data, or compare two",
    "bert-jax evaluate --model DIR --data dev.csv --text review --json",
    exactly_one(
        flag("--model", metavar="DIR", help=f"model directory: {PREDICTORS}, an embedder or a cross-encoder"),
        flag(
            "--compare", nargs=2, metavar=("DIR_A", "DIR_B"),
            help="two model directories to compare; on a folder of documents one of them may be bm25",
        ),
        flag("--index", metavar="INDEX", help="index: measure keywords, vectors, and both, on a folder of documents"),
    ),
    flag(
        "--data", required=True, metavar="FILE",
        help="test set: .csv .tsv .jsonl .json .parquet, CoNLL columns, SQuAD's JSON, or tfds:NAME/CONFIG:SPLIT; for "
        "an embedder a table of pairs, of pairs with scores or of texts with labels, or a folder with "
        "corpus.jsonl, queries.jsonl and qrels.tsv",
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
    flag("--rerank", metavar="DIR", help="for an index: cross-encoder that reranks the top passages"),
    flag(
        "--rerank-top", type=positive_integer, default=50, metavar="N", help="passages that --rerank scores "
        "(default 50)",
    ),
)  # fmt: skip
def evaluate(args):
    from bert_jax.hub.model_directory import ModelDirectory
    from bert_jax.report.embedders.bm25 import BM25
    from bert_jax.report.embedders.evaluate_embedders import evaluates_vectors

    command = shlex.join(["bert-jax", *sys.argv[1:]])
    if not args.index and (args.rerank or args.embedder):
        name = "rerank" if args.rerank else "embedder"
        raise BertJaxError(f"--{name} is for an index; leave it out, or give --index")
    if args.index:
        evaluate_index(args, command)
    else:
        names = args.compare or [args.model]
        models = [name if name == BM25.name else ModelDirectory.open(name) for name in names]
        measure = evaluate_embedders if evaluates_vectors(models[0], args.data) else evaluate_predictions
        measure(args, models, command)
    if args.report:
        file = sys.stderr if args.json else sys.stdout
        print_line(f"the report is {Path(args.report) / 'report.md'}", file)


def evaluate_index(args, command: str) -> None:
    from bert_jax.report import evaluate_index

    if unused := [name for name in TABLE_FLAGS if getattr(args, name)]:
        raise BertJaxError(f"--{unused[0].replace('_', '-')} is not for an index; leave it out")
    trial = evaluate_index.IndexEvalConfig(
        args.index, args.data, args.split, args.embedder or "", args.rerank or "", args.rerank_top
    )
    print(evaluate_index.describe_index_evaluation(trial, args.json, args.report, command))


def evaluate_embedders(args, models: list, command: str) -> None:
    from bert_jax.data.examples.group_columns import GroupColumns
    from bert_jax.report.embedders import evaluate_embedders
    from bert_jax.report.embedders.embedder_eval_config import EmbedderEvalConfig

    if args.out_of_scope:
        raise BertJaxError("--out-of-scope is for predictions; leave it out to measure an embedder")
    texts = tuple(name for name in (args.text, args.text_pair) if name)
    groups = GroupColumns(texts, args.label, skip_bad=args.skip_bad)
    trial = EmbedderEvalConfig(args.data, args.split, groups, args.dimensions, args.long_texts)
    results = evaluate_embedders.describe_embedders(models, trial, args.json, args.report, command)
    if table := evaluate_embedders.describe_table(models, trial):
        print_line(table, sys.stderr)
    print(results)


def evaluate_predictions(args, models: list, command: str) -> None:
    from bert_jax.data.examples.columns import ExampleColumns
    from bert_jax.report.compare import compare_models
    from bert_jax.report.evaluate_predictions import PredictionEvalConfig, describe_evaluation, describe_table
    from bert_jax.report.prediction_page import evaluate_with_report

    if args.split or args.dimensions:
        raise BertJaxError(
            "--split and --dimensions are not for predictions of labels, tags or answers; leave them out"
        )
    columns = ExampleColumns(
        args.text,
        args.text_pair,
        args.label,
        label_separator=args.label_separator or "",
        skip_bad=args.skip_bad,
    )
    trial = PredictionEvalConfig(args.data, columns, args.long_texts, args.out_of_scope or "")
    if args.compare:
        if args.report:
            raise BertJaxError("--report needs --model; a comparison is printed as lines, or with --json")
        if args.out_of_scope:
            raise BertJaxError("--out-of-scope needs --model; evaluate each of the two models with it")
        first, second = models
        results = compare_models(first, second, args.data, columns, args.long_texts, args.json)
    elif args.report:
        results = evaluate_with_report(args.report, models[0], trial, args.json, command)
    else:
        results = describe_evaluation(models[0], trial, args.json)
    if table := describe_table(models[0], trial):
        print_line(table, sys.stderr)
    print(results)
