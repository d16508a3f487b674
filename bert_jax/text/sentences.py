"""Split documents into sentences."""

import re
from collections.abc import Iterable, Iterator
from itertools import groupby

from sentencex import segment

from bert_jax.core.errors import BertJaxError
from bert_jax.text.text_source import Layout

# ISO 639-1 codes. Sentencex treats an unknown code as English, and knows some languages by codes of three letters.
LANGUAGES = (
    "aa ab ae af ak am an ar as av ay az ba be bg bh bi bm bn bo br bs ca ce ch co cr cs cu cv cy da de dv dz ee el en "
    "eo es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy hz ia id ie ig ii ik io is it iu ja jv "
    "ka kg ki kj kk kl km kn ko kr ks ku kv kw ky la lb lg li ln lo lt lu lv mg mh mi mk ml mn mr ms mt my na nb nd ne "
    "ng nl nn no nr nv ny oc oj om or os pa pi pl ps pt qu rm rn ro ru rw sa sc sd se sg sh si sk sl sm sn so sq sr ss "
    "st su sv sw ta te tg th ti tk tl tn to tr ts tt tw ty ug uk ur uz ve vi vo wa wo xh yi yo za zh zu"
)


def split_sentences(text: str, layout: Layout, language: str) -> list[str]:
    """Split a document into sentences; in the layout "sentences" each line is one.

    >>> split_sentences("It cost 3.50 in all. Then he left.\\nA second line.", "blank", "en")
    ['It cost 3.50 in all.', 'Then he left.', 'A second line.']
    """
    if layout == "sentences":
        pieces: Iterable[str] = text.split("\n")
    else:
        pieces = (sentence for paragraph in paragraphs(text) for sentence in segment(language, paragraph))
    return [piece for piece in map(str.strip, pieces) if piece]


def check_language(code: str) -> None:
    language = code.split("-")[0]  # zh-hant is zh
    if language not in LANGUAGES.split() and not re.fullmatch("[a-z]{3}", language):
        raise BertJaxError(f'no language "{code}"; give an ISO code such as en, de or zh')


def paragraphs(text: str) -> Iterator[str]:
    """Yield paragraphs. If blank lines separate them, their lines are joined (many books are hard-wrapped); without
    blank lines, each line is a paragraph."""
    # All spaces become plain ones: those of two or three bytes (no-break, em) make sentencex 1.0.32 split a character
    # and panic.
    lines = [" ".join(line.split()) for line in text.strip().split("\n")]
    if "" not in lines:
        yield from lines
        return
    for is_text, together in groupby(lines, bool):
        if is_text:
            yield " ".join(together)
