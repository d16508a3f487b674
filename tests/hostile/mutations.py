"""Mutations of files: of their bytes, of their lines, of the values of their JSON."""

import json
import random

HOSTILE = (
    None, True, False, 0, 1, -1, 2, 7, 2**31, 2**63, 10**30, 0.5, -0.0, 1e308, float("nan"), float("inf"), "", "x", "0",
    "nan", "\ud800", "a\0b", "x" * 5000, "../../../dev/zero", "/etc/passwd", "os.system", [], {}, [[]], [None], ["x"],
    {"": ""}, {"x": None}, {"0": 0}, [1, 2], [1e999], "\u202e", "\n",
)  # fmt: skip
LINES = (
    b"",
    b"\0",
    b"\xff\xfe",
    b"\xef\xbb\xbf",
    b"\r",
    b'"',
    b"\t",
    b",",
    b"{}",
    b"[]",
    b"null",
    b"x" * 3000,
    b"\xed\xa0\x80",
)


def mutated(content: bytes, drawn: random.Random) -> bytes:
    """Another content, near the first or far from it."""
    ways = [flip, flip, replace, cut, drop, double, insert, zero, exchange, of_line]
    if content[:1] in b"{[" and content:
        ways += [of_json] * 10
    made = content
    while made == content:
        for _ in range(drawn.choice((1, 1, 1, 2, 5))):
            made = drawn.choice(ways)(made, drawn)
    return made


def span(content: bytes, drawn: random.Random) -> tuple[int, int]:
    """A part, mostly a short one."""
    start = drawn.randrange(len(content) + 1)
    return start, min(len(content), start + drawn.choice((1, 1, 2, 4, 8, 100, len(content))))


def flip(content: bytes, drawn: random.Random) -> bytes:
    if not content:
        return b"\0"
    place = drawn.randrange(len(content))
    return content[:place] + bytes([content[place] ^ 1 << drawn.randrange(8)]) + content[place + 1 :]


def replace(content: bytes, drawn: random.Random) -> bytes:
    start, end = span(content, drawn)
    return content[:start] + drawn.randbytes(end - start) + content[end:]


def cut(content: bytes, drawn: random.Random) -> bytes:
    return content[: drawn.randrange(len(content) + 1)]


def drop(content: bytes, drawn: random.Random) -> bytes:
    start, end = span(content, drawn)
    return content[:start] + content[end:]


def double(content: bytes, drawn: random.Random) -> bytes:
    start, end = span(content, drawn)
    return content[:end] + content[start:]


def insert(content: bytes, drawn: random.Random) -> bytes:
    start, _ = span(content, drawn)
    return content[:start] + drawn.randbytes(drawn.choice((1, 2, 8, 64))) + content[start:]


def zero(content: bytes, drawn: random.Random) -> bytes:
    start, end = span(content, drawn)
    return content[:start] + bytes(end - start) + content[end:]


def exchange(content: bytes, drawn: random.Random) -> bytes:
    start, end = span(content, drawn)
    other, last = span(content, drawn)
    return content[:start] + content[other:last] + content[end:]


def of_line(content: bytes, drawn: random.Random) -> bytes:
    lines = content.split(b"\n")
    place = drawn.randrange(len(lines))
    lines[place] = drawn.choice((*LINES, lines[place] + drawn.choice(LINES), drawn.choice(lines)))
    return b"\n".join(lines)


def of_json(content: bytes, drawn: random.Random) -> bytes:
    """One value, or one key, is another."""
    try:
        value = json.loads(content)
    except ValueError:
        return flip(content, drawn)
    parent, place = drawn.choice(list(places(value)) or [(None, None)])
    if parent is None:
        value = drawn.choice(HOSTILE)
    elif drawn.random() < 0.2:
        del parent[place]
    elif isinstance(parent, dict) and drawn.random() < 0.2:
        parent[drawn.choice(("", "x", "../../../dev/zero", str(place).upper()))] = parent.pop(place)
    else:
        parent[place] = drawn.choice(HOSTILE)
    return json.dumps(value, indent=drawn.choice((None, 1))).encode()


def places(value):
    """(container, key or index) of each value within, at any depth."""
    keys = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in list(keys):
        yield value, key
        yield from places(value[key])
