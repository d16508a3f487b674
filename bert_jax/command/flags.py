"""Declarations of verbs: their flags as data, the function to run, and the parser that reads the flags."""

import argparse
import math
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any

from bert_jax.core.config import MAX_FLOAT, MAX_INT, Range
from bert_jax.core.errors import one_line, suggest_name
from bert_jax.core.terminal import print_line

Flag = Callable[[argparse._ActionsContainer], object]  # adds itself to a parser


def flag(*names: str, **settings) -> Flag:
    return lambda parser: parser.add_argument(*names, **settings)


def number_type(
    minimum: float, most: float = MAX_FLOAT, above: bool = False, below: bool = False
) -> Callable:
    """Return the type of a flag that is a number in a range; `above` and `below` exclude the limits."""
    return partial(parse_number, float, Range(minimum, most, above, below))


def whole_number_type(minimum: int, most: int = MAX_INT) -> Callable:
    """Return the type of a flag that is a whole number in a range."""
    return partial(parse_number, int, Range(minimum, most))


def parse_number(type_: type, allowed: Range, text: str) -> float:
    try:
        value = type_(text)
    except ValueError:
        value = math.nan  # is in no range
    if value not in allowed:
        noun = "whole number" if type_ is int else "number"
        raise argparse.ArgumentTypeError(f'must be a {noun} {allowed.description}, not "{text:.40}"')
    return value


def picture_file(text: str) -> str:
    """The type of a flag that is a file to draw into: refuse a directory now, because drawing may be hours away."""
    if Path(text).is_dir():
        raise argparse.ArgumentTypeError(f"must be a file, and {text:.200} is a directory")
    return text


positive_integer = whole_number_type(1)
fraction = number_type(0, 1, below=True)


def exactly_one(*flags: Flag) -> Flag:
    """Combine the flags into one, so that exactly one of them must be given."""

    def add(parser):
        group = parser.add_mutually_exclusive_group(required=True)
        for add_flag in flags:
            add_flag(group)

    return add


@dataclass(frozen=True)
class Verb:
    """A verb of `bert-jax`. Heavy imports belong in the function `run`, so that help is instant."""

    name: str
    summary: str
    example: str
    flags: tuple[Flag, ...]
    run: Callable[[argparse.Namespace], None]

    @property
    def help_texts(self) -> dict:
        """The texts that argparse shows in the help."""
        description = self.summary[0].upper() + self.summary[1:] + "."
        return {"description": description, "epilog": f"example: {self.example}", "allow_abbrev": False}

    def add_to_parser(self, parser: argparse.ArgumentParser, debug: bool | str = False) -> None:
        parser.set_defaults(run=self.run)
        for add_flag in self.flags:
            add_flag(parser)
        parser.add_argument(
            "--debug", action="store_true", default=debug, help="show the traceback of a failure"
        )


def verb(summary: str, example: str, *flags: Flag) -> Callable[[Callable], Verb]:
    """Return a decorator that makes a function a verb; `fill_mask` becomes `fill-mask`."""
    return lambda run: Verb(run.__name__.strip("_").replace("_", "-"), summary, example, flags, run)


def given_flags(args: argparse.Namespace, names: Iterable[str]) -> list[str]:
    """Return those of the flags that were given, as they are written."""
    return [f"--{name.replace('_', '-')}" for name in names if getattr(args, name, None)]


def engine_of(args: argparse.Namespace) -> dict[str, Any]:
    """Return the flags of ENGINE as arguments of `bert_jax.load`."""
    given = {"engine": args.engine, "dtype": args.dtype}
    return given | ({"batch_invariant": True} if args.batch_invariant else {})


def find_verbs(module) -> dict[str, Verb]:
    return {value.name: value for value in vars(module).values() if isinstance(value, Verb)}


def verb_choice(verbs: dict[str, Verb]) -> Flag:
    """Return an argument that is the name of one of the verbs, followed by the flags of that verb."""

    def add(parser):
        choices = parser.add_subparsers(dest="choice", required=True, metavar="WHAT")
        for verb in verbs.values():
            # --debug may stand before the word or after it.
            verb.add_to_parser(
                choices.add_parser(verb.name, help=verb.summary, **verb.help_texts), argparse.SUPPRESS
            )

    return add


# Lowest similarity of a misspelt flag and the right one, if it may also be a key of the config.
MIN_SIMILARITY = 0.8


class Parser(argparse.ArgumentParser):
    """An ArgumentParser whose errors are one line that names the most similar flag.

    If a verb takes --config, `--config.KEY=VALUE` are flags, too, and are collected in `overrides`.
    """

    argv: tuple[str, ...] | list[str] = ()

    def parse_args(self, argv):
        overrides = [word for word in argv if word.startswith("--config.")]
        self.argv = [word for word in argv if word not in overrides]
        if bare := [word for word in overrides if "=" not in word]:
            self.error(f"{bare[0]} needs a value: {bare[0]}=VALUE, without a space")
        takes_verbs = any(isinstance(action, argparse._SubParsersAction) for action in self._actions)
        parse = super().parse_args if takes_verbs else super().parse_intermixed_args  # flags between words
        args = parse(self.argv)
        for name, value in vars(args).items():
            # Probably an unset shell variable; but if the default is empty, an empty value is allowed.
            if "" in (value, *(value if isinstance(value, list) else ())) and self.get_default(name) != "":
                self.error(f"{name} is empty; give it a value")
        if vars(args).get("output") == "-":
            self.error(
                "--output - names no file; /dev/stdout is standard output, and ./- a file of this name"
            )
        if hasattr(args, "overrides"):
            args.overrides = [word.removeprefix("--config.") for word in overrides]
        elif overrides:
            self.error(f"unrecognized arguments: {overrides[0]}")
        return args

    def error(self, message: str):
        known = sorted(list_flags(self) - {"--help"})
        wrong = ""
        if "unrecognized arguments: " in message:
            wrong = next(iter(message.split("unrecognized arguments: ")[1].split()), '""').split("=")[0]
        elif "arguments are required" in message:  # a misspelt flag is also a missing one
            flags = (word.split("=")[0] for word in self.argv if word.startswith("--"))
            wrong = next((flag for flag in flags if not any(name.startswith(flag) for name in known)), "")
        if wrong:
            message = f"unknown argument {wrong}; {suggest_name(wrong, known)}"
            if "--config" in known and not get_close_matches(wrong, known, cutoff=MIN_SIMILARITY):
                message = f"unknown argument {wrong}; a key of the config is set by --config.{wrong.lstrip('-')}=VALUE"
        print_line(f"{self.prog}: {one_line(message, 300)} (see {self.prog} --help)", sys.stderr)
        sys.exit(2)


def list_flags(parser: argparse.ArgumentParser) -> set[str]:
    """Return the long flags of a parser, including those of its subcommands."""
    flags = {flag for action in parser._actions for flag in action.option_strings if flag.startswith("--")}
    nested = (a.choices.values() for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    return flags.union(*(list_flags(parser) for parsers in nested for parser in parsers))


OVERRIDES: Flag = lambda parser: parser.set_defaults(overrides=[])  # noqa: E731 - filled by Parser.parse_args
CONFIG = (
    flag(
        "--config", required=True, metavar="FILE[:NAME]",
        help="config file, and the variant that it names; --config.KEY=VALUE changes a key",
    ),
    OVERRIDES,
)  # fmt: skip
JSON = flag("--json", action="store_true", help="print one JSON object instead of lines")
LONG = flag(
    "--long-texts", choices=("truncate", "windows"), default="truncate",
    help="truncate texts that are too long, or read them in windows and average (default truncate)",
)  # fmt: skip
ENGINE = (
    flag(
        "--engine", choices=("auto", "jax", "numpy", "onnxruntime", "openvino"), default="auto",
        help="compute with JAX, static embeddings with NumPy, and the ONNX file of a directory that "
        "`export --format onnx` wrote with onnxruntime or openvino (default auto: the first of these that can)",
    ),
    flag(
        "--dtype", choices=("float32", "bfloat16", "int8"), default="float32",
        help="numbers of the matrix products: bfloat16 for jax and openvino, int8 for onnxruntime and openvino "
        "(default float32)",
    ),
    flag(
        "--batch-invariant", action="store_true", help="compute each text so that its result does not depend on the "
        "others, to the bit; few texts take longer",
    ),
)  # fmt: skip
CALIBRATION_DATA = flag(
    "--calibration-data", metavar="FILE",
    help="texts that give the int8 file fixed ranges of activations, with which it is faster and more exact: lines or "
    "a table, as `predict --input` or `embed --input` reads it",
)  # fmt: skip
TOKENIZER = flag("--tokenizer", required=True, metavar="DIR", help="vocabulary or model directory")
INPUT = flag(
    "--input", nargs="+", required=True, metavar="PATH",
    help="files, folders, globs, tfds:NAME/CONFIG:SPLIT, hf://datasets/OWNER/NAME/FILES; text, .md, .html, .jsonl, "
    ".parquet, Wikipedia's dumps (.xml), WikiExtractor's files; also .gz .xz .zst .bz2",
)  # fmt: skip
LAYOUT = flag(
    "--layout", choices=("blank", "file", "sentences"), default="blank",
    help="layout of plain text: blank lines between documents, one document per file, or one sentence per line "
    "and blank lines between documents (default blank)",
)  # fmt: skip
COLUMN = flag("--column", default="text", help="text column of .jsonl, .parquet and tfds (default text)")
STRICT = flag("--strict", action="store_true", help="refuse broken UTF-8 and empty files")
OUTPUT = flag("--output", required=True, metavar="DIR", help="output directory")
PREDICTORS = "a classifier, a tagger, a question-answering model"
TEXT = flag(
    "--text", default="", metavar="COLUMN",
    help="column of texts, words or questions; a number (0, 1) without a header (default: by its usual names)",
)  # fmt: skip
RERANK_TOP = flag(
    "--rerank-top", type=positive_integer, metavar="N", help="passages that --rerank scores (default 50)"
)
PAIR = flag("--text-pair", default="", metavar="COLUMN", help="column of second texts, or of passages")
SKIP_BAD = flag(
    "--skip-bad", action="store_true",
    help="skip rows that are not examples, such as those with an empty cell, and count them",
)  # fmt: skip
DOCUMENT_COLUMNS = (
    flag("--text", default="", metavar="COLUMN", help="column of texts of a table (default: by its usual names)"),
    flag("--id", default="", metavar="COLUMN", help="column of ids (default: _id or id, or else FILE:ROW)"),
    flag("--title", default="", metavar="COLUMN", help="column of titles (default: title, if there is one)"),
)  # fmt: skip
