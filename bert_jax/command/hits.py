"""What the verb `search` runs: hits as people and programs read them."""

import re
import sys
from dataclasses import asdict
from itertools import islice

from bert_jax.data.examples.unlabelled import read_unlabelled
from bert_jax.errors import BertJaxError, one_line
from bert_jax.files import to_json
from bert_jax.search.index import Hit, Index
from bert_jax.search.keywords import query_words

QUERIES = 64  # that are searched together
COLOUR, PLAIN = "\033[1;33m", "\033[0m"
WORD = re.compile(r"\w+")


def show(args) -> None:
    index = Index.open(args.index, args.model, args.verify)
    legs = None if args.legs is None else args.legs.split(",")
    weights = weights_of(args.weights)
    queries = iter([args.query]) if args.query is not None else read_unlabelled(args.queries)
    while some := list(islice(queries, QUERIES)):
        for query, hits in zip(
            some, index.search(some, args.top, legs, weights, args.rerank, args.rerank_top), strict=True
        ):
            if args.json:
                print(to_json({"query": query, "hits": [as_json(hit, args.explain) for hit in hits]}))
            else:
                if args.queries:
                    print(f"# {one_line(query)}")
                for rank, hit in enumerate(hits, 1):
                    print("\n".join(lines_of(rank, hit, query, args.explain)))
                if not hits:
                    print("nothing found")


def weights_of(text: str | None) -> dict[str, float] | None:
    if text is None:
        return None
    try:
        return {name: float(value) for name, value in (part.split("=") for part in text.split(","))}
    except ValueError:
        raise BertJaxError(
            f"--weights {text:.60} is not NAME=WEIGHT,...; give keywords=1,vectors=2"
        ) from None


def as_json(hit: Hit, explain: bool) -> dict:
    shown = asdict(hit)
    if not explain:
        del shown["parts"]
    return shown


def lines_of(rank: int, hit: Hit, query: str, explain: bool) -> list[str]:
    title = f"  {one_line(hit.title)}" if hit.title else ""
    lines = [f"{rank:>3}  {hit.score:.4f}  {one_line(hit.id)} {hit.start}-{hit.end}{title}"]
    if explain:
        for leg, part in hit.parts.items():
            words = "".join(f"  {word} {added:.4f}" for word, added in part.words.items())
            lines.append(f"     {leg}: rank {part.rank}, score {part.score:.4f}{words}")
    text = one_line(" ".join(hit.text.split()), longest=6 * len(hit.text))
    return [*lines, f"     {coloured(text, query)}", ""]


def coloured(text: str, query: str) -> str:
    """With the words of the query in colour, on a terminal."""
    if not sys.stdout.isatty():
        return text
    words = set(query_words(query))
    return WORD.sub(
        lambda match: f"{COLOUR}{match[0]}{PLAIN}" if match[0].lower() in words else match[0], text
    )
