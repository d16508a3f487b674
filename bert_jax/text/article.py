"""A document as a file holds it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Article:
    where: str  # for errors
    id: str  # within its source; "": the file is the document
    title: str  # not a part of the text
    text: str
