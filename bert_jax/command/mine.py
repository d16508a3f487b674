"""The verb `mine`, which finds hard negatives."""

import sys
from pathlib import Path

from bert_jax.command.flags import SKIP_BAD, flag, number_type, positive_integer, verb, whole_number_type
from bert_jax.core.config import MAX_FLOAT
from bert_jax.core.errors import BertJaxError
from bert_jax.core.files import to_json
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
    flag("--rescore", metavar="DIR", help="cross-encoder, whose scores then replace cosines in all limits"),
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
    from bert_jax.data.examples.group_columns import GroupColumns, describe_columns, positive_column
    from bert_jax.data.examples.groups import read_groups, read_text_column
    from bert_jax.search.cached_vectors import CachedEncoder
    from bert_jax.search.mining import MiningLimits
    from bert_jax.search.pair_scores import CachedPairScorer

    for source in filter(None, (args.data, args.corpus)):
        refuse_input(args.output, source)
    limits = MiningLimits(args.negatives, args.range_min, args.range_max, **score_bounds(args))
    names = tuple(name for name in (args.text, args.text_pair) if name)
    columns = GroupColumns(names, skip_bad=args.skip_bad)
    groups = read_groups(args.data, columns)
    check_pairs(args.data, groups)
    preferred, plain = positive_column(args.data, columns), GroupColumns(skip_bad=args.skip_bad)
    corpus = read_text_column(args.corpus, plain, preferred) if args.corpus else []
    cache = Path(args.cache or f"{args.output}.cache")
    vectors = CachedEncoder(args.model, cache)
    scores = CachedPairScorer(args.rescore, cache) if args.rescore else None
    print_line(describe_columns(args.data, columns, "--text and --text-pair", most=2), sys.stderr)
    counts = write_mined(Path(args.output), groups, corpus, vectors, limits, scores, args.scores)
    left = ""
    if counts.too_few:
        left = (
            f"; {counts.too_few:,} anchors have fewer than {args.negatives} negatives within the limits and are left "
            "out: a higher --range-max or a lower --margin keeps more"
        )
    print(f"{counts.groups:,} groups in {args.output}{left}", file=sys.stderr)


def write_mined(output: Path, groups, corpus, vectors, limits, scores=None, with_scores: bool = False):
    """Write the mined rows, and return counts of them."""
    from bert_jax.core.output import open_output
    from bert_jax.search.mining import MiningCounts
    from bert_jax.search.mining import mine_hard_negatives as mined

    counts = MiningCounts()
    with open_output(output) as file:
        for row in mined(groups, corpus, vectors, limits, counts, scores):
            given = row.pop("scores")
            if with_scores:
                row["scores"] = [round(score, 6) for score in given]
            file.write(to_json(row) + "\n")
    return counts


def score_bounds(args) -> dict[str, float]:
    """Return the margin, and the limits of scores that the user gave."""
    ranges = {"margin": (0, 1), "min_score": (-1, 1), "max_score": (-1, 1)}
    given = {name: value for name in ranges if (value := getattr(args, name)) is not None}
    for name, value in given.items():
        low, high = ranges[name]
        if not args.rescore and not low <= value <= high:
            raise BertJaxError(
                f"--{name.replace('_', '-')} {value:g} is out of range for cosines; give a number from {low} to {high}"
            )
    return {"margin": 0.0 if args.rescore else 0.05} | given


def check_pairs(data: str, groups) -> None:
    """Refuse data without positives."""
    if all(group.texts[0] == group.texts[1] for group in groups):
        raise BertJaxError(f"{data} has one text per row; give anchors and positives")
    if len(groups[0].texts) == 2 and groups[0].scores:
        raise BertJaxError(
            f"{data} has a score for each pair, so some second texts are not positives; remove the pairs with low "
            "scores, and the column of scores"
        )
