// The figures of the scenes about ids, order, adding and tests. Each function draws into {picture, says, strips}, nodes of
// its scene, from the page's {state, rows, lists, texts, encoding, tokenizer, words}.

const HEAD_OF_SCENES = { head: "random", gain: 1, divide: true };
const SENTENCE = { queen: 1, woman: 4, king: 7, man: 10 }; // positions in "a queen is a woman, a king is a man"
const MOST_RIBBONS = 8, MOST_LINES = 8, MOST_LETTERS_OF_WORD = 60;
const table = (lines, kind, name) => tag("div", { class: "scroll" }, tag("table", { class: kind, "aria-label": name }, ...lines));
const headed = (names) => tag("tr", {}, ...names.map((name) => tag("th", { scope: "col" }, name)));
const svg = (width, height, label, ...content) =>
  tag("svg", { viewBox: `0 0 ${width} ${height}`, style: `max-width: ${width}px`, role: "img", "aria-label": label }, ...content);
const plainTable = (heads, lines, name) => table([headed(heads), ...lines.map(([first, ...cells]) =>
  tag("tr", {}, tag("th", { scope: "row" }, first), ...cells.map((words) => tag("td", {}, words))))], "plain", name);
const label = (x, y, words, more = {}) => tag("text", { x: x.toFixed(1), y: y.toFixed(1), ...more }, words);
const percent = (share) => `${Math.round(100 * share)} %`;
const widthOf = (node) => between(node.clientWidth, 260, 640);
const calm = matchMedia("(prefers-reduced-motion: reduce)");
// Call draw(0 to 1) in the frames of some time; once, with 1, where motion is not wanted. A new call of the page ends it.
function glide(page, milliseconds, draw) {
  const turn = page.turn = (page.turn ?? 0) + 1, begin = performance.now();
  if (calm.matches || !milliseconds) return draw(1);
  const frame = (now) => {
    const time = between((now - begin) / milliseconds, 0, 1);
    if (turn !== page.turn) return;
    draw(time * time * (3 - 2 * time));
    if (time < 1) requestAnimationFrame(frame);
  };
  return requestAnimationFrame(frame);
}
// Return a vector as a strip: blue is positive, orange negative, and a difference red.
function strip(vector, isDifference) {
  const width = 100 / vector.length;
  const colors = Array.from(vector, (value, index) => {
    const color = isDifference ? "--wrong" : value < 0 ? "--later" : "--yes";
    const share = Math.min((isDifference ? 250 : 50) * Math.abs(value), 100);
    return `color-mix(in srgb, var(${color}) ${share.toFixed(0)}%, transparent) ${index * width}% ${(index + 1) * width}%`;
  });
  const spoken = Array.from(vector.slice(0, 4), (value) => fixed(value, 2)).join(", ");
  return tag("div", { class: "strip", style: `background: linear-gradient(90deg, ${colors.join(", ")})`, role: "img",
    "aria-label": `${vector.length} numbers: ${spoken}${vector.length > 4 ? " and so on" : ""}` });
}
const stripCell = (...given) => tag("td", { class: "striped" }, strip(...given));
const radio = (name, value, chosen) =>
  tag("input", { type: "radio", name, value, checked: value === chosen ? "checked" : undefined });
function drawIds({ picture, strips }, page) {
  const { state, lists, tokenizer, vocabulary, two } = page;
  const chip = (token, id, kind = "") =>
    tag("span", { class: `chip ${kind}` }, bdi(token), id === undefined ? "" : tag("small", {}, id));
  const word = [...state.word], text = word.slice(0, MOST_LETTERS_OF_WORD).join("");
  const part = word.length > MOST_LETTERS_OF_WORD ? ` (the first ${MOST_LETTERS_OF_WORD} of ${word.length} letters)` : "";
  const both = tokenizer ? [[page.kind, tokenizer, ""]] : [];
  if (page.gpt2) both.push(["GPT-2", once("gpt2", () => gpt2Of(page.gpt2)), "at most "]);
  const ways = both.map(([name, { steps, notes }, most]) => {
    const found = steps(text), number = found.at(-1)?.tokens.length ?? 0;
    const lines = found.map(({ tokens, last, rest }) => tag("li", {},
      tokens.map((token, index) => chip(token, undefined, index === last ? "new" : "")).join(" "),
      rest && tag("span", { class: "rest" }, bdi(rest))));
    return tag("div", { class: "way" }, tag("h3", {}, `${name}: ${most}${number} ${number === 1 ? "token" : "tokens"}`),
      ...notes(text).map((note) => tag("p", { class: "note" }, bdi(note))), tag("ol", {}, ...lines),
      most && tag("p", { class: "note" }, "The page has only the first 6,000 of GPT-2's 50,000 merges. With " +
        "all of them it may join more: with a space before it, “unsurprisingly” is one token (below)."));
  });
  const all = lists.flat(), picked = between(state.picked, 0, all.length - 1);
  let number = 0;
  const rows = lists.map((list) => tag("p", { class: "chips" }, ...list.map(({ token, id, special }) => tag("label",
    { class: `chip ${special ? "special" : ""}` }, radio("picked", number++, picked), bdi(token), tag("small", {}, id)))));
  const sample = Object.entries(two.tokens).map(([name, tokens]) => tag("p", {}, tag("b", {}, `${name} `),
    ...tokens.map(([one, number]) => chip(one, number, one.startsWith("[") ? "special" : ""))));
  strips.innerHTML = (tokenizer ? tag("h3", {}, `“${bdi(text)}”${part}, step by step`) : "") +
    tag("div", { class: "panels" }, ...ways) + tag("h3", {}, `“${two.text}” by BERT and by GPT-2`) + sample.join("") +
    tag("p", { class: "note" }, "The last three tokens of GPT-2 are the space and the four bytes of 🚲, one character.") +
    plainTable(["mark", "BERT", "GPT-2"], two.marks.map((line) => line.map(escaped)), "Marks in the tokens of BERT and GPT-2");
  const { token, id } = all[picked] ?? {}, isKnown = (row) => row === id || vocabulary?.[row] !== undefined;
  const near = [-1, 0, 1].map((step) => id + step).filter((row) => row >= 0 && isKnown(row));
  const nameOf = (row) => (row === id ? token : vocabulary[row]);
  const cells = (name) => tag("td", {}, bdi(name)) + stripCell(embeddingOf(name, state.d));
  const lines = near.map((row) => tag("tr", { class: row === id ? "chosen" : "" },
    tag("th", { scope: "row" }, tag("span", {}, row)), cells(nameOf(row))));
  picture.innerHTML = tag("h3", {}, "Your texts: choose a token") + rows.join("") + (token === undefined ? ""
    : tag("h3", {}, `Row ${id} of the table: the vector of “${bdi(token)}”`) +
      table([headed(["id", "token", `vector, d = ${state.d}`]), ...lines], "strips rows", "Vectors of neighboring ids"));
  const moved = page.picked !== undefined && page.picked !== picked && !calm.matches;
  page.picked = picked;
  const [from, to] = [picture.querySelector("input:checked ~ small"), picture.querySelector(".chosen span")];
  if (!moved || !from || !to) return;
  const [begin, end] = [from, to].map((node) => node.getBoundingClientRect());
  to.animate([{ transform: `translate(${begin.left - end.left}px, ${begin.top - end.top}px)` }, {}], 500);
}
// Return an order of tokens that differs from theirs, if there is one: words reversed, or shuffled, pieces of a word together;
// where that changes nothing, as with one long word, tokens by themselves.
function reordered(list, text, shuffle) {
  const words = [], uniform = uniformOf(`order ${shuffle}`);
  list.forEach(({ begin }, index) => {
    if (!index || /\s/.test(text.slice(begin - 1, begin + 1))) words.push([]);
    words.at(-1).push(index);
  });
  const isOther = (order) => order.some((from, to) => list[from].token !== list[to].token);
  for (const parts of [words, list.map((_, index) => [index])]) {
    for (let number = 0; number < 9; number++) {
      const keyed = [...parts].reverse().map((part) => [shuffle || number ? uniform() : 0, part]);
      const order = keyed.sort(([one], [other]) => one - other).flatMap(([, part]) => part);
      if (isOther(order)) return order;
    }
  }
  return list.map((_, index) => index);
}
// Return tokens in a row and a ribbon from each to a node, as wide as its weight. Side by side, all are `size` wide there.
function ribbons({ tokens, weights, colors, width, from, to, size, query }) {
  const gap = width / tokens.length, down = Math.sign(to - from), middle = (from + to) / 2, y = from + (down < 0 ? 15 : -6);
  let end = (width - size) / 2;
  return tokens.map((token, index) => {
    const wide = Math.max(size * weights[index], 0.6), x = (index + 0.5) * gap, [left, right] = [x - wide / 2, x + wide / 2];
    const d = [`M${left} ${from}C${left} ${middle} ${end} ${middle} ${end} ${to}`,
      `H${end + wide}C${end + wide} ${middle} ${right} ${middle} ${right} ${from}Z`].join("");
    end += size * weights[index];
    const most = Math.max(Math.floor(gap / 8), 3), short = token.length > most ? `${token.slice(0, most - 1)}…` : token;
    const path = d.replace(/\d+\.\d+/g, (one) => Number(one).toFixed(1));
    return tag("path", { d: path, class: "ribbon", style: `fill: ${colors[index]}` }) +
      label(x, y - 17 * down, escaped(short), { class: index === query ? "asks" : "word" }) +
      label(x, y, percent(weights[index]), { class: "small" });
  }).join("");
}
const HUES = ["var(--yes)", "var(--later)", "var(--key)", "var(--other)", "var(--mark)", "var(--pad)"];
function drawOrder({ picture, says, strips }, page) {
  const { state, lists, texts, encoding } = page;
  const settings = { ...HEAD_OF_SCENES, hide: "infinity", positions: "text", number: state.headNumber };
  const whole = (lists[0] ?? []).filter(({ special }) => !special), list = whole.slice(0, MOST_RIBBONS);
  const order = reordered(list, texts[0] ?? "", state.shuffle), asked = between(state.asked, 0, list.length - 1);
  const tokens = list.map(({ token }) => token), same = order.every((from, to) => tokens[from] === tokens[to]);
  const part = page.counts[0] > MOST_RIBBONS ? ` (the first ${MOST_RIBBONS} of ${page.counts[0]} tokens of the text)` : "";
  strips.innerHTML = tag("p", { class: "chips" }, `Query${part}: `, ...tokens.map((token, index) => tag("label", { class: "chip" },
    radio("asked", index, asked), bdi(token))));
  if (!list.length) { picture.innerHTML = ""; says.textContent = "Type a first text."; return; }
  const rows = batchOf([list, order.map((index) => list[index])], { side: "right", positions: "text", together: true }, null);
  const width = widthOf(picture), size = 84, wide = Math.min(width - 20, 400), left = (width - wide) / 2;
  const cells = (vector, y, isDifference) => Array.from(vector, (value, index) => tag("rect", {
    x: (left + index * wide / vector.length).toFixed(2), y, width: (wide / vector.length + 0.3).toFixed(2), height: 14,
    fill: `var(${isDifference ? "--wrong" : value < 0 ? "--later" : "--yes"})`,
    "fill-opacity": Math.min(1, Math.abs(value) * (isDifference ? 1.5 : 0.8)).toFixed(3),
  })).join("");
  const goal = Number(state.addPositions), begin = page.share ?? goal;
  page.share = goal;
  glide(page, begin === goal ? 0 : 400, (time) => { // each frame is a real head
    const share = begin + time * (goal - begin), places = [asked, order.indexOf(asked)];
    const found = rows.map((row) => attend(row, { ...settings, share }, encoding));
    const [above, below] = found.map(({ weights }, number) => weights[places[number]]);
    const outputs = found.map((one, number) => one.outputs[places[number]]), difference = minusVector(...outputs);
    const most = furthest(...outputs), colors = tokens.map((_, index) => HUES[index % HUES.length]), given = { width, size };
    picture.innerHTML = svg(width, 356, `Weights of the query ${escaped(tokens[asked])} in both orders`,
      ribbons({ ...given, tokens, weights: above, colors, from: 42, to: 126, query: asked }), cells(outputs[0], 128),
      label(left, 154, "output above", { class: "small begin" }), cells(difference, 164, true),
      label(left, 190, "difference of both outputs", { class: "small begin" }),
      tag("rect", { class: "frame", x: left, y: 164, width: wide, height: 14 }), cells(outputs[1], 214),
      ribbons({ ...given, tokens: rows[1].tokens, weights: below, colors: order.map((index) => colors[index]),
        from: 314, to: 230, query: places[1] }),
      label(left, 209, "output below", { class: "small begin" }));
    const pairs = tokens.map((token, index) => {
      const place = tokens.indexOf(token) < tokens.lastIndexOf(token) ? ` (${index + 1})` : "";
      return `${bdi(token)}${place} ${percent(above[index])} and ${percent(below[order.indexOf(index)])}`;
    });
    says.innerHTML = same ? "Both orders are the same, because all tokens are: type a first text of two different words."
      : `Weights above and below: ${pairs.join("; ")}. ` + (most < 1e-12 ? "The outputs are equal."
        : `The outputs differ by up to ${most.toFixed(2)}.`);
  });
}
function drawAdding({ picture, strips }, { state, rows, encoding, words }) {
  const names = Object.keys(SENTENCE), wide = words[names[0]].length, root = Math.sqrt(wide), factor = state.factor / 10;
  const positions = names.map((name) => encodingOf(SENTENCE[name], paperEncoding(wide, 10000)));
  const sums = (times) => names.map((name, index) => {
    const sum = positions[index].map((value, dimension) => value + times * words[name][dimension]);
    return ofLengthOne(sum); // because angles are compared
  });
  const plane = once("plane", () => planeOf([1, root].flatMap((times) => centered(sums(times))))); // one for all factors
  const pointsOf = (vectors) => centered(vectors).map((vector) => {
    const [x, y] = plane.map((direction) => dot(vector, direction));
    return [200 + 250 * x, 110 - 250 * y];
  });
  const ways = once("ways", () => [0, 0.25, 0.5, 1, 2, 3, 5, 8, 12, root].map((times) => pointsOf(sums(times))));
  const points = pointsOf(sums(factor));
  const drawn = names.map((name, index) => {
    const [x, y] = points[index], way = ways.map((one) => one[index].map((value) => value.toFixed(1)).join(","));
    return tag("polyline", { class: "limit", points: way.join(" ") }) + tag("circle", { cx: x, cy: y, r: 6 }) +
      (x < 200 ? label(x - 9, y + 5, name, { class: "end" }) : label(x + 9, y + 5, name));
  });
  picture.innerHTML = svg(400, 220, `Plane of ${names.join(", ")}`, ...drawn);
  const all = [names.map((name) => words[name]), ...[1, factor, root].map(sums)];
  const pairs = names.flatMap((one, from) => names.slice(from + 1).map((other) => [`${one}, ${other}`,
    SENTENCE[other] - SENTENCE[one],
    ...all.map((vectors) => cosine(vectors[from], vectors[names.indexOf(other)]).toFixed(2))]));
  const row = rows[state.row], size = lengthOf(words.queen) / root; // of a number
  const places = row ? placesOf(row) : [];
  const part = places.length > MOST_LINES ? `the first ${MOST_LINES} of ${places.length} tokens, ` : "";
  const lines = places.slice(0, MOST_LINES).map((index) => {
    const token = row.tokens[index], vector = embeddingOf(token, state.d).map((value) => size * factor * value);
    const position = encodingOf(row.positions[index] ?? 0, encoding);
    return tag("tr", {}, tag("th", { scope: "row" }, bdi(token)), ...[vector, position, added(vector, position)].map(
      (one) => stripCell(one)));
  });
  strips.innerHTML = tag("h3", {}, "Cosines of words alone, and with positions added (1: the same direction)") +
    plainTable(["words", "places apart", "alone", "factor 1", `factor ${factor.toFixed(1)} (now)`, "factor √d"], pairs,
      "Cosines of four words") +
    tag("h3", {}, `Row ${state.row} of your texts, ${part}random vectors with d = ${state.d}, ` +
    "as small as BERT's; factor as above") +
    table([headed(["token", `${factor.toFixed(1)} · token`, "+ position", "= input"]), ...lines], "strips", "Input as a sum");
}
// Return the lines of the three tests of a batch: [name, if it holds, what is right, largest difference and where].
function testLines(rows, settings, encoding) {
  const { alone, later, order, hasOrder } = testsOf(rows, settings, encoding), isReal = ({ difference }) => difference >= 5e-5;
  const written = (test) => (isReal(test) ? `${test.difference.toFixed(test.difference < 0.1 ? 4 : 2)}, at ` +
    `“${bdi(rows[test.row].tokens[test.index])}” of row ${test.row}` : "0");
  const made = MISTAKES.filter(([name, wrong]) => settings[name] === wrong).map(([, , words]) => words).join(", ");
  const { row, index, position } = alone, here = isReal(alone) ? rows[row].positions[index] : position;
  const moved = here !== position ? `; it stands at position ${here}, and alone at ${position}` : "";
  const must = (holds) => (holds ? "true" : tag("span", { class: "wrong" }, "false"));
  return [
    ["Padding and other texts change nothing", must(!isReal(alone)), "true",
      written(alone) + moved + (isReal(alone) && made ? `: ${made}` : "")],
    ["Later tokens change nothing", !isReal(later), "true for GPT-2, false for BERT", written(later)],
    ["Order matters", hasOrder ? must(isReal(order)) : "not tested", "true",
      hasOrder ? written(order) : "each text is the same in reverse"]];
}
function drawTests({ picture }, page) {
  const { settings, encoding } = headOfScenes(page);
  picture.innerHTML = plainTable(["test", "now", "should be", "largest difference of outputs"],
    testLines(page.rows, settings, encoding), "Three tests");
}
// Return three lines of Python for the number of each figure; `tokenizer` is that of the page.
function pythonOf({ state, texts }) {
  const { d, place, offset, length, before, factor, side, lookAhead, paddingMask, packed, labels, question } = state;
  const quoted = (text) => JSON.stringify(text), base = baseOf(state.power), truth = (value) => (value ? "True" : "False");
  const kind = { next: ', labels="causal_lm"', masked: ', labels="masked_lm"' }[labels] ?? "";
  const packing = packed ? ", packing=True, max_length=512" : `, padding_side=${quoted(side)}`;
  const settings = `tokenizer${packing}${kind}, look_ahead=${truth(lookAhead)}`;
  const mask = `AttentionMask.from_batch(batch, look_ahead=${truth(lookAhead)}).dense()[0, 0].int()`;
  const batch = ["from hf_posenc import AttentionMask, DataCollatorWithPositionalEncoding",
    `batch = DataCollatorWithPositionalEncoding(${settings})([${texts.map(quoted).join(", ")}])`];
  const swap = "x = torch.randn(4, 48, dtype=torch.float64); swapped = x[[2, 1, 0, 3]]  # dog bites man who?";
  const read = (name) => `(${name}[-1] @ ${name}.T / 48**0.5).softmax(-1) @ ${name}`;
  return {
    ids: [`ids = tokenizer(${quoted(texts[0] ?? "")})["input_ids"]`, `table = torch.nn.Embedding(len(tokenizer), ${d})`,
      "table(torch.tensor(ids)).shape"],
    order: state.addPositions
      ? ["from hf_posenc import sinusoidal_encoding; places = sinusoidal_encoding(torch.arange(4), 48)",
        "x = torch.randn(4, 48); swapped = x[[2, 1, 0, 3]] + places; x = x + places  # dog bites man who?",
        `torch.dist(${read("x")}, ${read("swapped")})  # above 0: the order counts`]
      : [swap, `torch.dist(${read("x")}, ${read("swapped")})  # 0: the order is lost`],
    train: [swap, `torch.dist(${read("x")}, ${read("swapped")})  # 0, but the answer to ${question} is another`],
    clock: ["from hf_posenc import sinusoidal_encoding",
      `p, q = sinusoidal_encoding(torch.tensor([${place}, ${place + offset}]), ${d})`, "torch.dist(p, q)"],
    base: ["from hf_posenc import frequencies",
      `turns = 2 * torch.pi / frequencies(${WIDTH_OF_RULER}, base=${base})`, `turns[-1], (turns <= ${length}).sum()`],
    beyond: ["from hf_posenc import frequencies; x = torch.randn(48, dtype=torch.float64)",
      "turn = lambda p: torch.view_as_complex(x.view(-1, 2)) * torch.exp(1j * p * frequencies(48))",
      `[(turn(p + 3) * turn(p).conj()).sum().real for p in (0, ${before || 1})]  # equal: only the offset 3 counts`],
    adding: ["from hf_posenc import sinusoidal_encoding", "position = sinusoidal_encoding(torch.tensor(1), 384).norm()",
      `position, ${(factor / 10).toFixed(1)} * 1.3  # lengths of position and word`],
    masks: [...batch, paddingMask && packed !== "together" ? mask : `${mask}  # with the masks that you left out`],
    tests: ["from torch.nn.functional import scaled_dot_product_attention as attend",
      "x = torch.randn(5, 32); y = x.clone(); y[-1] = 0  # another last token",
      "torch.dist(*[attend(z, z, z, is_causal=True)[:-1] for z in (x, y)])  # 0: later tokens change nothing"],
    price: ["from torch.nn.functional import cross_entropy  # which leaves out labels of -100",
      "logits, labels = torch.randn(2, 6, 20), torch.randint(20, (2, 6))  # of a model, and of the collator",
      `cross_entropy(logits[:, :${-state.shift || "None"}].flatten(0, 1), labels[:, ${state.shift}:].flatten())`],
    sandbox: [...batch, 'batch["position_ids"]'],
  };
}
