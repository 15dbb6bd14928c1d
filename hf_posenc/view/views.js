// The four views of one batch: its rectangle, one query, all queries, and the dials of two positions. batch.js shows a batch
// that Python made, page.js one that is made of typed texts.

const REASONS = [ // class, word in a cell, sentence
  ["yes", "", ""], ["padding", "padding", "the key is padding"],
  ["later", "later", "the key comes later (look-ahead mask)"],
  ["other", "other document", "the key belongs to another document"],
  ["hidden", "mask", "the mask of the batch hides the key"],
  ["unused", "query is padding", "the query is padding: the look-ahead mask does not apply, and its output is not used"],
];
// Numbers that are added to the scores of keys: to which the query may attend, and of hidden ones.
const ADDED = { infinity: ["0", "−∞"], billion: ["0", "−1e9"], ones: ["1", "0"] };
const MOST_DIALS = 16, RADIUS = 28, MOST_NUMBERS = 12; // tokens, in the small matrix
const escaped = (text) => String(text).replace(/[&<>"']/g, (letter) => `&#${letter.charCodeAt(0)};`);
const bdi = (text) => tag("bdi", {}, escaped(text)); // keeps right-to-left text from its neighbors
const minus = (text) => text.replace(/^-(?=[0.]+$)/, "").replace("-", "−"); // no −0.0
const fixed = (value, digits) => minus(Math.abs(value) < 1e5 ? value.toFixed(digits) : value.toExponential(1));
const radians = (angle) => minus(angle && Math.abs(angle) < 0.01 ? String(Number(angle.toPrecision(2))) : angle.toFixed(2));
const counted = (number) => Math.round(number).toLocaleString("en-US");
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
// The functions below draw what is `shown`: {batch, state, row, result, packed, isSmall}. The chosen row has the `result`:
// reasons and, with an encoding, products, scores and weights.
const placed = ({ row: { tokens, positions } }, index) =>
  `“${bdi(tokens[index])}”${positions[index] === null ? "" : ` at position ${positions[index]}`}`;
// Return the facts about a token as HTML; with `String` as `name`, as text.
function factsOf({ batch }, of, index, name = bdi) {
  const facts = [`column ${batch.firstToken + index}`], position = of.positions[index];
  if (of.ids) facts.push(`id ${of.ids[index]}`);
  facts.push(of.real[index] ? (position === null ? "no position" : `position ${position}`) : "padding");
  if (of.special?.[index] && of.real[index]) facts.push("special token");
  if (Math.max(...of.documents) > 0 && of.real[index]) facts.push(`document ${of.documents[index]}`);
  if (of.types && Math.max(...of.types)) facts.push(`token type ${of.types[index]}`);
  const label = of.labels?.[index], isFirst = of.documents[index] !== of.documents[index - 1];
  const isSeen = batch.settings?.lookAhead === false ? ", which can read it without a look-ahead mask" : "";
  const shift = !of.isShifted ? "" : isFirst ? ", which no token predicts" : `, to be predicted by the token before it${isSeen}`;
  if (of.labels) facts.push(label === null ? "label −100: not counted" : `label “${name(label)}”${shift}`);
  return `“${name(of.tokens[index])}”: ${facts.join(", ")}.`;
}
function sentenceOf(shown, query, key) {
  const { batch, result } = shown, reason = result.reasons[query][key];
  const leak = leaks(shown, query, key, result.weights?.[query][key] ?? 1) ? ", which should be hidden" : "";
  const why = reason === ALLOWED ? leak : `: ${REASONS[reason][2]}`, verb = `may ${isAttended(reason) ? "" : "not "}attend to`;
  const first = `Query ${placed(shown, query)} ${verb} key ${placed(shown, key)}${why}.`;
  if (!result.weights) return first;
  const weight = result.weights[query][key], score = fixed(result.scores[query][key], 2);
  const divided = batch.settings.divide ? `, divided by √${batch.encoding.width}: ${score}` : "";
  const kept = Number.isNaN(weight) ? "no key is left for the softmax" : `weight ${weight.toFixed(3)}`;
  return `${first} q·k = ${fixed(result.products[query][key], 2)}${divided}; ${kept}.`;
}
// True if a query reads padding, another document, a hidden key, or a later one although it is to predict the next token.
// Outputs of padding are not used: no leak.
function leaks({ batch, row, result }, query, key, weight) {
  const isOther = row.documents[query] !== row.documents[key];
  const isAnswer = row.isShifted && batch.settings?.lookAhead === false && key > query;
  return row.real[query] && weight > 0 && (isOther || isAnswer || result.reasons[query][key] !== ALLOWED);
}
const columnsOf = ({ tokens }) => tokens.map((_, index) => index);
function cell({ state }, kind, query, key, content, more = {}) {
  const chosen = query === state.query && key === state.key, names = { "data-query": query, "data-key": key, ...more };
  return tag("td", { class: `${kind}${chosen ? " chosen" : ""}`, tabindex: chosen ? 0 : -1, ...names }, content);
}
const headCell = ({ row, state }, index, kind) => tag("th", {
  scope: kind === "key" ? "col" : "row", class: state[kind] === index ? kind : "", title: row.tokens[index],
}, bdi(row.tokens[index]));
const line = (name, cells) => tag("tr", {}, tag("th", { scope: "row" }, name), ...cells);
const tableOf = (label, lines) => tag("table", { role: "grid", "aria-label": label }, ...lines);
function gridOf(shown) {
  const { batch, state, row, packed } = shown;
  function token(each, number, index) {
    const isReal = each.real[index], document = each.documents[index];
    const chosen = number === state.row, isQuery = chosen && index === state.query;
    const kinds = {
      pad: !isReal, special: isReal && each.special?.[index], query: isQuery, key: chosen && index === state.key,
      begins: packed && isReal && document !== each.documents[index - 1],
    };
    const below = `${each.positions[index] ?? "–"}${packed && isReal ? ` · ${document}` : ""}`;
    const attributes = {
      class: Object.keys(kinds).filter((kind) => kinds[kind]).join(" "), tabindex: isQuery ? 0 : -1,
      "data-row": number, "data-token": index, title: each.tokens[index], "aria-description": factsOf(shown, each, index, String),
    };
    const lines = [each.ids?.[index], below, each.labels && bdi(each.labels[index] ?? "−100")]
      .filter((one) => one || one === 0);
    return tag("td", attributes, tag("span", {}, bdi(each.tokens[index])), ...lines.map((one) => tag("small", {}, one)));
  }
  const nameOf = (each, number) => `row ${number}` + [each.ids && "id", packed ? "position · doc" : "position",
    each.labels && "label", each.label != null && `label ${each.label}`]
    .filter(Boolean).map((name) => tag("small", {}, name)).join("");
  return tableOf("Tokens of the batch, with position ids. Arrow keys choose the query.", [
    line("column", columnsOf(row).map((index) => tag("th", { scope: "col" }, batch.firstToken + index))),
    ...batch.rows.map((each, number) =>
      line(nameOf(each, batch.firstRow + number), each.tokens.map((_, index) => token(each, number, index))))]);
}
function oneOf(shown) {
  const { batch, row, result } = shown, { query } = shown.state, { hide, divide } = batch.settings;
  const masked = (key) => {
    const reason = result.reasons[query][key], [kind, word] = REASONS[reason], may = isAttended(reason);
    return tag("td", { class: may ? "" : kind }, ADDED[hide][may ? 0 : 1], tag("small", {}, word));
  };
  const keys = columnsOf(row), divided = keys.map((key) => tag("td", {}, fixed(result.scores[query][key], 2)));
  return tableOf("Scores of the chosen query. Arrow keys choose the key.", [
    line("key", keys.map((key) => headCell(shown, key, "key"))),
    line("q·k", keys.map((key) => cell(shown, "", query, key, fixed(result.products[query][key], 1)))),
    divide ? line(`÷ √${batch.encoding.width}`, divided) : "",
    line("+ mask", keys.map(masked)),
    line("softmax", result.weights[query].map((weight, key) => tag("td", { class: "weight" },
      tag("i", { style: `--share:${Math.round(100 * weight) || 0}%` }), written(weight),
      leaks(shown, query, key, weight) ? tag("small", {}, "leaks") : "")))]);
}
function allOf(shown) {
  const { row, result: { reasons, weights }, state, isSmall } = shown, isShort = row.tokens.length <= MOST_NUMBERS;
  const words = (weight) => (!weights ? "" : !isSmall ? written(weight) : isShort ? written(weight).replace(/^0/, "") : "");
  const shade = (weight) => Math.round(isSmall && !isShort ? 20 + 80 * weight : 100 * weight) || 0; // without numbers, darker
  function square(query, key) {
    const reason = reasons[query][key], [kind, word] = REASONS[reason], weight = weights?.[query][key] ?? 0;
    const leak = leaks(shown, query, key, weights ? weight : 1), style = weights ? `--weight:${shade(weight)}%` : "";
    const content = leak ? tag("b", {}, words(weight)) : reason === ALLOWED ? words(weight) : "";
    return cell(shown, leak && isSmall ? "leak" : kind, query, key, content, reason === ALLOWED ? { style } : { title: word });
  }
  const total = (query) => written(weights[query].reduce((a, b) => a + b, 0)), keys = columnsOf(row);
  const sum = (query) => (weights ? tag("td", { class: "sum" }, reasons[query].includes(PADDING_QUERY) ? "" : total(query)) : "");
  return tableOf("All queries and keys. Arrow keys choose both.", [
    line("q ↓ k →", [...keys.map((key) => headCell(shown, key, "key")), weights ? '<th scope="col">sum</th>' : ""]),
    ...keys.map((query) => tag("tr", { class: query === state.query ? "query" : "" },
      headCell(shown, query, "query"), ...keys.map((key) => square(query, key)), sum(query)))]);
}
// Return a sentence about the hands of the chosen query and key, and their dials.
function dialsOf({ batch, row, state }) {
  const [query, key] = [state.query, state.key].map((index) => row.positions[index]);
  const { frequencies } = batch.encoding, hidden = frequencies.length - MOST_DIALS;
  if (query === null || key === null) {
    return [batch.settings.positions === "none" ? "Without position ids there are no hands."
      : "Padding has no position here: choose two tokens of the text.", ""];
  }
  const drawn = frequencies.slice(0, MOST_DIALS).map((frequency, pair) => {
    const angle = radians((query - key) * frequency), hands = [[key * frequency, "key"], [query * frequency, "query"]];
    return tag("figure", {}, dial(`pair ${pair}: ${angle} radians apart`, hands, RADIUS),
      tag("figcaption", {}, `pair ${pair}<br>ω = ${radians(frequency)}<br><b>${angle} rad</b>`));
  });
  return ["Each dial is one pair of numbers: its hand stands at the angle position × ω, with the sine as height and the " +
    `cosine as width. Solid: query, position ${query}. Dashed: key, position ${key}. The angle between the hands is ` +
    `${minus(String(query - key))} × ω, wherever both stand.`,
  drawn.join("") + (hidden > 0 ? tag("p", { class: "note" }, `and ${hidden} slower pairs`) : "")];
}
// Return {node, draw}. `choose` is called with the changed parts of the state {row, query, key}. With
// `isSmall`, the dials of two positions are left out, and cells of all queries are small.
function makeViews(choose, isSmall) {
  let shown; // as it was drawn last
  const tables = ["batch", "one", "all"].map((name) => make("div", { class: `scroll ${name}` }));
  const [grid, one, all] = tables, dials = make("div", { class: "dials" });
  const [text, legend, oneNote, allNote, dialNote] =
    ["text", "legend", "note", "note", "note"].map((name) => make("p", { class: name }));
  const counts = make("p", { class: "note counts" });
  const sentence = make("p", { class: "sentence", role: "status", "aria-live": "polite" });
  const allTitle = make("h3");
  const section = (name, ...children) => make("section", { class: `${name}-view` }, ...children);
  const scored = [
    section("one", make("h3", {}, "2. One query, every key"), oneNote, one),
    section("dials", make("h3", {}, "4. The dials of two positions"), dialNote, dials)];
  const node = make("div", { class: isSmall ? "views small" : "views" },
    section("batch", make("h3", {}, "1. The batch is a rectangle"), grid, counts, text, sentence), scored[0],
    section("all", allTitle, allNote, all, legend), ...(isSmall ? [] : [scored[1]]));
  const numbersOf = (target) => {
    const found = target.closest?.("[data-token], [data-query]");
    return found && Object.fromEntries(Object.entries(found.dataset).map(([name, value]) => [name, Number(value)]));
  };
  // A click on a token chooses the query; the key stays, unless the row is another one.
  const chosen = ({ row, token, ...cell }) => (token === undefined ? cell
    : { row, query: token, key: row === shown.state.row ? shown.state.key : token });
  const say = ({ query, key } = shown.state) => {
    sentence.innerHTML = `${factsOf(shown, shown.row, query)} ${sentenceOf(shown, query, key)}`;
  };
  node.addEventListener("click", ({ target }) => {
    const numbers = numbersOf(target);
    if (numbers) choose(chosen(numbers));
  });
  node.addEventListener("mouseover", ({ target }) => { // a preview, in words only
    const numbers = numbersOf(target), { state } = shown;
    if (!numbers || (numbers.row === state.row && numbers.token === state.query)) say();
    else if (numbers.token === undefined) sentence.innerHTML = sentenceOf(shown, numbers.query, numbers.key);
    else sentence.innerHTML = factsOf(shown, shown.batch.rows[numbers.row], numbers.token);
  });
  node.addEventListener("mouseleave", () => say());
  const aligned = isSmall ? [grid, one] : tables; // their columns are equally wide, so they scroll together
  for (const table of aligned) {
    table.addEventListener("scroll", () => { for (const other of aligned) other.scrollLeft = table.scrollLeft; });
  }
  node.addEventListener("keydown", (event) => {
    const steps = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0], Home: [0, -1e9], End: [0, 1e9] };
    const step = steps[event.key], numbers = step && numbersOf(event.target), most = shown.row.tokens.length - 1;
    if (!numbers) return;
    event.preventDefault();
    const [down, right] = step;
    if (numbers.token === undefined) {
      const query = between(numbers.query + (all.contains(event.target) ? down : 0), 0, most);
      choose({ query, key: between(numbers.key + right, 0, most) });
    } else {
      const number = between(numbers.row + down, 0, shown.batch.rows.length - 1);
      choose(chosen({ row: number, token: between(numbers.token + right, 0, most) }));
    }
  });
  // Draw {rows, encoding, settings, firstRow, firstToken, texts}; without an encoding no scores are computed.
  function draw(batch, state) {
    const row = batch.rows[state.row], packed = batch.rows.some((each) => Math.max(...each.documents) > 0);
    node.hidden = !row;
    if (!row) return;
    const result = batch.encoding ? attend(row, batch.settings, batch.encoding) : { reasons: row.reasons };
    shown = { batch, state, row, result, packed, isSmall };
    const { activeElement } = node.getRootNode();
    const focused = tables.find((each) => activeElement && each.contains(activeElement));
    const widest = Math.max(...batch.rows.flatMap((each) => each.tokens.map((token) => token.length)));
    const small = row.tokens.length <= MOST_NUMBERS ? 28 : between(Math.floor(340 / row.tokens.length), 10, 20);
    node.style.setProperty("--small", `${small}px`);
    node.style.setProperty("--cell", `${between(widest + 1, packed ? 9 : 7, 13)}ch`);
    grid.innerHTML = gridOf(shown);
    const number = packed ? row.documents[state.query] : state.row, source = batch.texts?.[number] ?? "";
    const [begin, end] = row.spans?.[state.query] ?? [0, 0], marked = make("mark", {}, source.slice(begin, end));
    text.replaceChildren(`Text ${number}: `, make("bdi", {}, source.slice(0, begin), marked, source.slice(end)));
    text.hidden = !source;
    const labels = batch.rows.flatMap((each) => (each.labels ?? []).filter((one, at) =>
      one !== null && !(each.isShifted && each.documents[at] !== each.documents[at - 1])));
    counts.textContent = row.labels ? `The loss is the mean over ${labels.length} of ${batch.rows.length * row.tokens.length} ` +
      `places of the batch: those with a label that ${row.isShifted ? "a token before it predicts" : "is not −100"}.` : "";
    all.innerHTML = allOf(shown);
    legend.innerHTML = [...REASONS, ["leak", "leak: should be hidden"]].filter(
      ([kind]) => all.querySelector(`td.${kind}`) || kind === "yes").map(
      ([kind, word]) => tag("span", {}, tag("i", { class: kind }), word || "may attend")).join(" ");
    allTitle.textContent = `${batch.encoding ? "3" : "2"}. All queries of row ${batch.firstRow + state.row}`;
    allNote.textContent = result.weights
      ? "Each line is one query: its softmax weights over the keys. Hidden cells are hatched."
      : "Each line is one query: the keys to which it may attend are filled, hidden ones are hatched.";
    for (const section of scored) section.hidden = !batch.encoding;
    if (batch.encoding) {
      one.innerHTML = oneOf(shown);
      oneNote.innerHTML = `Query: ${placed(shown, state.query)}. ${headFormula(batch.settings, batch.encoding)}`;
    }
    if (batch.encoding && !isSmall) [dialNote.textContent, dials.innerHTML] = dialsOf(shown);
    say();
    focused?.querySelector("[tabindex='0']")?.focus();
    const leads = aligned.includes(focused) ? focused : grid; // the tables that scroll with it follow
    for (const table of tables.filter((one) => one === leads || !aligned.includes(one))) { // the chosen cell comes into view
      const cell = table.querySelector("td.query, td.chosen"), begin = table.querySelector("th")?.offsetWidth;
      if (!cell) continue;
      const { offsetLeft: left, offsetTop: top, offsetWidth: width, offsetHeight: height } = cell;
      table.scrollLeft = between(table.scrollLeft, left + width + 6 - table.clientWidth, left - begin); // 6: the padding
      table.scrollTop = between(table.scrollTop, top + height + 6 - table.clientHeight, top);
    }
  }
  return { node, draw };
}
// Return the sentences that state how queries and keys are made, with every factor.
function headFormula({ head, back, gain, trained }, { width }) {
  if (trained) return "The head that you trained in scene 10: q = Wq·x, k = Wk·x, x = token + position. Values are x.";
  const turned = `turned back by ${back} ${back === 1 ? "position" : "positions"} and multiplied by ${gain}`;
  return {
    random: `q = ${gain} · Wq·x and k = Wk·x, with x = token + position, scaled to variance 1, and random matrices ` +
      `(standard deviation 1/√${width}). Values are token + position.`,
    both: `q is x = token + position, ${turned}; k = x. Values are x. Tokens disturb this head: each is most like itself.`,
    positions: `q is the encoding of the query's position, ${turned}; k is the encoding of the key's position. ` +
      "This head reads positions only, not tokens.",
  }[head];
}
