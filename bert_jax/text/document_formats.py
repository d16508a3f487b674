"""Read documents from files that are not tables: HTML and Markdown pages, Wikipedia articles, and plain text."""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain

from bert_jax.core.errors import BertJaxError
from bert_jax.text import html, markdown, wikipedia
from bert_jax.text.article import LONGEST_DOCUMENT, Article
from bert_jax.text.input_files import file_extension

WIKIEXTRACTOR_START = wikipedia.BEGIN.encode()  # the first bytes of WikiExtractor's files
LONGEST_FILE = 4 * LONGEST_DOCUMENT  # characters of a file that is one document, with its markup
ArticleReader = Callable[[str, Iterable[str]], Iterator[Article]]  # (a file's name, its lines) -> articles


def html_page(name: str, lines: Iterable[str]) -> Iterator[Article]:
    yield Article(name, "", *html.extract_html(join_lines(name, lines)))


def markdown_page(name: str, lines: Iterable[str]) -> Iterator[Article]:
    yield Article(name, "", *markdown.extract_markdown(join_lines(name, lines)))


def whole_file(name: str, lines: Iterable[str]) -> Iterator[Article]:
    yield Article(name, "", "", join_lines(name, lines))


def join_lines(name: str, lines: Iterable[str]) -> str:
    """Return the content of a file that is one document; stop reading one that is too long."""
    kept, size = list[str](), 0
    for line in lines:
        kept.append(line)
        size += len(line)
        if size > LONGEST_FILE:
            raise BertJaxError(
                f"{name}: a file of more than {LONGEST_FILE >> 20} MB is too long for a document; split it"
            )
    return "".join(kept)


READERS: dict[str, ArticleReader] = {
    ".html": html_page,
    ".htm": html_page,
    ".md": markdown_page,
    ".markdown": markdown_page,
    ".xml": wikipedia.dump_articles,
}


def articles(name: str, lines: Iterable[str], plain: ArticleReader = whole_file) -> Iterator[Article]:
    """Read the articles of a file by the reader for its ending; `plain` reads all other files.

    WikiExtractor's files have no ending; they are recognised by their first line.
    """
    if reader := READERS.get(file_extension(name)):
        return reader(name, lines)
    lines = iter(lines)
    first = next(lines, "")
    reader = wikipedia.extracted_articles if first.startswith(wikipedia.BEGIN) else plain
    return reader(name, chain([first], lines))
