import { bar, count, element, longText, quote, score } from "../parts.js";

export const index = {
  title: "Index",
  purpose: "It searches documents for a query.",
  button: "Search",

  fields: () => [
    { name: "query", label: "Query", type: "line", value: "Where do I begin?" },
    { name: "top", label: "Most hits", type: "number", min: 1, max: 100, step: 1, value: 5 },
  ],

  request: ({ query, top }) => ({ route: "search", body: { queries: [query], top_k: top, explain: false } }),

  show({ results: [hits] }) {
    if (!hits.length) return { summary: "No document fits this query.", nodes: [] };
    // Scores of keywords have no upper bound, those of fused rankings are small: the best hit has a full bar.
    const most = hits[0].score || 1;
    return {
      summary: `The search has ${count(hits.length, "hit")}; the best is ${quote(hits[0].title || hits[0].id)}.`,
      nodes: [element("ol", { class: "hits" }, ...hits.map((hit) => showHit(hit, most)))],
    };
  },
};

function showHit(hit, most) {
  return element(
    "li",
    {},
    element("h3", {}, hit.title || hit.id),
    element(
      "p",
      { class: "quiet" },
      element("span", {}, `id ${hit.id}`),
      element("span", { class: "value" }, `score ${score(hit.score)}`),
    ),
    bar(hit.score / most),
    longText(hit.text),
  );
}
