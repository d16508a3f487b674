"""The verb `fill-mask`."""

from bert_jax.command.flags import flag, positive_integer, verb
from bert_jax.core.files import to_json


@verb(
    "predict words for [MASK]",
    'bert-jax fill-mask --model DIR "Paris is the [MASK] of France."',
    flag("--model", required=True, metavar="DIR", help="model directory with a masked LM head"),
    flag("texts", nargs="*", metavar="TEXT", help="texts with [MASK] (default: lines of standard input)"),
    flag("--top-k", type=positive_integer, default=5, help="predictions per mask (default 5)"),
    flag(
        "--steps",
        type=positive_integer,
        default=0,
        metavar="N",
        help="fill all masks of a text together, in N passes, the most confident first (default: each by itself)",
    ),
    flag("--json", action="store_true", help="print one JSON object per line"),
)
def fill_mask(args):
    from bert_jax.inference.masked_lm import MaskedLM
    from bert_jax.text.line_reader import read_lines

    texts = iter(args.texts) if args.texts else read_lines("-")
    for text in MaskedLM.load(args.model).fill_mask(texts, top_k=args.top_k, steps=args.steps):
        for filled in flatten_fillings(text):
            if args.json:
                result = {"token": filled.token, "score": round(filled.score, 6), "text": filled.text}
                print(to_json(result))
            else:
                print(f"{filled.score:.4f}  {filled.text}")


def flatten_fillings(fillings) -> list:
    """Return the fillings of one mask or of several masks in one list."""
    return (
        [filling for part in fillings for filling in flatten_fillings(part)]
        if isinstance(fillings, list)
        else [fillings]
    )
