"""Verbs on model directories of any kind: info, check, import, fill-mask, score and embed."""

from itertools import tee
from pathlib import Path

from bert_jax.command.flags import JSON, LONG, count, flag, verb
from bert_jax.core.errors import BertJaxError
from bert_jax.core.files import to_json


@verb(
    "show what a model or an index holds, and what is unusual about it",
    "bert-jax info path/to/model --json",
    flag("directory", help="Hugging Face model directory, or index"),
    flag("--ids", action="store_true", help="print the ids of all documents of an index"),
    JSON,
)
def info(args):
    from bert_jax.search.index_manifest import FILE

    if args.ids and args.json:
        raise BertJaxError("--ids prints one id per line; leave --json out")
    if args.ids or (Path(args.directory) / FILE).is_file():
        from bert_jax.search.index import Index
        from bert_jax.search.index_info import describe as describe_index
        from bert_jax.search.index_info import ids_of

        for line in (
            ids_of(Index.open(args.directory)) if args.ids else [describe_index(args.directory, args.json)]
        ):
            print(line)
        return
    from bert_jax.report.model_info import describe

    print(describe(args.directory, as_json=args.json))


@verb(
    "verify the hashes of a corpus, a run, an index or a model directory",
    "bert-jax check runs/base",
    flag("directory", help="corpus, directory of a run, index, or model directory"),
)
def check(args):
    from bert_jax.runs.integrity import describe

    print(describe(args.directory))


@verb(
    "convert a model directory of any layout to safetensors",
    "bert-jax import uncased_L-12_H-768_A-12 DIR",
    flag(
        "source",
        metavar="SRC",
        help="directory of Hugging Face, sentence-transformers or Google's TensorFlow 1",
    ),
    flag("destination", metavar="DST", help="output directory; must be new or empty"),
)
def import_(args):
    from bert_jax.inference.model import load

    if Path(args.destination).is_dir() and any(Path(args.destination).iterdir()):
        raise BertJaxError(f"{args.destination} is not empty; name a new directory")
    model = load(args.source)
    model.save(args.destination)
    heads = ", ".join(model.layout.heads) or "no head"
    print(f"{args.destination}: {model.layout.family.model_type} with {heads}, as transformers opens it")


@verb(
    "predict words for [MASK]",
    'bert-jax fill-mask --model DIR "Paris is the [MASK] of France."',
    flag("--model", required=True, metavar="DIR", help="model directory with a masked LM head"),
    flag("texts", nargs="*", metavar="TEXT", help="texts with [MASK] (default: lines of standard input)"),
    flag("--top", type=count, default=5, help="predictions per mask (default 5)"),
    flag(
        "--steps",
        type=count,
        default=0,
        metavar="N",
        help="fill the masks of a text together, in N passes, the most confident first",
    ),
    flag("--json", action="store_true", help="print one JSON object per line"),
)
def fill_mask(args):
    from bert_jax.inference.model import load
    from bert_jax.text.lines import read_lines

    texts = iter(args.texts) if args.texts else read_lines("-")
    for text in load(args.model).fill_mask(texts, top=args.top, steps=args.steps):
        for filled in flat(text):
            if args.json:
                result = {"token": filled.token, "score": round(filled.score, 6), "text": filled.text}
                print(to_json(result))
            else:
                print(f"{filled.score:.4f}  {filled.text}")


def flat(fillings) -> list:
    """Return the fillings of one mask or of several masks in one list."""
    return (
        [filling for part in fillings for filling in flat(part)] if isinstance(fillings, list) else [fillings]
    )


@verb(
    "score how probable sentences are, by masking each token in turn",
    'bert-jax score --model DIR "The cat sits." "The cat sit."',
    flag("--model", required=True, metavar="DIR", help="model directory with a masked LM head"),
    flag("texts", nargs="*", metavar="TEXT", help="texts (default: lines of standard input)"),
    flag("--json", action="store_true", help="print one JSON object per line"),
)
def score(args):
    from bert_jax.inference.model import load
    from bert_jax.text.lines import read_lines

    texts, read_ahead = tee(args.texts or read_lines("-"))
    for text, scored in zip(texts, load(args.model).score(read_ahead), strict=True):
        if args.json:
            result = {
                "score": round(scored.score, 4),
                "tokens": len(scored.tokens),
                "perplexity": round(scored.perplexity, 4),
                "text": text,
            }
            print(to_json(result))
        else:
            print(f"{scored.score:.4f}  {text}")


@verb(
    "compute a vector for each text",
    "bert-jax embed --model DIR --input lines.txt --output vectors.npy",
    flag("--model", required=True, metavar="DIR", help="sentence-transformers or other model directory"),
    flag(
        "--input", default="-", metavar="FILE",
        help="file with one text per line, or a table: .csv .tsv .jsonl .json .parquet (default -, standard input)",
    ),
    flag(
        "--text", default="", metavar="COLUMN",
        help="column of texts of a table, or of JSON objects on standard input (default: by its usual names)",
    ),
    flag(
        "--output", metavar="PATH",
        help="a file NAME.npy, or a directory of .npy files, in which the same command resumes (default: JSON arrays "
        "on standard output)",
    ),
    flag("--prompt", metavar="NAME", help="name of a prompt of the model, put before each text"),
    flag("--dimensions", type=count, metavar="N", help="keep the first N dimensions of each vector"),
    flag(
        "--quantize", choices=("int8", "binary"),
        help="store each dimension as a byte, or its sign as a bit",
    ),
    LONG,
)  # fmt: skip
def embed(args):
    from bert_jax.search.embed_file import write

    settings = {"prompt": args.prompt, "dimensions": args.dimensions, "long": args.long}
    write(args.model, settings, args.input, args.text, args.output, args.quantize)
