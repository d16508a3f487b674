"""Extract the visible text of a Markdown page, and its title."""

import re
from html import unescape

from bert_jax.text.html import COMMENT

FRONT = re.compile(r"\A---[ \t]*\n.*?\n(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.S)
FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
HEADING = re.compile(r" {0,3}(#{1,6})(?:[ \t](.*))?")
CLOSING = re.compile(r"(?:^|[ \t])#+$")
UNDERLINE = re.compile(r" {0,3}(=+|-+)[ \t]*")
RULE = re.compile(r" {0,3}(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,})")
ITEM = re.compile(
    r"[ \t]*(?:[-*+]|\d{1,9}[.)])[ \t]+(?:\[[ xX]\][ \t]+)?"
    r"| {0,3}\[\^[^\]\s]+\]:[ \t]*"  # a footnote
)
QUOTE = re.compile(r"(?:[ \t]*>[ \t]?)+")
DEFINITION = re.compile(
    r" {0,3}\[(?!\^)[^\]\n]+\]:[ \t]*(?:<[^<>\n]*>|\S+)"
    r"(?:[ \t]+(?:\"[^\"\n]*\"|'[^'\n]*'|\([^()\n]*\)))?[ \t]*"
)
ROW = re.compile(r"[ \t]*\|.*\|[ \t]*")
RULED = re.compile(r"[ \t:|-]*-[ \t:|-]*")
CODE = re.compile(r"(?<!`)(`+)(?!`)(.{1,1000}?)(?<!`)\1(?!`)")
LINK = re.compile(
    r"!?\[([^\[\]\n]*)\]"
    r"(?:\([^()\s]*(?:\([^()\s]*\)[^()\s]*)*(?:[ \t]+[\"'(][^()\n]*[\"')])?\)|\[[^\[\]\n]*\])"
)
ADDRESS = re.compile(r"<((?:https?|ftp|mailto):[^<>\s]+)>")
TAG = re.compile(r"</?[A-Za-z][^<>\n]{0,500}>")
STRONG = re.compile(r"(?<!\\)(\*{1,3}|(?<!\w)_{1,3}|~~)(?=\S)([^\n*_~]+?)(?<=[^\s\\])\1(?!\w)")
ESCAPE = re.compile(r"\\([!-/:-@\[-`{-~])")


def extract_markdown(source: str) -> tuple[str, str]:
    """Return the title and the text; each heading, paragraph, list item, table row and line of code is a line.

    A first-level heading at the start of the page is the title, unless the page holds nothing else.

    >>> extract_markdown("# Cats\\n\\nThey *often*\\n[sleep](a.html), see ![a cat](b.png).\\n\\n- `purr`\\n- run")
    ('Cats', 'They often sleep, see a cat.\\npurr\\nrun')
    """
    lines: list[list[str]] = []  # parts of each line: the lines of the page that it joins, or a table's cells
    code: set[int] = set()  # indices of lines of code, which stay as they are
    title, fence, joins = "", "", False
    for line in COMMENT.sub("", FRONT.sub("", source.replace("\r\n", "\n"))).split("\n"):
        mark = FENCE.match(line)
        if mark and (not fence or (mark[1].startswith(fence) and not line.strip(" `~"))):
            fence, joins = "" if fence else mark[1], False
            continue
        if fence:
            code.add(len(lines))
            lines.append([line.rstrip()])
            continue
        line = strip_mark(QUOTE, line)
        if joins and (under := UNDERLINE.fullmatch(line)):
            if under[1][0] == "=" and len(lines) == 1 and not title:
                title = strip_inline_markup(" ".join(lines.pop()))
            joins = False
        elif heading := HEADING.fullmatch(line):
            words, joins = CLOSING.sub("", (heading[2] or "").strip()), False
            if len(heading[1]) == 1 and not lines and not title:
                title = strip_inline_markup(words)
            else:
                lines.append([words])
        elif not line.strip() or RULE.fullmatch(line) or DEFINITION.fullmatch(line):
            joins = False
        elif ROW.fullmatch(line):
            if not RULED.fullmatch(line):
                lines.append([cell.strip() for cell in line.strip().strip("|").split("|")])
            joins = False
        elif joins and not ITEM.match(line):
            lines[-1].append(line.strip())
        else:
            lines.append([strip_mark(ITEM, line).strip()])
            joins = True
    joined = (
        parts[0] if n in code else strip_inline_markup(" ".join(parts)) for n, parts in enumerate(lines)
    )
    text = "\n".join(line for line in joined if line.strip())
    return (title, text) if text else ("", title)


def strip_mark(mark: re.Pattern, line: str) -> str:
    """Return the line without the mark at its start, if there is one."""
    match = mark.match(line)
    return line[match.end() :] if match else line


def strip_inline_markup(text: str) -> str:
    """Remove inline markup.

    >>> strip_inline_markup("a **bold _move_**, `2 * 3 * 4`, snake_case_name, &lt;br> and <br> <https://x.org>")
    'a bold move, 2 * 3 * 4, snake_case_name, <br> and  https://x.org'
    """
    parts, position = [], 0
    for code in CODE.finditer(text):
        parts += [strip_links_and_emphasis(text[position : code.start()]), code[2].strip()]
        position = code.end()
    return "".join([*parts, strip_links_and_emphasis(text[position:])]).strip()


def strip_links_and_emphasis(text: str) -> str:
    for _ in range(2):  # markup may be nested: a picture in a link, bold in italic
        text = STRONG.sub(r"\2", LINK.sub(r"\1", text))
    return unescape(ESCAPE.sub(r"\1", TAG.sub("", ADDRESS.sub(r"\1", text))))
