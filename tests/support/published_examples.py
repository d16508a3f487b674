"""BERT's pre-training examples in plain Python, one after the other, from the description its authors
published.

Written for the tests from that description alone and sharing nothing with the package, so that agreement
between the two says something. Chance comes from `random.Random`.
"""

import random


def make_sentence_pairs(documents: list[list[list[int]]], length: int, short: float, rng: random.Random):
    """(a, b, is_random) of all documents in turn: the two token lists of each example."""
    room = length - 3
    for number, document in enumerate(documents):
        target = rng.randint(2, room) if rng.random() < short else room
        chunk: list[list[int]] = []
        size = i = 0
        while i < len(document):
            chunk.append(document[i])
            size += len(document[i])
            if i == len(document) - 1 or size >= target:
                split = rng.randint(1, len(chunk) - 1) if len(chunk) >= 2 else 1
                a = sum(chunk[:split], [])
                if len(chunk) == 1 or rng.random() < 0.5:
                    is_random = True
                    for _ in range(10):
                        other = rng.randint(0, len(documents) - 1)
                        if other != number:
                            break
                    b = []
                    start = rng.randint(0, len(documents[other]) - 1)
                    for sentence in documents[other][start:]:
                        b += sentence
                        if len(b) >= target - len(a):
                            break
                    i -= len(chunk) - split  # the unused sentences are put back
                else:
                    is_random = False
                    b = sum(chunk[split:], [])
                while len(a) + len(b) > room:
                    longer = a if len(a) > len(b) else b
                    longer.pop(0 if rng.random() < 0.5 else -1)
                yield a, b, is_random
                chunk, size = [], 0
            i += 1


def mask_row(
    row: list[int], special: set[int], mask: int, replacements: list[int], cap: int, rng: random.Random
):
    """(row with masks, positions, originals): 15% of the row, of which 80% [MASK], 10% random, 10% as they
    were."""
    places = [i for i, token in enumerate(row) if token not in special]
    rng.shuffle(places)
    positions = sorted(places[: min(cap, max(1, int(round(len(row) * 0.15))))])
    out = list(row)
    for i in positions:
        if rng.random() < 0.8:
            out[i] = mask
        elif rng.random() < 0.5:
            pass
        else:
            out[i] = replacements[rng.randint(0, len(replacements) - 1)]
    return out, positions, [row[i] for i in positions]


def whole_word_groups(row: list[int], special: set[int], continues: set[int]) -> list[list[int]]:
    groups: list[list[int]] = []
    for i, token in enumerate(row):
        if token in special:
            continue
        if groups and groups[-1][-1] == i - 1 and token in continues:
            groups[-1].append(i)
        else:
            groups.append([i])
    return groups
