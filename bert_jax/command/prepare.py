"""The verb `prepare`."""

from functools import partial

from bert_jax.command.cluster_flags import RAY, cluster_options
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
from bert_jax.core.errors import BertJaxError
from bert_jax.core.terminal import print_line


@verb(
    "turn text into a corpus of token ids",
    "bert-jax prepare --input 'books/*.txt' wiki.jsonl.gz --tokenizer vocab --output corpus",
    INPUT, LAYOUT, COLUMN, STRICT, TOKENIZER, OUTPUT,
    flag("--language", default="en", help="ISO code of the language, to split sentences (default en)"),
    flag("--validation-ratio", type=fraction, default=0.01, help="share of documents for validation (default 0.01)"),
    flag("--processes", type=whole_number_type(1, 1024), help="worker processes (default: one per core)"),
    *RAY,
)  # fmt: skip
def prepare(args):
    from bert_jax.data.corpus.prepare import prepare_corpus, summarize
    from bert_jax.text.text_source import TextSource

    cluster, chunk_maker, open_source = cluster_options(args), None, TextSource
    if cluster:
        from bert_jax.cluster.prepare_parts import estimate_parts, make_parts, open_source
    source = open_source(args.input, args.layout, args.column, args.strict)
    if cluster:
        if args.processes:
            raise BertJaxError("--processes are those of one machine; give --workers, or leave --ray out")
        if args.dry_run:
            print_line(estimate_parts(cluster, source, args.tokenizer, args.language, args.output))
            return
        chunk_maker = partial(make_parts, cluster)
    options = {name: getattr(args, name) for name in ("language", "validation_ratio", "processes")}
    manifest = prepare_corpus(source, args.tokenizer, args.output, **options, chunk_maker=chunk_maker)
    print(summarize(manifest, args.output))
