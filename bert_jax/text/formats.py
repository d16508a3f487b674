"""Documents in files that are no tables: pages of HTML and of Markdown, articles of Wikipedia, and plain text."""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain

from bert_jax.text import html, markdown, wikipedia
from bert_jax.text.article import Article
from bert_jax.text.inputs import ending

EXTRACTED = wikipedia.BEGIN.encode()  # what a file of WikiExtractor begins with
Reader = Callable[[str, Iterable[str]], Iterator[Article]]  # of a file's name and lines


def html_page(name: str, lines: Iterable[str]) -> Iterator[Article]:
    yield Article(name, "", *html.title_and_text("".join(lines)))


def markdown_page(name: str, lines: Iterable[str]) -> Iterator[Article]:
    yield Article(name, "", *markdown.title_and_text("".join(lines)))


def whole(name: str, lines: Iterable[str]) -> Iterator[Article]:
    yield Article(name, "", "", "".join(lines))


READERS: dict[str, Reader] = {
    ".html": html_page,
    ".htm": html_page,
    ".md": markdown_page,
    ".markdown": markdown_page,
    ".xml": wikipedia.dumped,
}


def articles(name: str, lines: Iterable[str], plain: Reader = whole) -> Iterator[Article]:
    """Of a file, by its ending; WikiExtractor's files have none, and are known by their first line. `plain` reads all
    others."""
    if reader := READERS.get(ending(name).lower()):
        return reader(name, lines)
    lines = iter(lines)
    first = next(lines, "")
    reader = wikipedia.extracted if first.startswith(wikipedia.BEGIN) else plain
    return reader(name, chain([first], lines))
