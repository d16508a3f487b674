import { bars, quote, score } from "../parts.js";

export const embedder = {
  title: "Embedder",
  purpose: "It turns texts into vectors; texts that are alike have near vectors.",
  button: "Find the nearest texts",

  fields: () => [
    { name: "source", label: "Text", type: "text", value: "A cat sleeps on the sofa." },
    {
      name: "others",
      label: "Texts to compare it with",
      type: "lines",
      hint: "Each line is one text.",
      value: [
        "The price of oil rose again.",
        "A kitten naps on the couch.",
        "Two dogs run in the park.",
        "My cat is tired and lies on a cushion.",
        "How do I renew a passport?",
      ].join("\n"),
    },
  ],

  request: ({ source, others }) => ({
    route: "similarity",
    body: { inputs: { source_sentence: source, sentences: others } },
  }),

  show(similarities, { others }) {
    const rows = others
      .map((label, i) => ({ label, value: similarities[i] }))
      .sort((a, b) => b.value - a.value);
    // A dot product can exceed 1.
    const most = Math.max(1, ...similarities);
    return {
      summary: `The nearest text is ${quote(rows[0].label)} with a similarity of ${score(rows[0].value)}.`,
      nodes: [bars(rows, { most })],
    };
  },
};
