"""Bad or odd commands of what embeds, indexes, searches, mines and reranks."""

import hashlib
from collections.abc import Iterator

from bert_jax.tasks import TASKS
from tests.hostile import oddities
from tests.hostile.commands import (
    GENTLE,
    GIVEN,
    HALF,
    MINUS,
    NONE,
    TEXTS,
    ZERO,
    Case,
    keys_of,
    odd_flags,
    values_of,
    without,
)
from tests.support.project import ROOT

TRAINED_ON = {"embed": "pairs.jsonl", "rerank": "ranked.jsonl"}
INDEX = "{out}/index"  # a copy of the material's, which has vectors


def train(task: str) -> list[str]:
    settings = {**GENTLE, "init": "{root}/masked", "data.train": "{root}/" + TRAINED_ON[task]}
    for key in ("data.batching", "data.folds", *(["report"] if task == "embed" else [])):
        del settings[key]
    flags = [f"--config.{key}={value}" for key, value in settings.items()]
    return ["train", "--config", f"{ROOT}/configs/{task}.py", "--workdir", "{out}/run", *flags]


MINE = [
    "mine",
    "--model",
    "{root}/masked",
    "--data",
    "{root}/pairs.jsonl",
    "--margin",
    "0",
    "--output",
    "{out}/made.jsonl",
]
RIGHT = {
    "index": ["index", "{root}/labelled.jsonl", "--output", "{out}/made", "--model", "{root}/masked"],
    "index again": ["index", "{root}/labelled.jsonl", "--output", INDEX],
    "index dry": ["index", "{root}/labelled.jsonl", "--output", "{out}/made", "--dry-run"],
    "search": ["search", INDEX, "w1 w2", "--json"],
    "search reranked": ["search", INDEX, "--queries", "{root}/lines.txt", "--rerank", "{root}/ranker", "--json"],
    "mine": MINE,
    "mine rescored": [*MINE, "--rescore", "{root}/ranker", "--corpus", "{root}/lines.txt"],
    "rerank": ["rerank", "--model", "{root}/ranker", "--input", "{root}/ranked.jsonl", "--output", "{out}/made.jsonl"],
    "score": ["score", "--model", "{root}/masked", "--json", "w1 w2 w3"],
    "check": ["check", INDEX],
    "info index": ["info", INDEX],
    "evaluate index": ["evaluate", "--index", INDEX, "--data", "{root}/judged", "--json"],
    "evaluate over": ["evaluate", "--compare", INDEX, "{root}/masked", "--data", "{root}/judged", "--json"],
    "evaluate embedder": ["evaluate", "--model", "{root}/masked", "--data", "{root}/judged", "--json"],
    "evaluate ranker": ["evaluate", "--model", "{root}/ranker", "--data", "{root}/ranked.jsonl", "--json"],
    "embed quantized": ["embed", "--model", "{root}/masked", "--input", "{root}/lines.txt", "--output", "{out}/made"],
}  # fmt: skip
COPIES = ("index",)  # of the material, which a command may change


def cases() -> list[Case]:
    """In an order in which any first part is a sample of them all."""
    made = [*odd_flags(RIGHT, MAY_FLAGS, COPIES), *of_keys(), *of_sweeps(), *of_files(), *of_models()]
    assert len({case.name for case in made}) == len(made)
    return sorted(
        made, key=lambda case: hashlib.blake2b(case.name.encode("utf-8", "surrogateescape")).digest()
    )


def of_keys() -> Iterator[Case]:
    """Each key that only these tasks have, with each value that is odd for its type."""
    known = dict(keys_of(TASKS["classify"].Config))
    for task in TRAINED_ON:
        for key, kind in keys_of(TASKS[task].Config):
            if key not in known:
                for value in values_of(kind):
                    arguments = (*without(train(task), key), f"--config.{key}={value}")
                    yield Case(
                        f"train {task} {key}={value:.40}", arguments, may=value in MAY_KEYS.get(key, ())
                    )


SWEEPS = {
    "no values": "lr=[]", "no name": "=[1,2]", "half": "lr=[1e-3", "unknown": "lrr=[1,2]", "text": "lr=[a,b]",
    "nan": "lr=[nan]", "twice": "lr=[1e-3];lr=[2e-3]", "task": "task=[embed,rerank]", "itself": "sweep=['',lr]",
    "seeds": "num_seeds=[1,2]", "gone": "init=[{root}/masked,{root}/nowhere]", "negative": "steps=[-5,2]",
    "sections": "optimizer=[1]", "deep": "lr=" + "[" * 500, "empty": ";;", "workdir": "workdir=[a,b]",
    "many": "seed=[" + ",".join(map(str, range(3000))) + "]", "path": "seed=[../../x]",
}  # fmt: skip


def of_sweeps() -> Iterator[Case]:
    for task in TRAINED_ON:
        for name, sweep in SWEEPS.items():
            yield Case(f"train {task} sweep of {name}", (*train(task), f"--config.sweep={sweep}"))


def of_files() -> Iterator[Case]:
    """Each of these verbs with each odd file."""
    readers = {
        "index": ["index", "--output", "{out}/made"],
        "index again": ["index", "--output", INDEX],
        "search": ["search", INDEX, "--json", "--queries"],
        "mine": ["mine", "--model", "{root}/masked", "--output", "{out}/made.jsonl", "--data"],
        "mine from": [*MINE, "--corpus"],
        "rerank": ["rerank", "--model", "{root}/ranker", "--input"],
        "evaluate embedder": ["evaluate", "--model", "{root}/masked", "--json", "--data"],
        "evaluate index": ["evaluate", "--index", INDEX, "--json", "--data"],
        "check": ["check"],
    }
    names = [*oddities.contents(), "folder", "loop.txt", "gone.txt"]
    for reader, arguments in readers.items():
        for file in names:
            may = file in MAY_FILES.get(reader, ())
            yield Case(f"{reader} of {file}", (*arguments, "{root}/odd/" + file), may=may, copies=COPIES)
    for file in names:
        yield Case(
            f"remove @{file}", ("index", "--output", INDEX, "--remove", "@{root}/odd/" + file), copies=COPIES
        )
    for task in TRAINED_ON:
        for file in names:
            arguments = (*without(train(task), "data.train"), "--config.data.train={root}/odd/" + file)
            yield Case(f"train {task} of {file}", arguments, may=file in MAY_FILES.get(f"train {task}", ()))


def of_models() -> Iterator[Case]:
    """Each of these verbs with each odd model."""
    embedder = {
        "index": [word.replace("masked", "{model}") for word in RIGHT["index"]],
        "search": ["search", INDEX, "w1", "--model", "{root}/{model}"],
        "mine": [word.replace("masked", "{model}") for word in MINE],
        "train embed": without(train("embed"), "init") + ["--config.init={root}/{model}"],
        "score": [word.replace("masked", "{model}") for word in RIGHT["score"]],
        "evaluate": [word.replace("masked", "{model}") for word in RIGHT["evaluate embedder"]],
    }
    ranker = {
        name: [word.replace("ranker", "{model}") for word in RIGHT[name]]
        for name in ("search reranked", "mine rescored", "rerank", "evaluate ranker")
    }
    for kind in oddities.WEIGHTS:
        for own, verbs in (("masked", embedder), ("ranker", ranker)):
            for verb, arguments in verbs.items():
                changed = tuple(word.replace("{model}", f"{own}-{kind}") for word in arguments)
                yield Case(f"{verb} with {own}-{kind}", changed, may=kind == "huge", copies=COPIES)


# What may be right, and is then looked at.
COLUMNS = ("--text", "--text-pair", "--id", "--title", "--label")
MAY_FLAGS: dict[str, tuple[str, ...]] = {
    **{f"{name} {column}": NONE for name in RIGHT for column in COLUMNS},
    "index documents": ("..",), "index again documents": ("..",), "index dry documents": ("..",),
    "evaluate embedder --split": NONE, "evaluate ranker --split": NONE,
    "evaluate over --split": NONE, "index dry --overlap": ZERO,
    "index --overlap": ZERO, "index again --overlap": ZERO,
    "search query": tuple(text for text in TEXTS if text.strip()),
    "mine --cache": GIVEN, "mine rescored --cache": GIVEN, "mine --output": ("{out}/taken.txt",),
    "mine rescored --output": ("{out}/taken.txt",), "rerank --output": ("{out}/taken.txt",),
    "mine --range-min": ZERO, "mine rescored --range-min": ZERO, "mine --margin": ZERO, "mine rescored --margin": ZERO,
    "mine --min-score": MINUS, "mine rescored --min-score": MINUS,
    "mine rescored --max-score": ("2147483648", "0", "1.5", "9" * 30),
    "evaluate ranker --label-separator": GIVEN,
}  # fmt: skip
MAY_KEYS: dict[str, tuple[str, ...]] = {
    "data.columns.score": NONE, "data.columns.texts": ("", " "), "data.max_documents_per_query": ZERO,
    "data.num_random_negatives": MINUS, "data.mixture_weights": (",,",), "loss.scale": HALF, "model.dimensions": ZERO,
    "loss.margin": ZERO, "init_share": MINUS,
    "loss.sizes": (",,", "1,2,3,4,5"), "loss.teacher": NONE, "prompts.query": TEXTS, "prompts.document": TEXTS,
}  # fmt: skip
LINES = (
    "latin.txt",
    "controls.txt",
    "cut.txt",
    "word.txt",
    "long.txt",
    "surrogates.txt",
    "zero-width.txt",
    "old-mac.txt",
)
TEXTS_OF_TABLES = (
    "nan.jsonl",
    "mixed.jsonl",
    "surrogate.jsonl",
    "one-class.csv",
    "numbers.csv",
    "odd.parquet",
    "blank.csv",
)
MAY_FILES: dict[str, tuple[str, ...]] = {
    "index": (*LINES, *TEXTS_OF_TABLES), "index again": (*LINES, *TEXTS_OF_TABLES),
    "search": (*LINES, *TEXTS_OF_TABLES, "ragged.conll", "words.jsonl"),
    "mine from": (*TEXTS_OF_TABLES, "wide.csv", "short.jsonl", "bare.tsv", "sentences.tsv", "words.jsonl"),
    "rerank": ("words.jsonl", "wide.csv", "sentences.tsv"), "evaluate embedder": ("sentences.tsv", "words.jsonl"),
}  # fmt: skip
