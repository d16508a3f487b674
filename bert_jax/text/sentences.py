"""Sentences of a document."""

from collections.abc import Iterable, Iterator

from sentencex import segment

from bert_jax.text.readers import Layout


def sentences(text: str, layout: Layout, language: str) -> list[str]:
    """
    >>> sentences("It cost 3.50 in all. Then he left.\\nA second line.", "blank", "en")
    ['It cost 3.50 in all.', 'Then he left.', 'A second line.']
    """
    if layout == "sentences":
        pieces: Iterable[str] = text.split("\n")
    else:
        pieces = (sentence for paragraph in paragraphs(text) for sentence in segment(language, paragraph))
    return [piece for piece in map(str.strip, pieces) if piece]


def paragraphs(text: str) -> Iterator[str]:
    """Where blank lines separate paragraphs, the lines of each are one text (many books are hard-wrapped);
    where there are none, each line is a paragraph."""
    # Spaces of two and three bytes (no-break, em) make sentencex 1.0.32 cut a character in two and panic.
    lines = [" ".join(line.split()) for line in text.strip().split("\n")]
    if "" not in lines:
        yield from lines
        return
    together: list[str] = []
    for line in [*lines, ""]:
        if line:
            together.append(line)
        elif together:
            yield " ".join(together)
            together = []
