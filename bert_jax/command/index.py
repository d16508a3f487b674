"""Verbs of search: index documents, and find the passages that answer a query."""

from bert_jax.command.flags import count, flag, verb, whole
from bert_jax.core.errors import BertJaxError


@verb(
    "build an index of documents, or change one",
    "bert-jax index docs/ --model DIR --output INDEX",
    flag(
        "documents", nargs="*", metavar="DOCS",
        help=".txt .md .html, Wikipedia's dumps (.xml, .xml.bz2) and WikiExtractor's files, tables .jsonl .csv .tsv "
        ".parquet with a row for each document, folders of these, folders in BEIR's layout; an existing index gets "
        "the new and the changed documents",
    ),
    flag("--output", required=True, metavar="INDEX", help="directory of the index"),
    flag("--model", metavar="DIR", help="embedder of the passages (default: that of the index, or else only keywords)"),
    flag("--remove", nargs="+", default=[], metavar="ID", help="documents to remove; @FILE: a file of an id per line"),
    flag("--remove-missing", action="store_true", help="remove documents of the index that are not among DOCS"),
    flag("--compact", action="store_true", help="merge all segments, and free the space of removed documents"),
    flag(
        "--quantize", choices=("none", "int8", "binary"),
        help="search quantized vectors (8 or 1 bit per dimension), then rescore with the full vectors",
    ),
    flag(
        "--approximate", choices=("none", "hnsw", "ivf"),
        help="search an approximate faiss index",
    ),
    flag(
        "--export", nargs=2, metavar=("ENGINE", "DIR"),
        help="write all passages into a new directory, for qdrant, opensearch, elasticsearch or pgvector to load; the "
        "index stays unchanged",
    ),
    flag("--passage-tokens", type=count, metavar="N", help="tokens of a passage (default: 256, or the model's)"),
    flag("--overlap", type=whole(0), metavar="N", help="tokens that neighbouring passages share (default: an eighth)"),
    flag("--text", default="", metavar="COLUMN", help="column of texts of a table (default: by its usual names)"),
    flag("--id", default="", metavar="COLUMN", help="column of ids (default: _id or id, or else FILE:ROW)"),
    flag("--title", default="", metavar="COLUMN", help="column of titles (default: title, if there is one)"),
)  # fmt: skip
def index(args):
    if args.export:
        from bert_jax.command.exporting import write

        write(args)
        return
    from bert_jax.command.indexing import change

    change(args)


@verb(
    "find the passages of an index that answer a query",
    'bert-jax search INDEX "how do cats land on their feet?"',
    flag("index", metavar="INDEX", help="directory of an index"),
    flag("query", nargs="?", metavar="QUERY", help="text to search for"),
    flag("--queries", metavar="FILE", help="file with a query per line, or a table, instead of a query"),
    flag("--top", type=count, default=10, metavar="N", help="number of passages to show (default 10)"),
    flag("--legs", metavar="NAMES", help="keywords, vectors, or both with a comma (default: what the index has)"),
    flag("--weights", metavar="NAME=W,...", help="weights of the legs, as keywords=1,vectors=2 (default 1)"),
    flag("--rerank", metavar="DIR", help="cross-encoder that reranks the top passages"),
    flag("--rerank-top", type=count, default=50, metavar="N", help="passages that --rerank scores (default 50)"),
    flag("--model", metavar="DIR", help="where the model of the index is, if it was moved"),
    flag("--verify", action="store_true", help="check the hashes of all files first"),
    flag(
        "--explain", action="store_true",
        help="show the rank and score of each leg, and what each word adds; the score of a passage is the reranker's, "
        "or else that of the fusion (reciprocal rank fusion) of two legs, or else that of the one leg",
    ),
    flag("--full", action="store_true", help="print whole passages, not excerpts"),
    flag("--json", action="store_true", help="print a JSON object for each query"),
)  # fmt: skip
def search(args):
    from bert_jax.command.search import show

    if args.query is None and args.queries is None:
        raise BertJaxError("give a query, or --queries FILE")
    if args.query is not None and args.queries is not None:
        raise BertJaxError("give a query or --queries FILE, not both")
    show(args)
