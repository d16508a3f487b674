"""The verb `inspect`."""

from collections.abc import Sequence

from bert_jax.command.flags import CONFIG, flag, positive_integer, verb, whole_number_type


@verb(
    "show the examples of a training step as text",
    "bert-jax inspect --config configs/pretrain.py:base --config.data.corpora=corpus --step 777",
    *CONFIG,
    flag("--step", type=whole_number_type(0), default=0, help="training step (default 0)"),
    flag(
        "--rows",
        type=positive_integer,
        default=4,
        help="rows to show; for an embedder, groups of texts (default 4)",
    ),
)
def inspect(args):
    print(show_examples(args.config, args.overrides, args.step, args.rows))


def show_examples(spec: str, overrides: Sequence[str], step: int, rows: int) -> str:
    from bert_jax import tasks
    from bert_jax.training.opened_run import preview_run

    module, config = tasks.load_config(spec, overrides, "cpu")  # no device takes the batch
    run = preview_run(module, config)
    return run.task.show_step(run.data, step, rows)
