"""A document read from a file."""

from dataclasses import dataclass

from bert_jax.core.errors import BertJaxError

LONGEST_DOCUMENT = (
    16 << 20
)  # characters; reading and splitting a document takes several times its length in memory


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
