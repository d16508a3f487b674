"""`bert_jax.train_tokenizer`: from text to a vocabulary."""

from collections.abc import Sequence
from os import PathLike
from typing import Literal

from bert_jax.core.arguments import use_python_spelling
from bert_jax.core.config import Range, check_flag, check_number
from bert_jax.core.errors import check_name
from bert_jax.core.paths import require_path
from bert_jax.core.terminal import print_line
from bert_jax.hub import extend_vocabulary
from bert_jax.runs.corpus import open_source
from bert_jax.text import vocabulary_training
from bert_jax.text.text_source import Layout
from bert_jax.text.tokenizer import Tokenizer
from bert_jax.text.tokenizer_directory import open_tokenizer

AnyPath = str | PathLike[str]
KINDS = ("wordpiece", "sentencepiece")
MAX_SIZE = 1 << 24


def train_tokenizer(
    input: AnyPath | Sequence[AnyPath],
    output: AnyPath,
    *,
    kind: Literal["wordpiece", "sentencepiece"] = "wordpiece",
    size: int | None = None,
    cased: bool = False,
    extend: AnyPath | None = None,
    layout: Layout = "blank",
    column: str = "text",
    strict: bool = False,
) -> Tokenizer:
    """Learn a vocabulary from text, as `bert-jax vocab` does, and return its tokenizer. The directory `output` is what
    `prepare` takes.

    `input`, `layout`, `column` and `strict` are those of `prepare`. The vocabulary has `size` entries, 30,522 by
    default. With `extend`, a model directory, `output` is this model with at most `size` words of the text added, 1,000
    by default.

    >>> tokenizer = bert_jax.train_tokenizer("text.txt", "vocabulary", size=140)
    >>> tokenizer.tokens(tokenizer.ids(["cats sat"])[0])
    ['cats', 'sat']
    """
    require_path(output, "output")
    check_name(kind, KINDS, "kind of vocabulary")
    check_flag(cased, "cased")
    if size is not None:
        check_number(size, "size", is_whole=True, allowed=Range(1, MAX_SIZE))
    with use_python_spelling():
        source = open_source(input, layout, column, strict)
        if extend is None:
            size = size or vocabulary_training.DEFAULT_SIZE
            print_line(
                vocabulary_training.train_vocabulary(source, output, kind=kind, size=size, cased=cased)
            )
        else:
            size, model = size or extend_vocabulary.DEFAULT_ADDED, require_path(extend, "extend")
            print_line(extend_vocabulary.extend(model, source, output, size))
    return open_tokenizer(output)
