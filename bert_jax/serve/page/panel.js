/** The panel of a model: its form, and the answer to what was asked last. */

import { makeField } from "./fields.js";
import { count, curl, element } from "./parts.js";
import { hasKey, modelPath, post } from "./server.js";

// In pixels, around the line that says what came of a request.
const ROOM_ABOVE = 16;
const ROOM_BELOW = 200;

export function makePanel(model, kind) {
  const answer = makeAnswer();
  return element(
    "section",
    { class: "panel", "aria-labelledby": "panel-name" },
    element(
      "div",
      { class: "intro" },
      element(
        "h1",
        { id: "panel-name", tabindex: "-1" },
        model.name,
        element("span", { class: "kind" }, kind.title),
      ),
      element("p", {}, kind.purpose),
      element("ul", { class: "facts" }, ...listFacts(model).map((fact) => element("li", {}, fact))),
    ),
    makeForm(model, kind, answer),
    answer.whole,
  );
}

function listFacts(model) {
  return [
    model.documents != null && count(model.documents, "document"),
    model.retrievers?.length && `by ${model.retrievers.join(" and ")}`,
    model.dimensions && count(model.dimensions, "dimension"),
    model.labels?.length && `${count(model.labels.length, "label")}: ${model.labels.join(", ")}`,
    model.max_length && `at most ${count(model.max_length, "token")}`,
    model.calibrated != null && (model.calibrated ? "calibrated" : "not calibrated"),
    model.dtype,
    model.engine && (model.device ? `${model.engine} on ${model.device}` : model.engine),
  ].filter(Boolean);
}

function makeForm(model, kind, answer) {
  const fields = kind.fields(model).map((field) => ({ ...field, ...makeField(field) }));
  const button = element("button", { type: "submit" }, kind.button);
  const keys = element(
    "span",
    { class: "hint" },
    element("kbd", {}, "Ctrl"),
    " + ",
    element("kbd", {}, "Enter"),
    " does the same.",
  );
  const form = element(
    "form",
    { class: "card", novalidate: true },
    ...fields.map((field) => field.whole),
    element("div", { class: "actions" }, button, keys),
  );
  let isBusy = false;
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (isBusy) return;
    isBusy = true;
    // Unlike `disabled`, this leaves the focus where it is.
    button.setAttribute("aria-disabled", "true");
    await ask(model, kind, fields, answer);
    button.removeAttribute("aria-disabled");
    isBusy = false;
  });
  form.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      form.requestSubmit();
    }
  });
  return form;
}

async function ask(model, kind, fields, answer) {
  try {
    const values = Object.fromEntries(fields.map((field) => [field.name, field.read()]));
    const { route, body } = kind.request(values, model);
    const path = modelPath(model, route);
    answer.wait();
    const received = await post(path, body);
    answer.fill({
      ...kind.show(received.answer, values, model),
      warnings: received.warnings,
      latency: received.latency,
      request: curl(location.origin + path, body, hasKey()),
    });
  } catch (error) {
    answer.refuse(error.needsKey ? `${error.message}; reload the page to give another key` : error.message);
  }
}

/** The place of the answer. Its live regions are in the page before there is something to say. */
function makeAnswer() {
  const summary = element("p", { class: "summary", role: "status" });
  const warnings = element("div", { "aria-live": "polite" });
  const error = element("div", { role: "alert" });
  const rest = element(
    "div",
    { class: "rest" },
    element("p", { class: "quiet" }, "The answer appears here."),
  );
  const whole = element(
    "section",
    { class: "answer-place", "aria-label": "Answer" },
    error,
    summary,
    warnings,
    rest,
  );
  const set = (line, nodes = []) => {
    summary.textContent = line;
    warnings.replaceChildren();
    error.replaceChildren();
    rest.replaceChildren(...nodes);
    whole.classList.remove("waits");
  };
  return {
    whole,
    wait() {
      error.replaceChildren();
      // The last answer stays, but pale, so that the page does not jump.
      whole.classList.add("waits");
      summary.textContent = "The model computes.";
    },
    fill({ summary: line, nodes, warnings: notes, latency, request }) {
      set(line, [...nodes, showLatency(latency), showRequest(request)]);
      warnings.replaceChildren(...notes.map((note) => element("p", { class: "warning" }, note)));
      bringIntoView(summary);
    },
    refuse(line) {
      set("");
      error.replaceChildren(element("p", { class: "error" }, line));
      bringIntoView(error);
    },
  };
}

/** Scroll as little as needed to show a line and some of what is below it; the focus stays where it is. */
function bringIntoView(line) {
  const { top, bottom } = line.getBoundingClientRect();
  const hidden = bottom + ROOM_BELOW - window.innerHeight;
  if (top < 0) window.scrollBy(0, top - ROOM_ABOVE);
  else if (hidden > 0) window.scrollBy(0, Math.min(hidden, top - ROOM_ABOVE));
}

function showLatency(latency) {
  const figures = [
    ["Total", latency.total],
    ["Queue", latency.queue],
    ["Tokenizing", latency.tokenizing],
    ["Computing", latency.computing],
    ["In the browser", latency.browser],
  ].map(([name, time]) => [name, time === null ? "unknown" : `${time.toFixed(1)} ms`]);
  if (latency.tokens !== null) figures.push(["Tokens", latency.tokens.toLocaleString("en")]);
  const groups = figures.map(([name, value]) =>
    element("div", {}, element("dt", {}, name), element("dd", {}, value)),
  );
  return element("dl", { class: "latency", "aria-label": "Latency" }, ...groups);
}

function showRequest(request) {
  return element("details", {}, element("summary", {}, "The same request on the command line"), request);
}
