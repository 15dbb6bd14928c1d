// A head that learns where to look, in sentences such as "now dog bites man who?". Only Wq and Wk are trained, by Adam.
// The vectors of words are random and stay; the value of a token is its input; the answer is the word whose vector is
// most like the output of the last token.

const KINDS = ["none", "added", "rotary"]; // positions of a head
const MOST_PLACES = 16, LEARN = { width: 48, steps: 240, batch: 32, rate: 0.01, slow: 0.9, slower: 0.99 };
const VERBS = ["bites", "sees", "calls"], OPENINGS = ["today", "here", "now", "then"], QUESTIONS = ["who?", "whom?"];
// Turn each pair of numbers of a vector by the angles of a place, or back.
function rotated(vector, waves, back) {
  const turned = new Float64Array(vector.length);
  for (let j = 0; j < vector.length; j += 2) {
    const sine = back ? -waves[j] : waves[j], cosine = waves[j + 1];
    turned[j] = cosine * vector[j] - sine * vector[j + 1];
    turned[j + 1] = cosine * vector[j + 1] + sine * vector[j];
  }
  return turned;
}
// Return an untrained head. Its inputs are sums of `rows`: the vectors of words, and of places if these are added. Wq and
// Wk are multiplied with each row once a step: with each token of each sentence it would take twice as long.
function headOf(vectors, kind, normal) {
  const d = vectors[0].length, encoding = paperEncoding(d, 10000);
  const waves = Array.from({ length: MOST_PLACES }, (_, place) => encodingOf(place, encoding));
  const rows = kind === "added" ? [...vectors, ...waves] : vectors, vector = () => new Float64Array(d);
  const matrix = (of = vector) => Array.from({ length: d }, of), scaled = () => vector().map(() => normal() / Math.sqrt(d));
  const [query, key] = [0, 1].map(() => ({
    values: matrix(scaled), slopes: matrix(), mean: matrix(), square: matrix(), dProducts: rows.map(vector) }));
  const head = { d, kind, vectors, waves, rows, query, key, steps: 0 };
  multiply(head);
  return head;
}
function multiply({ rows, query, key }) {
  for (const one of [query, key]) one.products = rows.map((row) => Float64Array.from(one.values, (line) => dot(line, row)));
}
// Compute the answer of a head to a sentence of word numbers: {weights, output, answer}, and what `slopesOf` needs.
function answerOf(head, words) {
  const { d, kind, vectors, waves, rows, query, key } = head, root = Math.sqrt(d), last = words.length - 1;
  const parts = words.map((word, place) => (kind === "added" ? [word, vectors.length + place] : [word]));
  const sum = (all, numbers) => (numbers.length > 1 ? added(all[numbers[0]], all[numbers[1]]) : all[numbers[0]]);
  const turn = (vector, place) => (kind === "rotary" ? rotated(vector, waves[place]) : vector);
  const asked = turn(sum(query.products, parts[last]), last), inputs = parts.map((part) => sum(rows, part));
  const keys = parts.map((part, place) => turn(sum(key.products, part), place));
  const weights = softmax(keys.map((one) => dot(asked, one) / root)), output = new Float64Array(d);
  inputs.forEach((input, place) => addTo(output, input, weights[place]));
  return { parts, inputs, asked, keys, weights, output, answer: softmax(vectors.map((one) => dot(one, output) / root)) };
}
// Add the slopes of one sentence's loss, −log of the share of the right answer, to those of the rows' products.
function slopesOf({ d, kind, vectors, waves, query, key }, { parts, inputs, asked, keys, weights, answer }, right) {
  const root = Math.sqrt(d), last = parts.length - 1, dOutput = new Float64Array(d), dAsked = new Float64Array(d);
  const turnBack = (vector, place) => (kind === "rotary" ? rotated(vector, waves[place], true) : vector);
  answer.forEach((share, word) => addTo(dOutput, vectors[word], (share - (word === right ? 1 : 0)) / root));
  const dWeights = inputs.map((input) => dot(dOutput, input)), mean = dot(weights, dWeights);
  parts.forEach((part, place) => {
    const slope = weights[place] * (dWeights[place] - mean) / root, dKey = turnBack(asked, place);
    addTo(dAsked, keys[place], slope);
    for (const row of part) addTo(key.dProducts[row], dKey, slope);
  });
  const dQuery = turnBack(dAsked, last);
  for (const row of parts[last]) addTo(query.dProducts[row], dQuery, 1);
}
// Compute the mean loss of examples {words, right} and its slopes for Wq and Wk.
function lossOf(head, examples) {
  const { rows, query, key } = head;
  let loss = 0;
  for (const { words, right } of examples) {
    const found = answerOf(head, words);
    loss -= Math.log(found.answer[right]) / examples.length;
    slopesOf(head, found, right);
  }
  for (const { slopes, dProducts } of [query, key]) {
    for (const line of slopes) line.fill(0);
    dProducts.forEach((slope, number) => {
      slopes.forEach((line, i) => { if (slope[i]) addTo(line, rows[number], slope[i] / examples.length); });
      slope.fill(0);
    });
  }
  return loss;
}
// Take one step of Adam, and return the loss before it.
function learn(head, examples, rate) {
  const loss = lossOf(head, examples), { slow, slower } = LEARN;
  head.steps++;
  const [first, second] = [slow, slower].map((keep) => 1 - keep ** head.steps);
  for (const { values, slopes, mean, square } of [head.query, head.key]) {
    values.forEach((line, i) => slopes[i].forEach((slope, j) => {
      mean[i][j] += (1 - slow) * (slope - mean[i][j]);
      square[i][j] += (1 - slower) * (slope * slope - square[i][j]);
      line[j] -= rate * (mean[i][j] / first) / (Math.sqrt(square[i][j] / second) + 1e-8);
    }));
  }
  multiply(head);
  return loss;
}
const bestOf = (shares) => shares.indexOf(Math.max(...shares));
const rightShare = (head, examples) =>
  examples.filter(({ words, right }) => bestOf(answerOf(head, words).answer) === right).length / examples.length;
// Return the sentences about some names, with up to `most` words before the first name. A quarter of the pairs of names
// is held out in both orders: a head that had seen "man bites dog" could answer "dog bites man" by exclusion.
function taskOf(names, most, uniform) {
  const vocabulary = [...names, ...VERBS, ...QUESTIONS, ...OPENINGS], below = (count) => Math.floor(count * uniform());
  const idOf = (word) => vocabulary.indexOf(word);
  const pairs = names.flatMap((first, index) => names.slice(index + 1).map((second) => [first, second]));
  pairs.forEach((_, last) => {
    const other = last + below(pairs.length - last);
    [pairs[last], pairs[other]] = [pairs[other], pairs[last]];
  });
  const held = pairs.splice(0, Math.max(1, Math.round(pairs.length / 4)));
  const sentence = ([first, second], verb, question, before) => ({
    words: [...OPENINGS, ...OPENINGS].slice(0, before).concat(first, verb, second, question).map(idOf),
    right: idOf(question === QUESTIONS[0] ? first : second),
  });
  const bothOrders = (pair) => [pair, [...pair].reverse()];
  const tests = (before) => held.flatMap(bothOrders).flatMap((pair) =>
    VERBS.flatMap((verb) => QUESTIONS.map((question) => sentence(pair, verb, question, before))));
  const one = (list) => list[below(list.length)];
  const drawn = () => sentence(one(bothOrders(one(pairs))), one(VERBS), one(QUESTIONS), below(most + 1));
  return {
    vocabulary, idOf, pairs, held, sentence, tests, batch: (count) => Array.from({ length: count }, drawn),
    allTests: Array.from({ length: most + 1 }, (_, before) => tests(before)).flat(),
  };
}
// Return {task, heads, step}: a task, and an untrained head of each kind. `step` trains all of them on one batch.
function courseOf(names, most, seed) {
  const uniform = uniformOf(`training ${seed}`), normal = normalOf(uniform), task = taskOf(names, most, uniform);
  const vectors = task.vocabulary.map(() => ofVarianceOne(Float64Array.from({ length: LEARN.width }, normal)));
  const heads = KINDS.map((kind) => headOf(vectors, kind, normal));
  const rateNow = () => LEARN.rate * (1 - 0.9 * heads[0].steps / LEARN.steps);
  const step = (examples = task.batch(LEARN.batch), rate = rateNow()) => heads.map((head) => learn(head, examples, rate));
  return { task, heads, step };
}
