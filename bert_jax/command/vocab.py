"""The verb `vocab`."""

from bert_jax.command.flags import COLUMN, INPUT, LAYOUT, OUTPUT, STRICT, flag, verb, whole_number_type


@verb(
    "learn a vocabulary from text, or add words to a model's",
    "bert-jax vocab --input 'books/*.txt' --output vocab --size 30522",
    INPUT, LAYOUT, COLUMN, STRICT, OUTPUT,
    flag("--kind", choices=("wordpiece", "sentencepiece"), default="wordpiece",
         help="kind of vocabulary (default wordpiece)"),
    flag("--cased", action="store_true", help="keep capital letters (default: lower case)"),
    flag("--size", type=whole_number_type(1, 1 << 24),
         help="number of entries (default 30522); with --extend, of entries to add (default 1000)"),
    flag("--extend", metavar="DIR", help="model directory whose vocabulary is extended by words of the text"),
)  # fmt: skip
def vocab(args):
    from bert_jax.text.text_source import TextSource

    source = TextSource(args.input, args.layout, args.column, args.strict)
    if args.extend:
        from bert_jax.hub.extend_vocabulary import DEFAULT_ADDED, extend

        print(extend(args.extend, source, args.output, args.size or DEFAULT_ADDED))
    else:
        from bert_jax.text.vocabulary_training import DEFAULT_SIZE, train_vocabulary

        size = args.size or DEFAULT_SIZE
        print(train_vocabulary(source, args.output, kind=args.kind, size=size, cased=args.cased))
