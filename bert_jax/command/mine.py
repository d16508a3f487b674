"""The verb that finds hard negatives."""

import sys
from pathlib import Path

from bert_jax.command.flags import count, flag, number, verb, whole
from bert_jax.errors import BertJaxError
from bert_jax.files import to_json


@verb(
    "find hard negatives for pairs of texts",
    "bert-jax mine --model DIR --data pairs.jsonl --output mined.jsonl",
    flag("--model", required=True, metavar="DIR", help="embedder by which texts are near"),
    flag("--data", required=True, metavar="FILE", help="table whose columns are anchor and positive, in this order"),
    flag("--corpus", metavar="FILE", help="table of further texts that may be negatives (default: all positives)"),
    flag("--output", required=True, metavar="FILE.jsonl", help="output file: anchor, positive, negatives"),
    flag("--cache", metavar="DIR", help="keeps vectors for the next time (default: OUTPUT.vectors)"),
    flag("--negatives", type=count, default=3, metavar="N", help="negatives of an anchor (default 3)"),
    flag("--first", type=whole(0), default=0, metavar="N", help="pass over the N nearest texts (default 0)"),
    flag("--last", type=count, default=100, metavar="N", help="look at the N nearest texts (default 100)"),
    flag(
        "--margin", type=number(0, 1), default=0.05, metavar="SHARE",
        help="a negative's cosine is lower than the positive's by this share of it (default 0.05)",
    ),
    flag("--least", type=number(-1, 1), default=-1.0, metavar="COSINE", help="lowest cosine of a negative"),
    flag("--most", type=number(-1, 1), default=1.0, metavar="COSINE", help="highest cosine of a negative"),
)  # fmt: skip
def mine(args):
    from bert_jax.data.examples.groups import GroupColumns, read_groups
    from bert_jax.output import refuse_input, streaming
    from bert_jax.search.mining import Limits, Mined
    from bert_jax.search.mining import mine as mined
    from bert_jax.search.vectors import Vectors

    for source in filter(None, (args.data, args.corpus)):
        refuse_input(args.output, source)
    groups = read_groups(args.data, GroupColumns())
    if all(group.texts[0] == group.texts[1] for group in groups):
        raise BertJaxError(f"{args.data} holds one text in a row; anchors and positives are needed")
    corpus = [g.texts[0] for g in read_groups(args.corpus, GroupColumns())] if args.corpus else []
    limits = Limits(args.negatives, args.first, args.last, args.margin, args.least, args.most)
    counts = Mined()
    vectors = Vectors(args.model, Path(args.cache or f"{args.output}.vectors"))
    with streaming(Path(args.output)) as file:
        for row in mined(groups, corpus, vectors, limits, counts):
            file.write(to_json(row) + "\n")
    left = ""
    if counts.too_few:
        left = (
            f"; {counts.too_few:,} anchors have fewer than {args.negatives} negatives within the limits and are left "
            "out: a higher --last or a lower --margin keeps more"
        )
    print(f"{counts.groups:,} groups in {args.output}{left}", file=sys.stderr)
