/**
 * The fields of a panel's form: {name, label, type, value, hint, optional, min, max, step, placeholder}. The type is
 * "line" (a text of one line), "text" (of several), "lines" (several texts, one on each line), "number" or "check".
 */

import { element } from "./parts.js";
import { Refusal } from "./server.js";

let made = 0;

/** Return the element of a field, and `read`, which returns its value or throws what is wrong with it. */
export function makeField(field) {
  const id = `field-${++made}`;
  const hint = field.hint ? element("p", { class: "hint", id: `${id}-hint` }, field.hint) : null;
  const input = makeInput(field, { id, name: field.name, "aria-describedby": hint?.id });
  const label = element(
    "label",
    { for: id },
    field.label,
    field.optional ? element("span", {}, " (optional)") : null,
  );
  const parts = field.type === "check" ? [input, label, hint] : [label, hint, input];
  return {
    whole: element("div", { class: `field ${field.type}` }, ...parts),
    read: () => read(field, input),
  };
}

function makeInput({ type, value = "", min, max, step, placeholder }, attributes) {
  if (type === "text" || type === "lines") {
    const rows = type === "lines" ? 6 : Math.min(8, Math.max(2, Math.ceil(value.length / 60)));
    const area = element("textarea", { ...attributes, rows });
    area.value = value;
    return area;
  }
  if (type === "check") return element("input", { ...attributes, type: "checkbox", checked: value === true });
  const kind =
    type === "number"
      ? { type: "number", min, max, step, placeholder }
      : { type: "text", autocomplete: "off" };
  return element("input", { ...attributes, ...kind, value });
}

function read(field, input) {
  input.removeAttribute("aria-invalid");
  const refuse = (line) => {
    input.setAttribute("aria-invalid", "true");
    input.focus();
    throw new Refusal(line);
  };
  if (field.type === "check") return input.checked;
  if (field.type === "number") {
    if (!input.validity.valid) {
      refuse(
        `“${field.label}” takes ${field.step === 1 ? "a whole number" : "a number"} from ${field.min} to ${field.max}.`,
      );
    }
    if (input.value === "" && !field.optional) refuse(`“${field.label}” has no number. Write one.`);
    return input.value === "" ? null : Number(input.value);
  }
  if (input.value.trim() === "" && !field.optional)
    refuse(`“${field.label}” is empty. Write something there.`);
  if (field.type !== "lines") return input.value;
  return input.value.split("\n").filter((line) => line.trim() !== "");
}
