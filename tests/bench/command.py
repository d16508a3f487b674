"""The verbs of `python -m tests.bench`."""

import shlex
import sys

from bert_jax.command.flags import (
    COLUMN,
    CONFIG,
    INPUT,
    JSON,
    LAYOUT,
    OVERRIDES,
    TOKENIZER,
    Parser,
    find_verbs,
    flag,
    number_type,
    positive_integer,
    verb,
    verb_choice,
    whole_number_type,
)
from bert_jax.core.errors import BertJaxError
from tests.bench.turns import Limits

DTYPES = ("float32", "bfloat16")
DTYPE = flag("--dtype", nargs="+", choices=DTYPES, default=DTYPES, metavar="DTYPE",
             help="dtypes that bert_jax computes in: float32, bfloat16 (default both)")  # fmt: skip
MODEL = flag("--model", required=True, metavar="DIR", help="model directory")
TEXTS = (
    MODEL,
    flag("--input", required=True, metavar="FILE", help="file with one text per line"),
    flag("--texts", type=positive_integer, default=500, help="number of texts to draw from it (default 500)"),
    DTYPE,
)


def limits(rounds: int, seconds: float):
    """After so many rounds, go on until the ratio's interval is narrow or the seconds are over."""
    return (
        flag("--rounds", type=positive_integer, default=rounds, help=f"smallest number of rounds (default {rounds})"),
        flag("--seconds", type=number_type(0), default=seconds,
             help=f"start no more rounds after this many seconds (default {seconds})"),
        JSON,
    )  # fmt: skip


def against(*names: str, others: str = ""):
    return flag("--against", nargs="+", default=(), metavar="NAME", choices=None if others else names,
                help=f"what to compare with: {', '.join(names)}{others}")  # fmt: skip


@verb("throughput and latency of an embedder", "python -m tests.bench embed --model DIR --input lines.txt",
      *TEXTS, against("sentence-transformers", "sentence-transformers-bfloat16", "onnxruntime",
                      others=", or other model directories"), *limits(6, 60))  # fmt: skip
def embed(args):
    on_texts(args)


@verb("throughput and latency of a classifier", "python -m tests.bench predict --model DIR --input lines.txt",
      *TEXTS, against("transformers", "onnxruntime", others=", or other model directories"),
      *limits(6, 60))  # fmt: skip
def predict(args):
    on_texts(args)


def on_texts(args):
    from bert_jax.bench.text_speed import sample_texts
    from tests.bench.texts import compare_texts

    texts = sample_texts(args.input, args.texts)
    show(args, compare_texts, args.choice, args.model, texts, args.dtype, args.against)


def show(args, compare, *arguments) -> None:
    """Print the comparison; `compare` also takes the limits, if the verb has them."""
    limits = [Limits(args.rounds, args.seconds)] if "rounds" in args else []
    print(compare(*arguments, *limits).shown(args.json))


@verb("int8 files of an embedder: quality and speed with one thread",
      "python -m tests.bench int8 --model DIR --data sts-test.csv --calibrate sts-train.csv",
      MODEL, flag("--data", required=True, metavar="FILE", help="pairs with scores, as STS-B is published"),
      flag("--calibrate", required=True, metavar="FILE", help="pairs whose texts set the scales of static files"),
      flag("--rounds", type=positive_integer, default=6, help="number of rounds (default 6)"))  # fmt: skip
def int8(args):
    from tests.bench.int8 import compare_files

    compare_files(args.model, args.data, args.calibrate, args.rounds)


@verb("servers of an embedder under the same load",
      "python -m tests.bench serving --model DIR --data sts-test.csv --peer venv/bin/infinity_emb",
      MODEL, flag("--data", required=True, metavar="FILE", help="pairs of texts, as STS-B is published"),
      flag("--peer", metavar="PROGRAM", help="infinity_emb of an environment of its own"),
      flag("--peer-engines", nargs="+", default=["torch"], metavar="NAME", help="its engines (default torch)"),
      flag("--ray", metavar="PYTHON", help="Python of an environment with bert_jax and ray[serve]"),
      flag("--workers", nargs="+", type=positive_integer, default=[1], help="processes of ours (default 1)"),
      flag("--only", nargs="+", default=(), metavar="NAME", help='such as "jax bfloat16" (default all of ours)'),
      flag("--rounds", type=positive_integer, default=3, help="number of rounds (default 3)"),
      flag("--seconds", type=number_type(1), default=20, help="seconds of each load (default 20)"))  # fmt: skip
def serving(args):
    from tests.bench.serving import compare_servers

    compare_servers(
        args.model, args.data, args.peer, args.peer_engines, args.ray, args.workers,
        args.only, args.rounds, args.seconds,
    )  # fmt: skip


@verb("one adapter alone, and many in common batches",
      "python -m tests.bench adapters --model DIR --input lines.txt",
      MODEL, flag("--input", required=True, metavar="FILE", help="file with one text per line"),
      flag("--texts", type=positive_integer, default=500, help="number of texts to draw from it (default 500)"),
      flag("--count", type=positive_integer, default=20, help="number of adapters (default 20)"),
      flag("--rank", type=positive_integer, default=8, help="their rank (default 8)"),
      flag("--served-seconds", type=number_type(1), help="compare servers, with so many seconds of each load"),
      )  # fmt: skip
def adapters(args):
    from bert_jax.bench.text_speed import sample_texts
    from tests.bench.adapters import compare_adapters, compare_served_adapters

    work = args.model, sample_texts(args.input, args.texts), args.count, args.rank
    if args.served_seconds:
        print(compare_served_adapters(*work, args.served_seconds))
    else:
        print(compare_adapters(*work))


@verb("a pre-training step on made-up rows",
      "python -m tests.bench step --config configs/pretrain.py:base --config.data.batch_size=8 --against torch",
      *CONFIG, DTYPE, against("torch", "torch-autocast", "torch-autocast-compiled"), *limits(6, 60))  # fmt: skip
def step(args):
    from tests.bench.steps import compare_steps

    show(args, compare_steps, args.config, args.overrides, args.dtype, args.against)


@verb("scores and seconds of a fine-tuning; a round is a seed",
      "python -m tests.bench finetune --config configs/classify.py --config.init=DIR --config.data.train=train.csv",
      *CONFIG, DTYPE, against("transformers", "transformers-autocast", "sentence-transformers"),
      *limits(3, 0))  # fmt: skip
def finetune(args):
    from tests.bench.finetune import compare_finetuning

    show(args, compare_finetuning, args.config, args.overrides, args.dtype, args.against)


@verb("losses of a pre-training and of transformers",
      "python -m tests.bench pretrain --config configs/pretrain.py:tiny --workdir runs/tiny "
      "--config.data.corpora=corpus",
      *CONFIG, flag("--workdir", required=True, metavar="DIR", help="directory of our run"), JSON)  # fmt: skip
def pretrain(args):
    from tests.bench.pretrain import compare_pretraining

    show(args, compare_pretraining, args.config, args.overrides, args.workdir)


@verb("published sizes of any family with random weights, and transformers",
      "python -m tests.bench families mpnet-base deberta-v3-base",
      flag("sizes", nargs="+", metavar="SIZE", help="names that configs/pretrain.py knows"),
      *limits(6, 60))  # fmt: skip
def families(args):
    from tests.bench.families import compare_families

    show(args, compare_families, args.sizes)


@verb("from text to corpus, and the bare tokenizer",
      "python -m tests.bench prepare --input books/*.txt --tokenizer vocab",
      INPUT, LAYOUT, COLUMN, TOKENIZER,
      flag("--megabytes", type=number_type(1e-3, 1e6), default=32, help="megabytes of text to measure on (default 32)"),
      *limits(6, 60))  # fmt: skip
def prepare(args):
    from bert_jax.text.text_source import TextSource
    from tests.bench.prepare import compare_prepare

    source = TextSource(args.input, args.layout, args.column)
    show(args, compare_prepare, source, args.tokenizer, args.megabytes)


@verb("ids and offsets, and those of transformers", "python -m tests.bench tokenizers --vocab DIR --text book.txt",
      flag("--vocab", nargs="+", required=True, help="directories, vocab.txt, vocab.json, .model files"),
      flag("--text", nargs="*", default=[], help="texts: JSON or UTF-8 files"), JSON)  # fmt: skip
def tokenizers(args):
    from tests.bench.tokenizers import compare_tokenizers

    show(args, compare_tokenizers, args.vocab, args.text)


MADE_UP = (
    flag("--output", required=True, metavar="DIR", help="new output directory, for the index"),
    flag(
        "--vectors", type=whole_number_type(10_000), default=100_000, help="vectors of the index (default 100000)"
    ),
)  # fmt: skip


@verb("kinds of indexes of made-up vectors", "python -m tests.bench search --output runs/million --vectors 1000000",
      *MADE_UP)  # fmt: skip
def search(args):
    from tests.bench.search import Size, describe_search, measure_search

    size = Size(args.vectors)
    print(describe_search(size, *measure_search(args.output, size)))


@verb("an index of made-up sparse vectors", "python -m tests.bench sparse --output runs/sparse --vectors 1000000",
      *MADE_UP)  # fmt: skip
def sparse(args):
    from tests.bench.sparse_search import SparseSize, describe_sparse, measure_sparse

    size = SparseSize(args.vectors)
    print(describe_sparse(size, *measure_sparse(args.output, size)))


@verb("an index of made-up token vectors",
      "python -m tests.bench late-interaction --output runs/tokens --passages 100000",
      flag("--output", required=True, metavar="DIR", help="new output directory, for the index"),
      flag("--passages", type=whole_number_type(1000), default=100_000, metavar="N",
           help="passages of the index (default 100000)"),
      flag("--queries", type=positive_integer, default=200, metavar="N", help="queries (default 200)"))  # fmt: skip
def late_interaction(args):
    from tests.bench.late_interaction_search import TokenSize, describe_tokens, measure_tokens

    size = TokenSize(args.passages, args.queries)
    print(describe_tokens(size, *measure_tokens(args.output, size)))


@verb("scores after training on few labels, and those of scikit-learn, SetFit and transformers",
      "python -m tests.bench labels --model DIR --data DIR --output runs/labels",
      MODEL,
      flag("--data", required=True, metavar="DIR", help="directory with glue-sst2, goemotions, mrpc and conll2003, "
           "each as published, and tables in few-labels"),
      flag("--output", required=True, metavar="DIR", help="output directory; an existing one is resumed, also by an "
           "installation with other libraries"),
      flag("--sets", nargs="+", default=[], metavar="NAME", help="such as sst2, goemotions, mrpc, conll2003, snips "
           "(default all)"),
      flag("--sizes", nargs="+", type=positive_integer, default=[], metavar="N",
           help="labels of each class, or tagged sentences (default those of each set)"),
      flag("--learners", nargs="+", default=[], metavar="NAME",
           help="of default, probe, contrastive, finetune, regression, setfit, trainer (default all)"),
      flag("--draws", type=positive_integer, default=5, help="draws of each size (default 5)"))  # fmt: skip
def labels(args):
    from tests.bench.few_labels import measure_labels

    print(
        measure_labels(args.data, args.model, args.output, args.sets, args.learners, args.draws, args.sizes)
    )


@verb("pre-training recipes after equal minutes",
      "python -m tests.bench recipes --config configs/pretrain.py:tiny,laptop --beside configs/electra.py:tiny,laptop "
      "--minutes 10 --workdir runs/recipes --config.data.corpora=corpus",
      *CONFIG,
      flag("--workdir", required=True, metavar="DIR", help="directory of the runs; existing runs are resumed"),
      flag("--beside", nargs="+", default=[], metavar="RECIPE", help='other recipes, as "FILE:NAME KEY=VALUE ..."; '
           "--config takes this form, too, and --config.KEY=VALUE holds for all"),
      flag("--labels", nargs="+", default=[], metavar="FINE-TUNING", help="fine-tunings of each recipe's model "
           'and of random initial values, as "FILE:NAME KEY=VALUE ..." with a validation set and several seeds'),
      flag("--minutes", type=number_type(0, 1440, above=True), default=10, metavar="N",
           help="training minutes per recipe, without compiling and measuring (default 10)"))  # fmt: skip
def recipes(args):
    from tests.bench.recipe import Recipe
    from tests.bench.recipes import compare_recipes

    command = shlex.join(["python", "-m", "tests.bench", *sys.argv[1:]])
    compared = [Recipe(text, tuple(args.overrides)) for text in [args.config, *args.beside]]
    tunings = [Recipe(text) for text in args.labels]
    print(compare_recipes(compared, tunings, args.minutes, args.workdir, command))


@verb("steps and embedding, timed on this GPU; or bytes and FLOPs of a step that is compiled for an H200",
      "python -m tests.bench gpu --time runs/gpu",
      flag("--time", nargs="?", const="runs/gpu", metavar="DIR", help="time the cases of tests/bench/gpu_time.py, and "
           "write gpu.json and gpu.png there (default runs/gpu); tiny ones without a GPU"),
      flag("--minutes", type=number_type(0, 1440, above=True), default=10, metavar="N",
           help="minutes for all cases together (default 10)"),
      flag("--config", metavar="FILE[:NAME]", help="config file of the step to compile"), OVERRIDES,
      flag("--picture", metavar="FILE", help="draw the bytes of the parts"))  # fmt: skip
def gpu(args):
    if args.time:
        from tests.bench.gpu_time import time_cases

        print(time_cases(args.time, args.minutes))
    elif args.config:
        from tests.bench.gpu_program import compare_steps

        print(compare_steps(args.config, args.overrides, args.picture))
    else:
        raise BertJaxError(
            "--time or --config is missing: --time measures this GPU, --config compiles for an H200"
        )


@verb("kinds of positions: learned in short rows, read in longer ones",
      "python -m tests.bench positions --config configs/pretrain.py:tiny,laptop --workdir runs/positions "
      "--config.data.corpora=corpus --config.data.lengths=128",
      *CONFIG,
      flag("--workdir", required=True, metavar="DIR", help="directory of the runs; existing runs are resumed"),
      flag("--lengths", nargs="+", type=positive_integer, default=[128, 512, 2048], metavar="L",
           help="tokens of the validation rows (default 128 512 2048)"))  # fmt: skip
def positions(args):
    from tests.bench.positions import compare_positions
    from tests.bench.recipe import Recipe

    command = shlex.join(["python", "-m", "tests.bench", *sys.argv[1:]])
    recipe = Recipe(args.config, tuple(args.overrides))
    print(compare_positions(recipe, args.lengths, args.workdir, command))


@verb("hidden states of published sizes for rows of several lengths, in turn",
      "python -m tests.bench lengths base jina-bert-base --lengths 512 8192",
      flag("sizes", nargs="+", metavar="SIZE", help="names that configs/pretrain.py knows; others are compared with "
           "the first"),
      flag("--lengths", nargs="+", type=positive_integer, default=[512, 8192], metavar="L",
           help="tokens of a row (default 512 8192)"),
      flag("--rounds", type=positive_integer, default=3, help="number of rounds (default 3)"))  # fmt: skip
def lengths(args):
    from tests.bench.lengths import compare_lengths
    from tests.bench.turns import Limits

    print(compare_lengths(args.sizes, args.lengths, Limits(args.rounds, 0)))


VERBS = find_verbs(sys.modules[__name__])


def make_parser() -> Parser:
    parser = Parser(prog="python -m tests.bench", allow_abbrev=False)
    verb_choice(VERBS)(parser)
    parser.add_argument("--debug", action="store_true", help="show the traceback of a failure")
    return parser
