import { count, element, markedText, score, spoken } from "../parts.js";

// In degrees of OKLCH; neighbours in the list are far from each other.
const HUES = [250, 150, 60, 330, 200, 25, 110, 290];

export const tagger = {
  title: "Tagger",
  purpose: "It marks spans of a text, such as names, and gives each of them a label.",
  button: "Tag the text",

  fields: () => [
    {
      name: "text",
      label: "Text",
      type: "text",
      value:
        "Ada Lovelace met Charles Babbage in London in 1833. In Note G she described a program for his " +
        "Analytical Engine, and the Royal Society still remembers both.",
    },
  ],

  request: ({ text }) => ({ route: "tag", body: { inputs: [text] } }),

  show({ results: [{ spans }] }, { text }, model) {
    if (!spans.length) return { summary: "The model marks no span in this text.", nodes: [] };
    const paint = painter(model.labels ?? []);
    return {
      summary: `The model marks ${count(spans.length, "span")}.`,
      nodes: [
        markedText(text, spans, (span, words) => markSpan(span, words, paint)),
        spanTable(spans, paint),
      ],
    };
  },
};

function markSpan(span, words, paint) {
  const mark = element("mark", { class: "span", title: `${span.label}, score ${score(span.score)}` }, words);
  mark.append(
    spoken(" ("),
    element("span", { class: "tag" }, span.label),
    spoken(`, score ${score(span.score)})`),
  );
  return paint(mark, span.label);
}

function spanTable(spans, paint) {
  const row = (span) =>
    element(
      "tr",
      {},
      element("td", {}, span.text),
      element("td", {}, paint(element("span", { class: "tag" }, span.label), span.label)),
      element("td", { class: "value" }, score(span.score)),
    );
  const head = ["Span", "Label", "Score"].map((name) => element("th", { scope: "col" }, name));
  return element(
    "table",
    {},
    element("thead", {}, element("tr", {}, ...head)),
    element("tbody", {}, ...spans.map(row)),
  );
}

/** Return a function that gives an element the hue of a label; a model's labels always have the same hues. */
function painter(labels) {
  // B-PER and I-PER are tags of the label PER.
  const names = [...new Set(labels.map((label) => label.replace(/^[BIESLU]-/, "")))].filter(
    (name) => name !== "O",
  );
  return (painted, label) => {
    if (!names.includes(label)) names.push(label);
    painted.style.setProperty("--hue", HUES[names.indexOf(label) % HUES.length]);
    return painted;
  };
}
