"""The verb `prepare`."""

from bert_jax.command.flags import (
    COLUMN,
    INPUT,
    LAYOUT,
    OUTPUT,
    STRICT,
    TOKENIZER,
    flag,
    fraction,
    verb,
    whole_number_type,
)


@verb(
    "turn text into a corpus of token ids",
    "bert-jax prepare --input 'books/*.txt' wiki.jsonl.gz --tokenizer vocab --output corpus",
    INPUT, LAYOUT, COLUMN, STRICT, TOKENIZER, OUTPUT,
    flag("--language", default="en", help="ISO code of the language, to split sentences (default en)"),
    flag("--validation-ratio", type=fraction, default=0.01, help="share of documents for validation (default 0.01)"),
    flag("--processes", type=whole_number_type(1, 1024), help="worker processes (default: one per core)"),
)  # fmt: skip
def prepare(args):
    from bert_jax.data.corpus.prepare import prepare_corpus, summarize
    from bert_jax.text.text_source import TextSource

    source = TextSource(args.input, args.layout, args.column, args.strict)
    options = {name: getattr(args, name) for name in ("language", "validation_ratio", "processes")}
    print(summarize(prepare_corpus(source, args.tokenizer, args.output, **options), args.output))
