// The page: scenes, sandbox, and the state in the URL. Texts are tokenized here, or were by Python beforehand.

const MOST_TEXTS = 8, MOST_LETTERS = 1000, MOST_TOKENS = 32, MOST_IN_URL = 1500;
const FIRST = { // the settings of scenes, then those of masks and of the sandbox
  word: "unsurprisingly", addPositions: false, orderMask: false, place: 5, pair: 1, from: 3, offset: 6, factor: 10,
  side: "right", paddingMask: true, lookAhead: true, packed: "", labels: false, hide: "infinity", positions: "text",
  head: "positions", back: 1, gain: 12, divide: true, d: 32, base: 10000, row: 0, query: 3, key: 2, shift: 0, trained: 32,
};
const OF_BATCH = ["texts", "side", "positions", "packed", "labels"]; // settings that change the batch
const OF_MASKS = [...OF_BATCH, "paddingMask", "lookAhead", "d"], OF_CELL = ["row", "query", "key"];
const OF_HEAD = [...OF_MASKS, "hide", "head", "back", "gain", "divide", "base"];

function showLab(host, data, style, html) {
  const root = host.attachShadow({ mode: "open" }), isEncoder = data.tokenizer?.kind === "wordpiece";
  const first = { ...FIRST, lookAhead: !isEncoder, texts: data.texts.join("\n") };
  const page = {}; // as the figures need it
  let state = { ...first };
  root.innerHTML = `<style>${style}</style><div class="lab">${html}</div>`;
  const at = (id) => root.getElementById(id), fields = [...root.querySelectorAll("[name]")];
  const tokenizer = data.tokenizer && tokenizerOf(data.tokenizer);
  const masks = makeViews((change) => update(change), true), views = makeViews((change) => update(change));
  at("masks").querySelector(".picture").append(masks.node);
  at("sandbox").querySelector(".picture").append(views.node);
  fields.push(...views.node.querySelectorAll("[name]"));

  const drawMasks = () => masks.draw({ ...page, settings: { ...page.state, ...HEAD_OF_SCENES } }, state);
  const drawSandbox = () =>
    views.draw({ ...page, encoding: paperEncoding(state.d, state.base), settings: page.state }, state);
  function drawCost() {
    const lines = page.rows.length ? testLines(page.rows, page.state, paperEncoding(state.d, state.base)) : [];
    const sentences = lines.map(([name, holds, , words]) => tag("li", {}, `${name}: ${tag("b", {}, holds)} (${words})`));
    at("cost").innerHTML = sentences.join("") || "Type a text.";
  }
  const figures = [
    ["ids", drawIds, ["texts", "word"]], ["order", drawOrder, ["texts", "d", "addPositions", "orderMask"]],
    ["clock", drawClock, ["d", "place", "pair"]], ["far", drawFar, ["d", "pair", "from", "offset"]],
    ["adding", drawAdding, ["texts", "side", "positions", "packed", "d", "row", "factor"]],
    ["masks", drawMasks, [...OF_MASKS, ...OF_CELL]], ["tests", drawTests, OF_MASKS],
    ["cost", drawCost, OF_HEAD], ["sandbox", drawSandbox, [...OF_HEAD, ...OF_CELL, "shift", "trained"]],
  ].map(([id, draw, reads]) => {
    const node = at(id), parts = ["picture", "says", "strips", "scores"].map((name) => [name, node.querySelector(`.${name}`)]);
    return { node, reads, draw: () => draw(Object.fromEntries(parts), page) };
  });
  const late = new Set(); // figures to draw: first those in view, then the others
  function drawLate(isDrawn) {
    for (const figure of [...late].filter(isDrawn)) { late.delete(figure); figure.draw(); }
  }
  const isInView = ({ node }) => {
    const { top, bottom } = node.getBoundingClientRect();
    return bottom > 0 && top < innerHeight;
  };

  // Make the batch of the texts, with what the page leaves out as notes.
  function readTexts() {
    const notes = data.why ? [data.why] : [], { packed } = state;
    const typed = tokenizer ? state.texts.split("\n").filter((text) => text.trim()) : data.texts;
    const texts = typed.slice(0, MOST_TEXTS).map((text) => text.slice(0, MOST_LETTERS));
    const lists = tokenizer ? texts.map(tokenizer.tokenize) : data.lists;
    if (typed.length > MOST_TEXTS) notes.push(`The page shows the first ${MOST_TEXTS} of ${typed.length} texts.`);
    if (texts.some((text, index) => text !== typed[index])) notes.push(`It reads ${MOST_LETTERS} letters of a text.`);
    const cut = (all) => all.map((list) => list.slice(0, MOST_TOKENS));
    Object.assign(page, { texts, lists: cut(lists), tokenizer, words: data.words, firstRow: 0, firstToken: 0 });
    const joined = packed ? [lists.flatMap((list, document) => list.map((token) => ({ ...token, document })))] : lists;
    const longest = Math.max(0, ...joined.map((list) => list.length));
    if (longest > MOST_TOKENS) notes.push(`The page shows the first ${MOST_TOKENS} of up to ${longest} tokens.`);
    if (state.texts !== first.texts && state.texts.length > MOST_IN_URL) {
      notes.push(`The address of the page leaves out the texts: they have more than ${MOST_IN_URL} characters.`);
    }
    for (const node of root.querySelectorAll(".notes")) node.textContent = notes.join(" ");
    page.rows = batchOf(cut(joined), { ...state, together: packed === "together" }, data.padding);
    const isNext = ({ real, documents }, index) => real[index + 1] && documents[index] === documents[index + 1];
    for (const row of state.labels ? page.rows : []) {
      row.targets = row.tokens.map((_, index) => (isNext(row, index) ? row.tokens[index + 1] : null));
    }
  }

  // Write the state into the controls. One that another control or the address has changed is marked for a second.
  function writeControls() {
    for (const field of fields) {
      const value = state[field.name], isBox = field.type === "checkbox", before = isBox ? field.checked : field.value;
      if (field.name === "pair") field.max = state.d / 2 - 1;
      if (isBox) field.checked = value;
      else if (field !== root.activeElement && value !== undefined) field.value = value;
      if (field.type === "range") field.nextElementSibling.value = "tenths" in field.dataset ? (value / 10).toFixed(1) : value;
      if (field.name === "back") field.disabled = state.head === "random";
      const isChanged = before !== (isBox ? field.checked : field.value);
      if (isChanged && page.state) field.parentElement.animate([{ background: "var(--changed)" }, {}], 1000);
    }
  }
  function draw(change) {
    const changed = (names) => names.some((name) => name in change);
    const before = page.rows?.[state.row];
    if (changed(OF_BATCH)) readTexts();
    const after = page.rows[state.row];
    if ("side" in change && !("query" in change) && before && after) { // the chosen tokens move with their text
      const moved = after.real.indexOf(true) - before.real.indexOf(true);
      for (const name of ["query", "key"]) if (before.real[state[name]]) state[name] += moved;
    }
    if (change.packed && !("query" in change)) state.query = (page.rows[0]?.documents.lastIndexOf(0) ?? 0) + 2; // it may leak
    const last = (page.rows[0]?.tokens.length ?? 1) - 1;
    Object.assign(state, {
      row: between(state.row, 0, Math.max(page.rows.length - 1, 0)), query: between(state.query, 0, last),
      key: between(state.key, 0, last), pair: between(state.pair, 0, state.d / 2 - 1),
    });
    writeControls();
    page.state = { ...state, together: state.packed === "together" };
    page.encoding = paperEncoding(state.d, 10000);
    for (const figure of figures) if (changed(figure.reads)) late.add(figure);
  }
  function update(change) {
    const changed = Object.entries(change).filter(([name, value]) => value !== state[name]);
    Object.assign(state, change);
    draw(Object.fromEntries(changed));
    drawLate(isInView);
    if (late.size) setTimeout(() => drawLate(() => true));
    const leaveOut = tokenizer && state.texts.length <= MOST_IN_URL ? "" : "texts";
    const own = Object.entries(state).filter(([name, value]) => value !== first[name] && name !== leaveOut);
    const link = `#s=${encodeURIComponent(JSON.stringify(Object.fromEntries(own)))}`;
    history.replaceState(null, "", own.length ? link : location.pathname + location.search);
  }
  root.addEventListener("input", ({ target: { name, value, checked } }) => {
    const kind = typeof first[name], read = { boolean: () => checked, number: () => Number(value), string: () => value };
    if (kind in read) update({ [name]: read[kind]() });
  });
  root.querySelector("[name=reset]").addEventListener("click", () => update({ ...first, texts: state.texts }));
  root.querySelector(".skip").addEventListener("click", () => at("sandbox").focus({ preventScroll: true }));

  // Take the state from the address: a scene to go to, or settings. What does not fit stays as it was at first.
  function readAddress() {
    const isState = location.hash.startsWith("#s=");
    let found = {};
    try { if (isState) found = JSON.parse(decodeURIComponent(location.hash.slice(3))) ?? {}; } catch { /* it was cut off */ }
    if (isState) state = { ...first, texts: state.texts.length > MOST_IN_URL ? state.texts : first.texts };
    for (const [name, value] of Object.entries(found)) {
      const field = fields.find((one) => one.name === name && one.type !== "checkbox");
      if (!Object.hasOwn(first, name) || typeof value !== typeof first[name] || value % 1) continue;
      if (field) field.value = value; // the browser keeps only what fits
      if (!field || field.value === String(value)) state[name] = value;
    }
    draw(state);
    drawLate(() => true);
    if (!isState && location.hash) at(decodeURIComponent(location.hash.slice(1)))?.scrollIntoView();
  }
  const size = data.tokenizer?.vocabulary.length;
  root.querySelector(".vocabulary").textContent = size ? `, here of ${size.toLocaleString("en-US")} entries` : "";
  for (const node of root.querySelectorAll("[data-kind]")) node.hidden = node.dataset.kind !== data.tokenizer?.kind;
  for (const field of fields.filter(({ name }) => name === "texts" || name === "word")) field.disabled = !tokenizer;
  addEventListener("hashchange", readAddress);
  readAddress();
  followTheme(host);
}
