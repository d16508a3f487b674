"""A document read from a file."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Article:
    where: str  # file, and line if it holds several, for error messages
    id: str  # within its file; "": none, as in plain text and pages
    title: str  # not part of the text
    text: str
