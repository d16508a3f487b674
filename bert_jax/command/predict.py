"""The verb `predict`."""

import sys
from contextlib import nullcontext
from pathlib import Path

from bert_jax.command.flags import LONG, PAIR, PREDICTORS, SKIP_BAD, TEXT, flag, number_type, verb
from bert_jax.core.errors import BertJaxError
from bert_jax.core.output import open_output, refuse_input
from bert_jax.core.terminal import pluralize

OTHER_TABLES = (".tsv", ".parquet", ".xlsx", ".xls")


@verb(
    "predict labels, tags or answers for texts",
    "bert-jax predict --model DIR --input reviews.jsonl --output predictions.jsonl",
    flag("--model", required=True, metavar="DIR", help=f"model directory: {PREDICTORS}"),
    flag(
        "--input", default="-", metavar="FILE",
        help="a table in any format of `evaluate --data`; or a .txt file or - (standard input, the default) with one "
        "text or JSON object per line",
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
        "--allow-no-answer", action="store_true", default=None,
        help="allow that a passage has no answer (default: as the model was trained)",
    ),
    flag(
        "--min-precision", type=number_type(0, 1, above=True, below=True), metavar="P",
        help="abstain from uncertain predictions so that this share of the others is correct; needs a calibrated model",
    ),
    flag(
        "--out-of-scope", type=number_type(0, 1, above=True, below=True), metavar="P",
        help="mark a text as out of scope if its in-distribution p-value is below P, which gives about P false alarms "
        "on texts like the training texts",
    ),
    flag(
        "--rank-for-labelling", action="store_true",
        help="write the texts in the order in which to label them, each with its rank: first those that are similar to "
        "many texts that the model is unsure of",
    ),
)  # fmt: skip
def predict(args):
    from bert_jax.data.examples.columns import ExampleColumns
    from bert_jax.inference.load import load
    from bert_jax.inference.predict_file import predict_rows, write_rows
    from bert_jax.inference.rank_for_labelling import rank_rows
    from bert_jax.inference.row_predictor import PredictionOptions, RowPredictor

    refuse_input(args.output, args.input)
    output = None if args.output is None else Path(args.output)
    ending = output.suffix.lower() if output else ""
    if ending in OTHER_TABLES:
        raise BertJaxError(f"{args.output}: predictions are written as .jsonl or .csv; name one of these")
    columns = ExampleColumns(text=args.text, text_pair=args.text_pair, id=args.id, skip_bad=args.skip_bad)
    options = PredictionOptions(args.long_texts, args.allow_no_answer, args.min_precision, args.out_of_scope)
    with open_output(output) if output else nullcontext(sys.stdout) as file:
        predictor = RowPredictor(load(args.model), options, in_table=ending == ".csv")
        make_rows = rank_rows if args.rank_for_labelling else predict_rows
        count = write_rows(make_rows(predictor, args.input, columns), file, predictor.in_table)
    if output:
        abstains = "" if args.min_precision is None else f"; the model abstains from {predictor.abstained:,}"
        print(f"{pluralize(count, 'prediction')} in {args.output}{abstains}", file=sys.stderr)
