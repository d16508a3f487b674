import { bars, quote, score } from "../parts.js";

export const reranker = {
  title: "Reranker",
  purpose: "It reads a query together with each document and sorts the documents by how well they answer it.",
  button: "Rerank the documents",

  fields: () => [
    { name: "query", label: "Query", type: "line", value: "How long does a cat sleep?" },
    {
      name: "texts",
      label: "Documents",
      type: "lines",
      hint: "Each line is one document.",
      value: [
        "Dogs need a walk twice a day.",
        "A mattress should be replaced after ten years.",
        "How a cat shows that it is hungry.",
        "A cat does sleep long: twelve to sixteen hours each day.",
        "Paris is the capital of France.",
      ].join("\n"),
    },
  ],

  request: ({ query, texts }) => ({
    route: "rerank",
    body: { query, texts, raw_scores: false, return_text: true },
  }),

  show(ranking, { texts }) {
    const rows = ranking.map((hit, rank) => ({
      label: texts[hit.index],
      value: hit.score,
      note: describeMove(hit.index + 1, rank + 1),
    }));
    const most = Math.max(1, ...rows.map((row) => row.value));
    return {
      summary: `The best document is ${quote(rows[0].label)} with a score of ${score(rows[0].value)}.`,
      nodes: [bars(rows, { most })],
    };
  },
};

function describeMove(before, after) {
  if (before === after) return `= It stays at place ${after}.`;
  return before > after ? `↑ It rises from place ${before}.` : `↓ It falls from place ${before}.`;
}
