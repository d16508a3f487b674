/** The page of the routes: what /openapi.json says, for people. */

import { badge, count, curl, element } from "./parts.js";

const METHODS = ["get", "post", "put", "patch", "delete"];
const LIMITS = {
  minimum: (value) => `at least ${value}`,
  exclusiveMinimum: (value) => `more than ${value}`,
  maximum: (value) => `at most ${value}`,
  exclusiveMaximum: (value) => `less than ${value}`,
  minLength: (value) => `at least ${count(value, "character")}`,
  maxLength: (value) => `at most ${count(value, "character")}`,
  minItems: (value) => `at least ${count(value, "item")}`,
  maxItems: (value) => `at most ${count(value, "item")}`,
  pattern: (value) => `like ${value}`,
  default: (value) => `by default ${JSON.stringify(value)}`,
};
const place = document.getElementById("docs");
let description;

async function start() {
  try {
    const response = await fetch("/openapi.json");
    if (!response.ok) throw new Error(`The server answers with status ${response.status}.`);
    description = await response.json();
    place.replaceChildren(introduction(), ...groups());
    openNamed();
    window.addEventListener("hashchange", openNamed);
  } catch (error) {
    const line =
      error instanceof TypeError ? "The server does not answer. Is it still running?" : error.message;
    place.replaceChildren(element("p", { class: "error", role: "alert" }, line));
  }
}

function introduction() {
  const { title, version, description: text } = description.info;
  const all = element("button", { type: "button", class: "plain" }, "Open all routes");
  all.addEventListener("click", () => {
    const isOpen = place.querySelectorAll(".route:not([open])").length === 0;
    for (const route of place.querySelectorAll(".route")) route.open = !isOpen;
    all.textContent = isOpen ? "Open all routes" : "Close all routes";
  });
  return element(
    "header",
    {},
    element("h1", {}, "Routes"),
    element("p", { class: "quiet" }, `${title} ${version}`),
    text ? element("p", {}, text) : null,
    element(
      "p",
      {},
      "A machine reads the same at ",
      element("a", { href: "/openapi.json" }, "/openapi.json"),
      ".",
    ),
    element("p", {}, all),
  );
}

/** A section for each tag, in the order in which the paths name them. */
function groups() {
  const sections = new Map();
  for (const [path, methods] of Object.entries(description.paths)) {
    for (const method of METHODS.filter((name) => name in methods)) {
      const tag = methods[method].tags?.[0] ?? "Others";
      if (!sections.has(tag))
        sections.set(tag, element("section", { class: "group" }, element("h2", {}, tag)));
      const parameters = [...(methods.parameters ?? []), ...(methods[method].parameters ?? [])].map(resolve);
      sections.get(tag).append(showRoute(method, path, { ...methods[method], parameters }));
    }
  }
  return sections.values();
}

function showRoute(method, path, operation) {
  const body = resolve(operation.requestBody ?? {});
  const media = body.content?.["application/json"];
  return element(
    "details",
    { class: "route card", id: `${method}${path}` },
    element(
      "summary",
      {},
      element("span", { class: "method" }, method.toUpperCase()),
      element("span", {}, showPath(path), " ", operation.deprecated ? badge("deprecated", "abstains") : null),
      element("span", { class: "quiet" }, operation.summary ?? ""),
    ),
    element(
      "div",
      { class: "route-body" },
      operation.description ? element("p", {}, operation.description) : null,
      operation.parameters.length
        ? part("Parameters", element("ul", { class: "schema" }, ...operation.parameters.map(showParameter)))
        : null,
      media
        ? part(
            "Request",
            body.description ? element("p", {}, body.description) : null,
            showSchema(media.schema ?? {}),
          )
        : null,
      ...Object.entries(operation.responses ?? {}).map(([status, response]) =>
        showResponse(status, resolve(response)),
      ),
      part("Example", exampleOf(method, path, operation, media)),
    ),
  );
}

/** A long path breaks before a slash. */
function showPath(path) {
  const pieces = path.split(/(?=\/)/).flatMap((piece) => [element("wbr"), piece]);
  return element("code", { class: "path" }, ...pieces);
}

function part(title, ...nodes) {
  return element("section", {}, element("h3", {}, title), ...nodes);
}

function showParameter({ name, in: where, required, schema = {}, description: text }) {
  return showProperty(
    name,
    text ? { ...resolve(schema), description: text } : schema,
    required,
    [],
    `in the ${where}`,
  );
}

function showResponse(status, { description: text, headers = {}, content = {} }) {
  const [type, media] = Object.entries(content)[0] ?? [];
  const names = Object.entries(headers).map(([name, header]) =>
    showProperty(name, { ...resolve(header).schema, description: resolve(header).description }, false, []),
  );
  return part(
    `Response ${status}`,
    text ? element("p", {}, text) : null,
    media?.schema ? showSchema(media.schema) : type ? element("p", { class: "quiet" }, type) : null,
    names.length
      ? element(
          "details",
          {},
          element("summary", {}, "Headers"),
          element("ul", { class: "schema" }, ...names),
        )
      : null,
  );
}

/** Follow a reference within the document. */
function resolve(node) {
  if (!node?.$ref) return node;
  const keys = node.$ref
    .replace(/^#\//, "")
    .split("/")
    .map((key) => key.replaceAll("~1", "/").replaceAll("~0", "~"));
  const found = resolve(keys.reduce((at, key) => at?.[key], description)) ?? {};
  return { ...found, refName: keys.at(-1) };
}

/** The list of what a schema holds; `above` are the named schemas that it is within, for those that hold themselves. */
function showSchema(schema, above = []) {
  const whole = resolve(schema);
  const inner = showInner(whole, above);
  return element(
    "ul",
    { class: "schema" },
    ...(whole.properties ? inner : [showProperty(null, schema, false, above)]),
  );
}

function showProperty(name, schema, isRequired, above, remark) {
  const whole = resolve(schema);
  const inner = showInner(whole, above);
  return element(
    "li",
    {},
    name === null ? null : element("code", { class: "name" }, name),
    isRequired ? badge("required") : null,
    element("span", { class: "type" }, typeOf(whole)),
    remark ? element("span", { class: "type" }, remark) : null,
    ...limitsOf(whole).map((limit) => element("span", { class: "type" }, limit)),
    whole.description ? element("span", { class: "description" }, whole.description) : null,
    inner.length ? element("ul", { class: "schema" }, ...inner) : null,
  );
}

/** What stands within a schema: the properties of an object, the items of a list, the alternatives of a choice. */
function showInner(schema, above) {
  if (above.includes(schema.refName)) return [];
  const within = schema.refName ? [...above, schema.refName] : above;
  const shown = Object.entries(schema.properties ?? {}).map(([name, property]) =>
    showProperty(name, property, schema.required?.includes(name), within),
  );
  const parts = [schema.items, ...(schema.prefixItems ?? []), schema.additionalProperties];
  const unnamed = [
    ...parts.filter(isCompound),
    ...(schema.allOf ?? []),
    ...alternatives(schema).filter(isCompound),
  ];
  return [
    ...shown,
    ...unnamed.flatMap((one) => {
      const whole = resolve(one);
      const isChoice = alternatives(schema).length > 0;
      return isChoice ? [showProperty(null, one, false, within)] : showInner(whole, within);
    }),
  ];
}

function alternatives(schema) {
  return schema.anyOf ?? schema.oneOf ?? [];
}

function isCompound(schema) {
  const whole = resolve(schema);
  if (!whole || whole === true) return false;
  return Boolean(
    whole.properties ||
    whole.allOf ||
    isCompound(whole.items) ||
    isCompound(whole.additionalProperties) ||
    alternatives(whole).some(isCompound),
  );
}

/** Return the words for a type; `plural` is "s" where there are several. */
function typeOf(schema, plural = "") {
  const whole = resolve(schema);
  if (whole.const !== undefined) return JSON.stringify(whole.const);
  if (whole.enum) return whole.enum.map((value) => JSON.stringify(value)).join(" or ");
  if (alternatives(whole).length)
    return [...new Set(alternatives(whole).map((one) => typeOf(one, plural)))].join(" or ");
  const types = [whole.type ?? (whole.properties || whole.allOf ? "object" : "value")].flat();
  return types
    .map((type) => {
      if (type === "array")
        return whole.items ? `list${plural} of ${typeOf(whole.items, "s")}` : `list${plural}`;
      const values = type === "object" ? whole.additionalProperties : undefined;
      if (values?.type || values?.$ref) return `object${plural} of ${typeOf(values, "s")}`;
      return type === "null" ? type : `${type}${plural}`;
    })
    .join(" or ");
}

function limitsOf(schema) {
  const limits = Object.entries(LIMITS).filter(
    ([name]) => schema[name] !== undefined && schema[name] !== null,
  );
  return limits.map(([name, describe]) => describe(schema[name]));
}

function exampleOf(method, path, operation, media) {
  const example =
    media && (media.example ?? Object.values(media.examples ?? {})[0]?.value ?? sample(media.schema ?? {}));
  const filled = path.replace(/\{(\w+)\}/g, (_, name) => name.toUpperCase());
  const isSecured = (operation.security ?? description.security ?? []).length > 0;
  const code = curl(location.origin + filled, example, isSecured);
  if (method !== "get" && !media)
    code.textContent = code.textContent.replace("curl", `curl -X ${method.toUpperCase()}`);
  return code;
}

/** A value that fits a schema: what must be there, and what has an example. */
function sample(schema, depth = 0) {
  const whole = resolve(schema);
  const given = [whole.example, whole.examples?.[0], whole.const, whole.default, whole.enum?.[0]].find(
    (value) => value !== undefined,
  );
  if (given !== undefined || depth > 6) return given ?? null;
  if (alternatives(whole).length) return sample(alternatives(whole)[0], depth + 1);
  if (whole.allOf) return Object.assign({}, ...whole.allOf.map((one) => sample(one, depth + 1)));
  const type = [whole.type].flat()[0];
  if (type === "array") return whole.items ? [sample(whole.items, depth + 1)] : [];
  if (type === "object" || whole.properties) {
    const names = Object.keys(whole.properties ?? {}).filter((name) => whole.required?.includes(name));
    return Object.fromEntries(names.map((name) => [name, sample(whole.properties[name], depth + 1)]));
  }
  return { string: "a text", integer: 1, number: 0.5, boolean: true }[type] ?? null;
}

/** Open the route that the address names. */
function openNamed() {
  const route = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!route) return;
  route.open = true;
  route.scrollIntoView();
}

start();
