"""The verb `import`."""

from bert_jax.command.flags import flag, verb
from bert_jax.core.output import refuse_output


@verb(
    "convert any supported model to a Hugging Face safetensors directory",
    "bert-jax import uncased_L-12_H-768_A-12 DIR",
    flag(
        "source",
        metavar="SRC",
        help="model directory: Hugging Face, sentence-transformers, or a TensorFlow 1 checkpoint of Google's",
    ),
    flag("destination", metavar="DST", help="output directory; must be new or empty"),
)
def import_(args):
    from bert_jax.inference.load import load

    refuse_output(args.destination, args.source)
    model = load(args.source)
    model.save(args.destination)
    heads = ", ".join(model.layout.heads) or "no head"
    family = model.layout.family
    names = "as transformers opens it" if family.encoder_in_transformers else "under the published names"
    print(f"{args.destination}: {family.model_type} with {heads}, {names}")
