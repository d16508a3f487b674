"""Flags that several verbs share, and the parser that reads them."""

import argparse
import sys
from collections.abc import Callable

from bert_jax.errors import nearest

Run = Callable[[argparse.Namespace], None]


class Parser(argparse.ArgumentParser):
    """argparse whose complaints are one line that names the nearest right flag.

    Where a verb takes --config, `--config.KEY=VALUE` are flags too, gathered in `overrides`.
    """

    argv: tuple[str, ...] | list[str] = ()

    def parse_args(self, argv):
        overrides = [flag for flag in argv if flag.startswith("--config.")]
        self.argv = [flag for flag in argv if flag not in overrides]
        args = super().parse_args(self.argv)
        if hasattr(args, "overrides"):
            args.overrides = [flag.removeprefix("--config.") for flag in overrides]
        elif overrides:
            self.error(f"unrecognized arguments: {overrides[0]}")
        return args

    def error(self, message: str):
        known = sorted(flags_of(self) - {"--help"})
        wrong = ""
        if "unrecognized arguments: " in message:
            wrong = message.split("unrecognized arguments: ")[1].split()[0].split("=")[0]
        elif "arguments are required" in message:  # what is misspelt is missing, too
            flags = (word.split("=")[0] for word in self.argv if word.startswith("--"))
            wrong = next((flag for flag in flags if not any(name.startswith(flag) for name in known)), "")
        if wrong:
            message = f"unknown argument {wrong}; {nearest(wrong, known)}"
            if "--config" in known and "did you mean" not in message:
                message += f"; a key of the config is set by --config.{wrong.lstrip('-')}=VALUE"
        print(f"{self.prog}: {message} (see {self.prog} --help)", file=sys.stderr)
        sys.exit(2)


def flags_of(parser: argparse.ArgumentParser) -> set[str]:
    """Also those of what the first word chooses among."""
    found = set()
    for action in parser._actions:
        found |= {flag for flag in action.option_strings if flag.startswith("--")}
        if isinstance(action, argparse._SubParsersAction):
            found = found.union(*map(flags_of, action.choices.values()))
    return found


def config_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--config", required=True, metavar="FILE[:NAME]", help="--config.KEY=VALUE changes a key of it"
    )
    parser.set_defaults(overrides=[])  # filled by Parser.parse_args


def input_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--input", nargs="+", required=True, metavar="PATH",
        help="files, folders, globs, tfds:NAME/CONFIG:SPLIT; text, .jsonl, .parquet; also .gz .xz .zst .bz2",
    )  # fmt: skip
    parser.add_argument(
        "--layout", choices=("blank", "file", "sentences"), default="blank",
        help="of plain text: blank lines between documents, one file each, or one sentence a line and blank "
        "lines between documents (default blank)",
    )  # fmt: skip
    parser.add_argument("--column", default="text", help="of .jsonl, .parquet and tfds (default text)")
    parser.add_argument("--strict", action="store_true", help="refuse broken UTF-8 and empty files")


def column_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--text", default="", metavar="COLUMN",
        help="of the texts, words or questions; by number (0, 1) where there is no header (default: the evident one)",
    )  # fmt: skip
    parser.add_argument(
        "--pair", default="", metavar="COLUMN", help="of the second texts, or passages, likewise"
    )


def long_flag(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--long",
        choices=("cut", "windows"),
        default="cut",
        help="longer texts to classify are cut, or averaged over windows (default cut)",
    )
