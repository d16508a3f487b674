"""Extract the visible text of an article in wiki markup, without templates, tables, references and files."""

import re
from collections import Counter
from collections.abc import Collection, Iterator
from html import unescape

from bert_jax.text.html import COMMENT

FILES = ("file", "image", "media", "category")  # links with these prefixes show no text
DEEPEST = 20  # levels of links within links; deeper [[ are removed, but open no link
UNSEEN = re.compile(
    r"<(/?)(ref|math|chem|gallery|timeline|syntaxhighlight|source|score|imagemap|hiero|graph|mapframe|maplink)"
    r"(?:\s[^<>]{0,1000})?>",
    re.I,
)
TAGS = re.compile(r"</?[a-z][^<>]{0,500}>", re.I)
BREAKS = re.compile(r"<br\b[^<>]{0,100}>", re.I)
BRACES = re.compile(r"\{\{|\}\}|^[ :]*\{\||^[ ]*\|\}(?!\})", re.M)
BRACKETS = re.compile(r"\[\[|\]\]")
EXTERNAL = re.compile(r"\[(?:https?:|ftp:|mailto:)?//[^\s\]]+ *([^\[\]\n]*)\]")
HEADING = re.compile(r"(={1,6})\s*(.*?)\s*\1")
SWITCHES = re.compile(r"__[A-Z]+__")
QUOTES = re.compile(r"'{2,}")
# Remains of templates, as in "Athens ({{lang|el|...}}; )".
EMPTY = re.compile(r"\([\s,;:]*\)")
LEADING = re.compile(r"\(\s*[,;]\s*")
SPACES = re.compile(r"\s+")
BEFORE = re.compile(r" +(?=[,.;:!?)])")


def text_of(markup: str, files: Collection[str] = FILES) -> str:
    """Return the text; each paragraph, heading and list item is a line. `files` are the lower-case prefixes of links to
    files and categories, which each language names differently.

    >>> text_of("'''Cats''' ({{lang|la|Felis}}) are [[Pet|pets]].<ref>Ann</ref>\\n== See also ==\\n[[File:a.png]]")
    'Cats are pets.'
    """
    text = strip_hidden_elements(COMMENT.sub("", markup))
    text = replace_links(strip_templates_and_tables(text), files)
    text = EXTERNAL.sub(r"\1", text)
    text = TAGS.sub("", BREAKS.sub("\n", text))
    text = QUOTES.sub("", SWITCHES.sub("", text))
    lines = (clean_line(line) for line in unescape(text).split("\n"))
    return "\n".join(drop_empty_sections(line for line in lines if line))


def strip_hidden_elements(text: str) -> str:
    """Remove elements that hold no prose; one that is never closed stays."""
    tags = [tag for tag in UNSEEN.finditer(text) if not tag[0].endswith("/>")]
    last = {tag[2].lower(): tag.start() for tag in tags if tag[1]}
    opened, start = "", 0
    spans: list[tuple[int, int]] = []
    for tag in tags:
        name = tag[2].lower()
        if not opened and not tag[1] and tag.end() <= last.get(name, -1):
            opened, start = name, tag.start()
        elif tag[1] and name == opened:
            spans.append((start, tag.end()))
            opened = ""
    return remove_spans(text, spans)


def strip_templates_and_tables(text: str) -> str:
    """Remove templates and tables with their contents; braces that do not match stay."""
    opened: list[tuple[str, int]] = []
    counts: Counter[str] = Counter()
    spans: list[tuple[int, int]] = []
    for brace in BRACES.finditer(text):
        mark = "table" if "|" in brace[0] else "template"
        if "{" in brace[0]:
            opened.append((mark, brace.start()))
            counts[mark] += 1
        elif counts[mark]:
            before, start = "", 0
            while before != mark:
                before, start = opened.pop()
                counts[before] -= 1
            while spans and spans[-1][0] >= start:
                spans.pop()
            spans.append((start, brace.end()))
    return remove_spans(text, spans)


def remove_spans(text: str, spans: list[tuple[int, int]]) -> str:
    """Remove spans, which must be in order and must not overlap."""
    parts, position = [], 0
    for start, end in spans:
        parts.append(text[position:start])
        position = end
    return "".join([*parts, text[position:]])


def replace_links(text: str, files: Collection[str]) -> str:
    """Replace links with the words that they show.

    >>> replace_links("[[Cat]]s [[Pet|are]] [[File:a.png|thumb|A [[cat]]]]kept. [[Sources", FILES)
    'Cats are kept. Sources'
    """
    open_links: list[list[str]] = [[]]
    position = 0
    for bracket in BRACKETS.finditer(text):
        open_links[-1].append(text[position : bracket.start()])
        position = bracket.end()
        if bracket[0] == "[[" and len(open_links) <= DEEPEST:
            open_links.append([])
        elif bracket[0] == "]]" and len(open_links) > 1:
            link = "".join(open_links.pop())
            open_links[-1].append(link_text(link, files))
    open_links[-1].append(text[position:])
    return "".join("".join(parts) for parts in open_links)


def link_text(link: str, files: Collection[str]) -> str:
    """Return the words that a link shows; none for files and categories."""
    target, _, words = link.partition("|")
    prefix, colon, _ = target.partition(":")
    if colon and prefix.strip().lower() in files:
        return ""
    return words.rpartition("|")[2] or target.lstrip(":")


def clean_line(line: str) -> str:
    line = line.strip().lstrip("*#:;").strip()
    if line.startswith(("|", "!", "{|", "----")):  # remains of tables that a template begins or ends
        return ""
    line = EMPTY.sub("", line)
    return BEFORE.sub("", SPACES.sub(" ", LEADING.sub("(", line))).strip()


def drop_empty_sections(lines: Iterator[str]) -> Iterator[str]:
    """Strip the markup of headings, and leave out headings without text below them."""
    waiting: list[tuple[int, str]] = []
    for line in lines:
        if heading := HEADING.fullmatch(line):
            level = len(heading[1])
            waiting = [(above, words) for above, words in waiting if above < level]
            waiting.append((level, heading[2]))
            continue
        yield from (words for _, words in waiting if words)
        waiting = []
        yield line
