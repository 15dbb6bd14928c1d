// The figures of scenes 1 to 7. Each function draws into {picture, says, ...}, nodes of its scene, from the page's
// {state, rows, lists, encoding, tokenizer, words}.

const HEAD_OF_SCENES = { head: "random", gain: 1, divide: true, hide: "infinity" };
const PLACES = 64, FARTHEST = 1000, TABLE = 512, WINDOW = 128; // positions
const SENTENCE = { queen: 1, woman: 4, king: 7, man: 10 }; // positions in "a queen is a woman, a king is a man"

const table = (lines, kind) => tag("div", { class: "scroll" }, tag("table", { class: kind }, ...lines));
const headed = (names) => tag("tr", {}, ...names.map((name) => tag("th", { scope: "col" }, name)));
const svg = (width, height, label, ...content) =>
  tag("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label }, ...content);

const plainTable = (heads, lines) => table([headed(heads), ...lines.map(([name, ...cells]) =>
  tag("tr", {}, tag("th", { scope: "row" }, name), ...cells.map((words) => tag("td", {}, words))))], "plain");

// Return a cell with a vector as a strip: blue is positive, orange negative, and a difference red.
function strip(vector, isDifference) {
  const width = 100 / vector.length;
  const colors = Array.from(vector, (value, index) => {
    const color = isDifference ? "--wrong" : value < 0 ? "--later" : "--yes";
    const share = Math.min((isDifference ? 250 : 50) * Math.abs(value), 100);
    return `color-mix(in srgb, var(${color}) ${share.toFixed(0)}%, transparent) ${index * width}% ${(index + 1) * width}%`;
  });
  return tag("td", { class: "strip", style: `background: linear-gradient(90deg, ${colors.join(", ")})` });
}

function drawIds({ picture }, { state, lists, tokenizer }) {
  const chip = (token, id, kind = "") =>
    tag("span", { class: `chip ${kind}` }, escaped(token), id === undefined ? "" : tag("small", {}, id));
  const steps = (tokenizer?.steps(state.word) ?? []).map(({ tokens, last, rest }) => tag("li", {},
    ...tokens.map((token, index) => chip(token, undefined, index === last ? "new" : "")),
    rest && tag("span", { class: "rest" }, escaped(rest))));
  const rows = lists.map((list) => tag("p", {},
    ...list.map(({ token, id, special }) => chip(token, id, special ? "special" : ""))));
  const title = tokenizer ? tag("h3", {}, `“${escaped(state.word)}”, step by step`) : "";
  picture.innerHTML = title + tag("ol", {}, ...steps) + tag("h3", {}, "Your texts: tokens and ids") + rows.join("");
}

// Return the order of a row's tokens when the words of its text come in reverse; pieces of a word stay together.
function wordsReversed({ tokens, spans, special, real }, text) {
  const words = [], order = tokens.map((_, index) => index), places = [];
  for (const index of order.filter((place) => real[place] && !special[place])) {
    const [begin] = spans[index], starts = /\s/.test(text.slice(begin - 1, begin + 1)) || !words.length;
    if (starts) words.push([]);
    words.at(-1).push(index);
    places.push(index);
  }
  words.reverse().flat().forEach((index, number) => { order[places[number]] = index; });
  return order;
}

function drawOrder({ picture, says, scores }, { state, lists, texts, encoding }) {
  const settings = { ...HEAD_OF_SCENES, paddingMask: true, lookAhead: state.orderMask, together: true };
  settings.positions = state.addPositions ? "text" : "none";
  const row = batchOf(lists.slice(0, 1), settings, null)[0], order = row ? wordsReversed(row, texts[0]) : [];
  const found = row ? reordered(row, order, settings, encoding) : [], most = largest(found).difference;
  const same = order.every((place, index) => place === index);
  const words = (texts[0] ?? "").trim().split(/\s+/);
  const [first, second] = [words, words.toReversed()].map((one) => escaped(one.join(" ")));
  const lines = found.map(({ token, inputs, outputs, difference }) => tag("tr", {},
    tag("th", { scope: "row" }, escaped(token)), ...inputs.map((vector) => strip(vector)),
    ...outputs.map((vector) => strip(vector)), strip(minusVector(...outputs), true),
    tag("td", {}, difference < 5e-5 ? "0" : difference.toFixed(2))));
  const heads = ["", "input A", "input B", "output A", "output B", "output A − B", "largest differ\u00adence"];
  says.textContent = same ? "Type a first text of two words or more."
    : most < 5e-5 ? "Each token has the same output in A and B: the model cannot tell them apart."
      : `The outputs of a token differ by up to ${most.toFixed(2)}: order can be read.`;
  const deviation = (all) => Math.sqrt(dot(all, all) / all.length).toFixed(1), head = row && attend(row, settings, encoding);
  scores.textContent = head ? `Here d is ${state.d}: the scores of A have standard deviation ` +
    `${deviation(head.products.flat())}, and ${deviation(head.scores.flat())} after the division.` : "";
  picture.innerHTML = tag("p", {}, tag("b", {}, "A"), `: ${first}<br>`, tag("b", {}, "B"), `: ${second}`) +
    table([headed(heads), ...lines], "strips");
}

function drawClock({ picture, says }, { state, encoding }) {
  const { place, pair, d } = state, { frequencies } = encoding, omega = frequencies[pair], angle = place * omega;
  const canvas = make("canvas", { width: d, height: PLACES, role: "img",
    "aria-label": `Sinusoidal encoding: positions 0 to ${PLACES - 1} from top to bottom, ${d} dimensions` });
  const context = canvas.getContext("2d"), image = context.createImageData(d, PLACES);
  for (let position = 0; position < PLACES; position++) {
    encodingOf(position, encoding).forEach((value, dimension) => {
      const color = value < 0 ? [230, 159, 0] : [0, 114, 178]; // --later and --yes
      image.data.set([...color, 255 * Math.abs(value)], 4 * (position * d + dimension));
    });
  }
  context.putImageData(image, 0, 0);
  const map = make("div", { class: "map" }, canvas,
    make("div", { class: "line", style: `top: ${(100 * place) / PLACES}%; height: ${100 / PLACES}%` }),
    make("div", { class: "column", style: `left: ${(200 * pair) / d}%; width: ${200 / d}%` }));
  const dials = make("div", { class: "dials" });
  dials.innerHTML = frequencies.slice(0, MOST_DIALS).map((frequency, index) => dial(`pair ${index}`,
    [[place * frequency, "query"]], 0, `pair ${index}`, { class: index === pair ? "chosen" : "" })).join("");
  picture.replaceChildren(map, dials);
  says.textContent = `Pair ${pair}, ω = ${radians(omega)}: a turn takes ${Math.round(20 * Math.PI / omega) / 10} ` +
    `positions. Position ${place} is at ${radians(angle)} radians: sine ${fixed(Math.sin(angle), 2)}, cosine ` +
    `${fixed(Math.cos(angle), 2)}.`;
}

function drawFar({ picture, says, strips }, { state, encoding }) {
  const { from, offset, pair, d } = state, to = from + offset, bases = [10, 10000];
  const curves = bases.map((base) =>
    once(`distances ${d} ${base}`, () => distancesOf(FARTHEST, paperEncoding(d, base))));
  const high = 2 * Math.sqrt(d / 2), x = (at) => 200 * Math.log10(Math.max(at, 1)), y = (value) => 190 - (180 * value) / high;
  const lines = curves.map((curve, index) => tag("polyline", { class: index ? "wide" : "narrow",
    points: curve.slice(1).map((value, at) => `${x(at + 1).toFixed(1)},${y(value).toFixed(1)}`).join(" ") }));
  const bars = [[WINDOW, "limit"], [TABLE - from, "limit"], [offset, "now"]].map(([at, kind]) =>
    tag("line", { class: kind, x1: x(at), x2: x(at), y1: 0, y2: 190 }));
  const rank = (curve) => fixed(rankCorrelation(curve.slice(1, 101)), 2);
  const matrix = (...numbers) => tag("table", { class: "matrix" },
    ...numbers.map((line) => tag("tr", {}, ...line.map((value) => tag("td", {}, fixed(value, 2))))));
  const vector = (angle) => matrix([Math.sin(angle)], [Math.cos(angle)]), omega = encoding.frequencies[pair];
  const [sine, cos] = [Math.sin(offset * omega), Math.cos(offset * omega)];
  picture.innerHTML = svg(600, 200, "Distance of encodings by offset", ...lines, ...bars);
  strips.innerHTML = plainTable(
    ["", `positions ${from} and ${to}`, "does distance grow with offset? 1 = always (rank correlation, offsets 1 to 100)"], [
      ...curves.map((curve, index) => [`base ${bases[index]}`, curve[offset].toFixed(2), rank(curve)]),
      [`learned table of ${TABLE}`, to < TABLE ? `has rows ${from} and ${to}` : `has no row ${to}: the program stops`, ""],
      [`window of ${WINDOW}`, offset < WINDOW ? "inside the window" : "outside the window", ""],
    ]) + tag("div", { class: "turn" }, `${offset} further, pair ${pair} (chosen in scene 3):`,
    matrix([cos, sine], [-sine, cos]), "·", vector(from * omega), "=", vector(to * omega));
  says.textContent = `The matrix holds the cosine and sine of n · ω = ${radians(offset * omega)} radians; right of it stand ` +
    `the sine and cosine of position ${from}, and of ${to}.`;
}

function drawAdding({ picture, says, strips }, { state, rows, encoding, words }) {
  const names = Object.keys(SENTENCE), wide = words[names[0]].length, root = Math.sqrt(wide), factor = state.factor / 10;
  const positions = names.map((name) => encodingOf(SENTENCE[name], paperEncoding(wide, 10000)));
  const sums = (factor) => names.map((name, index) => {
    const sum = positions[index].map((value, dimension) => value + factor * words[name][dimension]);
    return ofLengthOne(sum); // because angles are compared
  });
  const ends = once("ends", () => [1, root].map((factor) => centered(sums(factor)))), here = sums(factor);
  const plane = once("plane", () => planeOf(ends.flat())); // one plane for all factors
  const pointsOf = (vectors) => vectors.map((vector) => {
    const [x, y] = plane.map((direction) => dot(vector, direction));
    return [200 + 250 * x, 110 - 250 * y];
  });
  const points = pointsOf(centered(here)), [begins, stops] = ends.map(pointsOf);
  const drawn = names.map((name, index) => {
    const [x, y] = points[index], [x1, y1] = begins[index], [x2, y2] = stops[index];
    return tag("line", { class: "limit", x1, y1, x2, y2 }) + tag("circle", { cx: x, cy: y, r: 6 }) +
      tag("text", { x: x + 9, y: y + 5 }, name);
  });
  picture.innerHTML = svg(400, 220, `Plane of ${names.join(", ")}`, ...drawn);
  const [queen, woman, king] = ["queen", "woman", "king"].map((name) => names.indexOf(name));
  const alone = (a, b) => cosine(words[names[a]], words[names[b]]).toFixed(2);
  const now = (a, b) => cosine(here[a], here[b]).toFixed(2);
  says.textContent = `Cosine of queen and woman: ${now(queen, woman)} (without positions ${alone(queen, woman)}). ` +
    `Queen and king: ${now(queen, king)} (without ${alone(queen, king)}).`;
  const row = rows[state.row];
  const lines = (row ? placesOf(row).slice(0, 8) : []).map((index) => {
    const token = row.tokens[index], vector = embeddingOf(token, state.d);
    const position = encodingOf(row.positions[index] ?? 0, encoding);
    return tag("tr", {}, tag("th", { scope: "row" }, escaped(token)), ...[vector, position, added(vector, position)].map(
      (one) => strip(one)));
  });
  strips.innerHTML = tag("h3", {}, `Row ${state.row} of your texts, d = ${state.d}`) +
    table([headed(["", "token", "+ position", "= input"]), ...lines], "strips");
}

// Return the lines of the three tests of a batch: [name, if it holds, what is right, largest difference and where].
function testLines(rows, settings, encoding) {
  const { alone, later, order } = testsOf(rows, settings, encoding), isReal = ({ difference }) => difference >= 5e-5;
  const written = (test) => escaped(isReal(test) ? `${test.difference.toFixed(test.difference < 0.1 ? 4 : 2)}, at ` +
    `“${rows[test.row].tokens[test.index]}” of row ${test.row}` : "0");
  const made = MISTAKES.filter(([name, wrong]) => settings[name] === wrong).map(([, , words]) => words).join(", ");
  const { row, index, position } = alone, here = isReal(alone) ? rows[row].positions[index] : position;
  const moved = here !== position ? `; it stands at position ${here}, and alone at ${position}` : "";
  return [
    [tag("span", { class: isReal(alone) ? "wrong" : "" }, "Padding and other texts change nothing"), !isReal(alone), "true",
      written(alone) + moved + (isReal(alone) && made ? `: ${made}` : "")],
    ["Later tokens change nothing", !isReal(later), "true for GPT-2, false for BERT", written(later)],
    ["Order matters", isReal(order), "true", written(order)],
  ];
}

function drawTests({ picture }, { state, rows, encoding }) {
  picture.innerHTML = plainTable(["test", "now", "should be", "largest difference of outputs"],
    testLines(rows, { ...state, ...HEAD_OF_SCENES }, encoding));
}
