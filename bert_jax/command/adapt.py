"""The verb that adapts models to documents."""

from bert_jax.command.flags import flag, number_type, positive_integer, verb, whole_number_type


@verb(
    "adapt an embedder and a reranker to documents without labels",
    "bert-jax adapt docs/ --model DIR --output runs/adapted",
    flag("documents", nargs="+", metavar="DOCS", help="documents as `bert-jax index` reads them"),
    flag("--model", required=True, metavar="DIR", help="embedder to start from"),
    flag("--output", required=True, metavar="DIR", help="output directory; an existing one is resumed"),
    flag(
        "--data", metavar="FOLDER",
        help="queries with relevance judgements of these documents, in BEIR's layout, to measure with (default: "
        "sentences, titles and words of held-out documents)",
    ),
    flag("--split", default="", metavar="NAME", help="split of --data: use the judgements of qrels/NAME.tsv"),
    flag(
        "--pairs", type=positive_integer, default=20_000, metavar="N", help="train on at most N pairs (default 20,000)",
    ),
    flag(
        "--epochs", type=number_type(0, 100, above=True), default=0.0, metavar="N",
        help="epochs of each training run (default 1; the reranker takes at least 120 steps)",
    ),
    flag("--passage-tokens", type=positive_integer, default=128, metavar="N", help="tokens of a passage (default 128)"),
    flag(
        "--rate", type=number_type(0, 1, above=True), default=0.0, metavar="R",
        help="peak learning rate of each training run (default: 2e-5 for the embedder; for the reranker by its width, "
        "5e-5 for base)",
    ),
    flag(
        "--masked-lm", type=whole_number_type(0), default=0, metavar="STEPS",
        help="first steps of masked language modelling on the documents (default 0: none)",
    ),
    flag("--distil", action="store_true", help="finally train the embedder on the reranker's scores"),
    flag("--text", default="", metavar="COLUMN", help="column of texts of a table (default: by its usual names)"),
    flag("--id", default="", metavar="COLUMN", help="column of ids (default: _id or id, or else FILE:ROW)"),
    flag("--title", default="", metavar="COLUMN", help="column of titles (default: title, if there is one)"),
)  # fmt: skip
def adapt(args):
    from bert_jax.command.adaptation import Adaptation, Settings
    from bert_jax.search.documents import DocumentColumns

    Adaptation(
        args.output,
        Settings(
            tuple(args.documents), args.model, DocumentColumns(args.text, args.id, args.title), args.pairs,
            args.epochs, args.passage_tokens, args.rate, args.masked_lm, args.distil, args.data or "", args.split,
        ),
    ).run()  # fmt: skip
