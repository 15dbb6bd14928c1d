// The page: scenes, sandbox, and the state in the URL. Texts are tokenized here, or were by Python beforehand.

const MOST_TEXTS = 8, MOST_LETTERS = 1000, MOST_TOKENS = 32, MOST_IN_URL = 1500;
const FIRST = { // the settings of scenes, then those of masks and of the sandbox
  word: "unsurprisingly", picked: 1, addPositions: false, shuffle: 0, headNumber: 257, asked: 1,
  names: "dog man cat girl fox king", most: "3", first: 0, second: 1, question: "who?", before: 0,
  maskLater: true, maskPadding: true, maskTexts: true, shift: "1", trained: false,
  place: 4, offset: 3, pair: 2, power: 40, length: "512", factor: 10,
  side: "right", paddingMask: true, lookAhead: true, packed: "", labels: "", hide: "infinity", positions: "text",
  head: "positions", back: 1, gain: 12, divide: true, d: 32, base: 10000, row: 0, query: 2, key: 1,
};
const OF_BATCH = ["texts", "side", "positions", "packed", "labels"]; // settings that change the batch
const OF_MASKS = [...OF_BATCH, "paddingMask", "lookAhead", "d", "hide", "trained"], OF_CELL = ["row", "query", "key"];
const OF_HEAD = [...OF_MASKS, "head", "back", "gain", "divide", "base"];
const SENTENCES_OF_WRITER = "dog bites man who dog.\nnow fox sees girl whom girl.";
const SHOWN = { tenths: (value) => (value / 10).toFixed(1), base: (value) => counted(baseOf(value)) }; // values of sliders
// Replace some tokens by [MASK], as a masked language model is trained: every fourth one that is not special.
function maskSome(list, mask) {
  let number = 0;
  return list.map((one) => (!one.special && number++ % 4 === 1 ? { ...one, ...mask, label: one.token } : one));
}
// Return the label of each token of a row, null for -100, as the package's collator makes them.
function labelsOf(row, { labels, side, packed }) {
  if (labels === "masked") return row.tokens.map((_, index) => row.given[index]?.label ?? null);
  const isFirst = (index) => row.documents[index] !== row.documents[index - 1];
  return row.tokens.map((token, index) => (row.real[index] && !((packed || side === "left") && isFirst(index)) ? token : null));
}
// Make the page's batch of the texts, and return what it leaves out as notes.
function readTexts(page, data, state, firstTexts) {
  const notes = data.why ? [data.why] : [], { packed } = state, isMasked = state.labels === "masked", { tokenizer } = page;
  const typed = tokenizer ? state.texts.split("\n").filter((text) => text.trim()) : data.texts;
  const texts = typed.slice(0, MOST_TEXTS).map((text) => text.slice(0, MOST_LETTERS));
  const cut = (all) => all.map((list) => list.slice(0, MOST_TOKENS));
  const whole = tokenizer ? texts.map(tokenizer.tokenize) : data.lists;
  const lists = whole.map((list) => (isMasked ? maskSome(list, data.mask) : list));
  const count = state.texts === firstTexts ? data.count : typed.length;
  if (count > MOST_TEXTS) notes.push(`The page shows the first ${MOST_TEXTS} of ${count} texts.`);
  const long = typed.find((text) => text.length > MOST_LETTERS);
  if (long) notes.push(`It reads the first ${MOST_LETTERS} of ${long.length} letters of a text.`);
  const joined = packed ? [lists.flatMap((list, document) => list.map((token) => ({ ...token, document })))] : lists;
  const longest = Math.max(0, ...joined.map((list) => list.length));
  if (longest > MOST_TOKENS) notes.push(`The page shows the first ${MOST_TOKENS} of up to ${longest} tokens.`);
  if (state.texts !== firstTexts && state.texts.length > MOST_IN_URL) {
    notes.push(`The address of the page leaves out the texts: they have more than ${MOST_IN_URL} characters.`);
  }
  const rows = batchOf(cut(joined), { ...state, together: packed === "together" }, data.padding);
  for (const row of state.labels ? rows : []) Object.assign(row, { labels: labelsOf(row, state), isShifted: !isMasked });
  const counts = whole.map((list) => list.filter(({ special }) => !special).length);
  Object.assign(page, { texts, lists: cut(whole), counts, rows });
  return notes.join(" ");
}
// Show the answer to a question after a click on one of its buttons.
function answerTo(question, button) {
  const guesses = [...question.querySelectorAll("button:not(.show)")], number = guesses.indexOf(button);
  for (const one of guesses) one.setAttribute("aria-pressed", one === button);
  question.dataset.guess = number < 0 ? "" : number === Number(question.dataset.right) ? "right" : "wrong";
  question.nextElementSibling.hidden = false;
}
// Return the scene and the settings of an address: "#scene", "#scene&s={...}", or "#s={...}".
function readHash() {
  const [, name, settings] = /^#?([\w-]*?)&?(?:s=(.*))?$/.exec(location.hash) ?? [];
  try { return [name, settings && (JSON.parse(decodeURIComponent(settings)) ?? {})]; }
  catch { return [name, {}]; } // it was cut off
}
// Write the state into the controls. One that another control or the address has changed is marked for a second.
function writeControls(root, fields, state, isMarked) {
  for (const field of fields) {
    const value = state[field.name], isBox = field.type === "checkbox", before = isBox ? field.checked : field.value;
    if (field.name === "pair") field.max = state.d / 2 - 1;
    if (isBox) field.checked = value;
    else if ((field !== root.activeElement || field.type === "range") && value !== undefined) field.value = value;
    if (field.type === "range") field.nextElementSibling.value = (SHOWN[field.dataset.shown] ?? String)(value);
    if (field.name === "back") field.disabled = state.head === "random";
    const isChanged = before !== (isBox ? field.checked : field.value);
    if (isChanged && isMarked) field.parentElement.animate([{ background: "var(--changed)" }, {}], 1000);
  }
}
// Return {settings, encoding} of the head of scenes 8 and 9, and of the sandbox: one that the reader has trained, if chosen.
function headNow(page, own, encoding) {
  const trained = page.state.trained && page.trained || undefined;
  return { settings: { ...page.state, ...own, ...(trained && { head: "random", gain: 1 }), trained },
    encoding: trained ? paperEncoding(WRITE.width, 10000) : encoding };
}
const headOfScenes = (page) => headNow(page, HEAD_OF_SCENES, page.encoding);
const headOfSandbox = (page) => headNow(page, {}, paperEncoding(page.state.d, page.state.base));
// Make the page's text ready: answers are hidden, headings get a link, and controls that the tokenizer cannot use are off.
function prepare(root, { tokenizer, mask }, fields) {
  root.querySelector(".vocabulary").textContent = tokenizer ? ` (here ${counted(tokenizer.vocabulary.length)} entries)` : "";
  for (const field of fields.filter(({ name }) => name === "texts" || name === "word")) field.disabled = !tokenizer;
  root.querySelector(".sentences").disabled = !tokenizer;
  if (!mask) for (const option of root.querySelectorAll("[name=labels] [value=masked]")) option.remove();
  for (const answer of root.querySelectorAll(".answer")) {
    answer.hidden = true;
    answer.previousElementSibling.append(make("button", { type: "button", class: "show" }, "Show the answer"));
  }
  for (const heading of root.querySelectorAll("section > h2")) {
    const words = `Copy link<span class="spoken"> to scene ${heading.textContent.split(".")[0]} with its settings</span>`;
    heading.insertAdjacentHTML("afterend", tag("p", { class: "tools" }, tag("button", { type: "button", class: "link" }, words)));
    const code = make("details", { class: "python sixth" }, make("summary", {}, "Python for this number"), make("pre"));
    (heading.parentElement.querySelector(".figure") ?? heading.parentElement.lastElementChild).append(code);
  }
}
// Train heads on a click, and show the trained head in other scenes, on sentences before the reader's texts. `redraw` takes
// names of settings.
function listenToTraining(root, page, fields, redraw) {
  for (const button of root.querySelectorAll(".train")) button.addEventListener("click", () => {
    const isWriter = button.closest("#price");
    train(page, isWriter ? "writer" : "course", () => {
      for (const field of fields) if (field.name === "trained") field.disabled = !page.trained;
      redraw(isWriter ? ["maskLater", "trained"] : ["most"]);
    });
  });
  root.querySelector(".sentences").addEventListener("click", () => {
    const { maskLater, maskPadding } = page.state, query = page.special + 3; // "who", whose answer is the word after it
    const { texts } = page.state, isThere = texts.startsWith(SENTENCES_OF_WRITER);
    page.update({ texts: isThere ? texts : `${SENTENCES_OF_WRITER}\n${texts}`, trained: Boolean(page.trained),
      lookAhead: maskLater, paddingMask: maskPadding, packed: "", row: 0, query, key: query - 3 });
    root.getElementById("masks").scrollIntoView();
  });
}
function showLab(host, data, style) {
  const html = host.innerHTML, root = host.attachShadow({ mode: "open" }), isEncoder = data.tokenizer?.kind === "wordpiece";
  const first = { ...FIRST, lookAhead: !isEncoder, texts: data.texts.join("\n") };
  const { words, two, gpt2 } = data, kind = isEncoder ? "WordPiece" : "BPE";
  const page = { update, words, two, gpt2, kind, vocabulary: data.tokenizer?.vocabulary, firstRow: 0, firstToken: 0,
    runs: { course: -1, writer: -1 }, prices: new Map(), special: data.tokenizer?.before.length ?? 0 };
  let state = { ...first }, scene = ""; // the scene that the address names
  host.replaceChildren(); // its ids are in the shadow root now
  root.innerHTML = `<style>${style}</style><div class="lab">${html}</div>`;
  const at = (id) => root.getElementById(id), fields = [...root.querySelectorAll("[name]")];
  const tokenizer = page.tokenizer = data.tokenizer && tokenizerOf(data.tokenizer);
  prepare(root, data, fields);
  const [masks, views] = ["masks", "sandbox"].map((id) => makeViews(update, id === "masks"));
  for (const [id, { node }] of [["masks", masks], ["sandbox", views]]) at(id).querySelector(".picture").append(node);
  const drawMasks = () => masks.draw({ ...page, ...headOfScenes(page) }, state);
  const drawSandbox = () => views.draw({ ...page, ...headOfSandbox(page) }, state);
  function drawCost() {
    const { settings, encoding } = headOfSandbox(page), lines = page.rows.length ? testLines(page.rows, settings, encoding) : [];
    const item = ([name, holds, , words]) => tag("li", {}, `${name}: ${tag("b", {}, holds)} (${words})`);
    at("cost").innerHTML = lines.map(item).join("") || tag("li", {}, "Type a text.");
  }
  const ofTraining = ["names", "most", "first", "second", "question"];
  const figures = [
    ["ids", drawIds, ["texts", "word", "picked", "d"]],
    ["order", drawOrder, ["texts", "d", "addPositions", "shuffle", "headNumber", "asked"]], ["train", drawTrain, ofTraining],
    ["clock", drawClock, ["d", "place", "offset", "pair"]], ["base", drawBase, ["power", "length"]],
    ["beyond", drawBeyond, [...ofTraining, "before"]],
    ["adding", drawAdding, ["texts", "side", "positions", "packed", "labels", "d", "row", "factor"]],
    ["masks", drawMasks, [...OF_MASKS, ...OF_CELL]], ["tests", drawTests, OF_MASKS],
    ["price", drawWriter, ["names", "maskLater", "maskPadding", "maskTexts", "shift"]],
    ["cost", drawCost, OF_HEAD], ["sandbox", drawSandbox, [...OF_HEAD, ...OF_CELL]],
  ].map(([id, draw, reads]) => {
    const node = at(id), parts = ["picture", "says", "strips"].map((name) => [name, node.querySelector(`.${name}`)]);
    const nodes = { node, ...Object.fromEntries(parts) };
    return { id, node, reads, draw() {
      const { name, value } = root.activeElement ?? {};
      draw(nodes, page);
      const python = node.querySelector(".python pre"); // also of the sandbox
      if (python) python.textContent = pythonOf(page)[id].join("\n");
      if (value && !root.activeElement) node.querySelector(`[name="${name}"][value="${value}"]`)?.focus(); // it was drawn anew
    } };
  });
  const late = new Set(); // figures to draw when they come into view
  function drawLate(isDrawn) {
    for (const figure of [...late].filter(isDrawn)) { late.delete(figure); figure.draw(); }
  }
  const isInView = ({ top, bottom }) => bottom > 0 && top < innerHeight;
  const drawInView = () => drawLate(({ node }) => isInView(node.getBoundingClientRect()));
  const drawAll = (change) => { for (const figure of figures) if (change(figure)) late.add(figure); };
  function draw(change) {
    const changed = (names) => names.some((name) => name in change), before = page.rows?.[state.row];
    if (changed(OF_BATCH)) {
      const notes = readTexts(page, data, state, first.texts);
      for (const node of root.querySelectorAll(".notes")) node.textContent = notes;
    }
    const after = page.rows[state.row], last = (page.rows[0]?.tokens.length ?? 1) - 1;
    if ("side" in change && !("query" in change) && before && after) { // the chosen tokens move with their text
      const moved = after.real.indexOf(true) - before.real.indexOf(true);
      for (const name of ["query", "key"]) if (before.real[state[name]]) state[name] += moved;
    }
    if ("packed" in change && !("query" in change)) state.query = page.rows[0]?.documents.indexOf(1) + 1 || 2; // it may leak
    Object.assign(state, {
      row: between(state.row, 0, Math.max(page.rows.length - 1, 0)), query: between(state.query, 0, last),
      key: between(state.key, 0, last), pair: between(state.pair, 0, state.d / 2 - 1),
    });
    writeControls(root, fields, state, page.state && !calm.matches);
    page.state = { ...state, together: state.packed === "together" };
    page.encoding = paperEncoding(state.d, 10000);
    drawAll((figure) => changed(figure.reads));
  }
  function update(change) {
    const changed = Object.entries(change).filter(([name, value]) => value !== state[name]);
    Object.assign(state, change);
    draw(Object.fromEntries(changed));
    drawInView();
    writeAddress();
  }
  function writeAddress() {
    const leaveOut = tokenizer && state.texts.length <= MOST_IN_URL ? "" : "texts";
    const own = Object.entries(state).filter(([name, value]) => value !== first[name] && name !== leaveOut);
    const settings = own.length ? `s=${encodeURIComponent(JSON.stringify(Object.fromEntries(own)))}` : "";
    const link = [scene, settings].filter(Boolean).join("&"), { pathname, search } = location;
    history.replaceState(null, "", link ? `#${link}` : pathname + search);
  }
  root.addEventListener("input", ({ target: { name, value, checked } }) => {
    const kind = typeof first[name], read = { boolean: () => checked, number: () => Number(value), string: () => value };
    if (kind in read) update({ [name]: read[kind]() });
  });
  root.querySelector("[name=reset]").addEventListener("click", () => update({ ...first, texts: state.texts }));
  listenToTraining(root, page, fields, (names) => {
    drawAll(({ reads }) => names.some((name) => reads.includes(name)));
    drawInView();
  });
  const swap = ([second, first] = chosenNames(page)) => update({ first, second });
  root.querySelector(".swap").addEventListener("click", () => swap());
  root.addEventListener("click", async ({ target }) => {
    const { next, set, value } = target.closest("[data-next], [data-set]")?.dataset ?? {}, link = target.closest(".link");
    if (next) update({ [next]: state[next] + 1 });
    if (set) update({ [set]: Number(value) });
    const question = target.closest(".predict");
    if (question && target.matches("button")) answerTo(question, target);
    if (!link) return;
    scene = link.closest("section").id;
    writeAddress();
    const done = await navigator.clipboard?.writeText(location.href).then(() => true, () => false);
    link.firstChild.textContent = done ? "Copied" : "The link is in the address bar";
  });
  // Take the state from the address: a scene to go to, and settings. What does not fit stays as it was at first.
  function readAddress() {
    const [name, found] = readHash();
    if (found) state = { ...first, texts: state.texts.length > MOST_IN_URL ? state.texts : first.texts };
    for (const [name, value] of Object.entries(found ?? {})) {
      const field = fields.find((one) => one.name === name && one.type !== "checkbox" && !/^(first|second)$/.test(name));
      if (!Object.hasOwn(first, name) || typeof value !== typeof first[name] || value % 1) continue;
      if (field) field.value = value; // the browser keeps only what fits
      if (!field || field.value === String(value)) state[name] = value;
    }
    draw(state);
    drawLate(() => true);
    if (name && at(name)) at(scene = name).scrollIntoView();
  }
  addEventListener("hashchange", readAddress);
  addEventListener("scroll", drawInView, { passive: true });
  addEventListener("resize", () => { drawAll(() => true); drawInView(); });
  addEventListener("beforeprint", () => drawLate(() => true));
  readAddress();
  followTheme(host);
}
