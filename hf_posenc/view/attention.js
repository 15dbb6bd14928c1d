// One batch and one attention head: padding, position ids, masks with their reasons, scores, weights and outputs.

// Reasons why a query may not attend to a key, with the numbers of hf_posenc/masks/reasons.py.
const ALLOWED = 0, PADDING = 1, LATER = 2, OTHER_DOCUMENT = 3, PADDING_QUERY = 5;

// Pad lists of tokens to one length, and number their positions. A token's `document` is 0, unless texts were packed.
// With `together`, packed documents are treated as one.
function batchOf(lists, { side, positions, together }, padding) {
  const length = Math.max(1, ...lists.map((list) => list.length));
  return lists.map((list) => {
    const fill = Array(length - list.length).fill({ ...padding, begin: 0, end: 0 });
    const all = side === "left" ? [...fill, ...list] : [...list, ...fill], first = side === "left" ? fill.length : 0;
    const real = all.map((_, index) => index >= first && index < first + list.length);
    const documents = all.map(({ document = 0 }, index) => (real[index] ? document : -1));
    const begin = (index) => (together ? first : documents.indexOf(documents[index]));
    return {
      tokens: all.map(({ token }) => token), ids: all.map(({ id }) => id), real,
      spans: all.map(({ begin, end }) => [begin, end]), special: all.map((one) => Boolean(one.special)),
      positions: all.map((_, index) => {
        if (positions === "padding") return index;
        return real[index] && positions === "text" ? index - begin(index) : null;
      }), documents, given: all,
    };
  });
}
// Return the reason of each query and key, T x T. If several hold, the last of these: later, document, query, padding.
// A query that is padding has weights too, as in the package's masks, but its output is not used.
function reasonsOf({ real, documents }, { lookAhead, paddingMask, together }) {
  return real.map((isReal, query) => real.map((isRealKey, key) => {
    if (paddingMask && !isRealKey) return PADDING;
    if (paddingMask && !isReal) return PADDING_QUERY;
    if (!together && isReal && isRealKey && documents[query] !== documents[key]) return OTHER_DOCUMENT;
    return lookAhead && key > query ? LATER : ALLOWED;
  }));
}
// Return a function that returns random numbers between 0 and 1 (mulberry32), always the same ones for the same name.
function uniformOf(name) {
  let seed = 2166136261;
  for (const letter of name) seed = Math.imul(seed ^ letter.codePointAt(0), 16777619);
  return () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let mixed = Math.imul(seed ^ (seed >>> 15), seed | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return (((mixed ^ (mixed >>> 14)) >>> 0) + 0.5) / 2 ** 32;
  };
}
const normalOf = (uniform) => () => Math.sqrt(-2 * Math.log(uniform())) * Math.cos(2 * Math.PI * uniform());
const normals = (name, count) => Float64Array.from({ length: count }, normalOf(uniformOf(name)));
const isAttended = (reason) => reason === ALLOWED || reason === PADDING_QUERY;
const remembered = new Map();
function once(name, make) {
  if (!remembered.has(name)) remembered.set(name, make());
  return remembered.get(name);
}
const matrixOf = (name, d) => once(`${d} matrix ${name}`, () =>
  Array.from({ length: d }, (_, row) => normals(`${name} ${row}`, d).map((value) => value / Math.sqrt(d))));
// The masked score of a hidden key. In float32, score − 1e9 is −1e9.
const HIDDEN = { infinity: () => -Infinity, billion: () => -1e9, ones: (score) => score };
function dot(a, b) { // a loop, because `reduce` is ten times as slow
  let sum = 0;
  for (let index = 0; index < a.length; index++) sum += a[index] * b[index];
  return sum;
}
const added = (a, b) => a.map((value, index) => value + b[index]);
// Return a vector scaled to a mean square of 1, as LayerNorm scales it, so that products have the variance d.
const ofVarianceOne = (vector, root = Math.sqrt(dot(vector, vector) / vector.length || 1)) => vector.map((value) => value / root);
const embeddingOf = (token, d) => once(`${d} ${token}`, () => ofVarianceOne(normals(token, d)));
// Return the softmax of scores; of no finite score, NaN.
function softmax(scores) {
  const most = Math.max(...scores), powers = scores.map((score) => Math.exp(score - most));
  const sum = powers.reduce((a, b) => a + b, 0);
  return powers.map((power) => power / sum);
}
// Compute one head for a row. Each result but `inputs` and `outputs` is T x T; see `headFormula` for queries and keys.
function attend(row, settings, encoding) {
  const { width } = encoding, nothing = new Float64Array(width);
  const share = settings.share ?? 1; // of the positions
  const sinusoids = row.positions.map((position) =>
    (settings.positions === "none" ? nothing : encodingOf(position ?? 0, encoding).map((value) => share * value)));
  const wordOf = (token) => (settings.trained ? token.replace(/^Ġ/, "") : token); // it was trained on words
  const inputs = sinusoids.map((vector, index) => added(embeddingOf(wordOf(row.tokens[index]), width), vector));
  const scaled = settings.trained ? inputs : inputs.map((vector) => ofVarianceOne(vector));
  const read = { positions: sinusoids, both: inputs, random: scaled }[settings.head];
  const times = (name) => {
    const other = `${name}${settings.number || ""}`; // each number is another head
    const matrix = settings.trained?.[name].values ?? matrixOf(other, width);
    return read.map((vector) => Float64Array.from(matrix, (line) => dot(line, vector)));
  };
  const [turned, keys] = settings.head === "random" ? [times("query"), times("key")]
    : [read.map((vector) => turnedBack(vector, settings.back, encoding)), read];
  const queries = turned.map((vector) => vector.map((value) => settings.gain * value));
  const products = queries.map((query) => keys.map((key) => dot(query, key)));
  const scores = products.map((line) => line.map((value) => (settings.divide ? value / Math.sqrt(width) : value)));
  const reasons = row.reasons ?? reasonsOf(row, settings);
  const hidden = HIDDEN[settings.hide], one = settings.hide === "ones" ? 1 : 0;
  const masked = scores.map((line, query) =>
    line.map((score, key) => (isAttended(reasons[query][key]) ? score + one : hidden(score))));
  const weights = masked.map(softmax);
  const outputs = weights.map((line) => // NaN if no key is left
    line.reduce((sum, weight, key) => addTo(sum, inputs[key], weight || 0), new Float64Array(width)));
  return { inputs, products, scores, reasons, weights, outputs };
}
// Settings that no correct model has, with the words of the page.
const MISTAKES = [
  ["divide", false, "no ÷ √d"], ["hide", "ones", "0 and 1 added in place of −∞ and 0"],
  ["paddingMask", false, "no padding mask"], ["positions", "padding", "positions that count the padding"],
  ["together", true, "packed documents without a mask between them"]];
const RIGHT = { divide: true, hide: "infinity", paddingMask: true, together: false };
const furthest = (a, b) => Math.max(...Array.from(a, (value, index) => Math.abs(value - b[index])));
const placesOf = (row) => row.real.flatMap((isReal, index) => (isReal ? [index] : []));
// Return the largest of some differences, each an object with a `difference`.
const largest = (differences) =>
  differences.reduce((most, one) => (one.difference > most.difference ? one : most), { difference: 0 });
// Compare the outputs of each text with those that it has alone, computed correctly; `position` is the position there.
function aloneOf(row, outputs, settings, encoding) {
  const right = { ...settings, ...RIGHT, positions: settings.positions === "none" ? "none" : "text" };
  return largest([...new Set(row.documents)].filter((document) => document >= 0).flatMap((document) => {
    const places = placesOf(row).filter((index) => row.documents[index] === document);
    const single = batchOf([places.map((index) => ({ token: row.tokens[index] }))], right, null)[0];
    const alone = attend(single, right, encoding).outputs;
    return places.map((index, place) =>
      ({ difference: furthest(outputs[index], alone[place]), index, position: single.positions[place] }));
  }));
}
// Replace the last token of a row, and compare the outputs of the tokens before it.
function laterOf(row, outputs, settings, encoding) {
  const places = placesOf(row), last = places.pop();
  const tokens = row.tokens.map((token, index) => (index === last ? "another token" : token));
  const changed = attend({ ...row, tokens }, settings, encoding).outputs;
  return largest(places.map((index) => ({ difference: furthest(outputs[index], changed[index]), index })));
}
// Return the order in which the tokens of the first document come in reverse, without special tokens.
function reversedOrder(row) {
  const document = row.documents.find((one) => one >= 0);
  const places = placesOf(row).filter((index) => !row.special[index] && row.documents[index] === document);
  const order = row.tokens.map((_, index) => index);
  places.forEach((index, number) => { order[index] = places[places.length - 1 - number]; });
  return order;
}
const hasOrder = (row) => reversedOrder(row).some((from, to) => row.tokens[from] !== row.tokens[to]);
// Reverse the tokens of a row, and compare the outputs of the same tokens. If the text is the same in reverse, nothing differs.
function orderOf(row, outputs, settings, encoding) {
  if (!hasOrder(row)) return { difference: 0 };
  const order = reversedOrder(row), tokens = order.map((from) => row.tokens[from]);
  const changed = attend({ ...row, tokens }, settings, encoding).outputs;
  return largest(placesOf(row).map((index) => ({ difference: furthest(outputs[index], changed[order.indexOf(index)]), index })));
}
// Return the three tests of a batch: {alone, later, order}, each the largest difference and where it is; `hasOrder` is
// false if each text is the same in reverse.
function testsOf(rows, settings, encoding) {
  const found = rows.map((row, number) => {
    const { outputs } = attend(row, settings, encoding);
    return [aloneOf, laterOf, orderOf].map((test) => ({ ...test(row, outputs, settings, encoding), row: number }));
  });
  const [alone, later, order] = [0, 1, 2].map((test) => largest(found.map((results) => results[test])));
  return { alone, later, order, hasOrder: rows.some(hasOrder) };
}
