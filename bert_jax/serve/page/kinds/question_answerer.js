import { element, markedText, quote, score, spoken } from "../parts.js";

export const questionAnswerer = {
  title: "Question answerer",
  purpose: "It finds the words of a passage that answer a question.",
  button: "Find the answer",

  fields: () => [
    { name: "question", label: "Question", type: "line", value: "When was it finished?" },
    {
      name: "context",
      label: "Passage",
      type: "text",
      value:
        "The Eiffel Tower stands in Paris. Its builders finished it in 1889 for the World's Fair, and it was the " +
        "highest building of the world for forty-one years. Some seven million people visit it each year.",
    },
    { name: "allowNone", label: "The passage may hold no answer", type: "check", value: true },
  ],

  request: ({ question, context, allowNone }) => ({
    route: "answer",
    body: { inputs: [{ question, context }], allow_no_answer: allowNone },
  }),

  show({ results: [result] }, { context }) {
    if (result.answer === null) {
      return {
        summary: "No answer: the model finds none in this passage.",
        nodes: [element("p", { class: "text marked" }, context)],
      };
    }
    const mark = (span, words) =>
      element("mark", { class: "answer" }, spoken("the answer: "), words, spoken(" (end of the answer)"));
    return {
      summary: `The answer is ${quote(result.answer)} with a score of ${score(result.score)}.`,
      nodes: [markedText(context, [result], mark)],
    };
  },
};
