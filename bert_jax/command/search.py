"""The verb `search`: find passages, and print them as text or as JSON."""

import re
import sys
from collections.abc import Iterator
from dataclasses import asdict
from itertools import islice
from typing import TYPE_CHECKING

from bert_jax.command.flags import ENGINE, RERANK_TOP, engine_of, flag, positive_integer, verb
from bert_jax.core.errors import BertJaxError, one_line
from bert_jax.core.files import to_json
from bert_jax.core.surrogates import replace_surrogates
from bert_jax.core.terminal import BOLD, RESET, YELLOW, is_coloured, print_line, wrap_for_terminal

if TYPE_CHECKING:
    from bert_jax.search.index import Hit
    from bert_jax.search.keywords import WordFinder

QUERIES_AT_ONCE = 64  # queries searched together
EXCERPT_CHARACTERS = 240  # characters of a passage that are shown, about three lines of a terminal
INDENT = 5
TOKEN = re.compile(r"\S+")


@verb(
    "find the passages of an index that answer a query",
    'bert-jax search INDEX "how do cats land on their feet?"',
    flag("index", metavar="INDEX", help="directory of an index"),
    flag("query", nargs="?", metavar="QUERY", help="text to search for"),
    flag("--queries", metavar="FILE", help="file with one query per line, or a table, instead of QUERY"),
    flag("--top-k", type=positive_integer, default=10, metavar="N", help="number of passages to show (default 10)"),
    flag(
        "--retrievers", metavar="NAMES",
        help="keywords, vectors, sparse, late_interaction; several with commas (default: all)",
    ),
    flag("--weights", metavar="NAME=W,...", help="weights of the retrievers, as keywords=1,vectors=2 (default 1)"),
    flag("--rerank", metavar="DIR", help="cross-encoder or multi-vector embedder that reranks the top passages"),
    RERANK_TOP,
    flag("--model", metavar="DIR", help="directory of the index's model, if it was moved"),
    flag("--sparse-model", metavar="DIR", help="directory of the index's sparse model, if it was moved"),
    flag("--multi-vector-model", metavar="DIR", help="directory of its multi-vector embedder, if it was moved"),
    flag("--verify", action="store_true", help="check the hashes of all files first"),
    flag(
        "--explain", action="store_true",
        help="for each passage, show its rank and score in each retriever, their fusion (sum of scaled scores) and the "
        "reranker, and what each word or token of the query adds to the score; for token vectors, also the word of the "
        "passage that it matched",
    ),
    flag("--full", action="store_true", help="print whole passages, not excerpts"),
    flag("--json", action="store_true", help="print a JSON object for each query"),
    *ENGINE,
)  # fmt: skip
def search(args):
    if args.query is None and args.queries is None:
        raise BertJaxError("give a query, or --queries FILE")
    if args.query is not None and args.queries is not None:
        raise BertJaxError("give a query or --queries FILE, not both")
    if args.rerank_top and not args.rerank:
        raise BertJaxError("--rerank-top is for --rerank; add --rerank DIR, or leave it out")

    from bert_jax.search import index as indexes
    from bert_jax.search.keywords import WordFinder

    index = indexes.Index.open(
        args.index, args.model, args.verify, sparse_model=args.sparse_model,
        multi_vector_model=args.multi_vector_model, **engine_of(args),
    )  # fmt: skip
    if not len(index):
        raise BertJaxError(
            f"{args.index} holds no documents; `bert-jax index DOCS --output {args.index}` adds some"
        )
    retrievers = None if args.retrievers is None else args.retrievers.split(",")
    weights = parse_weights(args.weights)
    rerank_top = args.rerank_top or indexes.RERANK_TOP
    typed = [] if args.query is None else [replace_surrogates(args.query)]
    queries = iter(typed or read_queries(args.queries))
    while some := list(islice(queries, QUERIES_AT_ONCE)):
        by_query = index.search(
            some, args.top_k, retrievers, weights, args.rerank, rerank_top, explain=args.explain
        )
        for query, hits in zip(some, by_query, strict=True):
            if args.json:
                print(to_json({"query": query, "hits": [hit_to_json(hit, args.explain) for hit in hits]}))
            else:
                if args.queries:
                    print(f"# {one_line(query)}")
                words = WordFinder(query, index.manifest.stemmed_language)
                for rank, hit in enumerate(hits, 1):
                    print("\n".join(format_hit(rank, hit, words, args.explain, args.full)))
                if not hits:
                    print("nothing found")


def read_queries(source: str) -> Iterator[str]:
    """Yield the queries of a file; skip and count blank ones."""
    from bert_jax.data.examples.unlabelled_texts import read_unlabelled

    count = blank = 0
    for query in read_unlabelled(source):
        if query.strip():
            count += 1
            yield query
        else:
            blank += 1
    if not count:
        raise BertJaxError(f"{source} holds no query; write one in each line")
    if blank:
        print_line(f"{blank:,} blank {'query' if blank == 1 else 'queries'} of {source} left out")


def parse_weights(text: str | None) -> dict[str, float] | None:
    if text is None:
        return None
    try:
        return {name: float(value) for name, value in (part.split("=") for part in text.split(","))}
    except ValueError:
        raise BertJaxError(
            f"--weights {text:.60} is not NAME=WEIGHT,...; give keywords=1,vectors=2"
        ) from None


def hit_to_json(hit: "Hit", explain: bool) -> dict:
    shown = asdict(hit)
    if not explain:
        del shown["rankings"]
    return shown


def format_hit(rank: int, hit: "Hit", wanted: "WordFinder", explain: bool, full: bool) -> list[str]:
    title = f"  {one_line(hit.title)}" if hit.title else ""
    lines = [f"{rank:>3}  {hit.score:.4f}  {one_line(hit.id)}, characters {hit.start}-{hit.end}{title}"]
    if explain:
        for retriever, part in hit.rankings.items():
            words = "".join(f"  {word} {added:.4f}" for word, added in part.words.items())
            lines.append(f"     {retriever}: rank {part.rank}, score {part.score:.4f}{words}")
    text = one_line(" ".join(hit.text.split()), longest=6 * len(hit.text))
    text = " " * INDENT + (text if full else excerpt(text, wanted))
    shown = wrap_for_terminal(text, sys.stdout, INDENT)
    return [*lines, highlight_words(shown, wanted), ""]


def excerpt(text: str, wanted: "WordFinder", longest: int = EXCERPT_CHARACTERS) -> str:
    """Return the part of a text with the largest number of distinct wanted words; among equal parts, the first.

    >>> from bert_jax.search.keywords import WordFinder
    >>> excerpt("Dogs bark. Most cats land on their feet, and some do not.", WordFinder("cats feet", None), 32)
    '… cats land on their feet, and …'
    >>> excerpt("Dogs bark. Most cats land on their feet.", WordFinder("fish", None), 20)
    'Dogs bark. Most …'
    """
    if len(text) <= longest:
        return text
    room = longest - 4  # for the dots on both sides
    tokens = list(TOKEN.finditer(text))
    matches = [
        (token.start(), words) for token in tokens if (words := {stem for _, stem in wanted.find(token[0])})
    ]

    def count(start: int) -> int:
        return len(
            {word for position, words in matches if start <= position < start + room for word in words}
        )

    best = min(max([0, *(position for position, _ in matches)], key=count), len(text) - room)
    begin = min((token.start() for token in tokens if token.start() >= best), default=best)
    end = max((token.end() for token in tokens if begin < token.end() <= begin + room), default=begin + room)
    return "… " * (begin > 0) + text[begin:end] + " …" * (end < len(text))


def highlight_words(text: str, wanted: "WordFinder") -> str:
    """Colour the wanted words, if standard output is a terminal."""
    if is_coloured():
        for match, _ in reversed(wanted.find(text)):
            text = f"{text[: match.start()]}{BOLD}{YELLOW}{match[0]}{RESET}{text[match.end() :]}"
    return text
