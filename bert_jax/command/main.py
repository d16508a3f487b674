"""`bert-jax VERB`: parses flags and calls one function.

Each verb is a function that adds its flags to a parser and returns what to run; its heavy imports stand
inside that, so help stays instant. Verbs stand in the order of the journey from text to answer.
"""

import argparse
import os
import shlex
import signal
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from glob import glob
from importlib.util import find_spec

from bert_jax import __version__
from bert_jax.command.bench import SUBJECTS
from bert_jax.command.flags import Parser, Run, column_flags, config_flags, input_flags, long_flag
from bert_jax.command.interrupts import interruptible
from bert_jax.errors import BertJaxError, nearest
from bert_jax.files import programs_home

VERBS: dict[str, tuple[Callable[[argparse.ArgumentParser], Run], str, str]] = {}


def verb(summary: str, example: str):
    def register(declare):
        VERBS[declare.__name__.strip("_").replace("_", "-")] = (declare, summary, example)
        return declare

    return register


@verb(
    "learn a vocabulary from text, or add words to a model's",
    "bert-jax vocab --input 'books/*.txt' --output vocab --size 30522",
)
def vocab(parser: argparse.ArgumentParser) -> Run:
    input_flags(parser)
    parser.add_argument("--output", required=True, metavar="DIR", help="the directory to write")
    parser.add_argument("--kind", choices=("wordpiece", "sentencepiece"), default="wordpiece")
    parser.add_argument("--cased", action="store_true", help="tell capitals apart (default: lower case)")
    parser.add_argument("--size", type=int, help="entries (default 30522); with --extend those added (1000)")
    parser.add_argument("--extend", metavar="DIR", help="add words of the text to this model's vocabulary")

    def run(args):
        from bert_jax.text.readers import Source

        source = Source(args.input, args.layout, args.column, args.strict)
        if args.extend:
            from bert_jax.hub.extend import extend

            print(extend(args.extend, source, args.output, args.size or 1000))
        else:
            from bert_jax.text.vocabulary import learn

            print(learn(source, args.output, kind=args.kind, size=args.size or 30522, cased=args.cased))

    return run


@verb(
    "turn text into a corpus of token ids",
    "bert-jax prepare --input 'books/*.txt' wiki.jsonl.gz --tokenizer vocab --output corpus",
)
def prepare(parser: argparse.ArgumentParser) -> Run:
    input_flags(parser)
    parser.add_argument("--tokenizer", required=True, metavar="DIR", help="a vocabulary or model directory")
    parser.add_argument("--output", required=True, metavar="DIR", help="the corpus directory to write")
    parser.add_argument("--language", default="en", help="of the sentences, as an ISO code (default en)")
    parser.add_argument("--heldout", type=float, default=0.01, help="share of documents (default 0.01)")
    parser.add_argument("--processes", type=int, help="default: one for each core")

    def run(args):
        from bert_jax.data.corpus.prepare import prepare, summary

        manifest = prepare(
            args.input,
            args.tokenizer,
            args.output,
            layout=args.layout,
            column=args.column,
            language=args.language,
            heldout=args.heldout,
            strict=args.strict,
            processes=args.processes,
        )
        print(summary(manifest, args.output))

    return run


@verb(
    "show the examples of a training step as text",
    "bert-jax inspect --config configs/pretrain.py:base --config.data.corpora=corpus --step 777",
)
def inspect(parser: argparse.ArgumentParser) -> Run:
    config_flags(parser)
    parser.add_argument("--step", type=int, default=0, help="of the run (default 0)")
    parser.add_argument("--rows", type=int, default=4, help="examples shown (default 4)")

    def run(args):
        from bert_jax.command.train import inspect

        print(inspect(args.config, args.overrides, args.step, args.rows))

    return run


@verb(
    "check a run on a TPU slice that is not here: memory, time, cost",
    "bert-jax preflight --config configs/pretrain.py:large,tpu --topology v5e:8x8 --price 1.2",
)
def preflight(parser: argparse.ArgumentParser) -> Run:
    config_flags(parser)
    parser.add_argument(
        "--topology", required=True, metavar="CHIP:SIDES", help="v5e:4x4, v6e:8x8, v4:2x2x4, v5p:4x4x4"
    )
    parser.add_argument("--price", type=float, metavar="P", help="of a chip for an hour, in any currency")
    parser.add_argument("--workdir", metavar="DIR", help="of the run: is there room for its checkpoints?")
    parser.add_argument(
        "--sweep", action="store_true", help="try batch, remat and mesh: the fastest that fits"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of lines")

    def run(args):
        from bert_jax.pod import preflight

        if args.sweep:
            from bert_jax.pod.sweep import sweep

            print(sweep(args.config, args.overrides, args.topology, args.json))
            return
        print(
            preflight.preflight(
                args.config, args.overrides, args.topology, args.price, args.workdir, args.json
            )
        )

    return run


@verb(
    "train a model, or go on with a run",
    "bert-jax train --config configs/pretrain.py:base --workdir runs/base --config.data.corpora=corpus",
)
def train(parser: argparse.ArgumentParser) -> Run:
    config_flags(parser)
    parser.add_argument(
        "--workdir", required=True, metavar="DIR", help="of the run; one that was begun goes on by itself"
    )
    parser.add_argument(
        "--coordinator",
        metavar="HOST:PORT",
        help="of several processes; Slurm and GKE say it themselves, launch/run.sh says it on a TPU slice",
    )
    parser.add_argument("--processes", type=int, help="how many there are")
    parser.add_argument("--process", type=int, help="which this one is, from 0")

    def run(args):
        from bert_jax.train.processes import joined

        with joined(args.coordinator, args.processes, args.process):
            from bert_jax.command.train import start

            start(args.config, args.overrides, args.workdir)

    return run


@verb(
    "the model of a run's checkpoint, as a Hugging Face directory",
    "bert-jax export runs/base model --step 10000",
)
def export(parser: argparse.ArgumentParser) -> Run:
    parser.add_argument("workdir", help="of the run")
    parser.add_argument("directory", help="to write")
    parser.add_argument("--step", type=int, help="of the checkpoint (default: the newest)")

    def run(args):
        from bert_jax.command.train import export

        print(f"the model of step {export(args.workdir, args.directory, args.step):,} is in {args.directory}")

    return run


@verb("what a model directory holds, and what is odd about it", "bert-jax info path/to/model --json")
def info(parser: argparse.ArgumentParser) -> Run:
    parser.add_argument("directory", help="a Hugging Face model directory")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of lines")

    def run(args):
        from bert_jax.hub.info import report

        print(report(args.directory, as_json=args.json))

    return run


@verb("words for the places marked [MASK]", 'bert-jax fill-mask --model DIR "Paris is the [MASK] of France."')
def fill_mask(parser: argparse.ArgumentParser) -> Run:
    parser.add_argument(
        "--model", required=True, metavar="DIR", help="a model directory with a masked LM head"
    )
    parser.add_argument(
        "texts", nargs="*", metavar="TEXT", help="each with a [MASK]; none: lines of standard input"
    )
    parser.add_argument("--top", type=int, default=5, help="fillings shown for a mask (default 5)")
    parser.add_argument("--json", action="store_true", help="print a JSON object a line")

    def run(args):
        from bert_jax.command.lines import fill_mask

        fill_mask(args.model, args.texts, args.top, args.json)

    return run


@verb("a vector for each line of text", "bert-jax embed --model DIR --input lines.txt --output vectors.npy")
def embed(parser: argparse.ArgumentParser) -> Run:
    parser.add_argument(
        "--model", required=True, metavar="DIR", help="a sentence-transformers or model directory"
    )
    parser.add_argument(
        "--input", default="-", metavar="FILE", help="a text a line (default -, standard input)"
    )
    parser.add_argument("--output", metavar="FILE.npy", help="default: JSON arrays on standard output")
    parser.add_argument("--prompt", help="a prompt of the model, by name, put before each text")
    parser.add_argument(
        "--long",
        choices=("cut", "windows"),
        default="cut",
        help="longer texts are cut, or averaged over windows",
    )

    def run(args):
        from bert_jax.command.lines import embed

        embed(args.model, args.input, args.output, args.prompt, args.long)

    return run


@verb(
    "how well a model does on labelled texts",
    "bert-jax evaluate --model DIR --data dev.csv --text review --json",
)
def evaluate(parser: argparse.ArgumentParser) -> Run:
    models = parser.add_mutually_exclusive_group(required=True)
    models.add_argument(
        "--model", metavar="DIR", help="a model directory; it says what it gives: classes, tags, answers"
    )
    models.add_argument(
        "--compare", nargs=2, metavar=("DIR_A", "DIR_B"), help="two of them, example by example"
    )
    parser.add_argument(
        "--data", required=True, metavar="FILE",
        help="or tfds:NAME/CONFIG:SPLIT; .csv .tsv .jsonl .json .parquet, CoNLL columns, SQuAD's JSON",
    )  # fmt: skip
    column_flags(parser)
    parser.add_argument(
        "--label", default="", metavar="COLUMN", help="of the labels, tags or answers, likewise"
    )
    parser.add_argument("--separator", default=",", help='between several labels in one cell (default ",")')
    long_flag(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of lines")
    parser.add_argument("--report", metavar="DIR", help="write report.md and its pictures there")

    def run(args):
        from bert_jax.data.examples.columns import Columns

        given = (
            args.data,
            Columns(args.text, args.pair, args.label, separator=args.separator),
            args.long,
            args.json,
        )
        if args.compare:
            from bert_jax.report.compare import compare

            if args.report:
                raise BertJaxError("--report is of one --model; two are compared in lines, or with --json")
            print(compare(*args.compare, *given))
        elif args.report:
            from bert_jax.report.page import of_file

            print(of_file(args.report, args.model, *given, command=shlex.join(["bert-jax", *sys.argv[1:]])))
        else:
            from bert_jax.report.evaluate import report

            print(report(args.model, *given))

    return run


@verb(
    "labels, tags or answers for texts",
    "bert-jax predict --model DIR --input reviews.jsonl --output found.jsonl",
)
def predict(parser: argparse.ArgumentParser) -> Run:
    parser.add_argument(
        "--model",
        required=True,
        metavar="DIR",
        help="a model directory; it says what it gives: classes, tags, answers",
    )
    parser.add_argument(
        "--input", default="-", metavar="FILE",
        help="a table as `evaluate` reads; .txt and - (standard input, the default): a text or a JSON object a line",
    )  # fmt: skip
    parser.add_argument("--output", metavar="FILE.jsonl", help="default: standard output")
    column_flags(parser)
    parser.add_argument(
        "--id", default="", metavar="COLUMN", help='given back with each answer (default "id")'
    )
    long_flag(parser)
    parser.add_argument(
        "--may-be-missing", action="store_true", default=None,
        help="an answer may not be there (default: as the model was trained)",
    )  # fmt: skip
    parser.add_argument(
        "--precision",
        type=float,
        metavar="P",
        help="say of each answer whether a calibrated model abstains from it, for so many of the others to be right",
    )

    def run(args):
        from bert_jax.command.predict import write
        from bert_jax.data.examples.columns import Columns

        columns = Columns(text=args.text, pair=args.pair, id=args.id)
        write(args.model, args.input, args.output, columns, args.long, args.may_be_missing, args.precision)

    return run


@verb("any model directory as a safetensors one", "bert-jax import uncased_L-12_H-768_A-12 DIR")
def import_(parser: argparse.ArgumentParser) -> Run:
    parser.add_argument(
        "source", metavar="SRC", help="Hugging Face, sentence-transformers, or Google's TensorFlow 1"
    )
    parser.add_argument("destination", metavar="DST", help="a new directory")

    def run(args):
        from bert_jax.command.lines import convert

        convert(args.source, args.destination)

    return run


@verb("measure, side by side with what others use", "bert-jax bench tokenizers --vocab DIR --text book.txt")
def bench(parser: argparse.ArgumentParser) -> Run:
    choices = parser.add_subparsers(dest="bench", required=True, metavar="WHAT")
    runs = {}
    for name, (declare, summary, example) in SUBJECTS.items():
        subject = choices.add_parser(
            name,
            help=summary,
            description=described(summary),
            epilog=f"example: {example}",
            allow_abbrev=False,
        )
        debug_flag(subject, default=argparse.SUPPRESS)  # before WHAT or after it
        runs[name] = declare(subject)
    return lambda args: runs[args.bench](args)


def parser_of(name: str) -> tuple[Parser, Run]:
    declare, summary, example = VERBS[name]
    parser = Parser(
        prog=f"bert-jax {name}",
        description=described(summary),
        epilog=f"example: {example}",
        allow_abbrev=False,
    )
    debug_flag(parser)
    return parser, declare(parser)


def described(summary: str) -> str:
    return summary[0].upper() + summary[1:] + "."


def debug_flag(parser: argparse.ArgumentParser, default=False) -> None:
    parser.add_argument(
        "--debug", action="store_true", default=default, help="show the traceback of a failure"
    )


def hush() -> None:
    """A user sees our lines, not those of TensorFlow, nor libtpu's about a TPU that is not there."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    devices = ("/dev/accel*", "/dev/vfio/*", "/dev/nvidia*", "/dev/kfd")
    if sys.platform == "linux" and find_spec("libtpu") and not any(map(glob, devices)):
        os.environ.setdefault("JAX_PLATFORMS", "cpu")


def keep_programs() -> None:
    """A command finds again what the one before it compiled, which takes longer than most of what is asked."""
    folder = programs_home()
    if "JAX_COMPILATION_CACHE_DIR" in os.environ:
        return
    with suppress(OSError):  # where nothing can be kept, nothing is
        folder.mkdir(parents=True, exist_ok=True)
        os.environ["JAX_COMPILATION_CACHE_DIR"] = str(folder)
        os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.1"
        os.environ["JAX_COMPILATION_CACHE_MAX_SIZE"] = str(2**30)


def main(argv: list[str] | None = None) -> int:
    argv = sys.argv[1:] if argv is None else argv
    if not argv or argv[0] in ("-h", "--help"):
        width = max(map(len, VERBS))
        print("usage: bert-jax VERB [...]\n\nBERT in JAX, from raw text to answers. The verbs:\n")
        for name, (_, summary, _) in VERBS.items():
            print(f"  {name:<{width}}  {summary}")
        print("\nbert-jax VERB --help shows a verb's flags and an example.")
        return 0
    if argv[0] == "--version":
        print(f"bert-jax {__version__}")
        return 0
    if argv[0] not in VERBS:
        print(f'bert-jax: no verb "{argv[0]}"; {nearest(argv[0], VERBS)}', file=sys.stderr)
        return 2
    parser, run = parser_of(argv[0])
    args = parser.parse_args(argv[1:])
    hush()
    if argv[0] not in ("bench", "preflight"):  # which are asked how long it takes, and for another machine
        keep_programs()
    try:
        with interruptible(), warnings.catch_warnings():
            warnings.showwarning = lambda message, *_: print(
                f"bert-jax {argv[0]}: {message}", file=sys.stderr
            )
            run(args)
    except BertJaxError as error:
        if args.debug:
            raise
        print(f"bert-jax {argv[0]}: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        if args.debug:
            raise
        return 128 + signal.SIGINT
    except BrokenPipeError:
        # The reader of our output has gone (`| head`); say nothing more, not even at interpreter exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    return 0
