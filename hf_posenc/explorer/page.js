const form = document.getElementById("settings"), at = (id) => document.getElementById(id);
let content = null, sent = 0, waiting = null;

function settings() {
  const values = {};
  for (const field of form.elements) {
    if (!field.name) continue;
    if (field.type === "checkbox") values[field.name] = field.checked;
    else if (field.type === "number") values[field.name] = field.value === "" ? null : Number(field.value);
    else values[field.name] = field.value;
  }
  return values;
}

async function update() {
  at("folder").hidden = form.elements.tokenizer.value !== "folder";
  if (form.elements.tokenizer.value === "folder" && !form.elements.folder.value) {
    show({ notes: ["type the folder of a tokenizer, then press Enter"] });
    return;
  }
  const number = ++sent;
  let found;
  try {
    const reply = await fetch("/answer", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(settings()) });
    found = reply.ok ? await reply.json() : { error: await reply.text() };
  } catch {
    found = { error: "the server does not answer: start hf-posenc explore again" };
  }
  if (number === sent) show(found); // otherwise a later request is on its way
}

function show(found) {
  const messages = at("messages");
  messages.className = found.error ? "error" : "";
  messages.textContent = found.error || found.notes.join("\n");
  if (found.error || !found.encoding) {
    at("python").textContent = "";
    document.body.dataset.sent = sent;
    return;
  }
  content = found;
  at("batch").innerHTML = found.batch || "<p>No text yet: type one above.</p>";
  for (const old of at("batch").querySelectorAll("script")) { // scripts that arrive as text do not run
    const script = document.createElement("script");
    script.textContent = old.textContent;
    old.replaceWith(script);
  }
  at("python").textContent = found.python || "";
  lessons();
  document.body.dataset.sent = sent;
}

// ------------------------------------------------------------------------------------------------------------- lessons

const written = (number) => (Math.abs(number) < 1e-4 ? number.toExponential(1) : number.toFixed(4));

function lessons() {
  if (content.real) {
    const [real, all] = content.real;
    at("padding-now").textContent = `In this batch ${real} of ${all} tokens are text, and ${all - real} are padding.`;
    const { tokens, without, with: positioned } = content.attention;
    at("order-now").textContent = `Without positions ${written(without.difference)}, which is rounding; with positions ${written(positioned.difference)}.`;
    weights(at("weights-without"), tokens, without.weights);
    weights(at("weights-with"), tokens, positioned.weights);
    at("merges-now").replaceChildren(...(content.merges
      ? content.merges.map((stages) => element("p", {}, stages.join("  →  ")))
      : [element("p", {}, "This tokenizer is not a BPE: choose BPE above.")]));
  }
  at("column").max = content.encoding[0].length - 1;
  at("position").max = content.encoding.length - 1;
  curves();
}

function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

function weights(place, tokens, rows) {
  const most = Math.max(...rows.flat());
  place.replaceChildren(element("table", {},
    element("tr", {}, element("th"), ...tokens.map((token) => element("th", {}, token))),
    ...rows.map((row, index) => element("tr", {}, element("th", {}, tokens[index]),
      ...row.map((value) => element("td", { style: `background:color-mix(in srgb, var(--blue) ${Math.round((80 * value) / most)}%, transparent)` }, value ? value.toFixed(2) : "–"))))));
}

function curve(place, values, chosen, label) {
  const least = Math.min(...values, -1), most = Math.max(...values, 1), width = values.length - 1 || 1;
  const x = (index) => (600 * index) / width, y = (value) => 115 - (100 * (value - least)) / (most - least);
  const path = values.map((value, index) => `${index ? "L" : "M"}${x(index).toFixed(1)} ${y(value).toFixed(1)}`).join("");
  place.innerHTML = `<svg viewBox="-5 0 610 130" preserveAspectRatio="none" role="img"><line x1="0" x2="600" y1="${y(0)}" y2="${y(0)}"/><path d="${path}"/></svg>`;
  place.firstChild.setAttribute("aria-label", label);
  place.append(element("small", {}, label + (chosen === null ? "" : `; at ${chosen}: ${written(values[chosen])}`)));
}

function curves() {
  const column = Math.min(Number(at("column").value), content.encoding[0].length - 1), position = Number(at("position").value);
  at("column-value").textContent = column;
  at("position-value").textContent = position;
  const row = content.encoding[position], last = content.encoding.length - 1;
  curve(at("column-curve"), content.encoding.map((one) => one[column]), position, `column ${column} at positions 0 to ${last}`);
  curve(at("row-curve"), row, null, `row ${position}, columns 0 to ${row.length - 1}`);
  curve(at("dot-curve"), content.dots[position], position,
    `dot product of row ${position} with the rows of positions 0 to ${last}`);
}

function mask(place, inverted) {
  place.replaceChildren(...[0, 1, 2, 3].map((query) => element("tr", {}, ...[0, 1, 2, 3].map((key) => element("td", {}, String((key <= query) !== inverted))))));
}

// --------------------------------------------------------------------------------------------------------------- start

for (const name of START.conventions) form.elements.convention.append(element("option", {}, name));
for (const [name, value] of Object.entries(START.settings)) {
  const field = form.elements[name];
  if (field.type === "checkbox") field.checked = value;
  else field.value = value;
}
if (!START.has_bert) form.elements.tokenizer.querySelector("[value=bert]").remove();
mask(at("mask-right"), false);
mask(at("mask-wrong"), true);
form.elements.folder.addEventListener("change", update); // Enter, or another field
form.addEventListener("submit", (event) => event.preventDefault());
form.addEventListener("input", (event) => {
  if (event.target.name === "folder") return; // until the path is complete
  clearTimeout(waiting);
  waiting = setTimeout(update, event.target.name === "text" ? 150 : 0);
});
at("column").addEventListener("input", curves);
at("position").addEventListener("input", curves);
at("copy").addEventListener("click", async () => {
  await navigator.clipboard.writeText(at("python").textContent);
  at("copy").textContent = "Copied";
  setTimeout(() => { at("copy").textContent = "Copy"; }, 1500);
});
update();
