"""The text of an article in wiki markup that a reader sees: without templates, tables, references and files."""

import re
from collections import Counter
from collections.abc import Collection, Iterator
from html import unescape

from bert_jax.text.html import without_comments

FILES = ("file", "image", "media", "category")  # what links with these prefixes show is no text
DEEPEST = 20  # links within links; what is further in is not markup
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
# What templates leave behind: "Athens ({{lang|el|...}}; )".
EMPTY = re.compile(r"\([\s,;:]*\)")
LEADING = re.compile(r"\(\s*[,;]\s*")
SPACES = re.compile(r"\s+")
BEFORE = re.compile(r" +(?=[,.;:!?)])")


def text_of(markup: str, files: Collection[str] = FILES) -> str:
    """Each paragraph, heading and item of a list is a line. `files` are the lower-case prefixes of links to files and
    categories, which have names in each language.

    >>> text_of("'''Cats''' ({{lang|la|Felis}}) are [[Pet|pets]].<ref>Ann</ref>\\n== See also ==\\n[[File:a.png]]")
    'Cats are pets.'
    """
    text = linked(without_braces(without_unseen(without_comments(markup))), files)
    text = EXTERNAL.sub(r"\1", text)
    text = TAGS.sub("", BREAKS.sub("\n", text))
    text = QUOTES.sub("", SWITCHES.sub("", text))
    lines = (plain(line) for line in unescape(text).split("\n"))
    return "\n".join(without_empty_sections(line for line in lines if line))


def without_unseen(text: str) -> str:
    """Without elements that hold no prose; one that does not end stays."""
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
    return without(text, spans)


def without_braces(text: str) -> str:
    """Without templates and tables, and what stands in them; braces that do not match stay."""
    opened: list[tuple[str, int]] = []
    kinds: Counter[str] = Counter()
    spans: list[tuple[int, int]] = []
    for brace in BRACES.finditer(text):
        kind = "table" if "|" in brace[0] else "template"
        if "{" in brace[0]:
            opened.append((kind, brace.start()))
            kinds[kind] += 1
        elif kinds[kind]:
            before, start = "", 0
            while before != kind:
                before, start = opened.pop()
                kinds[before] -= 1
            while spans and spans[-1][0] >= start:
                spans.pop()
            spans.append((start, brace.end()))
    return without(text, spans)


def without(text: str, spans: list[tuple[int, int]]) -> str:
    parts, place = [], 0
    for start, end in spans:
        parts.append(text[place:start])
        place = end
    return "".join([*parts, text[place:]])


def linked(text: str, files: Collection[str]) -> str:
    """With the words that links show in the place of links.

    >>> linked("[[Cat]]s [[Pet|are]] [[File:a.png|thumb|A [[cat]]]]kept. [[Sources", FILES)
    'Cats are kept. Sources'
    """
    open_links: list[list[str]] = [[]]
    place = 0
    for bracket in BRACKETS.finditer(text):
        open_links[-1].append(text[place : bracket.start()])
        place = bracket.end()
        if bracket[0] == "[[" and len(open_links) <= DEEPEST:
            open_links.append([])
        elif bracket[0] == "]]" and len(open_links) > 1:
            link = "".join(open_links.pop())
            open_links[-1].append(shown(link, files))
    open_links[-1].append(text[place:])
    return "".join("".join(parts) for parts in open_links)


def shown(link: str, files: Collection[str]) -> str:
    target, _, words = link.partition("|")
    prefix, colon, _ = target.partition(":")
    if colon and prefix.strip().lower() in files:
        return ""
    return words.rpartition("|")[2] or target.lstrip(":")


def plain(line: str) -> str:
    line = line.strip().lstrip("*#:;").strip()
    if line.startswith(("|", "!", "{|", "----")):  # of tables that templates begin or end
        return ""
    line = EMPTY.sub("", line)
    return BEFORE.sub("", SPACES.sub(" ", LEADING.sub("(", line))).strip()


def without_empty_sections(lines: Iterator[str]) -> Iterator[str]:
    """Headings come as their words, unless nothing stands below them."""
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
