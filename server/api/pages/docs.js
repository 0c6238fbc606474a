"use strict";

const contract = JSON.parse(document.getElementById("contract").textContent);
// A saved page has no server of its own.
const server = location.protocol.startsWith("http") ? location.origin : "http://127.0.0.1:8000";

// An element; what is given as its content becomes text or children, never markup.
function element(name, attributes, ...content) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...content);
  return made;
}

function resolved(value) {
  if (!value || !value.$ref) return value;
  return value.$ref.slice(2).split("/").reduce((place, name) => place[name], contract);
}

// Text with `code` in it.
function prose(text) {
  const pieces = (text || "").split("`");
  return pieces.map((piece, i) => (i % 2 ? element("code", {}, piece) : piece));
}

function typeName(schema) {
  if (schema === true || !schema) return "any";
  if (schema.$ref) return schema.$ref.split("/").pop();
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(" or ");
  const choices = schema.anyOf || schema.oneOf;
  if (choices) {
    const names = choices.map(typeName).filter((name) => name !== "null");
    return [...new Set(names)].join(" or ");
  }
  if (schema.type === "array") return `list of ${typeName(schema.items)}`;
  return schema.type || "any";
}

// The objects that a schema refers to, whatever is around them.
function references(schema) {
  if (!schema || typeof schema !== "object") return [];
  if (schema.$ref) return [schema.$ref];
  const inner = [...(schema.anyOf || []), ...(schema.oneOf || []), schema.items];
  if (schema.contentSchema) inner.push(schema.contentSchema);
  if (typeof schema.additionalProperties === "object") inner.push(schema.additionalProperties);
  return inner.flatMap(references);
}

// A table of the fields, and below it the objects within, filled when they are opened.
function fields(schema) {
  const parts = [];
  const properties = Object.entries(schema.properties || {});
  if (schema.description) parts.push(element("p", {}, ...prose(schema.description)));
  if (properties.length) {
    const rows = properties.map(([name, field]) => {
      const needed = (schema.required || []).includes(name);
      const mark = needed ? [" ", element("span", { class: "needed" }, "required")] : [];
      const given = field.default === undefined || field.default === null ? "" : ` Default: ${JSON.stringify(field.default)}.`;
      return element("tr", {},
        element("td", {}, element("code", {}, name), ...mark),
        element("td", {}, typeName(field)),
        element("td", {}, ...prose((field.description || "") + given)));
    });
    const head = ["field", "type", "meaning"].map((name) => element("th", {}, name));
    parts.push(element("table", {}, element("tr", {}, ...head), ...rows));
  }
  const inner = properties.flatMap(([, field]) => references(field));
  for (const reference of new Set(inner)) parts.push(object(reference));
  return parts;
}

function object(reference) {
  const name = reference.split("/").pop();
  return opened(name, () => fields(resolved({ $ref: reference })));
}

// A part that is made when it is first opened: schemas may hold themselves.
function opened(title, make) {
  const made = element("details", {}, element("summary", {}, ...prose(title)));
  made.addEventListener("toggle", () => made.append(...make()), { once: true });
  return made;
}

function block(value) {
  const text = typeof value === "string" ? value : JSON.stringify(value, null, 2);
  return element("pre", {}, text);
}

function examples(media) {
  return Object.values(media.examples || {}).map((example) => {
    const { summary, value } = resolved(example);
    return opened(summary || "An example", () => [block(value)]);
  });
}

function quoted(text) {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

function curl(method, path, operation, body) {
  const parameters = Object.fromEntries((operation.parameters || []).map((one) => [one.name, one.example]));
  const url = server + path.replace(/\{(\w+)\}/g, (_, name) => encodeURIComponent(parameters[name] || name));
  const lines = [`curl ${body && body.stream ? "-N " : ""}${quoted(url)}`];
  if (body) {
    lines.push(`-H 'content-type: application/json'`);
    lines.push(`-d ${quoted(JSON.stringify(body))}`);
  }
  return copied(lines.join(" \\\n  "));
}

function copied(text) {
  const code = element("pre", {}, text);
  const button = element("button", { type: "button" }, "Copy");
  button.addEventListener("click", async () => {
    getSelection().selectAllChildren(code); // without the right to copy, it is at least marked
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch {
      button.textContent = "Marked";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });
  return element("div", { class: "curl" }, code, button);
}

function requestPart(method, path, operation) {
  if (!operation.requestBody) return [curl(method, path, operation)];
  const media = operation.requestBody.content["application/json"];
  const bodies = Object.values(media.examples || {}).map(resolved);
  const [first, ...others] = bodies;
  return [
    curl(method, path, operation, first ? first.value : {}),
    ...others.map((one) => opened(one.summary, () => [curl(method, path, operation, one.value)])),
    element("h3", {}, "Request"),
    opened("Fields", () => references(media.schema).flatMap((one) => fields(resolved({ $ref: one })))),
  ];
}

function responsePart(status, response) {
  return opened(`${status}: ${response.description}`, () =>
    Object.entries(response.content || {}).flatMap(([kind, media]) => {
      const item = media["x-itemSchema"];
      const held = item ? item.oneOf.flatMap((one) => references(one.properties.data)) : references(media.schema);
      return [
        element("p", {}, element("code", {}, kind)),
        ...(media.schema && media.schema.description ? [element("p", {}, ...prose(media.schema.description))] : []),
        ...held.map(object),
        ...examples(media),
      ];
    }));
}

function routePart(id, method, path, operation) {
  const responses = Object.entries(operation.responses);
  return element("section", { id },
    element("h2", {}, element("span", { class: "method" }, method.toUpperCase()), path),
    element("p", {}, ...prose(operation.description || operation.summary)),
    ...requestPart(method, path, operation),
    element("h3", {}, "Answers"),
    ...responses.map(([status, response]) => responsePart(status, response)));
}

function show() {
  const { title, version, description } = contract.info;
  const routes = document.getElementById("routes");
  const page = document.getElementById("page");
  page.append(element("h1", {}, `${title} ${version}`), element("p", {}, ...prose(description)));
  page.append(element("p", {}, "Where the server has API keys, add ",
    element("code", {}, "-H \"authorization: Bearer $KEY\""), " to each call."));
  const groups = new Map();
  for (const [path, operations] of Object.entries(contract.paths)) {
    for (const [method, operation] of Object.entries(operations)) {
      const [tag] = operation.tags || ["other"];
      if (!groups.has(tag)) groups.set(tag, element("div", {}, element("h2", {}, tag)));
      const id = operation.operationId;
      groups.get(tag).append(element("a", { href: `#${id}` },
        element("span", { class: "method" }, method.toUpperCase()), path));
      page.append(routePart(id, method, path, operation));
    }
  }
  routes.append(...groups.values());
  if (location.hash) location.replace(location.hash); // its target has only come now
}

show();
