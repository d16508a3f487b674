"""Verbs on model directories of any kind: what they hold, another layout, words for [MASK], vectors."""

from bert_jax.command.flags import JSON, LONG, flag, verb


@verb(
    "show what a model directory holds, and what is odd about it",
    "bert-jax info path/to/model --json",
    flag("directory", help="Hugging Face model directory"),
    JSON,
)
def info(args):
    from bert_jax.hub.info import report

    print(report(args.directory, as_json=args.json))


@verb(
    "write any model directory as a safetensors one",
    "bert-jax import uncased_L-12_H-768_A-12 DIR",
    flag(
        "source",
        metavar="SRC",
        help="directory of Hugging Face, sentence-transformers or Google's TensorFlow 1",
    ),
    flag("destination", metavar="DST", help="output directory; must be new or empty"),
)
def import_(args):
    from bert_jax.command.lines import convert

    convert(args.source, args.destination)


@verb(
    "predict words for [MASK]",
    'bert-jax fill-mask --model DIR "Paris is the [MASK] of France."',
    flag("--model", required=True, metavar="DIR", help="model directory with a masked LM head"),
    flag("texts", nargs="*", metavar="TEXT", help="texts with [MASK] (default: lines of standard input)"),
    flag("--top", type=int, default=5, help="predictions per mask (default 5)"),
    flag("--json", action="store_true", help="print one JSON object per line"),
)
def fill_mask(args):
    from bert_jax.command.lines import fill_mask

    fill_mask(args.model, args.texts, args.top, args.json)


@verb(
    "compute a vector for each line of text",
    "bert-jax embed --model DIR --input lines.txt --output vectors.npy",
    flag("--model", required=True, metavar="DIR", help="sentence-transformers or other model directory"),
    flag(
        "--input", default="-", metavar="FILE", help="file with one text per line (default -, standard input)"
    ),
    flag("--output", metavar="FILE.npy", help="output file (default: JSON arrays on standard output)"),
    flag("--prompt", metavar="NAME", help="name of a prompt of the model, put before each text"),
    LONG,
)
def embed(args):
    from bert_jax.command.lines import embed

    embed(args.model, args.input, args.output, args.prompt, args.long)
