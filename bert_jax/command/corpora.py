"""Verbs on text: learn a vocabulary, prepare a corpus, and show its examples."""

from bert_jax.command.flags import COLUMN, CONFIG, INPUT, LAYOUT, TOKENIZER, count, flag, share, verb, whole

STRICT = flag("--strict", action="store_true", help="refuse broken UTF-8 and empty files")
OUTPUT = flag("--output", required=True, metavar="DIR", help="output directory")


@verb(
    "learn a vocabulary from text, or add words to a model's",
    "bert-jax vocab --input 'books/*.txt' --output vocab --size 30522",
    INPUT, LAYOUT, COLUMN, STRICT, OUTPUT,
    flag("--kind", choices=("wordpiece", "sentencepiece"), default="wordpiece",
         help="kind of vocabulary (default wordpiece)"),
    flag("--cased", action="store_true", help="keep capital letters (default: lower case)"),
    flag("--size", type=whole(1, 1 << 24),
         help="number of entries (default 30522); with --extend, of entries to add (default 1000)"),
    flag("--extend", metavar="DIR", help="model directory whose vocabulary is extended by words of the text"),
)  # fmt: skip
def vocab(args):
    from bert_jax.text.readers import Source

    source = Source(args.input, args.layout, args.column, args.strict)
    if args.extend:
        from bert_jax.hub.extend import extend

        print(extend(args.extend, source, args.output, args.size or 1000))
    else:
        from bert_jax.text.vocabulary import learn

        print(learn(source, args.output, kind=args.kind, size=args.size or 30522, cased=args.cased))


@verb(
    "turn text into a corpus of token ids",
    "bert-jax prepare --input 'books/*.txt' wiki.jsonl.gz --tokenizer vocab --output corpus",
    INPUT, LAYOUT, COLUMN, STRICT, TOKENIZER, OUTPUT,
    flag("--language", default="en", help="ISO code of the language, to split sentences (default en)"),
    flag("--heldout", type=share, default=0.01, help="share of documents for validation (default 0.01)"),
    flag("--processes", type=whole(1, 1024), help="worker processes (default: one per core)"),
)  # fmt: skip
def prepare(args):
    from bert_jax.data.corpus.prepare import prepare, summarize
    from bert_jax.text.readers import Source

    source = Source(args.input, args.layout, args.column, args.strict)
    options = {name: getattr(args, name) for name in ("language", "heldout", "processes")}
    print(summarize(prepare(source, args.tokenizer, args.output, **options), args.output))


@verb(
    "show the examples of a training step as text",
    "bert-jax inspect --config configs/pretrain.py:base --config.data.corpora=corpus --step 777",
    CONFIG,
    flag("--step", type=whole(0), default=0, help="training step (default 0)"),
    flag("--rows", type=count, default=4, help="rows to show; for an embedder, groups of texts (default 4)"),
)
def inspect(args):
    from bert_jax.command.train import inspect

    print(inspect(args.config, args.overrides, args.step, args.rows))
