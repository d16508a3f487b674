"""Texts that describe the labels, which are further examples of their labels for the probe of few labels.

By the names of the labels, a probe of 2 and of 8 examples of each class gained .06 and .01 of accuracy on intents for
a voice assistant, .08 and .03 on questions about flights, .10 and .05 on emotions of tweets, .04 and .01 on purposes of
citations, .03 and .01 on reviews of restaurants, .06 and .03 on reviews of products (a 6-layer MiniLM, five draws).
"""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from bert_jax.core.errors import BertJaxError, check_name
from bert_jax.core.files import parse_json
from bert_jax.data.examples.example import Example
from bert_jax.data.examples.row_packing import EncodedWindow
from bert_jax.finetuning.encoded_windows import make_encoded_windows
from bert_jax.predictions.kind import Kind
from bert_jax.text.encoding_options import EncodingOptions
from bert_jax.text.tokenizer import Tokenizer

AUTO, NONE = "auto", "none"  # the names of the labels, if they may help; nothing
FEW_OF_EACH = 64  # examples of each class, from which on names are not tried


def read_label_descriptions(given: str) -> dict[str, str]:
    """Return the descriptions in a JSON object, or in a file that holds one; AUTO and NONE give none.

    >>> read_label_descriptions('{"pos": "a good review"}')
    {'pos': 'a good review'}
    """
    if given in (AUTO, NONE):
        return {}
    is_file = not given.lstrip().startswith("{")
    if is_file and not Path(given).is_file():
        raise BertJaxError(
            f'label_descriptions="{given:.60}" is neither a file nor a JSON object, such as '
            '{"pos": "a good review"}; nor is it auto or none'
        )
    content = Path(given).read_bytes() if is_file else given.encode()
    where = given if is_file else "label_descriptions"
    return parse_json(content, dict[str, str], where, "give an object of labels and descriptions")


def describe_labels(given: str, kind: Kind, examples: Sequence[Example]) -> dict[str, str]:
    """Return the descriptions of labels for the setting `given`."""
    if given == NONE:
        return {}
    single_texts = all(isinstance(example.text, str) for example in examples)
    if given == AUTO:
        few = len(examples) < FEW_OF_EACH * len(kind.labels)
        names = {label: name_in_words(label) for label in kind.labels}
        usable = kind.supports_contrastive and single_texts and all(map(holds_word, names.values()))
        return names if few and usable else {}
    if not (kind.supports_contrastive and single_texts):
        raise BertJaxError(
            f"label_descriptions are for one class per text, not for {kind.name} or pairs; leave them out"
        )
    descriptions = read_label_descriptions(given)
    for label in descriptions:
        check_name(label, kind.labels, "label")
    return descriptions


def name_in_words(label: str) -> str:
    """
    >>> name_in_words("AddToPlaylist"), name_in_words("flight_no"), name_in_words("TV")
    ('add to playlist', 'flight no', 'tv')
    """
    return " ".join(re.sub(r"(?<=[a-z])(?=[A-Z])", " ", label).replace("_", " ").lower().split())


def holds_word(name: str) -> bool:
    """Whether a name says something: it has two letters together.

    >>> holds_word("sad"), holds_word("label 0"), holds_word("3"), holds_word("b")
    (True, False, False, False)
    """
    return bool(re.search(r"[^\W\d_]{2}", name)) and not re.fullmatch(r"label \d+", name)


def encode_descriptions(
    descriptions: Mapping[str, str], kind: Kind, tokenizer: Tokenizer, max_length: int
) -> tuple[EncodedWindow, ...]:
    """Return the descriptions as examples of their labels, whose numbers are below those of other examples."""
    examples = [Example(text, label, "label_descriptions") for label, text in descriptions.items()]
    windows = kind.reader.encode(tokenizer, list(descriptions.values()), EncodingOptions(max_length))
    return tuple(
        EncodedWindow(window.encoding, window.example - len(examples), window.targets)
        for window in make_encoded_windows(kind.targets, examples, windows)
    )


def spell_descriptions(given: object) -> str:
    """Return the setting for descriptions that may be a mapping."""
    return json.dumps(dict(given), ensure_ascii=False) if isinstance(given, Mapping) else str(given)
