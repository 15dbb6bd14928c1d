// The four views of one batch: its rectangle, one query, all queries, and the dials of two positions. batch.js shows a batch
// that Python made, page.js one that is made of typed texts.

const REASONS = [ // class, word in a cell, sentence
  ["yes", "", ""], ["padding", "padding", "the key is padding"],
  ["later", "later", "the key comes later (look-ahead mask)"],
  ["other", "other document", "the key belongs to another document"],
  ["hidden", "mask", "the mask of the batch hides the key"],
  ["unused", "query is padding", "the query is padding, and its output is not used"],
  ["branch", "other branch", "the key belongs to another branch"],
];
// Numbers that are added to the scores of keys: to which the query may attend, and of hidden ones.
const ADDED = { infinity: ["0", "−∞"], billion: ["0", "−1e9"], ones: ["1", "0"] };
const MOST_DIALS = 16, RADIUS = 28, MOST_NUMBERS = 12; // tokens, in the small matrix
const escaped = (text) => String(text).replace(/[&<>"']/g, (letter) => `&#${letter.charCodeAt(0)};`);
const minus = (text) => text.replace("-", "−");
const fixed = (value, digits) => minus(Math.abs(value) < 1e5 ? value.toFixed(digits) : value.toExponential(1));
const radians = (angle) => minus(angle && Math.abs(angle) < 0.01 ? String(Number(angle.toPrecision(2))) : angle.toFixed(2));
const counted = (number) => Math.round(number).toLocaleString("en-US");
const branchOf = (branch) => (branch > 0 ? `branch ${branch}` : "shared");
const between = (value, low, high) => Math.max(low, Math.min(high, value));
// Return an element. Attributes "onclick", "oninput" and so on are listeners.
function make(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else node.setAttribute(key, value);
  }
  node.append(...children);
  return node;
}
// Return an element as HTML, which the browser draws faster; `content` is HTML.
function tag(name, attributes, ...content) {
  const written = Object.entries(attributes).filter(([, value]) => value !== "" && value !== undefined);
  const attached = written.map(([key, value]) => ` ${key}="${escaped(value)}"`).join("");
  return `<${name}${attached}>${content.join("")}</${name}>`;
}
const written = (weight) => (Number.isNaN(weight) ? "NaN" : weight.toFixed(2));
// Return a dial with hands [angle, class]; `more` is drawn below the hands.
function dial(label, hands, radius, edge = radius + 2, more = "") {
  const drawn = hands.map(([angle, kind]) => tag("line", { class: kind, x1: 0, y1: 0,
    x2: (radius * Math.cos(angle)).toFixed(1), y2: (-radius * Math.sin(angle)).toFixed(1) }));
  return tag("svg", { viewBox: `${-edge} ${-edge} ${2 * edge} ${2 * edge}`, role: "img", "aria-label": label },
    tag("circle", { class: "rim", r: radius }), more, ...drawn);
}
// Return {node, draw}. `choose` is called with the changed parts of the state {row, query, key}. With
// `isSmall`, the dials of two positions are left out, and cells of all queries are small.
function makeViews(choose, isSmall) {
  let batch, state, result, row, packed; // as they were drawn last
  const tables = ["batch", "one", "all"].map((name) => make("div", { class: `scroll ${name}` }));
  const [grid, one, all] = tables, dials = make("div", { class: "dials" });
  const [text, legend, oneNote, allNote, dialNote] =
    ["text", "legend", "note", "note", "note"].map((name) => make("p", { class: name }));
  const sentence = make("p", { class: "sentence", role: "status", "aria-live": "polite" });
  const allTitle = make("h3");
  const section = (name, ...children) => make("section", { class: `${name}-view` }, ...children);
  const scored = [
    section("one", make("h3", {}, "2. One query, every key"), oneNote, one),
    section("dials", make("h3", {}, "4. The dials of two positions"), dialNote, dials)];
  const node = make("div", { class: isSmall ? "views small" : "views" },
    section("batch", make("h3", {}, "1. The batch is a rectangle"), grid, text, sentence), scored[0],
    section("all", allTitle, allNote, all, legend), ...(isSmall ? [] : [scored[1]]));
  const at = (position) => (position === null ? "" : ` at position ${position}`),
    placed = (index) => `“${row.tokens[index]}”${at(row.positions[index])}`;
  function factsOf(of, index) {
    const facts = [`column ${batch.firstToken + index}`], position = of.positions[index];
    if (of.ids) facts.push(`id ${of.ids[index]}`);
    facts.push(of.real[index] ? (position === null ? "no position" : `position ${position}`) : "padding");
    if (of.special?.[index] && of.real[index]) facts.push("special token");
    if (Math.max(...of.documents) > 0 && of.real[index]) facts.push(`document ${of.documents[index]}`);
    if (of.branches && of.real[index]) facts.push(branchOf(of.branches[index]));
    if (of.types && Math.max(...of.types)) facts.push(`token type ${of.types[index]}`);
    const label = of.labels?.[index], isFirst = of.documents[index] !== of.documents[index - 1];
    const shift = !of.isShifted ? "" : isFirst ? ", which no token predicts" : ", to be predicted by the token before it";
    if (of.labels) facts.push(label === null ? "label −100: not counted" : `label “${label}”${shift}`);
    return `“${of.tokens[index]}”: ${facts.join(", ")}.`;
  }
  function wordsOf(query, key) {
    const reason = result.reasons[query][key], verb = isAttended(reason) ? "may attend to" : "may not attend to";
    const why = reason === ALLOWED ? "" : `: ${REASONS[reason][2]}`;
    const first = `Query ${placed(query)} ${verb} key ${placed(key)}${why}.`;
    if (!result.weights) return first;
    const weight = result.weights[query][key], score = fixed(result.scores[query][key], 2);
    const divided = batch.settings.divide ? `, divided by √${batch.encoding.width}: ${score}` : "";
    const kept = Number.isNaN(weight) ? "no key is left for the softmax" : `weight ${weight.toFixed(3)}`;
    return `${first} q·k = ${fixed(result.products[query][key], 2)}${divided}; ${kept}.`;
  }
  // True if a query reads a key that should be hidden from it. Outputs of padding are not used, so they cannot leak.
  function leaks(query, key, weight) {
    const reason = result.reasons[query][key], branch = row.branches?.[key];
    const isOther = row.documents[query] !== row.documents[key] || (branch > 0 && branch !== row.branches[query]);
    const isRight = reason === ALLOWED ? !isOther || !row.real[query] || !row.real[key] : reason === PADDING_QUERY;
    return !isRight && weight >= 0.005;
  }
  const says = () => `${factsOf(row, state.query)} ${wordsOf(state.query, state.key)}`;
  const cell = (kind, query, key, content, more = {}) => {
    const chosen = query === state.query && key === state.key;
    const names = { class: `${kind}${chosen ? " chosen" : ""}`, tabindex: chosen ? 0 : -1 };
    return tag("td", { ...names, "data-query": query, "data-key": key, ...more }, content);
  };
  const head = (index, kind) => tag("th", {
    scope: kind === "key" ? "col" : "row", class: state[kind] === index ? kind : "", title: row.tokens[index],
  }, escaped(row.tokens[index]));
  const columns = () => row.tokens.map((_, index) => index);
  const line = (name, cells) => tag("tr", {}, tag("th", { scope: "row" }, name), ...cells),
    tableOf = (label, lines) => tag("table", { role: "grid", "aria-label": label }, ...lines);
  function drawGrid() {
    function token(each, number, index) {
      const isReal = each.real[index], document = each.documents[index], chosen = number === state.row;
      const isQuery = chosen && index === state.query;
      const kinds = {
        pad: !isReal, special: isReal && each.special?.[index], query: isQuery, key: chosen && index === state.key,
        begins: packed && isReal && document !== each.documents[index - 1],
        branches: each.branches?.[index] > 0 && each.branches[index] !== each.branches[index - 1],
      };
      const below = `${each.positions[index] ?? "–"}${packed && isReal ? ` · ${document}` : ""}`;
      const attributes = {
        class: Object.keys(kinds).filter((kind) => kinds[kind]).join(" "), tabindex: isQuery ? 0 : -1,
        "data-row": number, "data-token": index, title: each.tokens[index], "aria-label": factsOf(each, index),
      };
      const lines = [each.ids?.[index], below, each.branches && isReal && branchOf(each.branches[index]),
        each.labels && escaped(each.labels[index] ?? "−100")].filter((one) => one || one === 0);
      return tag("td", attributes, tag("span", {}, escaped(each.tokens[index])), ...lines.map((one) => tag("small", {}, one)));
    }
    const nameOf = (each, number) => `row ${number}` + [each.ids && "id", packed ? "position · doc" : "position",
      each.branches && "branch", each.labels && "label", each.label != null && `label ${each.label}`]
      .filter(Boolean).map((name) => tag("small", {}, name)).join("");
    grid.innerHTML = tableOf("Tokens of the batch, with position ids. Arrow keys choose the query.", [
      line("column", columns().map((index) => tag("th", { scope: "col" }, batch.firstToken + index))),
      ...batch.rows.map((each, number) =>
        line(nameOf(each, batch.firstRow + number), each.tokens.map((_, index) => token(each, number, index))))]);
    const number = packed ? row.documents[state.query] : state.row, source = batch.texts?.[number];
    if ((text.hidden = source === undefined)) return;
    const [begin, end] = row.spans?.[state.query] ?? [0, 0];
    const marked = make("mark", {}, source.slice(begin, end));
    text.replaceChildren(`Text ${number}: `, source.slice(0, begin), marked, source.slice(end));
  }
  function drawOne() {
    const { query } = state, { hide, divide } = batch.settings, reasons = result.reasons[query];
    const masked = (key) => {
      const [kind, word] = REASONS[reasons[key]], may = isAttended(reasons[key]);
      return tag("td", { class: may ? "" : kind }, ADDED[hide][may ? 0 : 1], tag("small", {}, word));
    };
    const divided = columns().map((key) => tag("td", {}, fixed(result.scores[query][key], 2)));
    one.innerHTML = tableOf("Scores of the chosen query. Arrow keys choose the key.", [
      line("key", columns().map((key) => head(key, "key"))),
      line("q·k", columns().map((key) => cell("", query, key, fixed(result.products[query][key], 1)))),
      divide ? line(`÷ √${batch.encoding.width}`, divided) : "",
      line("+ mask", columns().map(masked)),
      line("softmax", result.weights[query].map((weight, key) => tag("td", { class: "weight" },
        tag("i", { style: `width:${Math.round(100 * weight) || 0}%` }), written(weight),
        tag("small", {}, leaks(query, key, weight) ? "leaks" : ""))))]);
    oneNote.textContent = `Query: ${placed(query)}. ${headFormula(batch.settings, batch.encoding)}`;
  }
  function drawAll() {
    const { weights } = result, isShort = row.tokens.length <= MOST_NUMBERS;
    const words = (weight) => (!weights ? "" : !isSmall ? written(weight) : isShort ? written(weight).replace(/^0/, "") : "");
    const shade = (weight) => Math.round(isSmall && !isShort ? 20 + 80 * weight : 100 * weight) || 0; // without numbers, darker
    function square(query, key) {
      const reason = result.reasons[query][key], [kind, word] = REASONS[reason], weight = weights?.[query][key] ?? 0;
      const leak = leaks(query, key, weights ? weight : 1), style = weights ? `--weight:${shade(weight)}%` : "";
      const shown = leak ? tag("b", {}, words(weight)) : reason === ALLOWED ? words(weight) : "";
      const name = leak && isSmall ? "leak" : kind;
      return cell(name, query, key, shown, reason === ALLOWED ? { style } : { title: word });
    }
    const total = (query) => written(weights[query].reduce((a, b) => a + b, 0));
    const sum = (query) => (weights ? tag("td", { class: "sum" }, total(query)) : "");
    all.innerHTML = tableOf("All queries and keys. Arrow keys choose both.", [
      line("q ↓ k →", [...columns().map((key) => head(key, "key")), weights ? '<th scope="col">sum</th>' : ""]),
      ...columns().map((query) => tag("tr", { class: query === state.query ? "query" : "" },
        head(query, "query"), ...columns().map((key) => square(query, key)), sum(query)))]);
    const kinds = [...REASONS, ["leak", "leak: reads another document"]].filter(
      ([kind]) => all.querySelector(`td.${kind}`) || kind === "yes");
    legend.innerHTML = kinds.map(([kind, word]) => tag("span", {}, tag("i", { class: kind }), word || "may attend")).join(" ");
    allTitle.textContent = `${batch.encoding ? "3" : "2"}. All queries of row ${batch.firstRow + state.row}`;
    allNote.textContent = weights
      ? "Each line is one query: its softmax weights over the keys. Hidden cells are hatched."
      : "Each line is one query: the keys to which it may attend are filled, hidden ones are hatched.";
  }
  function dialOf(frequency, pair, query, key) {
    const angle = radians((query - key) * frequency), hands = [[key * frequency, "key"], [query * frequency, "query"]];
    return tag("figure", {}, dial(`pair ${pair}: ${angle} radians apart`, hands, RADIUS),
      tag("figcaption", {}, `pair ${pair}<br>ω = ${radians(frequency)}<br><b>${angle} rad</b>`));
  }
  function drawDials() {
    const [query, key] = [state.query, state.key].map((index) => row.positions[index]);
    const { frequencies } = batch.encoding, hidden = frequencies.length - MOST_DIALS, hasHands = query !== null && key !== null;
    dialNote.textContent = hasHands ? "Each dial is one pair of numbers: its hand stands at the angle position × ω, with the " +
      `sine as height and the cosine as width. Solid: query, position ${query}. Dashed: key, position ${key}. The angle ` +
      `between the hands is ${minus(String(query - key))} × ω, wherever both stand.`
      : batch.settings.positions === "none" ? "Without position ids there are no hands."
        : "Padding has no position here: choose two tokens of the text.";
    const drawn = frequencies.slice(0, MOST_DIALS).map((one, pair) => dialOf(one, pair, query, key));
    dials.innerHTML = !hasHands ? "" : drawn.join("") +
      (hidden > 0 ? tag("p", { class: "note" }, `and ${hidden} slower pairs`) : "");
  }
  const numbersOf = (target) => {
    const found = target.closest?.("[data-token], [data-query]");
    return found && Object.fromEntries(Object.entries(found.dataset).map(([name, value]) => [name, Number(value)]));
  };
  // A click on a token chooses the query; the key stays, unless the row is another one.
  const chosen = (numbers) => (numbers.token === undefined ? numbers
    : { row: numbers.row, query: numbers.token, key: numbers.row === state.row ? state.key : numbers.token });
  node.addEventListener("click", ({ target }) => {
    const numbers = numbersOf(target);
    if (numbers) choose(chosen(numbers));
  });
  node.addEventListener("mouseover", ({ target }) => { // a preview, in words only
    const numbers = numbersOf(target), isQuery = numbers && numbers.row === state.row && numbers.token === state.query;
    if (!numbers || isQuery) sentence.textContent = says();
    else if (numbers.token === undefined) sentence.textContent = wordsOf(numbers.query, numbers.key);
    else sentence.textContent = factsOf(batch.rows[numbers.row], numbers.token);
  });
  node.addEventListener("mouseleave", () => { sentence.textContent = says(); });
  for (const table of tables) { // their columns are tokens, so they scroll together
    table.addEventListener("scroll", () => { for (const other of tables) other.scrollLeft = table.scrollLeft; });
  }
  node.addEventListener("keydown", (event) => {
    const steps = {
      ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0], Home: [0, -1e9], End: [0, 1e9],
    };
    const step = steps[event.key], numbers = step && numbersOf(event.target), most = row.tokens.length - 1;
    if (!numbers) return;
    event.preventDefault();
    const [down, right] = step;
    if (numbers.token === undefined) {
      const query = between(numbers.query + (all.contains(event.target) ? down : 0), 0, most);
      choose({ query, key: between(numbers.key + right, 0, most) });
    } else {
      const number = between(numbers.row + down, 0, batch.rows.length - 1);
      choose(chosen({ row: number, token: between(numbers.token + right, 0, most) }));
    }
  });
  // Draw {rows, encoding, settings, firstRow, firstToken, texts}; without an encoding no scores are computed.
  function draw(newBatch, newState) {
    [batch, state] = [newBatch, newState];
    row = batch.rows[state.row];
    packed = batch.rows.some((each) => Math.max(...each.documents) > 0);
    node.hidden = !row;
    if (!row) return;
    result = batch.encoding ? attend(row, batch.settings, batch.encoding) : { reasons: row.reasons };
    const { activeElement } = node.getRootNode();
    const focused = tables.find((each) => activeElement && each.contains(activeElement));
    const widest = Math.max(...batch.rows.flatMap((each) => each.tokens.map((token) => token.length)));
    const small = row.tokens.length <= MOST_NUMBERS ? 28 : between(Math.floor(340 / row.tokens.length), 10, 20);
    node.style.setProperty("--small", `${small}px`);
    node.style.setProperty("--cell", `${between(widest + 1, packed ? 9 : 7, 13)}ch`);
    drawGrid();
    drawAll();
    for (const section of scored) section.hidden = !batch.encoding;
    if (batch.encoding) drawOne();
    if (batch.encoding && !isSmall) drawDials();
    sentence.textContent = says();
    focused?.querySelector("[tabindex='0']")?.focus();
    for (const table of tables) { // the chosen cell comes into view
      const cell = table.querySelector("td.query, td.chosen"), begin = table.querySelector("th")?.offsetWidth;
      if (!cell || table.scrollWidth === table.clientWidth) continue;
      const { offsetLeft: left, offsetWidth: width } = cell;
      table.scrollLeft = between(table.scrollLeft, left + width - table.clientWidth, left - begin);
    }
  }
  return { node, draw };
}
// Return the sentences that state how queries and keys are made, with every factor.
function headFormula({ head, back, gain }, { width }) {
  const turned = `turned back by ${back} ${back === 1 ? "position" : "positions"} and multiplied by ${gain}`;
  if (head === "random") {
    return `q = ${gain} · Wq·x and k = Wk·x, with x = token + position, scaled to variance 1, and random matrices ` +
      `(standard deviation 1/√${width}). Values are token + position.`;
  }
  if (head === "both") {
    return `q is x = token + position, ${turned}; k = x. Values are x. Token vectors are random (standard deviation ` + "½).";
  }
  return `q is the encoding of the query's position, ${turned}; k is the encoding of the key's position. ` +
    "This head reads positions only, not tokens.";
}
