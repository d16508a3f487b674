"""Bodies that are wrong, made from those that are right, by a seed."""

import json
import random
import zlib
from collections.abc import Iterator
from typing import Any


class Raw(str):
    """JSON as it stands, valid or not."""


LARGE = 2_000_000 - 1000  # characters, so that the body is just small enough to be read
SURROGATE, NUL = Raw(r'"the \ud800 cat"'), Raw(r'"the \u0000 cat"')
SCALARS = [
    None, True, False, 0, -1, 1, 2**31, 2**63, 2**64, -(2**63) - 1, 1e308, -1e308, 5e-324, 0.5, 1.5,
    Raw("1e400"), Raw("-1e400"), Raw("1" + "0" * 5000), Raw("-" + "9" * 5000), Raw("1E-5000"), Raw("NaN"),
    Raw("Infinity"), Raw("-Infinity"), Raw("-0"), Raw("-0.0"), Raw("01"), Raw("0x10"), Raw("1."), Raw("."),
    Raw("'the'"), Raw("undefined"), Raw("{"), Raw("]"), Raw("[1,]"), Raw("/* */ 1"), Raw('"\\x41"'), Raw('"a\nb"'),
    Raw('"open'), SURROGATE, Raw(r'"\udc00\ud800"'), Raw(r'"\ud83d\ude00"'), NUL,
]  # fmt: skip
TEXTS = [
    "", " ", "\t\n", "a", "[MASK]", "[MASK] " * 30, "[CLS] [SEP] [PAD]", "the cat", "the " * 1000,
    "e" + "\u0301" * 2000,
    "\u202e\u200f", "\ufeff", "\U0010ffff", "\ufffe", "中" * 300, "🙂" * 100, "a" * 3000, " " * 3000, "\x7f\x01\x1f",
    "../../etc/passwd", "embedder", "index", "%s%n", "${jndi:x}", "<script>", "keywords", "vectors", "END", "START",
    "NONE", "left", "base64", "int8", "float",
]  # fmt: skip
LISTS: list[Any] = [
    [], [[]], {}, [None], [""], [" "], ["the cat", ""], [0], [[0]], [[2, 5, 3]], [[2, 10**30, 3]], ["the", 5],
    [[2, 3], "the"], [[]] * 3, ["the", "cat", "sat"], [["the", "cat"], ["sat"]], [["the", "cat", "sat"]], [{}],
    {"": ""}, {"text": "the", "text_pair": ""}, {"question": "", "context": ""}, {"question": "the", "context": ""},
    {"question": "the " * 40, "context": "cat"}, {"source_sentence": "", "sentences": []}, [{"content": []}],
    [{"content": [{"text": 1}]}], [{"text": None}], {"keywords": -1}, {"vectors": 1e308, "keywords": 1e308},
    {"bad": 0.5}, {"": 0.5}, {"top_k": 0}, {"top_k": -1}, {"top_k": 10**18}, {"handle_impossible_answer": True},
    {"function_to_apply": "none", "top_k": -5}, {"prompt_name": "query"},
]  # fmt: skip
LARGE_ONES = [
    lambda rng: ["the"] * 100_000,
    lambda rng: [rng.choice(SCALARS[:9])] * 100_000,
    lambda rng: [[2, 3]] * 100_000,
    lambda rng: [["the", "cat"]] * 100_000,
    lambda rng: rng.choice(" a中\u0301") * (LARGE // 6),
    lambda rng: " " * LARGE,
    lambda rng: "e" * LARGE,
    lambda rng: Raw("[" * 100_000 + "]" * 100_000),
    lambda rng: Raw('{"a":' * 100_000 + "1" + "}" * 100_000),
    lambda rng: Raw("[" * 100_000),
    lambda rng: Raw("9" * LARGE),
    lambda rng: {f"k{n}": n for n in range(50_000)},
]
NAMES = ["", "input", "text", "model", "truncate", "top_k", "dimensions", "parameters", "prompt_name", "options",
         "normalize", "raw_scores", "encoding_format", "min_precision", "out_of_scope", "probabilities", "reranker",
         "long_texts", "retrievers", "weights", "rerank_top", "explain", "return_documents", "top_n", "rank_fields",
         "embedding_types", "input_type", "output_dimension", "truncation_direction", "allow_no_answer", "__class__",
         "add_special_tokens", "skip_special_tokens", "return_text", "inputs", "texts", "query",
         "candidate_labels"]  # fmt: skip


def write(value: Any) -> str:
    """Return JSON in which Raw stands as it is."""
    if isinstance(value, Raw):
        return str(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(name)}:{write(part)}" for name, part in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(write, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def places(value: Any, at: tuple = ()) -> Iterator[tuple]:
    """Yield the path of each value in a value."""
    yield at
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in inner:
        yield from places(part, (*at, key))


def replaced(value: Any, at: tuple, new: Any) -> Any:
    if not at:
        return new
    copy = value.copy()
    copy[at[0]] = replaced(value[at[0]], at[1:], new)
    return copy


def any_value(rng: random.Random, large: bool) -> Any:
    if large:
        return rng.choice(LARGE_ONES)(rng)
    return rng.choice(rng.choice([SCALARS, TEXTS, LISTS]))


def change_value(rng: random.Random, example: Any, large: bool) -> Any:
    """Change some values of a body."""
    value = example
    for _ in range(1 if large else rng.choice([1, 1, 1, 2, 3])):
        at = rng.choice(list(places(value)))
        kind = rng.random()
        if kind < 0.55:
            value = replaced(value, at, any_value(rng, large))
        elif isinstance(value, dict) and kind < 0.9:
            value = value | {rng.choice(NAMES): any_value(rng, large)}
        elif isinstance(value, dict) and value:
            value = {name: part for name, part in value.items() if name != rng.choice(list(value))}
    return value


def change_bytes(rng: random.Random, body: bytes) -> bytes:
    """Damage the bytes of a body."""
    text = body.decode(errors="surrogatepass")
    place = rng.randrange(len(body) + 1)
    changes = [
        lambda: b"", lambda: body[:place], lambda: body[place:], lambda: body + body, lambda: b"\xef\xbb\xbf" + body,
        lambda: text.encode("utf-16"), lambda: text.encode("utf-16-be"), lambda: text.encode("utf-32"),
        lambda: body[:place] + b"\x00" + body[place:], lambda: body[:place] + b"\xff\xfe" + body[place:],
        lambda: body[:place] + b"\xed\xa0\x80" + body[place:], lambda: body[:place] + b"\xc0\xaf" + body[place:],
        lambda: body.replace(b"{", b'{"inputs":1,"input":2,"query":3,', 1), lambda: b" " * 5000 + body,
        lambda: body + b"\n" * 5000, lambda: body + b"garbage", lambda: zlib.compress(body), lambda: rng.randbytes(200),
        lambda: body.replace(b'"', b"'"), lambda: b"\x00" * 100, lambda: b"inputs=the+cat", lambda: body[::-1],
    ]  # fmt: skip
    return rng.choice(changes)()


def hostile_body(rng: random.Random, example: Any, large: bool) -> bytes:
    if not large and rng.random() < 0.15:
        return change_bytes(rng, write(example).encode())
    return write(change_value(rng, example, large)).encode(errors="surrogatepass")
