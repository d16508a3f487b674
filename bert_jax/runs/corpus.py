"""`bert_jax.train_tokenizer` and `bert_jax.prepare`: from text to a vocabulary, and to a corpus of token ids."""

from collections.abc import Sequence
from os import PathLike
from typing import Any, Literal, get_args

from bert_jax.core.arguments import use_python_spelling
from bert_jax.core.config import Range, check_flag, check_number
from bert_jax.core.errors import BertJaxError, check_name
from bert_jax.core.paths import require_path
from bert_jax.core.terminal import print_line
from bert_jax.data.corpus.prepare import prepare_corpus, summarize
from bert_jax.hub import extend_vocabulary
from bert_jax.text import vocabulary_training
from bert_jax.text.text_source import Layout, TextSource
from bert_jax.text.tokenizer import Tokenizer
from bert_jax.text.tokenizer_directory import open_tokenizer

AnyPath = str | PathLike[str]
MAX_PROCESSES = 1024
VOCABULARIES = ("wordpiece", "sentencepiece")
MAX_SIZE = 1 << 24


def prepare(
    input: AnyPath | Sequence[AnyPath],
    tokenizer: AnyPath,
    output: AnyPath,
    *,
    layout: Layout = "blank",
    column: str = "text",
    strict: bool = False,
    language: str = "en",
    validation_ratio: float = 0.01,
    processes: int | None = None,
) -> dict[str, Any]:
    """Turn text into a corpus for pre-training, as `bert-jax prepare` does, and return its counts.

    `input` is a path or a list of paths: files, folders, globs. `layout` tells what separates documents of plain text:
    blank lines, or the end of each "file"; "sentences" has one sentence per line, and blank lines between documents.
    `column` holds the text of tables, and `strict` refuses broken UTF-8 and empty files. `tokenizer` is the directory
    of a vocabulary or a model. Sentences are split as in `language`, an ISO code. A share `validation_ratio` of the
    documents is kept for validation. There is a worker process for each core, or as many as `processes`.

    >>> counts = bert_jax.prepare("text.txt", "model", "corpus", validation_ratio=0.5, processes=1)
    >>> sum(counts[part]["documents"] for part in ("train", "validation"))
    8
    """
    for name, location in (("tokenizer", tokenizer), ("output", output)):
        require_path(location, name)
    if not isinstance(language, str):
        raise BertJaxError(f"language must be an ISO code, not {language!r:.60}")
    check_number(validation_ratio, "validation_ratio", allowed=Range(0, 1, exclusive_maximum=True))
    if processes is not None:
        check_number(processes, "processes", is_whole=True, allowed=Range(1, MAX_PROCESSES))
    with use_python_spelling():
        manifest = prepare_corpus(
            open_source(input, layout, column, strict),
            str(tokenizer),
            output,
            language=language,
            validation_ratio=validation_ratio,
            processes=processes,
        )
        print_line(summarize(manifest, output))
    return manifest["counts"]


def open_source(input: Any, layout: Any, column: Any, strict: Any) -> TextSource:
    """Return the texts of a path or a list of paths; refuse anything else."""
    paths = [input] if isinstance(input, str | PathLike) else input
    if not isinstance(paths, list | tuple) or not paths:
        raise BertJaxError(f"input must be a path or a list of paths, not {input!r:.60}")
    check_name(layout, get_args(Layout), "layout")
    check_flag(strict, "strict")
    if not isinstance(column, str) or not column:
        raise BertJaxError(f"column must be the name of a column, not {column!r:.60}")
    return TextSource([str(require_path(path, "input")) for path in paths], layout, column, strict)


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

    `input`, `layout`, `column` and `strict` are those of `prepare`. The vocabulary is of the `kind` WordPiece or
    SentencePiece and has `size` entries, 30,522 by default; `cased` keeps capital letters. With `extend`, a model
    directory, `output` is this model with at most `size` words of the text added, 1,000 by default.

    >>> tokenizer = bert_jax.train_tokenizer("text.txt", "vocabulary", size=140)
    >>> tokenizer.tokens(tokenizer.ids(["cats sat"])[0])
    ['cats', 'sat']
    """
    require_path(output, "output")
    check_name(kind, VOCABULARIES, "kind of vocabulary")
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
