"""Verbs on model directories of any kind: what they hold, another layout, words for [MASK], vectors."""

import sys
from pathlib import Path

from bert_jax.command.flags import JSON, LONG, count, flag, verb
from bert_jax.errors import BertJaxError
from bert_jax.files import to_json


@verb(
    "show what a model directory holds, and what is unusual about it",
    "bert-jax info path/to/model --json",
    flag("directory", help="Hugging Face model directory"),
    JSON,
)
def info(args):
    from bert_jax.command.info import describe

    print(describe(args.directory, as_json=args.json))


@verb(
    "verify the hashes of a corpus, a run or a model directory",
    "bert-jax check runs/base",
    flag("directory", help="corpus, directory of a run, or model directory"),
)
def check(args):
    from bert_jax.command.check import describe

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
    flag("--json", action="store_true", help="print one JSON object per line"),
)
def fill_mask(args):
    from bert_jax.inference.model import load
    from bert_jax.text.lines import read_lines

    texts = iter(args.texts) if args.texts else read_lines("-")
    for text in load(args.model).fill_mask(texts, top=args.top):
        for fillings in text if isinstance(text[0], list) else [text]:  # of several masks
            for filled in fillings:
                if args.json:
                    result = {"token": filled.token, "score": round(filled.score, 6), "text": filled.text}
                    print(to_json(result))
                else:
                    print(f"{filled.score:.4f}  {filled.text}")


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
    from bert_jax.data.arrays import growing_array
    from bert_jax.inference.model import load
    from bert_jax.output import refuse_input
    from bert_jax.text.lines import read_lines

    if args.output is not None and not args.output.endswith(".npy"):
        raise BertJaxError(f"--output {args.output} should end in .npy, the format that it is written in")
    refuse_input(args.output, args.input)

    def vectors():
        return load(args.model).embed(read_lines(args.input), prompt=args.prompt, long=args.long)

    if args.output is None:
        for vector in vectors():
            print(to_json([round(float(x), 7) for x in vector]))
        return
    with growing_array(Path(args.output), "float32") as array:
        for vector in vectors():
            array.append(vector[None])
    print(f"{array.rows:,} vectors in {args.output}", file=sys.stderr)
