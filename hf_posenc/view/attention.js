// One batch and one attention head: padding, position ids, masks with their reasons, scores, weights and outputs.

// Reasons why a query may not attend to a key, with the numbers of hf_posenc/masks/reasons.py.
const ALLOWED = 0, PADDING = 1, LATER = 2, OTHER_DOCUMENT = 3, PADDING_QUERY = 5;

// Pad lists of tokens to one length, and number their positions.
function batchOf(lists, { side, positions }, padding) {
  const length = Math.max(1, ...lists.map((list) => list.length));
  return lists.map((list) => {
    const fill = Array(length - list.length).fill({ ...padding, begin: 0, end: 0 });
    const all = side === "left" ? [...fill, ...list] : [...list, ...fill], first = side === "left" ? fill.length : 0;
    const real = all.map((_, index) => index >= first && index < first + list.length);
    return {
      tokens: all.map(({ token }) => token), ids: all.map(({ id }) => id), real,
      spans: all.map(({ begin, end }) => [begin, end]), special: all.map((one) => Boolean(one.special)),
      positions: all.map((_, index) => {
        if (positions === "padding") return index;
        return real[index] && positions === "text" ? index - first : null;
      }),
      documents: real.map((isReal) => (isReal ? 0 : -1)),
    };
  });
}

// Return the reason of each query and key, T x T. If several hold, the last of these: later, document, padding, query.
function reasonsOf({ real, documents }, { lookAhead, paddingMask }) {
  return real.map((isReal, query) => real.map((isRealKey, key) => {
    if (paddingMask && !isReal) return PADDING_QUERY;
    if (paddingMask && !isRealKey) return PADDING;
    if (isReal && isRealKey && documents[query] !== documents[key]) return OTHER_DOCUMENT;
    return lookAhead && key > query ? LATER : ALLOWED;
  }));
}

// ------------------------------------------------------------------------------------------------- made-up numbers

// Return `count` normal random numbers, always the same ones for the same name.
function normals(name, count) {
  let seed = 2166136261;
  for (const letter of name) seed = Math.imul(seed ^ letter.codePointAt(0), 16777619);
  const uniform = () => { // mulberry32
    seed = (seed + 0x6d2b79f5) | 0;
    let mixed = Math.imul(seed ^ (seed >>> 15), seed | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return (((mixed ^ (mixed >>> 14)) >>> 0) + 0.5) / 2 ** 32;
  };
  const normal = () => Math.sqrt(-2 * Math.log(uniform())) * Math.cos(2 * Math.PI * uniform());
  return Float64Array.from({ length: count }, normal);
}
const remembered = new Map();
function once(name, make) {
  if (!remembered.has(name)) remembered.set(name, make());
  return remembered.get(name);
}
const embeddingOf = (token, d) => once(`${d} ${token}`, () => normals(token, d).map((value) => value / 2));
const matrixOf = (name, d) => once(`${d} matrix ${name}`, () =>
  Array.from({ length: d }, (_, row) => normals(`${name} ${row}`, d).map((value) => value / Math.sqrt(d))));

// --------------------------------------------------------------------------------------------------------- one head

const dot = (a, b) => a.reduce((sum, value, index) => sum + value * b[index], 0);
const added = (a, b) => a.map((value, index) => value + b[index]);

// Return a vector scaled to a mean square of 1, as LayerNorm scales it, so that products have the variance d.
const ofVarianceOne = (vector) => vector.map((value) => value / Math.sqrt(dot(vector, vector) / vector.length || 1));

// Return the softmax of scores; of no finite score, NaN.
function softmax(scores) {
  const most = Math.max(...scores), powers = scores.map((score) => Math.exp(score - most));
  const sum = powers.reduce((a, b) => a + b, 0);
  return powers.map((power) => power / sum);
}

// Compute one head for a row. Each result but `outputs` is T x T; see `headFormula` for queries and keys.
function attend(row, settings, encoding) {
  const { width } = encoding, nothing = new Float64Array(width);
  const sinusoids = row.positions.map((position) =>
    (settings.positions === "none" ? nothing : encodingOf(position ?? 0, encoding)));
  const inputs = sinusoids.map((vector, index) => added(embeddingOf(row.tokens[index], width), vector));
  const read = { positions: sinusoids, both: inputs, random: inputs.map(ofVarianceOne) }[settings.head];
  const times = (name) => read.map((vector) => Float64Array.from(matrixOf(name, width), (line) => dot(line, vector)));
  const [turned, keys] = settings.head === "random"
    ? [times("query"), times("key")]
    : [read.map((vector) => turnedBack(vector, settings.back, encoding)), read];
  const queries = turned.map((vector) => vector.map((value) => settings.gain * value));
  const products = queries.map((query) => keys.map((key) => dot(query, key)));
  const scores = products.map((line) => line.map((value) => (settings.divide ? value / Math.sqrt(width) : value)));
  const reasons = row.reasons ?? reasonsOf(row, settings);
  const masked = scores.map((line, query) => line.map((score, key) => {
    if (settings.addOnes) return score + (reasons[query][key] === ALLOWED ? 1 : 0);
    return reasons[query][key] === ALLOWED ? score : -Infinity;
  }));
  const weights = masked.map(softmax);
  const outputs = weights.map((line) => line.reduce(
    (sum, weight, key) => (weight ? sum.map((value, index) => value + weight * inputs[key][index]) : sum), nothing));
  return { products, scores, reasons, masked, weights, outputs };
}

// Settings that no correct model has, with the words of the page.
const MISTAKES = [
  ["divide", false, "no ÷ √d"], ["addOnes", true, "0 and 1 added in place of −∞ and 0"],
  ["paddingMask", false, "no padding mask"], ["positions", "padding", "positions that count the padding"],
];
const RIGHT = { divide: true, addOnes: false, paddingMask: true };

// Compare the outputs of a row's tokens with those of its text alone, computed correctly. Return the largest difference
// and the index of its token, and the position of this token in its text alone.
function costOf(row, settings, encoding) {
  const places = row.real.flatMap((isReal, index) => (isReal ? [index] : []));
  const list = places.map((index) => ({ token: row.tokens[index], id: row.ids[index], begin: 0, end: 0 }));
  const right = { ...settings, ...RIGHT, positions: settings.positions === "none" ? "none" : "text" };
  const single = batchOf([list], right, null)[0], alone = attend(single, right, encoding).outputs;
  const here = attend(row, settings, encoding).outputs;
  const differences = places.map((place, index) =>
    Math.max(...Array.from(here[place], (value, dimension) => Math.abs(value - alone[index][dimension]))));
  const difference = Math.max(0, ...differences), worst = Math.max(differences.indexOf(difference), 0);
  return { difference, index: places[worst], position: single.positions[worst] };
}
