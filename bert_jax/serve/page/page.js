/** The page of a server: the list of its models, and the panel of the one that was picked. */

import { kinds } from "./kinds/all.js";
import { makePanel } from "./panel.js";
import { element } from "./parts.js";
import { getModels, hasKey, keepKey } from "./server.js";

const place = document.getElementById("task");
const list = document.getElementById("models");
const panels = new Map(); // a panel keeps what was typed while others are shown

async function start() {
  let models;
  try {
    models = await getModels();
  } catch (error) {
    if (error.needsKey) askForKey(hasKey() ? error.message : "");
    else place.replaceChildren(element("p", { class: "error", role: "alert" }, error.message));
    return;
  }
  if (!models.length) {
    place.replaceChildren(element("p", { class: "quiet" }, "The server serves no model."));
    return;
  }
  if (models.length > 1) listModels(models);
  showPicked(models);
  window.addEventListener("hashchange", () => {
    showPicked(models);
    document.getElementById("panel-name").focus();
  });
  document.getElementById("skip").addEventListener("click", (event) => {
    event.preventDefault(); // the address names the picked model
    place.focus();
  });
}

function listModels(models) {
  const links = models.map((model) => {
    const kind = element("span", { class: "kind" }, kinds[model.kind]?.title ?? model.kind);
    return element("li", {}, element("a", { href: addressOf(model) }, element("span", {}, model.name), kind));
  });
  list.replaceChildren(element("h2", {}, "Models"), element("ul", {}, ...links));
  list.hidden = false;
  document.getElementById("frame").classList.add("with-models");
}

function showPicked(models) {
  const picked = models.find((model) => addressOf(model) === location.hash) ?? models[0];
  if (!panels.has(picked)) panels.set(picked, panelOf(picked));
  place.replaceChildren(panels.get(picked));
  document.title = `${picked.name} – bert-jax`;
  for (const link of list.querySelectorAll("a")) {
    if (link.getAttribute("href") !== addressOf(picked)) link.removeAttribute("aria-current");
    else {
      link.setAttribute("aria-current", "page");
      // Not `scrollIntoView`: after it, Tab would go on from the link and pass what stands before it.
      list.scrollLeft = link.offsetLeft - (list.clientWidth - link.offsetWidth) / 2;
    }
  }
}

function panelOf(model) {
  const kind = kinds[model.kind];
  if (kind) return makePanel(model, kind);
  const heading = element("h1", { id: "panel-name", tabindex: "-1" }, model.name);
  return element(
    "section",
    {},
    heading,
    element("p", {}, `This page has no panel for the kind “${model.kind}”.`),
  );
}

function addressOf(model) {
  return `#${encodeURIComponent(model.name)}`;
}

function askForKey(line) {
  const input = element("input", { id: "key", type: "password", autocomplete: "off", required: true });
  const form = element(
    "form",
    { class: "card key" },
    element("h1", {}, "The server asks for a key"),
    line ? element("p", { class: "error", role: "alert" }, line) : null,
    element(
      "div",
      { class: "field line" },
      element("label", { for: "key" }, "API key"),
      element("p", { class: "hint" }, "The browser forgets it when this tab is closed."),
      input,
    ),
    element("div", { class: "actions" }, element("button", { type: "submit" }, "Continue")),
  );
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    keepKey(input.value);
    start();
  });
  place.replaceChildren(form);
  input.focus();
}

start();
