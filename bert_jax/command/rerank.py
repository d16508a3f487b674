"""The verb `rerank`, which ranks candidate documents."""

import sys
from contextlib import nullcontext
from pathlib import Path

from bert_jax.command.flags import ENGINE, SKIP_BAD, engine_of, flag, number_type, positive_integer, verb
from bert_jax.core.files import to_json
from bert_jax.core.terminal import print_line


@verb(
    "rank documents for queries with a reranker",
    "bert-jax rerank --model DIR --input candidates.jsonl --top-k 10",
    flag(
        "--model", required=True, metavar="DIR",
        help="cross-encoder (a classifier with one output) or multi-vector embedder",
    ),
    flag(
        "--input", required=True, metavar="FILE",
        help="table of queries and documents, with the documents in columns, in a list, or one in each row",
    ),
    flag(
        "--text", default="", metavar="COLUMN",
        help="column of queries (default: by its usual names, or else the first that holds text)",
    ),
    flag("--text-pair", default="", metavar="COLUMN", help="column of documents (default: all others that hold text)"),
    flag("--output", metavar="FILE.jsonl", help="output file, one line per query (default: standard output)"),
    flag(
        "--top-k", type=positive_integer, metavar="N", help="write only the N best documents of each query "
        "(default: all)",
    ),
    flag(
        "--min-precision", type=number_type(0, 1, above=True, below=True), metavar="P",
        help="leave out doubtful documents so that this share of the others is relevant; needs a calibrated model",
    ),
    SKIP_BAD,
    *ENGINE,
)  # fmt: skip
def rerank(args):
    from bert_jax.core.caller_warning import warn_caller
    from bert_jax.core.output import open_output, refuse_input
    from bert_jax.core.progress import track
    from bert_jax.data.examples.candidates import CandidateColumns, read_candidates
    from bert_jax.data.examples.group_columns import describe_columns
    from bert_jax.inference.load import load
    from bert_jax.inference.reranker import check_cross_encoder, pair_counter, rank_documents

    refuse_input(args.output, args.input)
    names = tuple(name for name in (args.text, args.text_pair) if name)
    columns = CandidateColumns(names, skip_bad=args.skip_bad)
    lists = read_candidates(args.input, columns)
    model = load(args.model, **engine_of(args))
    check_cross_encoder(model, args.model)
    print_line(describe_columns(args.input, columns, "--text and --text-pair"))
    truncated = pair_counter(model)
    with open_output(Path(args.output)) if args.output else nullcontext(sys.stdout) as file:
        for candidates in track(lists, "queries"):
            documents = candidates.documents
            best = rank_documents(
                model, candidates.query, documents, min_precision=args.min_precision, truncated=truncated
            )
            rows = [
                {"index": index, "score": round(score, 6), "document": documents[index]}
                for index, score in best[: args.top_k]
            ]
            file.write(to_json({"query": candidates.query, "ranked": rows}) + "\n")
    if truncated.truncated:
        warn_caller(truncated.notice(what="pairs of a query and a document"))
    if args.output:
        print_line(f"{len(lists):,} queries in {args.output}")
