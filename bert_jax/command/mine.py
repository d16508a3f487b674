"""The verb `mine`, which finds hard negatives."""

from pathlib import Path

from bert_jax.command.flags import SKIP_BAD, flag, number_type, positive_integer, verb, whole_number_type
from bert_jax.core.config import MAX_FLOAT
from bert_jax.core.terminal import print_line

any_score = number_type(-MAX_FLOAT)


@verb(
    "find hard negatives for pairs of texts",
    "bert-jax mine --model DIR --data pairs.jsonl --output mined.jsonl",
    flag("--model", required=True, metavar="DIR", help="embedder that finds the nearest texts"),
    flag("--data", required=True, metavar="FILE", help="table of anchors and positives"),
    flag(
        "--text", default="", metavar="COLUMN",
        help="column of anchors (default: by its usual names, or else the first that holds text)",
    ),
    flag(
        "--text-pair", default="", metavar="COLUMN",
        help="column of positives (default: by its usual names, or else the next that holds text)",
    ),
    SKIP_BAD,
    flag(
        "--corpus", metavar="FILE",
        help="table of further texts to choose negatives from; read from the column with the same name as that of the "
        "positives, or else by its usual names, or else from the first that holds text (default: only the positives)",
    ),
    flag(
        "--rescore", metavar="DIR",
        help="cross-encoder or multi-vector embedder, whose scores then replace cosines in all limits",
    ),
    flag("--scores", action="store_true", help="add the scores of positive and negatives to each row"),
    flag("--output", required=True, metavar="FILE.jsonl", help="output file: anchor, positive, negatives"),
    flag("--cache", metavar="DIR", help="directory of vectors and scores for later runs (default: OUTPUT.cache)"),
    flag("--negatives", type=positive_integer, default=3, metavar="N", help="negatives for each anchor (default 3)"),
    flag("--range-min", type=whole_number_type(0), default=0, metavar="N", help="skip the N nearest texts (default 0)"),
    flag(
        "--range-max", type=positive_integer, default=100, metavar="N", help="consider only the N nearest texts "
        "(default 100)",
    ),
    flag(
        "--margin", type=number_type(0), metavar="M",
        help="how far below the positive a negative must score: a share of the positive's cosine (default 0.05), or "
        "with --rescore a difference of scores (default 0)",
    ),
    flag("--min-score", type=any_score, metavar="SCORE", help="lowest cosine of a negative, or score with --rescore"),
    flag("--max-score", type=any_score, metavar="SCORE", help="highest cosine of a negative, or score with --rescore"),
)  # fmt: skip
def mine(args):
    from bert_jax.core.output import refuse_input
    from bert_jax.data.examples.group_columns import GroupColumns
    from bert_jax.search.mining import (
        RANGES,
        MinedTable,
        MiningLimits,
        MiningSettings,
        score_bounds,
        write_rows,
    )

    for source in filter(None, (args.data, args.corpus)):
        refuse_input(args.output, source)
    bounds = score_bounds({name: getattr(args, name) for name in RANGES}, bool(args.rescore))
    limits = MiningLimits(args.negatives, args.range_min, args.range_max, **bounds)
    names = tuple(name for name in (args.text, args.text_pair) if name)
    columns, cache = GroupColumns(names, skip_bad=args.skip_bad), Path(args.cache or f"{args.output}.cache")
    rescore, corpus = args.rescore or "", args.corpus or ""
    table = MinedTable(
        MiningSettings(args.data, args.model, cache, limits, columns, corpus, rescore, args.scores)
    )
    print_line(table.describe_columns())
    written = sum(1 for _ in write_rows(Path(args.output), table.rows()))
    left = table.describe_anchors_left_out()
    print_line(f"{written:,} groups in {args.output}{'; ' * bool(left)}{left}")
