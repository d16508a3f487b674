"""Read documents from files that are not tables: HTML and Markdown pages, plain text, and Wikipedia articles from dumps
and from the files that WikiExtractor makes of them."""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from html import unescape
from itertools import chain
from typing import cast
from xml.etree.ElementTree import Element, ParseError, XMLPullParser

from bert_jax.core.errors import BertJaxError
from bert_jax.text import html, markdown, wikitext
from bert_jax.text.input_files import file_extension

# Characters; reading and splitting a document takes several times its length in memory.
LONGEST_DOCUMENT = 16 << 20
LONGEST_FILE = 4 * LONGEST_DOCUMENT  # characters of a file that is one document, with its markup
# Numbers of the namespaces of articles, and of files, categories and media.
ARTICLES, FILES = "0", ("6", "14", "-2")
BEGIN = "<doc "
WIKIEXTRACTOR_START = BEGIN.encode()  # the first bytes of WikiExtractor's files
ATTRIBUTES = re.compile(r'(\w+)="([^"]*)"')


@dataclass(frozen=True)
class Article:
    where: str  # file, and line if it holds several, for error messages
    id: str  # within its file; "": none, as in plain text and pages
    title: str  # not part of the text
    text: str


def check_length(where: str, text: str) -> str:
    """Return the text; refuse one that is too long for a document."""
    if len(text) > LONGEST_DOCUMENT:
        raise BertJaxError(f"{where}: a text of {len(text) >> 20} MB is too long; split it into documents")
    return text


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


def dump_articles(name: str, lines: Iterable[str]) -> Iterator[Article]:
    """Yield the articles of a dump in constant memory, without redirects and pages that are not articles."""
    files = set(wikitext.FILES)
    root: Element | None = None
    for number, event, element in parse_elements(name, lines):
        tag = element.tag.rpartition("}")[2]  # without the namespace of the dump's version
        if root is None:
            root = element
            if tag != "mediawiki":
                raise BertJaxError(
                    f"{name} line {number}: the root element is <{tag:.40}>; the only .xml files that are read are "
                    "Wikipedia dumps (<mediawiki>); convert it to text"
                )
        elif event == "end" and tag == "namespace" and element.get("key") in FILES:
            files.add((element.text or "").lower())
        elif event == "end" and tag == "page":
            if element.find("{*}redirect") is None and element.findtext("{*}ns", "") in ("", ARTICLES):
                where, text = f"{name} line {number}", wikitext.text_of(markup_of(element), files)
                yield Article(where, element.findtext("{*}id", ""), element.findtext("{*}title", ""), text)
            root.clear()


def parse_elements(name: str, lines: Iterable[str]) -> Iterator[tuple[int, str, Element]]:
    """Parse XML; yield (line number, "start" or "end", element)."""
    parser: XMLPullParser = XMLPullParser(("start", "end"))
    number = 0
    try:
        for number, line in enumerate(lines, 1):
            parser.feed(line)
            for event, element in cast(Iterator[tuple[str, Element]], parser.read_events()):
                yield number, event, element
        if number:
            parser.close()
    except ParseError as error:
        reason = str(error).partition(":")[0]
        raise BertJaxError(f"{name} line {number} is not XML ({reason}); fetch the file again") from error


def markup_of(page: Element) -> str:
    """Return the wiki markup of a page's last revision; "" if it has none."""
    for revision in page.findall("{*}revision")[-1:]:
        if revision.findtext("{*}model", "") in ("", "wikitext"):
            return revision.findtext("{*}text", "")
    return ""


def extracted_articles(name: str, lines: Iterable[str]) -> Iterator[Article]:
    """Yield the articles between <doc id= url= title=> and </doc>, without a first line that repeats the title."""
    attributes: dict[str, str] | None = None
    where, text = "", list[str]()
    for number, line in enumerate(lines, 1):
        stripped = line.rstrip("\r\n")
        if attributes is None:
            if stripped.startswith(BEGIN):
                attributes, where, text = dict(ATTRIBUTES.findall(stripped)), f"{name} line {number}", []
            elif stripped.strip():
                raise BertJaxError(
                    f"{name} line {number} is outside <doc> ... </doc>, which WikiExtractor puts around each article; "
                    "remove it"
                )
        elif stripped == "</doc>":
            title = unescape(attributes.get("title", ""))
            if text and text[0].strip() == title:
                del text[0]
            kept = (line for line in text if line.strip())
            yield Article(where, attributes.get("id", ""), title, "\n".join(kept))
            attributes = None
        else:
            text.append(unescape(stripped))
    if attributes is not None:
        raise BertJaxError(f"{where} opens a <doc> that is never closed; fetch the file again")


ArticleReader = Callable[[str, Iterable[str]], Iterator[Article]]  # (a file's name, its lines) -> articles
READERS: dict[str, ArticleReader] = {
    ".html": html_page,
    ".htm": html_page,
    ".md": markdown_page,
    ".markdown": markdown_page,
    ".xml": dump_articles,
}


def articles(name: str, lines: Iterable[str], plain: ArticleReader = whole_file) -> Iterator[Article]:
    """Read the articles of a file by the reader for its ending; `plain` reads all other files.

    WikiExtractor's files have no ending; they are recognised by their first line.
    """
    if reader := READERS.get(file_extension(name)):
        return reader(name, lines)
    lines = iter(lines)
    first = next(lines, "")
    reader = extracted_articles if first.startswith(BEGIN) else plain
    return reader(name, chain([first], lines))
