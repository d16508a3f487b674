"""Random texts, with and without labels, in the made-up language."""

import random

from tests.support.made_up_language import WORDS


def random_texts(count: int, words: tuple[int, int] = (2, 12), seed: int = 0) -> list[str]:
    rng = random.Random(seed)
    return [" ".join(rng.choices(WORDS[20:], k=rng.randint(*words))) for _ in range(count)]


def marked_texts(count: int, seed: int) -> list[tuple[str, str]]:
    """Texts that hold w0 are good and those that hold w1 are bad."""
    rng = random.Random(seed)
    rows = []
    for text in random_texts(count, seed=seed):
        label = rng.choice(["bad", "good"])
        words = text.split()
        words.insert(rng.randrange(len(words)), "w0" if label == "good" else "w1")
        rows.append((" ".join(words), label))
    return rows
