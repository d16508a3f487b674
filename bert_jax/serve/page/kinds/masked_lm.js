import { bars, element, quote } from "../parts.js";

export const maskedLm = {
  title: "Masked language model",
  purpose: "It says which words fit where a text has a mask.",
  button: "Fill the masks",

  fields: () => [
    {
      name: "text",
      label: "Text",
      type: "text",
      hint: "Write [MASK] where a word is to be predicted.",
      value: "The [MASK] sat on the [MASK] and looked out of the window.",
    },
    { name: "top", label: "Words for each mask", type: "number", min: 1, max: 100, step: 1, value: 5 },
  ],

  request: ({ text, top }) => ({ route: "fill-mask", body: { inputs: [text], top_k: top } }),

  show({ results: [masks] }) {
    const best = masks.map((candidates) => quote(showToken(candidates[0].token)));
    return {
      summary:
        best.length === 1 ? `The best word is ${best[0]}.` : `The best words are ${best.join(" and ")}.`,
      nodes: masks.map((candidates, i) =>
        showMask(candidates, masks.length === 1 ? "Candidates" : `Candidates for mask ${i + 1}`),
      ),
    };
  },
};

function showMask(candidates, title) {
  const rows = candidates.map(({ token, score }) => ({ label: showToken(token), value: score }));
  return element(
    "section",
    { class: "mask" },
    element("h3", {}, title),
    bars(rows, { short: true, noun: "word" }),
  );
}

/** Tokens of byte-level BPE begin with the space before them; one that is all spaces would not be seen. */
function showToken(token) {
  return token.trim() || "␣";
}
