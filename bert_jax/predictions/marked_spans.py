"""Spans as a person reads them: marked in their text, or listed without it."""

from collections.abc import Mapping, Sequence
from typing import Any

from bert_jax.core.terminal import BOLD, CYAN, GREEN, RED, RESET, YELLOW, is_coloured
from bert_jax.metrics.tagged_spans import extract_spans

COLOURS = (CYAN, GREEN, YELLOW, RED)  # of the types of spans, in turn


def mark_spans(text: str | Sequence[str], prediction: Mapping[str, Any], types: Sequence[str]) -> str:
    """Return the text, in which each span is followed by its type; a text may be a list of words.

    A span from which the model abstains has a question mark.

    >>> spans = [{"label": "PER", "start": 0, "end": 3}, {"label": "LOC", "start": 7, "end": 11, "abstained": True}]
    >>> mark_spans("Ada in Rome.", {"spans": spans}, ["PER", "LOC"])
    'Ada [PER] in Rome [LOC?].'
    >>> mark_spans(("Ada", "Lovelace", "lived"), {"tags": ["B-PER", "I-PER", "O"]}, ["PER"])
    'Ada Lovelace [PER] lived'
    """
    spans = prediction.get("spans") or []
    if not isinstance(text, str):
        spans = list(spans_of_words(text, prediction["tags"]))
        text = " ".join(text)
    parts, end, coloured = [], 0, is_coloured()
    for span in spans:
        kind = f"[{span['label']}{'?' * bool(span.get('abstained'))}]"
        inside = text[span["start"] : span["end"]]
        if coloured:
            colour = COLOURS[types.index(span["label"]) % len(COLOURS)]
            inside, kind = f"{BOLD}{inside}{RESET}", f"{colour}{kind}{RESET}"
        parts += [text[end : span["start"]], f"{inside} {kind}"]
        end = span["end"]
    return "".join([*parts, text[end:]])


def spans_of_words(words: Sequence[str], tags: Sequence[str]):
    """Yield the spans of words that are joined by spaces."""
    for kind, first, last in extract_spans(tags):
        start = len(" ".join(words[:first])) + (first > 0)
        yield {"label": kind, "start": start, "end": start + len(" ".join(words[first:last]))}


def list_spans(words: Sequence[str], tags: Sequence[str]) -> str:
    """
    >>> list_spans(("Ada", "Lovelace", "lived"), ["B-PER", "I-PER", "O"])
    'PER: Ada Lovelace'
    """
    spans = (f"{kind}: {' '.join(words[a:b])}" for kind, a, b in extract_spans(tags))
    return "; ".join(spans) or "none"
