import { badge, bars, count, element, quote, score } from "../parts.js";

export const classifier = {
  title: "Classifier",
  purpose: "It predicts a label, several labels or a number for a text.",
  button: "Classify the text",

  fields: (model) => [
    {
      name: "text",
      label: "Text",
      type: "text",
      value: "The room was clean and the staff were kind, but the breakfast was cold.",
    },
    {
      name: "pair",
      label: "Second text",
      type: "text",
      optional: true,
      hint: "It is only for models that judge pairs of texts.",
    },
    ...(model.highest_precision && model.predicts !== "number" ? [precisionField(model)] : []),
  ],

  request: ({ text, pair, precision }, model) => ({
    route: "classify",
    body: {
      inputs: [pair ? { text, text_pair: pair } : text],
      ...(precision ? { min_precision: precision } : {}),
      ...(model.predicts === "number" ? {} : { probabilities: true }),
    },
  }),

  show({ results: [result] }, { precision }) {
    if ("number" in result) return showNumber(result);
    return result.labels ? showLabels(result, precision) : showClass(result, precision);
  },
};

const precisionField = ({ highest_precision: highest }) => ({
  name: "precision",
  label: "Wanted precision",
  type: "number",
  optional: true,
  min: Math.min(0.01, highest),
  max: highest,
  step: "any",
  placeholder: String(highest),
  hint:
    "The model abstains where it is unsure, so that this share of its predictions is correct. " +
    `It can guarantee ${highest} at most.`,
});

function showNumber({ number }) {
  const digits = Number(number.toPrecision(4)).toString().replace("-", "−");
  return { summary: `The model predicts ${digits}.`, nodes: [] };
}

function showClass({ label, score: best, margin, abstained, probabilities }, precision) {
  const summary = abstained
    ? `The model abstains: ${quote(label)} does not reach the wanted precision of ${precision}.`
    : `The model predicts ${quote(label)} with a score of ${score(best)}.`;
  return { summary, nodes: [probabilityBars(probabilities, [{ label, abstained }]), ...marginLine(margin)] };
}

function showLabels({ labels, probabilities }, precision) {
  const sure = labels.filter((one) => !one.abstained);
  const unsure = labels.length - sure.length;
  const found = sure.length
    ? `The model predicts ${sure.map((one) => quote(one.label)).join(", ")}.`
    : "The model predicts no label.";
  const rest = unsure
    ? ` It abstains from ${count(unsure, "label")} that may not reach the wanted precision of ${precision}.`
    : "";
  return { summary: found + rest, nodes: [probabilityBars(probabilities, labels)] };
}

/** The labels of `predicted` have a mark that says so, or that the model abstains from them. */
function probabilityBars(probabilities, predicted) {
  const mark = ({ abstained }) => (abstained ? badge("abstains", "abstains") : badge("predicted"));
  const rows = Object.entries(probabilities)
    .map(([label, value]) => ({
      label,
      value,
      marks: predicted.filter((one) => one.label === label).map(mark),
    }))
    .sort((a, b) => b.value - a.value);
  return bars(rows, { short: true, noun: "label" });
}

function marginLine(margin) {
  if (margin === undefined || margin === null) return [];
  return [element("p", { class: "quiet" }, `The margin to the second label is ${score(margin)}.`)];
}
