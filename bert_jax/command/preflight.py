"""The verb `preflight`."""

from bert_jax.command.flags import CONFIG, JSON, flag, number_type, verb


@verb(
    "check a run on a TPU slice without a TPU: memory, time, cost",
    "bert-jax preflight --config configs/pretrain.py:large --topology v5e:8x8 --price 1.2",
    *CONFIG,
    flag(
        "--topology",
        required=True,
        metavar="CHIP:SIDES",
        help="slice, as in v5e:4x4, v6e:8x8, v4:2x2x4, v5p:4x4x4, tpu7x:2x2x2",
    ),
    flag("--price", type=number_type(0), metavar="P", help="price per chip-hour, in any currency"),
    JSON,
)
def preflight(args):
    from bert_jax.core.files import to_json
    from bert_jax.pod import preflight

    facts = preflight.preflight(args.config, args.overrides, args.topology, args.price)
    print(to_json(facts) if args.json else preflight.describe_preflight(facts))
