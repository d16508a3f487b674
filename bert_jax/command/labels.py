"""Verbs on fine-tuned models: evaluation and prediction."""

import shlex
import sys
from pathlib import Path

from bert_jax.command.flags import JSON, LONG, count, flag, number, one_of, verb
from bert_jax.core.errors import BertJaxError
from bert_jax.core.terminal import say

PREDICTORS = "a classifier, a tagger, a question-answering model"
TEXT = flag(
    "--text", default="", metavar="COLUMN",
    help="column of texts, words or questions; a number (0, 1) without a header (default: by its usual names)",
)  # fmt: skip
PAIR = flag("--pair", default="", metavar="COLUMN", help="column of second texts, or of passages")
DIMENSIONS = flag(
    "--dimensions",
    type=count,
    metavar="N",
    help="for an embedder: use only the first N dimensions of its vectors",
)
SKIP_BAD = flag(
    "--skip-bad", action="store_true",
    help="skip rows that are not examples, such as those with an empty cell, and count them",
)  # fmt: skip
# Flags that do not apply if an index is measured.
OF_TABLES = ("text", "pair", "label", "separator", "skip_bad", "foreign", "dimensions")


@verb(
    "measure a model or an embedder on labelled data, or compare two",
    "bert-jax evaluate --model DIR --data dev.csv --text review --json",
    one_of(
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
    flag("--label", default="", metavar="COLUMN", help="column of labels, tags or answers"),
    flag("--separator", help='separator of several labels in one cell (default: as in training, or ",")'),
    SKIP_BAD,
    LONG,
    JSON,
    flag(
        "--foreign", metavar="FILE",
        help="texts that the model should refuse, in any file that `predict` reads: measure how well it distinguishes "
        "them from the test set",
    ),
    flag("--report", metavar="DIR", help="output directory of report.md and its pictures"),
    flag("--split", default="", metavar="NAME", help="for an embedder: use the judgements of qrels/NAME.tsv"),
    DIMENSIONS,
    flag("--embedder", metavar="DIR", help="for an index: where its model is, if it was moved"),
    flag("--rerank", metavar="DIR", help="for an index: cross-encoder that reranks the top passages"),
    flag("--rerank-top", type=count, default=50, metavar="N", help="passages that --rerank scores (default 50)"),
)  # fmt: skip
def evaluate(args):
    from bert_jax.data.examples.columns import Columns
    from bert_jax.report.embedders import evaluate_embedders as embedders

    names = args.compare or [args.model]
    command = shlex.join(["bert-jax", *sys.argv[1:]])
    if args.index:
        from bert_jax.report import evaluate_index

        if unused := [name for name in OF_TABLES if getattr(args, name)]:
            raise BertJaxError(f"--{unused[0].replace('_', '-')} is not for an index; leave it out")
        of_index = evaluate_index.Trial(
            args.index, args.data, args.split, args.embedder or "", args.rerank or "", args.rerank_top
        )
        print(evaluate_index.describe(of_index, args.json, args.report, command))
        tell_of_report(args)
        return
    if args.rerank or args.embedder:
        name = "rerank" if args.rerank else "embedder"
        raise BertJaxError(f"--{name} is for an index; leave it out, or give --index")
    if embedders.is_of_embeddings(names[0], args.data):
        from bert_jax.data.examples.groups import GroupColumns
        from bert_jax.report.embedders.embedder_eval_config import Trial as EmbedderTrial

        if args.foreign:
            raise BertJaxError("--foreign is for predictions; leave it out to measure an embedder")
        texts = tuple(name for name in (args.text, args.pair) if name)
        groups = GroupColumns(texts, args.label, skip_bad=args.skip_bad)
        trial = EmbedderTrial(args.data, args.split, groups, args.dimensions, args.long)
        print(embedders.describe(names, trial, args.json, args.report, command))
        tell_of_report(args)
        return
    if args.split or args.dimensions:
        raise BertJaxError(
            "--split and --dimensions are for embedders; leave them out to measure predictions"
        )
    columns = Columns(
        args.text, args.pair, args.label, separator=args.separator or "", skip_bad=args.skip_bad
    )
    if args.compare:
        from bert_jax.report.compare import compare

        if args.report:
            raise BertJaxError("--report needs --model; a comparison is printed as lines, or with --json")
        if args.foreign:
            raise BertJaxError("--foreign needs --model; evaluate each of the two models with it")
        print(compare(*args.compare, args.data, columns, args.long, args.json))
        return
    from bert_jax.report.evaluate_predictions import Trial, describe

    trial = Trial(args.data, columns, args.long, args.foreign or "")
    if args.report:
        from bert_jax.report.prediction_page import describe_with_report

        print(describe_with_report(args.report, args.model, trial, args.json, command))
    else:
        print(describe(args.model, trial, args.json))
    tell_of_report(args)


def tell_of_report(args) -> None:
    if args.report:
        say(f"the report is {Path(args.report) / 'report.md'}", sys.stderr if args.json else sys.stdout)


@verb(
    "predict labels, tags or answers for texts",
    "bert-jax predict --model DIR --input reviews.jsonl --output predictions.jsonl",
    flag("--model", required=True, metavar="DIR", help=f"model directory: {PREDICTORS}"),
    flag(
        "--input", default="-", metavar="FILE",
        help="table as `evaluate` reads; .txt and - (standard input, the default): one text or JSON object per line",
    ),
    flag(
        "--output", metavar="FILE",
        help="output file: a .csv file also has the input's columns, others a JSON object per line (default: standard "
        "output)",
    ),
    TEXT,
    PAIR,
    flag("--id", default="", metavar="COLUMN", help='column copied to each prediction, as text (default "id")'),
    SKIP_BAD,
    LONG,
    flag(
        "--may-be-missing", action="store_true", default=None,
        help="allow that a passage has no answer (default: as the model was trained)",
    ),
    flag(
        "--precision", type=number(0, 1, above=True, below=True), metavar="P",
        help="abstain from predictions so that this share of the others is correct; needs a calibrated model",
    ),
    flag(
        "--foreign", type=number(0, 1, above=True, below=True), metavar="SHARE",
        help="mark a text as foreign if it is less similar to the training texts than all but this share of known "
        "texts are: 0.01 marks about 1%% of known texts by mistake",
    ),
    flag(
        "--rank-for-labelling", action="store_true",
        help="write the texts that are most useful to label first, each with its rank: those that are similar to many "
        "texts that the model is unsure of",
    ),
)  # fmt: skip
def predict(args):
    from bert_jax.data.examples.columns import Columns
    from bert_jax.inference.predict_file import Options, predictions, write
    from bert_jax.inference.rank_for_labelling import ranked

    columns = Columns(text=args.text, pair=args.pair, id=args.id, skip_bad=args.skip_bad)
    options = Options(args.long, args.may_be_missing, args.precision, args.foreign)
    rows_of = ranked if args.rank_for_labelling else predictions
    write(args.model, args.input, args.output, columns, options, rows_of)
