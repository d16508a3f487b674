"""Extract the visible text of an HTML page, and its title.

What surrounds the text on every page of a site is left out: the navigation, and headers, footers and asides outside of
the article; an <h1> in such a header is kept.
"""

import re
from collections import Counter
from collections.abc import Iterable
from html import unescape
from html.parser import HTMLParser

AROUND = {"nav", "header", "footer", "aside"}
CONTENT = {"article", "main", "blockquote"}  # whose headers, footers and asides belong to the text
UNSEEN = {"script", "style", "template", "noscript", "svg"}
BLOCKS = {
    "address", "article", "aside", "blockquote", "body", "br", "caption", "dd", "details", "div", "dl", "dt",
    "fieldset", "figcaption", "figure", "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hr", "li",
    "main", "nav", "ol", "option", "p", "pre", "section", "summary", "table", "td", "th", "title", "tr", "ul",
}  # fmt: skip
SPACES = re.compile(r"\s+")
# A comment; one that is not closed extends to the end. If they were left to the parser, many unclosed comments would
# take hours, as would many unclosed tags.
COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.S)
DECLARATION = re.compile(r"<!\[[^>]*>")  # from Word or XML; the parser stops at those it does not know


class Page(HTMLParser):
    def __init__(self):
        super().__init__()
        self.hidden = self.preformatted = 0
        self.in_title = False
        self.titles: list[str] = []
        self.parts: list[tuple[str, bool]] = []  # (text, whether it surrounds the article)
        self.content = 0
        self.around: list[tuple[str, bool]] = []  # open elements of AROUND: (tag, whether it is left out)
        self.left_out: Counter[str] = Counter()
        self.in_heading = False

    def handle_starttag(self, tag, attributes):
        self.content += tag in CONTENT
        self.in_heading |= tag == "h1"
        if tag in AROUND:
            is_left_out = tag == "nav" or not self.content
            self.around.append((tag, is_left_out))
            self.left_out[tag] += is_left_out
        self.hidden += tag in UNSEEN
        self.preformatted += tag == "pre"
        self.in_title = tag == "title" and not self.hidden
        self.break_line(tag)

    def handle_startendtag(self, tag, attributes):
        self.break_line(tag)

    def handle_endtag(self, tag):
        self.content -= tag in CONTENT and self.content > 0
        self.in_heading &= tag != "h1"
        if any(name == tag for name, _ in self.around[-1:]):
            name, is_left_out = self.around.pop()
            self.left_out[name] -= is_left_out
        self.hidden -= tag in UNSEEN and self.hidden > 0
        self.preformatted -= tag == "pre" and self.preformatted > 0
        self.in_title = False
        self.break_line(tag)

    def handle_data(self, data):
        if self.in_title:
            self.titles.append(data)
        elif not self.hidden:
            self.parts.append((data if self.preformatted else SPACES.sub(" ", data), self.is_around))

    def break_line(self, tag):
        if tag in BLOCKS:
            self.parts.append(("\n", False))

    @property
    def is_around(self) -> bool:
        count = self.left_out.total()
        return count > (self.left_out["header"] if self.in_heading else 0)

    def lines(self) -> list[str]:
        """Return the article's lines, or all lines if an element of AROUND is not closed or nothing would be left."""
        if not self.left_out.total() and (
            lines := split_lines(text for text, around in self.parts if not around)
        ):
            return lines
        return split_lines(text for text, _ in self.parts)


def split_lines(parts: Iterable[str]) -> list[str]:
    return [line for part in "".join(parts).split("\n") if (line := part.strip())]


def extract_html(source: str) -> tuple[str, str]:
    """Return the title and the text, without scripts, styles and what surrounds the article; each block is a line.

    >>> extract_html("<title>Cats</title><script>x < 1</script><p>The&nbsp;cat\\nsat.<p>Then it <b>slept</b>.")
    ('Cats', 'The cat sat.\\nThen it slept.')
    >>> extract_html("<header><h1>Cats</h1>Log in</header><nav>Home</nav><article><header>By Ada</header>They sat.")
    ('', 'Cats\\nBy Ada\\nThey sat.')
    """
    page, source = Page(), COMMENT.sub("", source)
    end = source.rfind(">") + 1
    page.feed(DECLARATION.sub("", source[:end]))
    page.close()
    page.handle_data(unescape(source[end:]))
    return SPACES.sub(" ", "".join(page.titles)).strip(), "\n".join(page.lines())
