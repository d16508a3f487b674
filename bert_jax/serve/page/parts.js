/** Elements that several panels use. Data enters the page as text only, never as HTML. */

const MOST_ROWS = 8;
const LONG_TEXT = 600;

/** Make an element; `attributes` that are null, undefined or false are left out, and true is an empty attribute. */
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false)
      made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

/** Text that only screen readers say. */
export function spoken(text) {
  return element("span", { class: "spoken" }, text);
}

export function badge(text, kind = "") {
  return element("span", { class: `badge ${kind}` }, text);
}

/** Write a score with three decimals. */
export function score(value) {
  if (value !== 0 && Math.abs(value) < 0.0005) return value < 0 ? "> −0.001" : "< 0.001";
  return value.toFixed(3).replace("-", "−");
}

export function quote(text, most = 80) {
  const characters = Array.from(text);
  return `“${
    characters.length > most
      ? `${characters
          .slice(0, most - 1)
          .join("")
          .trimEnd()}…`
      : text
  }”`;
}

export function count(number, noun, plural = `${noun}s`) {
  return `${number.toLocaleString("en")} ${number === 1 ? noun : plural}`;
}

/** A bar that is `share` (0 to 1) of its track wide. The number beside it says the same to screen readers. */
export function bar(share) {
  const filled = element("span", { class: "filled" });
  // From a script: the content security policy refuses style attributes.
  filled.style.width = `${100 * Math.min(1, Math.max(0, share))}%`;
  return element("span", { class: "bar", "aria-hidden": "true" }, filled);
}

/**
 * A list of rows {label, value, marks, note}, each with a bar; `most` is the value of a full bar.
 * Short labels stand beside their bars, whole texts above them.
 */
export function bars(rows, { most = 1, short = false, noun = "row" } = {}) {
  const list = (shown) =>
    element("ol", { class: short ? "bars short" : "bars" }, ...shown.map((row) => barRow(row, most)));
  if (!short || rows.length <= MOST_ROWS + 2) return list(rows);
  const rest = rows.slice(MOST_ROWS);
  const more = element(
    "details",
    {},
    element("summary", {}, `${rest.length} more ${rest.length === 1 ? noun : `${noun}s`}`),
    list(rest),
  );
  return element("div", {}, list(rows.slice(0, MOST_ROWS)), more);
}

function barRow({ label, value, marks = [], note }, most) {
  return element(
    "li",
    {},
    element("span", { class: "label" }, label, ...marks.flatMap((mark) => [" ", mark])),
    bar(value / most),
    element("span", { class: "value" }, score(value)),
    note ? element("span", { class: "note" }, note) : null,
  );
}

/** A text of many lines whose end is folded away if it is long. */
export function longText(text) {
  const characters = Array.from(text);
  const body = element("p", { class: "text" });
  if (characters.length <= LONG_TEXT * 1.2) {
    body.textContent = text;
    return body;
  }
  body.textContent = `${characters.slice(0, LONG_TEXT).join("")}…`;
  const more = element("button", { type: "button", class: "plain" }, "Show the whole text");
  more.addEventListener("click", () => {
    body.textContent = text;
    more.remove();
    body.tabIndex = -1;
    body.focus();
  });
  return element("div", {}, body, more);
}

/** The text in pieces: those of `spans` (by code points) are made by `mark`; a span within another is left out. */
export function markedText(text, spans, mark) {
  const characters = Array.from(text); // a span counts code points, a string of JavaScript UTF-16 units
  const cut = (start, end) => characters.slice(start, end).join("");
  const pieces = [];
  let position = 0;
  for (const span of [...spans].sort((a, b) => a.start - b.start || b.end - a.end)) {
    if (span.start < position) continue;
    pieces.push(cut(position, span.start), mark(span, cut(span.start, span.end)));
    position = span.end;
  }
  return element("p", { class: "text marked" }, ...pieces, cut(position));
}

/** The command line for a request, for a POSIX shell. */
export function curl(url, body, hasKey) {
  const quoted = (text) => `'${text.replaceAll("'", `'\\''`)}'`;
  const lines = [`curl ${quoted(url)}`];
  if (hasKey) lines.push('-H "Authorization: Bearer $KEY"');
  if (body !== undefined)
    lines.push("-H 'Content-Type: application/json'", `-d ${quoted(JSON.stringify(body))}`);
  return element("pre", { class: "code" }, lines.join(" \\\n  "));
}
