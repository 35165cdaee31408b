"use strict";

// The classes that an answer shows, and the characters of texts and lists that it shows.
const SHOWN_CLASSES = 10;
const SHOWN_CHARACTERS = 5000;

const byId = (id) => document.getElementById(id);
let api = null;
let key = "";
let fieldCount = 0;

/** An error whose message is shown to the user. */
class Problem extends Error {}

/** Returns an element with a class and children, which are elements or texts. */
function element(tag, className, ...children) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  made.append(...children);
  return made;
}

/** Returns a text in which invisible characters, and those that reorder others, are codes. */
function visible(text) {
  return String(text).replace(/[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu, (character) => {
    if ("\n\t\u200c\u200d".includes(character)) return character;
    return `U+${character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`;
  });
}

function shorten(text) {
  return text.length > SHOWN_CHARACTERS ? `${text.slice(0, SHOWN_CHARACTERS)}…` : text;
}

/** Returns the types of a schema's values. */
function typesOf(schema) {
  return [].concat(schema.type ?? []);
}

/** Returns the media type of a picture in base64, by its first bytes, or an empty string. */
function pictureType(base64) {
  const starts = { iVBOR: "image/png", "/9j/": "image/jpeg", R0lGO: "image/gif", Qk: "image/bmp" };
  const start = Object.keys(starts).find((prefix) => base64.startsWith(prefix));
  return start ? starts[start] : "";
}

function showPicture(image, base64) {
  const type = pictureType(base64);
  image.hidden = !type;
  if (type) image.src = `data:${type};base64,${base64}`;
}

/** A field of the form: `read` returns the JSON of its value, `reset` shows the example again. */
class Field {
  constructor(name, schema, example) {
    Object.assign(this, { name, schema, example });
    this.label = visible(schema.title ?? name);
    this.input = this.makeInput();
    this.input.id = `field-${++fieldCount}`;
    const label = element("label", "", element("bdi", "", this.label));
    label.htmlFor = this.input.id;
    this.box = element("div", "field", label, this.input);
    if (schema.description) {
      const hint = element("span", "hint", visible(schema.description));
      hint.id = `hint-${fieldCount}`;
      this.input.setAttribute("aria-describedby", hint.id);
      this.box.append(hint);
    }
    this.reset();
  }

  makeInput() {
    const area = element("textarea");
    area.rows = String(this.example ?? "").length > 60 ? 4 : 1;
    return area;
  }

  reset() {
    const value = this.example;
    this.input.value = typeof value === "object" && value ? JSON.stringify(value) : (value ?? "");
  }

  /** Returns the value; a text that is JSON of bytes, such as {"b64": "..."}, is sent as bytes. */
  read() {
    const text = this.input.value;
    if (text.startsWith('{"b64":')) {
      try {
        return JSON.parse(text);
      } catch {
        return text;
      }
    }
    return text || null;
  }

  /** Returns the value in the command: JSON within single quotes. */
  command() {
    return quoted(JSON.stringify(this.read()));
  }
}

class NumberField extends Field {
  makeInput() {
    const types = typesOf(this.schema);
    const input = element("input");
    input.type = "number";
    input.step = types.includes("integer") ? "1" : "any";
    input.required = !types.includes("null");
    return input;
  }

  read() {
    return this.input.value === "" ? null : Number(this.input.value);
  }
}

class ListField extends Field {
  makeInput() {
    const area = super.makeInput();
    area.rows = JSON.stringify(this.example).length > 60 ? 4 : 1;
    area.addEventListener("input", () => this.validate());
    return area;
  }

  reset() {
    super.reset();
    this.validate();
  }

  validate() {
    let problem = "";
    try {
      const value = this.read();
      if (value !== null && !Array.isArray(value)) throw new SyntaxError("no list");
    } catch {
      problem = 'Write a list, such as ["a", "b"] or [1, 2].';
    }
    this.input.setCustomValidity(problem);
  }

  read() {
    return this.input.value.trim() === "" ? null : JSON.parse(this.input.value);
  }

  command() {
    return this.input.validity.valid ? super.command() : quoted("[]");
  }
}

class PictureField extends Field {
  makeInput() {
    const input = element("input");
    input.type = "file";
    input.accept = "image/png,image/jpeg,image/gif,image/bmp";
    input.addEventListener("change", () => this.load());
    return input;
  }

  reset() {
    this.input.value = "";
    this.image ??= this.box.appendChild(element("img"));
    this.image.alt = `The picture of ${this.label}`;
    this.show(this.example.b64);
  }

  async load() {
    const file = this.input.files[0];
    if (!file) return this.reset();
    const url = await new Promise((resolve, reject) => {
      const reader = new FileReader();
      reader.onload = () => resolve(reader.result);
      reader.onerror = () => reject(reader.error);
      reader.readAsDataURL(file);
    });
    this.show(url.slice(url.indexOf(",") + 1));
    showCommand();
  }

  show(base64) {
    this.base64 = base64;
    showPicture(this.image, base64);
  }

  read() {
    return { b64: this.base64 };
  }

  /** Returns an object whose base64 a shell makes from the chosen file. */
  command() {
    const file = this.input.files[0]?.name ?? "picture.png";
    return `{"b64":"'"$(base64 -w0 -- '${quoted(file)}')"'"}`;
  }
}

/** Returns a text as it stands within single quotes of a shell. */
function quoted(text) {
  return text.replaceAll("'", "'\\''");
}

function makeField(name, schema, example) {
  const types = typesOf(schema);
  if (schema.properties?.b64?.contentMediaType) return new PictureField(name, schema, example);
  if (types.includes("array")) return new ListField(name, schema, example);
  if (types.includes("string")) return new Field(name, schema, example);
  return new NumberField(name, schema, example);
}

/** Returns the answer of the server to a request, or throws a Problem with its error. */
async function request(path, body) {
  const headers = key ? { "X-API-Key": key } : {};
  const options = body ? { method: "POST", body: JSON.stringify(body), headers } : { headers };
  let response;
  try {
    response = await fetch(path, { ...options, cache: "no-store" });
  } catch {
    throw new Problem("The server does not answer.");
  }
  const answer = await response.json().catch(() => ({}));
  if (response.ok) return answer;
  const problem = new Problem(visible(answer.error ?? `The server answers with ${response.status}.`));
  problem.status = response.status;
  throw problem;
}

/** Runs a function, and shows a Problem that it throws. */
async function attempt(run) {
  byId("problem").hidden = true;
  try {
    await run();
  } catch (error) {
    byId("problem").textContent = error instanceof Problem ? error.message : String(error);
    byId("problem").hidden = false;
    byId("problem").scrollIntoView({ block: "nearest" });
    if (error.status === 401) showAccess();
    if (!(error instanceof Problem)) throw error;
  }
}

function showAccess() {
  byId("access").hidden = false;
  byId("key").focus();
}

/** Reads the description of the model, and makes the form. */
async function start() {
  const document_ = await request("openapi.json");
  const { Row, Prediction } = document_.components.schemas;
  const path = Object.keys(document_.paths).find((name) => name.endsWith(":predict"));
  const example = Row.examples[0];
  const fields = Object.entries(Row.properties).map(([name, schema]) =>
    makeField(name, schema, example[name]),
  );
  api = { path, fields, prediction: Prediction, hasKey: Boolean(document_.security) };
  const { title, version, description } = document_.info;
  document.title = visible(title);
  byId("name").textContent = visible(title);
  byId("version").textContent = `version ${version}`;
  byId("version").hidden = false;
  byId("summary").textContent = visible(description);
  byId("fields").replaceChildren(...fields.map((field) => field.box));
  byId("access").hidden = true;
  byId("ask").hidden = false;
  showCommand();
}

function hasClasses() {
  return Boolean(api.prediction.properties?.classes && api.prediction.properties?.scores);
}

async function predict() {
  byId("predict").disabled = true;
  try {
    const row = Object.fromEntries(api.fields.map((field) => [field.name, field.read()]));
    const body = { signature_name: "serving_raw", instances: [row] };
    if (hasClasses()) body.top_k = SHOWN_CLASSES;
    const answer = await request(`.${api.path}`, body);
    byId("answer").replaceChildren(...showPrediction(answer.predictions[0]));
    byId("answer").scrollIntoView({ block: "nearest" });
  } finally {
    byId("predict").disabled = false;
  }
}

/** Returns the elements that show a prediction: its class or value first. */
function showPrediction(prediction) {
  const isNamed = api.prediction.type === "object" && "properties" in api.prediction;
  const outputs = isNamed && !prediction.b64 ? { ...prediction } : { [api.prediction.title]: prediction };
  const shown = [];
  const main = ["class", "value"].find((name) => name in outputs);
  if (main) {
    shown.push(element("p", "result", element("bdi", "", visible(outputs[main]))));
    delete outputs[main];
  }
  if (hasClasses()) {
    shown.push(showScores(outputs.classes, outputs.scores));
    delete outputs.classes;
    delete outputs.scores;
  }
  for (const [name, value] of Object.entries(outputs)) {
    shown.push(element("h3", "", visible(name)), showValue(value));
  }
  return shown;
}

/** Returns a table with a bar for the score of each class. */
function showScores(classes, scores) {
  const rows = classes.map((name, index) => {
    const bar = element("div");
    bar.style.width = `${100 * (scores[index] ?? 0)}%`;
    const header = element("th", "", visible(name));
    header.scope = "row";
    const cells = [element("td", "bar", bar), element("td", "number", percent(scores[index]))];
    return element("tr", "", header, ...cells);
  });
  const caption = element("caption", "", "The most probable classes");
  return element("table", "", caption, element("tbody", "", ...rows));
}

function percent(score) {
  if (score === null) return "-";
  return score > 0 && score < 0.0005 ? "<0.1%" : `${(100 * score).toFixed(1)}%`;
}

/** Returns an element that shows any other output: a picture, a text or a list of numbers. */
function showValue(value) {
  if (value?.b64 && pictureType(value.b64)) {
    const image = element("img");
    image.alt = "The picture in the answer";
    showPicture(image, value.b64);
    return image;
  }
  const isFlat = Array.isArray(value) && value.every((item) => typeof item !== "object");
  const text = typeof value === "object" ? JSON.stringify(value) : String(value);
  return element("p", "", element("bdi", "", shorten(visible(isFlat ? value.join(", ") : text))));
}

/** Shows the request as a command. A pipe has no limit of length, as arguments have. */
function showCommand() {
  const row = api.fields.map((field) => `${quoted(JSON.stringify(field.name))}:${field.command()}`);
  const start_ = '{"signature_name":"serving_raw","instances":[{';
  const folder = location.origin + location.pathname.replace(/\/$/, "");
  const access = api.hasKey ? ' -H "X-API-Key: $SCOPELINE_API_KEY"' : "";
  const url = quoted(folder + api.path);
  byId("command").textContent =
    `printf %s '${start_}${row.join(",")}}]}' |\n  curl -s${access} --data-binary @- '${url}'`;
}

async function copy() {
  const range = document.createRange();
  range.selectNodeContents(byId("command"));
  getSelection().removeAllRanges();
  getSelection().addRange(range);
  let text = "Copied.";
  try {
    await navigator.clipboard.writeText(byId("command").textContent);
  } catch {
    text = "The command is selected: press Ctrl+C.";
  }
  byId("copied").textContent = text;
}

byId("access").addEventListener("submit", (event) => {
  event.preventDefault();
  key = byId("key").value;
  attempt(start);
});
byId("row").addEventListener("submit", (event) => {
  event.preventDefault();
  attempt(predict);
});
byId("row").addEventListener("reset", (event) => {
  event.preventDefault();
  for (const field of api.fields) field.reset();
  showCommand();
});
byId("row").addEventListener("input", showCommand);
byId("copy").addEventListener("click", copy);
attempt(start);
