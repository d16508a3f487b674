"""Verbs on models that were fine-tuned: evaluation and predictions."""

import shlex
import sys

from bert_jax.command.flags import JSON, LONG, flag, number, one_of, verb
from bert_jax.errors import BertJaxError

MODEL = "model directory of a classifier, a tagger or a question-answering model"
TEXT = flag(
    "--text", default="", metavar="COLUMN",
    help="column of texts, words or questions; a number (0, 1) without a header (default: by its usual names)",
)  # fmt: skip
PAIR = flag("--pair", default="", metavar="COLUMN", help="column of second texts, or of passages")
SKIP_BAD = flag(
    "--skip-bad", action="store_true",
    help="leave out rows that are no examples, such as those with an empty cell, and count them",
)  # fmt: skip


@verb(
    "measure a model on labelled texts, or compare two",
    "bert-jax evaluate --model DIR --data dev.csv --text review --json",
    one_of(
        flag("--model", metavar="DIR", help=MODEL),
        flag("--compare", nargs=2, metavar=("DIR_A", "DIR_B"), help="two model directories to compare"),
    ),
    flag(
        "--data", required=True, metavar="FILE",
        help="test set: .csv .tsv .jsonl .json .parquet, CoNLL columns, SQuAD's JSON, or tfds:NAME/CONFIG:SPLIT",
    ),
    TEXT,
    PAIR,
    flag("--label", default="", metavar="COLUMN", help="column of labels, tags or answers"),
    flag("--separator", default=",", help='separator of several labels in one cell (default ",")'),
    SKIP_BAD,
    LONG,
    JSON,
    flag("--report", metavar="DIR", help="output directory of report.md and its pictures"),
)  # fmt: skip
def evaluate(args):
    from bert_jax.data.examples.columns import Columns

    columns = Columns(args.text, args.pair, args.label, separator=args.separator, skip_bad=args.skip_bad)
    given = args.data, columns, args.long, args.json
    if args.compare:
        from bert_jax.report.compare import compare

        if args.report:
            raise BertJaxError("--report needs --model; a comparison is printed as lines, or with --json")
        print(compare(*args.compare, *given))
    elif args.report:
        from bert_jax.report.page import describe_with_report

        command = shlex.join(["bert-jax", *sys.argv[1:]])
        print(describe_with_report(args.report, args.model, *given, command=command))
    else:
        from bert_jax.report.evaluate import describe

        print(describe(args.model, *given))


@verb(
    "predict labels, tags or answers for texts",
    "bert-jax predict --model DIR --input reviews.jsonl --output predictions.jsonl",
    flag("--model", required=True, metavar="DIR", help=MODEL),
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
    flag("--id", default="", metavar="COLUMN", help='column copied to each prediction (default "id")'),
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
)  # fmt: skip
def predict(args):
    from bert_jax.command.predict import write
    from bert_jax.data.examples.columns import Columns

    columns = Columns(text=args.text, pair=args.pair, id=args.id, skip_bad=args.skip_bad)
    write(args.model, args.input, args.output, columns, args.long, args.may_be_missing, args.precision)
