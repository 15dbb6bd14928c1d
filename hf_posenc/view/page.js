// The page: controls, questions, and the state in the URL. Texts are tokenized here, or were by Python beforehand.

const MOST_TEXTS = 8, MOST_LETTERS = 1000, MOST_TOKENS = 32, MOST_IN_URL = 1500;
const FIRST = {
  side: "right", paddingMask: true, lookAhead: true, addOnes: false, positions: "text", head: "positions", back: 1,
  gain: 12, divide: true, d: 32, base: 10000, row: 0, query: 3, key: 2, shift: 0, trained: 32,
};

function showLab(host, data, style, html) {
  const root = host.attachShadow({ mode: "open" }), first = { ...FIRST, texts: data.texts.join("\n") };
  let state = { ...first };
  root.innerHTML = `<style>${style}</style><div class="lab">${html}</div>`;
  const at = (id) => root.getElementById(id), settings = at("settings"), fields = settings.querySelectorAll("[name]");
  const tokenize = data.tokenizer ? tokenizerOf(data.tokenizer) : null;
  const views = makeViews((change) => update(change));
  at("views").append(views.node);

  // Return {texts, lists, notes}: the texts that are shown, their tokens, and what is left out.
  function read() {
    const notes = data.why ? [data.why] : [];
    const typed = tokenize ? state.texts.split("\n").filter((text) => text.trim()) : data.texts;
    const texts = typed.slice(0, MOST_TEXTS).map((text) => text.slice(0, MOST_LETTERS));
    const lists = tokenize ? texts.map(tokenize) : data.lists;
    const longest = Math.max(0, ...lists.map((list) => list.length));
    if (typed.length > MOST_TEXTS) notes.push(`The page shows the first ${MOST_TEXTS} of ${typed.length} texts.`);
    if (texts.some((text, index) => text !== typed[index])) notes.push(`It reads ${MOST_LETTERS} letters of a text.`);
    if (longest > MOST_TOKENS) notes.push(`The page shows the first ${MOST_TOKENS} of up to ${longest} tokens.`);
    if (state.texts !== first.texts && state.texts.length > MOST_IN_URL) {
      notes.push(`The address of the page leaves out the texts: they have more than ${MOST_IN_URL} characters.`);
    }
    if (data.tokenizer?.kind === "wordpiece" && state.lookAhead) {
      notes.push("BERT and other encoders are trained without a look-ahead mask: turn it off to see what they see.");
    }
    return { texts, lists: lists.map((list) => list.slice(0, MOST_TOKENS)), notes };
  }
  function drawControls() {
    for (const field of fields) {
      const value = state[field.name];
      if (field.type === "checkbox") field.checked = value;
      else if (value !== undefined && field !== root.activeElement) field.value = value === true ? "1" : value || "";
      if (field.type === "range") {
        field.value = field.nextElementSibling.value = value;
        field.disabled = state.head === "random";
      }
    }
  }
  function drawCost(row, encoding) {
    const cost = at("cost"), { difference, index, position } = row ? costOf(row, state, encoding) : { difference: 0 };
    const made = MISTAKES.filter(([name, wrong]) => state[name] === wrong).map(([, , words]) => words).join(", ");
    const differs = difference >= 5e-5, digits = difference < 0.1 ? 4 : 2;
    cost.className = differs ? "wrong" : "";
    const same = `are those of its text alone${made && `, in spite of ${made}`}.`;
    const moved = differs && row.positions[index] !== position
      ? ` Token “${row.tokens[index]}” stands at position ${row.positions[index]}, and alone at ${position}.` : "";
    const other = `differ from those of its text alone by up to ${difference.toFixed(digits)}: ${made}.${moved}`;
    const none = state.positions === "none" && !state.lookAhead ? " Any order of the other tokens gives the same." : "";
    cost.textContent = row ? `The outputs of row ${state.row} ${differs ? other : same}${none}` : "Type a text.";
  }
  // Write the numbers of this page into the sentences of the answers.
  function drawNumbers(rows) {
    const row = rows[state.row], [query, key] = [state.query, state.key].map((index) => row?.positions[index]);
    const offset = Number.isInteger(query) && Number.isInteger(key) ? `(${query} − ${key})` : "(query − key)";
    const numbers = { rows: rows.length, row: state.row, first: row?.positions[row.real.indexOf(true)] ?? "–", offset };
    for (const node of root.querySelectorAll("[data-say]")) node.textContent = numbers[node.dataset.say];
  }
  function draw() {
    const { texts, lists, notes } = read(), encoding = paperEncoding(state.d, state.base);
    const rows = batchOf(lists, state, data.padding), last = (rows[0]?.tokens.length ?? 1) - 1;
    state.row = between(state.row, 0, Math.max(rows.length - 1, 0));
    for (const name of ["query", "key"]) state[name] = between(state[name], 0, last);
    if (state.lookAhead) {
      const next = ({ tokens, real }, index) => (real[index] && real[index + 1] ? tokens[index + 1] : null);
      for (const row of rows) row.targets = row.tokens.map((_, index) => next(row, index));
    }
    drawControls();
    drawCost(rows[state.row], encoding);
    drawNumbers(rows);
    views.draw({ rows, encoding, settings: state, firstRow: 0, firstToken: 0, texts }, state);
    at("notes").textContent = notes.join(" ");
  }
  function update(change) {
    Object.assign(state, change);
    draw();
    const leaveOut = tokenize && state.texts.length <= MOST_IN_URL ? "" : "texts";
    const changed = Object.entries(state).filter(([name, value]) => value !== first[name] && name !== leaveOut);
    const link = `#s=${encodeURIComponent(JSON.stringify(Object.fromEntries(changed)))}`;
    history.replaceState(null, "", changed.length ? link : location.pathname + location.search);
  }

  // ------------------------------------------------------------------------------------------ controls and questions

  settings.addEventListener("input", ({ target: { name, type, value, checked } }) => {
    const read = { boolean: () => (type === "checkbox" ? checked : value === "1"), number: () => Number(value) };
    update({ [name]: read[typeof FIRST[name]]?.() ?? value });
  });
  settings.querySelector("[name=reset]").addEventListener("click", () => update(first));
  const questions = [...root.querySelectorAll("details[data-state]")];
  function answer(question) {
    for (const each of questions) each.open = each === question;
    question.querySelector(".answer").hidden = false;
    update({ ...first, texts: state.texts, ...JSON.parse(question.dataset.state) });
    if (state.texts === first.texts) history.replaceState(null, "", `#q=${question.id}`);
  }
  questions.forEach((question, number) => {
    const onclick = () => answer(question), link = make("a", { href: `#q=${question.id}`, onclick }, "link");
    const button = make("button", { type: "button", onclick }, "Set the page and show the answer");
    question.querySelector("summary").prepend(`${number + 1}. `);
    question.querySelector(".answer").hidden = true;
    question.querySelector(".predict").after(make("p", {}, button, " ", link));
  });

  // Take the state from the address: a question, or settings. What does not fit stays as it was at first.
  function readAddress() {
    const kind = location.hash.slice(1, 3), text = location.hash.slice(3);
    const question = kind === "q=" && questions.find(({ id }) => id === text);
    let found = {};
    if (question) return answer(question);
    state = { ...first };
    try { if (kind === "s=") found = JSON.parse(decodeURIComponent(text)) ?? {}; } catch { /* the link was cut off */ }
    for (const [name, value] of Object.entries(found)) {
      const options = [...(settings.querySelector(`select[name="${CSS.escape(name)}"]`)?.options ?? [])];
      const fits = typeof value === "boolean" || !options.length || options.some((one) => one.value === String(value));
      const isInRange = typeof value !== "number" || (Number.isInteger(value) && value >= 0 && value <= 1e5);
      if (Object.hasOwn(first, name) && typeof value === typeof first[name] && fits && isInRange) state[name] = value;
    }
    if (!questions.some(({ open }) => open)) questions[0].open = true;
    draw();
  }
  settings.querySelector("textarea").disabled = !tokenize;
  addEventListener("hashchange", readAddress);
  readAddress();
  followTheme(host);
}
