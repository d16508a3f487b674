"""The verb `info`."""

from bert_jax.command.flags import (
    JSON,
    flag,
    verb,
)
from bert_jax.core.errors import BertJaxError


@verb(
    "show what a model or an index holds, and what is unusual about it",
    "bert-jax info path/to/model --json",
    flag("directory", help="Hugging Face model directory, or index"),
    flag("--ids", action="store_true", help="print the ids of all documents of an index"),
    JSON,
)
def info(args):
    from bert_jax.search.index_manifest import is_index

    if args.ids and args.json:
        raise BertJaxError("--ids prints one id per line; leave --json out")
    if args.ids or is_index(args.directory):
        from bert_jax.search.index import Index
        from bert_jax.search.index_info import describe_index as describe_index
        from bert_jax.search.index_info import document_ids

        for line in (
            document_ids(Index.open(args.directory))
            if args.ids
            else [describe_index(args.directory, args.json)]
        ):
            print(line)
        return
    from bert_jax.report.model_info import describe_model

    print(describe_model(args.directory, as_json=args.json))
