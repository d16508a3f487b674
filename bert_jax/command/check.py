"""The verb `check`."""

from bert_jax.command.flags import flag, verb


@verb(
    "verify the hashes of a corpus, a run, an index or a model directory",
    "bert-jax check runs/base",
    flag("directory", help="corpus, directory of a run, index, or model directory"),
)
def check(args):
    from bert_jax.runs.integrity import check_directory

    print(check_directory(args.directory))
