"""The verb `pairs`, which makes training pairs from documents."""

from bert_jax.command.flags import DOCUMENT_COLUMNS, flag, positive_integer, verb, whole_number_type


@verb(
    "make training pairs from documents without labels",
    "bert-jax pairs docs/ --output pairs.jsonl",
    flag("documents", nargs="+", metavar="DOCS", help="documents as `bert-jax index` reads them"),
    flag("--output", required=True, metavar="FILE.jsonl", help="output file: anchor, positive"),
    flag(
        "--sources", default="titles,neighbours,queries", metavar="NAME,...",
        help="titles: a title and the passage below it; neighbours: a passage and the next one; queries: a few rare "
        "words of a sentence and its passage (default: all three)",
    ),
    flag(
        "--max-pairs", type=positive_integer, metavar="N",
        help="draw at most N pairs, equally many from each source (default: all)",
    ),
    flag(
        "--passage-words", type=whole_number_type(8, 8192), default=100, metavar="N",
        help="split documents into passages of at most N words (default 100)",
    ),
    *DOCUMENT_COLUMNS,
)  # fmt: skip
def pairs(args):
    from bert_jax.core.errors import check_name
    from bert_jax.core.output import refuse_input
    from bert_jax.core.terminal import pluralize, print_line
    from bert_jax.search.documents import DocumentColumns, DocumentSource
    from bert_jax.search.training_pairs import SOURCES

    names = args.sources.split(",")
    for name in names:
        check_name(name, SOURCES, "source of pairs")
    source = DocumentSource(args.documents, DocumentColumns(args.text, args.id, args.title))
    for path in source.files:
        refuse_input(args.output, path)
    documents, counts = write_pairs(args, source, names)
    for line in source.notes():
        print_line(line)
    numbers = ", ".join(f"{number:,} of {name}" for name, number in counts.items())
    pairs = f"{pluralize(sum(counts.values()), 'pair')} of {pluralize(documents, 'document')}"
    print_line(f"{pairs} in {args.output}: {numbers}")


def write_pairs(args, source, names: list[str]) -> tuple[int, dict[str, int]]:
    """Write the pairs. Return the number of documents, and the numbers of pairs of each source."""
    from pathlib import Path
    from tempfile import TemporaryDirectory

    from bert_jax.core.errors import BertJaxError
    from bert_jax.core.files import to_json
    from bert_jax.core.output import open_output
    from bert_jax.core.progress import track
    from bert_jax.data.examples.column_names import ANCHOR, POSITIVE
    from bert_jax.search.passages import PassageCutter, WordCounter
    from bert_jax.search.training_pairs import Passages, draw_equally

    counts = dict.fromkeys(names, 0)
    with TemporaryDirectory() as folder, open_output(Path(args.output)) as file:
        documents = track(source.documents(), "documents", "reading")
        passages = Passages.write(
            Path(folder), PassageCutter(WordCounter(), args.passage_words, 0)(documents)
        )
        positives = {name: numbers for name, numbers in passages.positives().items() if name in counts}
        if args.max_pairs:
            positives = draw_equally(positives, args.max_pairs)
        total = sum(map(len, positives.values()))
        for name, anchor, positive in track(passages.pairs(positives), "pairs", "writing", total):
            file.write(to_json({ANCHOR: anchor, POSITIVE: positive}) + "\n")
            counts[name] += 1
        given = " ".join(args.documents)
        if not passages.titles:
            raise BertJaxError(
                f"{given}: no documents that can be read; {next(source.notes(), 'name others')}"
            )
        if not any(counts.values()):
            raise BertJaxError(
                f"{given}: the documents give no pairs of {' or '.join(names)}; give longer ones, or ones with titles"
            )
    return len(passages.titles), counts
