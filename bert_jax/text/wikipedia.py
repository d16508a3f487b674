"""Read Wikipedia articles from dumps, and from the files that WikiExtractor makes of them."""

import re
from collections.abc import Iterable, Iterator
from html import unescape
from typing import cast
from xml.etree.ElementTree import Element, ParseError, XMLPullParser

from bert_jax.core.errors import BertJaxError
from bert_jax.text import wikitext
from bert_jax.text.article import Article

# Numbers of the namespaces of articles, and of files, categories and media.
ARTICLES, FILES = "0", ("6", "14", "-2")
BEGIN = "<doc "
ATTRIBUTES = re.compile(r'(\w+)="([^"]*)"')


def dump_articles(name: str, lines: Iterable[str]) -> Iterator[Article]:
    """Yield the articles of a dump in constant memory, without redirects and pages that are not articles."""
    files = set(wikitext.FILES)
    root: Element | None = None
    for number, event, element in parsed(name, lines):
        tag = local_tag(element.tag)
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
            page = children_by_name(element)
            if "redirect" not in page and element_text(page, "ns") in ("", ARTICLES):
                where, text = f"{name} line {number}", wikitext.text_of(markup_of(page), files)
                yield Article(where, element_text(page, "id"), element_text(page, "title"), text)
            root.clear()


def parsed(name: str, lines: Iterable[str]) -> Iterator[tuple[int, str, Element]]:
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


def local_tag(tag: str) -> str:
    return tag.rpartition("}")[2]


def children_by_name(element: Element) -> dict[str, Element]:
    """Return the children of an element by name; if several share a name, the last one."""
    return {local_tag(child.tag): child for child in element}


def element_text(elements: dict[str, Element], name: str) -> str:
    return (elements[name].text or "") if name in elements else ""


def markup_of(page: dict[str, Element]) -> str:
    revision = children_by_name(page["revision"]) if "revision" in page else {}
    return element_text(revision, "text") if element_text(revision, "model") in ("", "wikitext") else ""


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
            yield Article(
                where, attributes.get("id", ""), title, "\n".join(line for line in text if line.strip())
            )
            attributes = None
        else:
            text.append(unescape(stripped))
    if attributes is not None:
        raise BertJaxError(f"{where} opens a <doc> that is never closed; fetch the file again")
