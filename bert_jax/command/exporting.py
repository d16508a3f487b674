"""The verb `index` with --export."""

import sys
from pathlib import Path
from shlex import quote

from bert_jax.core.errors import BertJaxError, check_name
from bert_jax.search.engines import ENGINES
from bert_jax.search.export import export
from bert_jax.search.index import Index

ALLOWED = ("output", "export", "run", "debug")  # flags that may be combined with --export


def write(args) -> None:
    engine, directory = args.export
    check_name(engine, ENGINES, "engine")
    for name, value in vars(args).items():
        if value and name not in ALLOWED:
            flag = "DOCS" if name == "documents" else f"--{name.replace('_', '-')}"
            raise BertJaxError(f"--export reads the index as it is; leave {flag} out")
    index = Index.open(args.output, verify=True)
    export(index, Path(directory), engine)
    print(
        f"{index.manifest.passages:,} passages of {len(index):,} documents in {directory}; "
        f"`{ENGINES[engine].load.format(quote(directory))}` loads them",
        file=sys.stderr,
    )
