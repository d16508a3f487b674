"""The text of an HTML page that a reader sees, and its title."""

import re
from html import unescape
from html.parser import HTMLParser

UNSEEN = {"script", "style", "template", "noscript", "svg"}
BLOCKS = {
    "address", "article", "aside", "blockquote", "body", "br", "caption", "dd", "details", "div", "dl", "dt",
    "fieldset", "figcaption", "figure", "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hr", "li",
    "main", "nav", "ol", "option", "p", "pre", "section", "summary", "table", "td", "th", "title", "tr", "ul",
}  # fmt: skip
SPACES = re.compile(r"\s+")
DECLARATION = re.compile(r"<!\[[^>]*>")  # of Word, or of XML; the parser stops at those it does not know


class Page(HTMLParser):
    def __init__(self):
        super().__init__()
        self.hidden = self.preformatted = 0
        self.in_title = False
        self.titles: list[str] = []
        self.parts: list[str] = []

    def handle_starttag(self, tag, attributes):
        self.hidden += tag in UNSEEN
        self.preformatted += tag == "pre"
        self.in_title = tag == "title" and not self.hidden
        self.break_line(tag)

    def handle_startendtag(self, tag, attributes):
        self.break_line(tag)

    def handle_endtag(self, tag):
        self.hidden -= tag in UNSEEN and self.hidden > 0
        self.preformatted -= tag == "pre" and self.preformatted > 0
        self.in_title = False
        self.break_line(tag)

    def handle_data(self, data):
        if self.in_title:
            self.titles.append(data)
        elif not self.hidden:
            self.parts.append(data if self.preformatted else SPACES.sub(" ", data))

    def break_line(self, tag):
        if tag in BLOCKS:
            self.parts.append("\n")


def title_and_text(source: str) -> tuple[str, str]:
    """Without scripts and styles; each block is a line.

    >>> title_and_text("<title>Cats</title><script>x < 1</script><p>The&nbsp;cat\\nsat.<p>Then it <b>slept</b>.")
    ('Cats', 'The cat sat.\\nThen it slept.')
    """
    page, source = Page(), without_comments(source)
    end = source.rfind(">") + 1
    page.feed(DECLARATION.sub("", source[:end]))
    page.close()
    page.handle_data(unescape(source[end:]))
    lines = (line.strip() for line in "".join(page.parts).split("\n"))
    return SPACES.sub(" ", "".join(page.titles)).strip(), "\n".join(line for line in lines if line)


def without_comments(source: str) -> str:
    """A comment that does not end goes on to the end. Left to the parser, many of those take hours, as do many tags
    that do not end."""
    parts, start = [], 0
    while (comment := source.find("<!--", start)) >= 0:
        parts.append(source[start:comment])
        end = source.find("-->", comment + 4)
        start = len(source) if end < 0 else end + 3
    return "".join([*parts, source[start:]])
