// A head that learns where to look, in sentences such as "now dog bites man who?". Wq and Wk are trained by Adam; the
// vectors of words are random and stay. The value of a token is its input, the answer the word whose vector is most like
// the output. A head that writes also learns a table: how likely each word follows each other word.

const KINDS = ["none", "added", "rotary"]; // positions of a head
const MOST_PLACES = 20, LEARN = { width: 48, steps: 240, batch: 32, rate: 0.01, slow: 0.9, slower: 0.99 };
const WRITE = { width: 32, batch: 8, most: 3, rate: 1.5, followers: 15, tests: 5 }; // rates are times that of LEARN
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
function headOf(vectors, kind, normal, writes) {
  const d = vectors[0].length, encoding = paperEncoding(d, 10000);
  const waves = Array.from({ length: MOST_PLACES }, (_, place) => encodingOf(place, encoding));
  const rows = kind === "added" ? [...vectors, ...waves] : vectors;
  const zeros = (lines, width) => Array.from({ length: lines }, () => new Float64Array(width));
  const trained = (values, rate) => ({ values, rate, ...Object.fromEntries(
    ["slopes", "mean", "square"].map((name) => [name, zeros(values.length, values[0].length)])) });
  const [query, key] = [0, 1].map(() => ({ dProducts: zeros(rows.length, d),
    ...trained(zeros(d, d).map((line) => line.map(() => normal() / Math.sqrt(d))), writes ? WRITE.rate : 1) }));
  const followers = writes && trained(zeros(vectors.length, vectors.length), WRITE.followers);
  const head = { d, kind, vectors, waves, rows, query, key, followers, steps: 0 };
  multiply(head);
  return head;
}
function multiply({ rows, query, key }) {
  for (const one of [query, key]) one.products = rows.map((row) => Float64Array.from(one.values, (line) => dot(line, row)));
}
// Return what a head makes of a row before attention. The row has `words`, the numbers of its words; `positions`, by
// default from 0; and `keys`, the places that each query may read, by default all.
function readRow({ kind, vectors, waves, rows, key }, { words, positions, keys: allowed }) {
  const placeOf = (at) => vectors.length + (positions ? positions[at] ?? 0 : at); // 0 for padding
  const parts = words.map((word, at) => (kind === "added" ? [word, placeOf(at)] : [word]));
  const sum = (all, numbers) => (numbers.length > 1 ? added(all[numbers[0]], all[numbers[1]]) : all[numbers[0]]);
  const turn = (vector, place) => (kind === "rotary" ? rotated(vector, waves[place]) : vector);
  const keys = parts.map((part, place) => turn(sum(key.products, part), place)), all = [...words.keys()];
  const inputs = parts.map((part) => sum(rows, part)), mayRead = (at) => allowed?.[at] ?? all;
  return { words, parts, sum, turn, keys, inputs, mayRead };
}
// Compute the answer of a head at one place of a row, by default the last: {weights, output, answer}, and what `slopesOf` needs.
function answerOf(head, row, at = row.words.length - 1, read = readRow(head, row)) {
  const { d, vectors, query, followers } = head, root = Math.sqrt(d), places = read.mayRead(at);
  const asked = read.turn(read.sum(query.products, read.parts[at]), at), output = new Float64Array(d);
  const weights = softmax(places.map((place) => dot(asked, read.keys[place]) / root));
  places.forEach((place, number) => addTo(output, read.inputs[place], weights[number]));
  const likely = followers?.values[read.words[at]];
  return { ...read, at, places, asked, weights, output,
    answer: softmax(vectors.map((one, word) => dot(one, output) / root + (likely ? likely[word] : 0))) };
}
// Add the slopes of the loss at one place, −log of the share of the right answer, to those of the rows' products.
function slopesOf({ d, kind, vectors, waves, query, key, followers }, found, right) {
  const { words, parts, at, places, inputs, asked, keys, weights, answer } = found;
  const root = Math.sqrt(d), dOutput = new Float64Array(d), dAsked = new Float64Array(d);
  const turnBack = (vector, place) => (kind === "rotary" ? rotated(vector, waves[place], true) : vector);
  const dAnswer = answer.map((share, word) => share - (word === right ? 1 : 0));
  dAnswer.forEach((slope, word) => addTo(dOutput, vectors[word], slope / root));
  if (followers) addTo(followers.slopes[words[at]], dAnswer, 1);
  const dWeights = places.map((place) => dot(dOutput, inputs[place])), mean = dot(weights, dWeights);
  places.forEach((place, number) => {
    const slope = weights[number] * (dWeights[number] - mean) / root, dKey = turnBack(asked, place);
    addTo(dAsked, keys[place], slope);
    for (const row of parts[place]) addTo(key.dProducts[row], dKey, slope);
  });
  const dQuery = turnBack(dAsked, at);
  for (const row of parts[at]) addTo(query.dProducts[row], dQuery, 1);
}
const matricesOf = ({ query, key, followers }) => (followers ? [query, key, followers] : [query, key]);
// Compute the mean loss of rows and its slopes. A row has `labels`: the number of the right word at each place, or −1.
function lossOf(head, rows) {
  const count = rows.reduce((sum, { labels }) => sum + labels.filter((right) => right >= 0).length, 0);
  let loss = 0;
  for (const { slopes } of matricesOf(head)) for (const line of slopes) line.fill(0);
  for (const row of rows) {
    const read = readRow(head, row);
    row.labels.forEach((right, at) => {
      if (right < 0) return;
      const found = answerOf(head, row, at, read);
      loss -= Math.log(found.answer[right]) / count;
      slopesOf(head, found, right);
    });
  }
  for (const { slopes, dProducts } of [head.query, head.key]) {
    dProducts.forEach((slope, number) => {
      slopes.forEach((line, i) => { if (slope[i]) addTo(line, head.rows[number], slope[i] / count); });
      slope.fill(0);
    });
  }
  for (const line of head.followers?.slopes ?? []) line.forEach((slope, word) => { line[word] = slope / count; });
  return loss;
}
// Take one step of Adam, and return the loss before it.
function learn(head, rows, rate) {
  const loss = lossOf(head, rows), { slow, slower } = LEARN;
  head.steps++;
  const [first, second] = [slow, slower].map((keep) => 1 - keep ** head.steps);
  for (const { values, slopes, mean, square, rate: times } of matricesOf(head)) {
    values.forEach((line, i) => slopes[i].forEach((slope, j) => {
      mean[i][j] += (1 - slow) * (slope - mean[i][j]);
      square[i][j] += (1 - slower) * (slope * slope - square[i][j]);
      line[j] -= rate * times * (mean[i][j] / first) / (Math.sqrt(square[i][j] / second) + 1e-8);
    }));
  }
  multiply(head);
  return loss;
}
const rateOf = ({ steps }) => LEARN.rate * (1 - 0.9 * steps / LEARN.steps);
const bestOf = (shares) => shares.indexOf(Math.max(...shares));
// Return the share of rows after which the most likely word is the right one.
const rightShare = (head, rows) =>
  rows.filter((row) => bestOf(answerOf(head, row).answer) === row.labels.at(-1)).length / rows.length;
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
  const sentence = ([first, second], verb, question, before) => {
    const words = [...OPENINGS, ...OPENINGS].slice(0, before).concat(first, verb, second, question).map(idOf);
    return { words, labels: [...words.slice(1).fill(-1), idOf(question === QUESTIONS[0] ? first : second)] };
  };
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
// Return {task, heads, step, tests}: a task, and an untrained head of each kind. `step` trains all of them on one batch.
function courseOf(names, most, seed) {
  const uniform = uniformOf(`training ${seed}`), normal = normalOf(uniform), task = taskOf(names, most, uniform);
  const vectors = task.vocabulary.map(() => ofVarianceOne(Float64Array.from({ length: LEARN.width }, normal)));
  const heads = KINDS.map((kind) => headOf(vectors, kind, normal));
  const step = (rows = task.batch(LEARN.batch), rate = rateOf(heads[0])) => heads.map((head) => learn(head, rows, rate));
  return { task, heads, step, tests: task.allTests };
}
// Return {vocabulary, heads, tests, alone, batch, step}: a head that learns to predict the next word, with these masks and
// this shift of the labels, right with 1. A row has two sentences. `tests` are sentences to continue after a neighbor,
// padded to one batch; `alone` the same without both.
function writerOf(names, { lookAhead, paddingMask, packingMask, shift }, seed) {
  const uniform = uniformOf(`writing ${seed}`), normal = normalOf(uniform), task = taskOf(names, WRITE.most, uniform);
  const vocabulary = [...task.vocabulary.map((word) => word.replace("?", "")), ".", "[PAD]"];
  const ids = (words) => words.map((word) => ({ id: word, token: vocabulary[word] }));
  const [end, padding] = ids([vocabulary.length - 2, vocabulary.length - 1]);
  const whole = ({ words, labels }) => [...ids([...words, labels.at(-1)]), end];
  const settings = { lookAhead, paddingMask, together: !packingMask };
  function rowsOf(texts, side, labelsOf) {
    const lists = texts.map((row) => row.flatMap((list, document) => list.map((one) => ({ ...one, document }))));
    const positions = side === "left" && !paddingMask ? "padding" : "text"; // as transformers numbers them without a mask
    return batchOf(lists, { side, positions }, padding).map((row, number) => {
      const keys = reasonsOf(row, settings).map((line) => line.flatMap((reason, key) => (isAttended(reason) ? [key] : [])));
      return { ...row, words: row.ids, labels: labelsOf(row, number), keys };
    });
  }
  const shifted = ({ ids, documents }) => ids.map((_, at) =>
    (documents[at] >= 0 && documents[at + shift] === documents[at] ? ids[at + shift] : -1));
  const asked = task.allTests.filter((_, number) => number % WRITE.tests === 0), neighbors = task.batch(asked.length);
  const prompts = asked.map(({ words }, number) => [whole(neighbors[number]), ids(words)]);
  const tests = rowsOf(prompts, "left", (_, number) => asked[number].labels);
  const alone = asked.flatMap(({ words, labels }) => rowsOf([[ids(words)]], "left", () => labels));
  const head = headOf(vocabulary.map((word) => embeddingOf(word, WRITE.width)), "added", normal, true);
  const batch = () => rowsOf(Array.from({ length: WRITE.batch }, () => task.batch(2).map(whole)), "right", shifted);
  return { vocabulary, heads: [head], tests, alone, batch, step: () => [learn(head, batch(), rateOf(head))] };
}
// Return the words that a head writes after a row, each the most likely one.
function writtenBy(head, { words, positions, keys }, count) {
  const row = { words: [...words], positions: [...positions], keys: [...keys] };
  for (let number = 0; number < count; number++) {
    row.words.push(bestOf(answerOf(head, row).answer));
    row.positions.push(row.positions.at(-1) + 1);
    row.keys.push([...row.keys.at(-1), row.words.length - 1]);
  }
  return row.words.slice(words.length);
}
