"""The verbs of `bert-jax bench`, from text to models."""

import shlex
import sys

from bert_jax.command.flags import (
    COLUMN,
    CONFIG,
    INPUT,
    JSON,
    LAYOUT,
    TOKENIZER,
    Verb,
    choice_of,
    count,
    flag,
    number,
    picture,
    share,
    verb,
    whole,
)

A_DAY = 86_400  # seconds
PROFILE = flag(
    "--profile", type=picture, metavar="FILE.png",
    help="instead of a comparison, print how much time each part takes, and draw it into this file",
)  # fmt: skip
COMPUTED = ("float32", "bfloat16")
DTYPE = flag(
    "--dtype", choices=(*COMPUTED, "auto"), default="float32",
    help="dtype in which bert_jax computes; auto: whichever this device multiplies faster (default float32)",
)  # fmt: skip


def chosen_dtype(name: str) -> str:
    import jax

    from bert_jax.models.precision import fast_dtype

    return fast_dtype(jax.default_backend()) if name == "auto" else name


def limits(what: str, least: int, seconds: float):
    """Return the flags of bench.turns.Limits.

    After `least` rounds, go on until the ratio's interval is narrow or the seconds are over.
    """
    return (
        flag(f"--{what}", type=count, default=least,
             help=f"smallest number of {what} (default {least})"),
        flag("--seconds", type=number(0, A_DAY), default=seconds,
             help=f"start no more {what} after this many seconds, even if the interval is still wide "
             f"(default {seconds})"),
    )  # fmt: skip


TEXTS = (
    flag("--input", metavar="FILE", help="file with one text per line (default: random words)"),
    flag("--texts", type=count, default=500, help="number of texts to draw from them (default 500)"),
    DTYPE,
    *limits("rounds", 6, 60),
    PROFILE,
    JSON,
)


def against(*libraries: str, **settings):
    known = f"libraries to compare with: {', '.join(libraries)}"
    return flag("--against", choices=libraries, metavar="LIBRARY", help=known, **settings)


@verb(
    "ids and offsets compared with those of transformers",
    "bert-jax bench tokenizers --vocab DIR --text book.txt",
    flag("--vocab", nargs="+", required=True, help="directories, vocab.txt, vocab.json, .model files"),
    flag("--text", nargs="*", default=[], help="texts: JSON or UTF-8 files"),
    JSON,
)
def tokenizers(args):
    from bert_jax.bench.tokenizers import compare_all

    print(compare_all(args.vocab, args.text, args.json))


def on_texts(args):
    from bert_jax.bench.texts import Subject, measure, profile_text
    from bert_jax.bench.turns import Limits

    subject = Subject(args.choice, args.model, args.input, args.texts, chosen_dtype(args.dtype))
    if args.profile:
        print(profile_text(subject, args.rounds, args.profile, args.json))
    else:
        print(measure(subject, args.against, Limits(args.rounds, args.seconds), args.json))


@verb(
    "throughput and latency of an embedder, compared with sentence-transformers and ONNX Runtime",
    "bert-jax bench embed --model DIR --against sentence-transformers onnxruntime --input lines.txt",
    flag("--model", required=True, metavar="DIR", help="sentence-transformers directory"),
    against("sentence-transformers", "sentence-transformers-bfloat16", "onnxruntime", nargs="+", default=()),
    *TEXTS,
)
def embed(args):
    on_texts(args)


@verb(
    "throughput and latency of a classifier, compared with transformers and ONNX Runtime",
    "bert-jax bench predict --model DIR --against transformers onnxruntime --input lines.txt",
    flag("--model", required=True, metavar="DIR", help="model directory of a classifier"),
    against("transformers", "onnxruntime", nargs="+", default=()),
    *TEXTS,
)
def predict(args):
    on_texts(args)


@verb(
    "throughput from text to corpus, compared with the bare tokenizer",
    "bert-jax bench prepare --input books/*.txt --tokenizer vocab --megabytes 12",
    INPUT,
    LAYOUT,
    COLUMN,
    TOKENIZER,
    flag(
        "--megabytes", type=number(1e-3, 1e6), default=32, help="megabytes of text to measure on (default 32)"
    ),
    *limits("rounds", 6, 60),
    JSON,
)
def prepare(args):
    from bert_jax.bench.prepare import measure
    from bert_jax.bench.turns import Limits
    from bert_jax.text.readers import Source

    source = Source(args.input, args.layout, args.column)
    print(measure(source, args.tokenizer, args.megabytes, Limits(args.rounds, args.seconds), args.json))


@verb(
    "throughput from corpus to batches, and how many chips that would feed",
    "bert-jax bench input --corpus corpus --lengths 128 512",
    flag("--corpus", required=True, metavar="DIR", help="corpus directory of `bert-jax prepare`"),
    flag("--lengths", type=count, nargs="+", default=[128, 512], help="lengths of rows (default 128 512)"),
    flag("--batch", type=count, default=256, help="rows of a batch (default 256)"),
    flag("--seconds", type=number(0, A_DAY), default=10, help="seconds to measure each figure (default 10)"),
    JSON,
)
def input_(args):
    from bert_jax.bench.input import measure

    print(measure(args.corpus, args.lengths, args.batch, args.seconds, args.json))


@verb(
    "losses of a pre-training, compared with transformers, or with other recipes at equal seconds",
    "bert-jax bench pretrain --config configs/pretrain.py:mini,laptop --beside configs/electra.py:mini,laptop "
    "--minutes 10 --workdir runs/recipes --config.data.corpora=corpus",
    CONFIG,
    flag("--workdir", required=True, metavar="DIR", help="directory of the run or runs; existing runs are resumed"),
    against("transformers"),
    flag(
        "--beside", nargs="+", metavar="RECIPE",
        help='other recipes to compare with, as "FILE:NAME KEY=VALUE ..."; --config takes this form, too, and '
        "--config.KEY=VALUE holds for all",
    ),
    flag(
        "--labels", nargs="+", metavar="FINE-TUNING",
        help="fine-tunings to start from each recipe's model and from random initial values, as "
        '"FILE:NAME KEY=VALUE ..." with a validation set and several seeds',
    ),
    flag(
        "--minutes", type=number(0, A_DAY / 60, above=True), metavar="N",
        help="training minutes per recipe, without compiling and measuring (default 10)",
    ),
    JSON,
)  # fmt: skip
def pretrain(args):
    from bert_jax.bench import pretrain, recipes
    from bert_jax.bench.recipe import Recipe
    from bert_jax.core.errors import BertJaxError

    if not (args.beside or args.labels):
        if args.minutes:
            raise BertJaxError("--minutes is for recipes; set --config.steps, or give --beside or --labels")
        print(pretrain.compare(args.config, args.overrides, args.workdir, args.against, args.json))
        return
    if args.against:
        raise BertJaxError("--beside and --labels compare recipes, not libraries; leave --against out")
    command = shlex.join(["bert-jax", *sys.argv[1:]])
    texts = [args.config, *(args.beside or [])]
    compared = [Recipe(text, tuple(args.overrides)) for text in texts]
    labels = [Recipe(text) for text in args.labels or []]
    print(recipes.compare(compared, labels, args.minutes or 10, args.workdir, command, args.json))


@verb(
    "scores and seconds of a fine-tuning, compared with transformers",
    "bert-jax bench finetune --config configs/classify.py --config.init=DIR --config.data.train=train.csv "
    "--against transformers",
    CONFIG,
    *limits("seeds", 3, 0),
    against("transformers", "transformers-autocast", "sentence-transformers", nargs="+", default=()),
    flag("--dtypes", nargs="+", choices=COMPUTED, default=(), metavar="DTYPE",
         help="dtypes that bert_jax computes in, one after the other: float32, bfloat16 (default: model.dtype)"),
    JSON,
)  # fmt: skip
def finetune(args):
    from bert_jax.bench.finetune import measure
    from bert_jax.bench.turns import Limits

    limits = Limits(args.seeds, args.seconds)
    print(measure(args.config, args.overrides, limits, args.against, args.dtypes, args.json))


@verb(
    "models of the same labels by score and by speed, as a table and a picture",
    "bert-jax bench quality runs/large/model runs/small/model --data test.csv --picture quality.png",
    flag("models", nargs="+", metavar="DIR", help="model directories; the others are compared with the first"),
    flag("--data", required=True, metavar="FILE", help="labelled examples, as `bert-jax evaluate` reads them"),
    *limits("rounds", 6, 60),
    flag("--picture", type=picture, metavar="FILE.png", help="draw scores against speeds into this file"),
    JSON,
)  # fmt: skip
def quality(args):
    from bert_jax.bench.quality import compare
    from bert_jax.bench.turns import Limits

    print(compare(args.models, args.data, Limits(args.rounds, args.seconds), args.picture, args.json))


@verb(
    "seconds of a pre-training step on synthetic batches, compared with torch",
    "bert-jax bench train --size base --batch 8 --length 128 --against torch",
    flag("--size", default="base", help="tiny, mini, small, medium, base or large (default base)"),
    flag("--batch", type=count, default=8, help="rows of a step (default 8)"),
    flag("--length", type=count, default=128, help="tokens of a row (default 128)"),
    flag("--packs", type=count, default=1, help="sequences in a row (default 1)"),
    DTYPE,
    flag("--attention", default="auto", help="kernel: auto, short, splash, cudnn or xla (default auto)"),
    flag("--dropout", type=share, default=0.1, help="dropout of hidden states (default 0.1)"),
    flag("--attention-dropout", type=share, default=0.1, help="dropout of attention (default 0.1)"),
    flag("--accumulate", type=count, default=1, help="microbatches of a step (default 1)"),
    flag(
        "--remat",
        choices=("none", "dots", "full"),
        default="none",
        help="what the backward pass computes again, to save memory (default none)",
    ),
    flag("--unroll", action="store_true", help="unroll the loop over the layers"),
    *limits("steps", 6, 60),
    against("torch"),
    PROFILE,
    JSON,
)
def train(args):
    from bert_jax.bench.train import StepShape, measure, profile_step
    from bert_jax.bench.turns import Limits

    args.dtype = chosen_dtype(args.dtype)
    shape = StepShape(**{name: getattr(args, name) for name in StepShape.__dataclass_fields__})
    if args.profile:
        print(profile_step(shape, args.steps, args.profile, args.json))
    else:
        print(measure(shape, Limits(args.steps, args.seconds), args.against, args.json))


@verb(
    "a published size of any family with random weights, compared with transformers",
    "bert-jax bench size mpnet-base deberta-v3-base",
    flag("sizes", nargs="+", metavar="SIZE", help="names that configs/pretrain.py knows"),
    flag("--rows", type=count, default=32, help="rows whose hidden states are computed (default 32)"),
    flag("--batch", type=count, default=8, help="rows of a fine-tuning step (default 8)"),
    flag("--length", type=count, default=128, help="tokens of a row (default 128)"),
    *limits("rounds", 6, 60),
    PROFILE,
    flag(
        "--figure", choices=("states", "step"), default="states", help="what --profile shows (default states)"
    ),
    JSON,
)
def size(args):
    from bert_jax.bench.size import Rows, measure, profile_size
    from bert_jax.bench.turns import Limits
    from bert_jax.core.errors import BertJaxError

    rows = Rows(args.rows, args.batch, args.length)
    if not args.profile:
        for result in measure(args.sizes, rows, Limits(args.rounds, args.seconds), args.json):
            print(result, flush=True)
        return
    if len(args.sizes) > 1:
        raise BertJaxError(f"--profile draws one size into one file, not {len(args.sizes)}; name one")
    print(profile_size(args.sizes[0], rows, args.figure, args.rounds, args.profile, args.json))


@verb(
    "scores after training on few labels, compared with scikit-learn, SetFit and transformers",
    "bert-jax bench labels --model DIR --data DIR --output runs/labels",
    flag("--model", required=True, metavar="DIR", help="sentence-transformers directory that all learners start from"),
    flag("--data", required=True, metavar="DIR", help="directory with glue-sst2, goemotions, mrpc and conll2003, each "
         "as published"),
    flag("--output", required=True, metavar="DIR", help="output directory; an existing one is resumed, also by "
         "an installation with other libraries"),
    flag("--sets", nargs="+", default=[], metavar="NAME",
         help="of sst2, goemotions, mrpc and conll2003 (default all)"),
    flag("--learners", nargs="+", default=[], metavar="NAME",
         help="of default, probe, regression, setfit and trainer (default all)"),
    flag("--sizes", type=count, nargs="+", default=[], help="numbers of examples per class (default all)"),
    flag("--draws", type=count, default=5, help="draws of each size (default 5)"),
)  # fmt: skip
def labels(args):
    from bert_jax.bench.few_labels import measure

    print(measure(args.data, args.model, args.output, args.sets, args.learners, args.sizes, args.draws))


@verb(
    "an index of made-up vectors: exact, quantized and approximate search, and recall, time and memory of each",
    "bert-jax bench search --output runs/search --vectors 1000000",
    flag("--output", required=True, metavar="DIR", help="new output directory, for the index"),
    flag("--vectors", type=whole(10_000), default=100_000, help="vectors of the index (default 100000)"),
    flag("--dimensions", type=whole(8), default=384, help="dimensions of a vector (default 384)"),
    flag("--queries", type=count, default=500, help="queries (default 500)"),
    flag("--kinds", nargs="+", choices=("float32", "int8", "binary", "hnsw", "ivf"),
         default=["float32", "int8", "binary", "hnsw", "ivf"], metavar="KIND",
         help="kinds of candidates: float32, int8, binary, hnsw, ivf (default all)"),
    JSON,
)  # fmt: skip
def search(args):
    from bert_jax.bench.search import Size, measure

    print(measure(args.output, Size(args.vectors, args.dimensions, args.queries), args.kinds, args.json))


@verb(
    "README's table: all comparisons in turn, as Markdown and as a picture",
    "bert-jax bench all --model DIR --data DIR --output runs/bench",
    flag("--output", required=True, metavar="DIR", help="output directory; an existing one is resumed"),
    flag("--model", metavar="DIR", help="sentence-transformers directory, for embedding and fine-tuning"),
    flag("--classifier", metavar="DIR", help="model directory of a classifier"),
    flag("--data", metavar="DIR", help="directory with glue-sst2, mrpc, stsbenchmark, conll2003, squad, wikitext-2, "
         "vocab and xquad, each as published; what is missing is left out"),
    flag("--corpus", metavar="DIR", help="corpus directory of `bert-jax prepare`"),
    flag("--only", nargs="+", default=[], metavar="NAME", help="measurements to take (default all)"),
    flag("--quick", action="store_true", help="use small counts: a check that everything runs, not a measurement"),
)  # fmt: skip
def all_(args):
    from pathlib import Path

    from bert_jax.bench.table import Places, measure_all

    given = {name: getattr(args, name) for name in ("model", "classifier", "data", "corpus")}
    print(measure_all(Places(given, Path(args.output)), args.only, args.quick))


BENCHES = {value.name: value for value in list(vars().values()) if isinstance(value, Verb)}
bench = verb(
    "measure speed and accuracy, compared with other libraries",
    "bert-jax bench tokenizers --vocab DIR --text book.txt",
    choice_of(BENCHES),
)(lambda args: None)
