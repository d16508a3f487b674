"""The verb `score`."""

from itertools import tee

from bert_jax.command.flags import flag, verb
from bert_jax.core.files import to_json


@verb(
    "score how probable sentences are, by masking each token in turn",
    'bert-jax score --model DIR "The cat sits." "The cat sit."',
    flag("--model", required=True, metavar="DIR", help="model directory with a masked LM head"),
    flag("texts", nargs="*", metavar="TEXT", help="texts (default: lines of standard input)"),
    flag("--json", action="store_true", help="print one JSON object per line"),
)
def score(args):
    from bert_jax.inference.masked_lm import MaskedLM
    from bert_jax.text.line_reader import read_lines

    texts, read_ahead = tee(args.texts or read_lines("-"))
    for text, scored in zip(texts, MaskedLM.load(args.model).pseudo_log_likelihood(read_ahead), strict=True):
        if args.json:
            result = {
                "score": round(scored.score, 4),
                "tokens": len(scored.tokens),
                "perplexity": round(scored.perplexity, 4),
                "text": text,
            }
            print(to_json(result))
        else:
            print(f"{scored.score:.4f}  {text}")
