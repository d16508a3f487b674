"""The verb `predict`."""

import sys
from argparse import ArgumentTypeError
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from bert_jax.command.cluster_flags import cluster_options, shard_flags, write_on_cluster
from bert_jax.command.flags import (
    ENGINE,
    LONG,
    PAIR,
    PREDICTORS,
    SKIP_BAD,
    TEXT,
    engine_of,
    flag,
    number_type,
    verb,
)
from bert_jax.core.errors import BertJaxError
from bert_jax.core.output import open_output, refuse_input
from bert_jax.core.terminal import pluralize, print_line

if TYPE_CHECKING:
    from bert_jax.data.examples.columns import ExampleColumns
    from bert_jax.inference.row_predictor import PredictionOptions
    from bert_jax.inference.zero_shot import CandidateLabels

OTHER_TABLES = (".tsv", ".parquet", ".xlsx", ".xls")
share = number_type(0, 1, above=True, below=True)


def label_precision(text: str) -> tuple[str, float]:
    """The type of a precision: P of all predictions, as ("", P), or LABEL=P of those of a label, as (LABEL, P).

    >>> label_precision("0.9"), label_precision("a=b=0.99")
    (('', 0.9), ('a=b', 0.99))
    """
    label, equals, precision = text.rpartition("=")
    if equals and not label:
        raise ArgumentTypeError(f'names no label in "{text:.40}"; write LABEL=P')
    return label, share(precision)


def join_precisions(given: list[tuple[str, float]]) -> float | dict[str, float] | None:
    """Return the precision of all predictions or those of labels; refuse both together, and a label twice.

    >>> join_precisions([("", 0.9)]), join_precisions([("spam", 0.99), ("ham", 0.9)]), join_precisions([])
    (0.9, {'spam': 0.99, 'ham': 0.9}, None)
    """
    by_label = dict(given)
    if len(by_label) < len(given) or ("" in by_label and len(given) > 1):
        raise BertJaxError(
            "--min-precision takes one precision of all predictions, or one for each of some labels, LABEL=P"
        )
    return by_label.get("", by_label or None)


@verb(
    "predict labels, tags or answers for texts",
    "bert-jax predict --model DIR --input reviews.jsonl --output predictions.jsonl",
    flag("--model", required=True, metavar="DIR", help=f"model directory: {PREDICTORS}"),
    flag(
        "--input", default="-", metavar="FILE",
        help="a table in any format of `evaluate --data`; or a .txt file or - (standard input, the default) with one "
        "text or JSON object per line; with --ray also a folder, a glob or a bucket (gs://, s3://)",
    ),
    flag(
        "--output", metavar="PATH",
        help="output file: a .csv file also has the input's columns, others a JSON object per line (default: standard "
        "output); with --ray a folder, in a bucket or not",
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
        "--labels", metavar="A,B,...",
        help="zero-shot: predict these labels, which the model was not trained for; a classifier of entailment reads "
        "each text with a sentence about each label, an embedder compares vectors",
    ),
    flag(
        "--hypothesis-template", metavar="TEXT",
        help='sentence about a label, with {} in its place (default "This example is {}."; for an embedder "{}")',
    ),
    flag("--multi-label", action="store_true", help="with --labels: a text may have several of them, or none"),
    flag(
        "--min-precision", nargs="+", type=label_precision, metavar="P",
        help="abstain from uncertain predictions so that this share of the others is correct; or LABEL=P: abstain from "
        "those of one label, such as spam=0.99; needs a calibrated model",
    ),
    flag(
        "--probabilities", action="store_true",
        help="write the probability of every label, in a .csv file in a column for each",
    ),
    flag(
        "--out-of-scope", type=share, metavar="P",
        help="mark a text as out of scope if its in-distribution p-value is below P, which gives about P false alarms "
        "on texts like the training texts",
    ),
    flag(
        "--rank-for-labelling", action="store_true",
        help="write the texts in the order in which to label them, each with its rank: first those that are similar to "
        "many texts that the model is unsure of",
    ),
    *ENGINE,
    *shard_flags("jsonl", "csv", "parquet"),
)  # fmt: skip
def predict(args):
    from bert_jax.data.examples.columns import ExampleColumns
    from bert_jax.inference.row_predictor import PredictionOptions

    cluster = cluster_options(args)
    columns = ExampleColumns(text=args.text, text_pair=args.text_pair, id=args.id, skip_bad=args.skip_bad)
    options = PredictionOptions(
        args.long_texts, args.allow_no_answer, join_precisions(args.min_precision or []), args.out_of_scope,
        args.probabilities, candidate_labels(args), args.skip_bad,
    )  # fmt: skip
    if not cluster:
        predict_here(args, options, columns)
        return
    from bert_jax.cluster.predict_shards import PredictShards

    if args.rank_for_labelling:
        raise BertJaxError("--rank-for-labelling compares all texts with one another; leave --ray out")
    write_on_cluster(args, cluster, PredictShards, options=options, columns=columns)


def candidate_labels(args) -> "CandidateLabels | None":
    """Return the labels of a zero-shot classification, if there is one."""
    from bert_jax.inference.zero_shot import CandidateLabels

    if args.labels is None:
        if args.hypothesis_template is not None or args.multi_label:
            raise BertJaxError("--hypothesis-template and --multi-label are for --labels; name some")
        return None
    if args.rank_for_labelling:
        raise BertJaxError(
            "--rank-for-labelling is for labels that the model was trained for; leave --labels out"
        )
    return CandidateLabels.read(args.labels, args.hypothesis_template or "", args.multi_label)


def predict_here(args, options: "PredictionOptions", columns: "ExampleColumns") -> None:
    from bert_jax.inference.load import load
    from bert_jax.inference.rank_for_labelling import rank_rows
    from bert_jax.inference.row_predictor import RowPredictor, predict_rows, write_rows

    refuse_input(args.output, args.input)
    output = None if args.output is None else Path(args.output)
    ending = output.suffix.lower() if output else ""
    if ending in OTHER_TABLES:
        raise BertJaxError(f"{args.output}: predictions are written as .jsonl or .csv; name one of these")
    in_terminal = output is None and sys.stdout.isatty()
    with open_output(output) if output else nullcontext(sys.stdout) as file:
        predictor = RowPredictor(load(args.model, **engine_of(args)), options, ending == ".csv", in_terminal)
        if isinstance(options.precision, dict):
            for label, wanted in options.precision.items():
                print_line(predictor.model.calibration.describe_label_threshold(label, wanted))
        make_rows = rank_rows if args.rank_for_labelling else predict_rows
        count = write_rows(predictor, make_rows(predictor, args.input, columns), file)
    if output:
        abstained = "" if options.precision is None else f"; the model abstains from {predictor.abstained:,}"
        print(f"{pluralize(count, 'prediction')} in {args.output}{abstained}", file=sys.stderr)
