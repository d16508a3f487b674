"""A document read from a file."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Article:
    where: str  # file and line, for error messages
    id: str  # within its file; "": the whole file is one document
    title: str  # not part of the text
    text: str
