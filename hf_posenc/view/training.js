// The figures of the scenes that train heads: who bites whom, and beyond the length of the training.

const NAMES_OF_KINDS = { none: "without positions", added: "sinusoids added", rotary: "rotary" };
const TEST_EVERY = 12, MOST_BEFORE = 8, MOST_NAMES = 10;
const namesOf = (text) => [...new Set(text.trim().toLowerCase().split(/[\s,]+/))].filter(
  (word) => word && ![...VERBS, ...OPENINGS, ...QUESTIONS].some((other) => [other, other.replace("?", "")].includes(word)));
const cutNames = (all) => (all.length > MOST_NAMES ? ` The first ${MOST_NAMES} of ${all.length} names take part.` : "");
const switchesOf = ({ maskLater, maskPadding, maskTexts, shift }) =>
  ({ lookAhead: maskLater, paddingMask: maskPadding, packingMask: maskTexts, shift: Number(shift) });
// Return the page's course of scene 3, or the "writer" of scene 10: a new one if its settings or names have changed. With
// too few names it has no heads.
function courseFor(page, slot = "course") {
  const { state, runs } = page, all = namesOf(state.names), names = all.slice(0, MOST_NAMES), seed = runs[slot];
  const switches = switchesOf(state), key = JSON.stringify([names, slot === "course" ? state.most : switches, seed]);
  if (page[slot]?.key !== key) {
    const make = () => (slot === "course" ? courseOf(names, Number(state.most), seed) : writerOf(names, switches, seed));
    const course = page[slot] = { key, all, names, switches, milliseconds: 0, ...(names.length >= 4 && make()) };
    course.history = course.heads?.map((head) => [[0, rightShare(head, course.tests)]]);
  }
  return page[slot];
}
// Train the heads of a new course, some steps a frame, and draw after each. A course that has changed ends it.
function train(page, slot, draw) {
  page.runs[slot]++;
  const course = courseFor(page, slot), { heads } = course;
  let losses = [];
  const frame = () => {
    if (page[slot] !== course) return;
    const begin = performance.now(), { length } = course.history[0];
    while (heads[0].steps < LEARN.steps && performance.now() - begin < 25) {
      losses.push(course.step());
      const { steps } = heads[0];
      if (steps % TEST_EVERY) continue;
      heads.forEach((head, index) => course.history[index].push([steps, rightShare(head, course.tests),
        losses.reduce((sum, each) => sum + each[index], 0) / losses.length]));
      losses = [];
    }
    course.milliseconds += performance.now() - begin;
    if (heads[0].steps < LEARN.steps) requestAnimationFrame(frame);
    else if (slot === "writer") notePrice(page, course);
    if (course.history[0].length > length) draw();
  };
  if (heads) requestAnimationFrame(frame);
}
// Return a plot with lines at 0, a half and the whole of `high`.
const heightOf = (share) => 110 - 84 * Math.min(share, 1);
const plot = (width, title, spoken, written, ...content) => svg(width, 130, spoken, label(0, 14, title, { class: "small begin" }),
  ...[0, 0.5, 1].map((share) => tag("line", { class: "axis", x1: 46, x2: width - 10, y1: heightOf(share), y2: heightOf(share) }) +
    label(40, heightOf(share) + 4, written(share), { class: "small end" })), ...content);
// Return a chart of a column of histories, one line for each [kind, name, history].
function chart(width, title, curves, column, high, written) {
  const pointOf = (one) => `${(46 + (width - 56) * one[0] / LEARN.steps).toFixed(1)},${heightOf(one[column] / high).toFixed(1)}`;
  const known = curves.map(([kind, name, history]) => [kind, name, history.filter((one) => one.length > column)]);
  const spoken = known.map(([, name, points]) => `${name} ${points.length ? written(points.at(-1)[column]) : "not trained"}`);
  return plot(width, title, `${title}: ${spoken.join(", ")}`, (share) => written(share * high),
    ...known.map(([kind, , points]) => tag("polyline", { class: kind, points: points.map(pointOf).join(" ") })),
    label(46, 126, "step 0", { class: "small begin" }), label(width - 10, 126, LEARN.steps, { class: "small end" }));
}
const LEGEND = tag("p", { class: "legend" }, ...KINDS.map((kind) =>
  tag("span", {}, tag("i", { class: kind }), NAMES_OF_KINDS[kind])));
const marked = (word, isRight) => tag("b", { class: isRight ? "right" : "wrong" }, `${bdi(word)} ${isRight ? "✓" : "✗"}`);
// Return the figure of one head: where its question looks, its answer, and that to the sentence with both names swapped.
function panel(kind, width, { task, heads }, names, question, before) {
  const head = heads[KINDS.indexOf(kind)], found = [names, [...names].reverse()].map((pair) => {
    const row = task.sentence(pair, VERBS[0], question, before), said = answerOf(head, row), best = bestOf(said.answer);
    const sentence = row.words.map((word) => task.vocabulary[word]), shown = sentence.slice(before).map(bdi);
    const line = `${before ? "… " : ""}${shown.join(" ")} → ${marked(task.vocabulary[best], best === row.labels.at(-1))}`;
    return { sentence, weights: said.weights, line };
  });
  const [{ sentence, weights }] = found, colors = sentence.map((word) => HUES[names.indexOf(word)] ?? "var(--pad)");
  const spoken = sentence.map((word, at) => `${escaped(word)} ${percent(weights[at])}`).join(", ");
  return tag("div", { class: "panel", style: `flex: 0 1 ${width}px` }, tag("h3", {}, NAMES_OF_KINDS[kind]),
    svg(width, 132, `Weights of ${question}: ${spoken}`,
      ribbons({ tokens: sentence, weights, colors, width, from: 42, to: 112, size: 60, query: sentence.length - 1 }),
      label(width / 2, 127, "output", { class: "small" })),
    tag("p", {}, found[0].line), tag("p", {}, "swapped: ", found[1].line));
}
const panels = (kinds, ...given) => tag("div", { class: "panels" }, ...kinds.map((kind) => panel(kind, ...given)));
function drawTrain({ node, picture, says, strips }, page) {
  const { state } = page, course = courseFor(page), { all, names, task, heads, history } = course;
  for (const control of node.querySelectorAll(".swap, .train, select")) control.disabled = !heads;
  picture.innerHTML = strips.innerHTML = "";
  says.textContent = "Type 4 to 10 different names.";
  if (!heads) return;
  const [first, second] = chosenNames(page), { steps } = heads[0], wide = node.querySelector(".figure").clientWidth;
  for (const [name, chosen] of [["first", first], ["second", second]]) {
    const select = node.querySelector(`[name=${name}]`);
    select.innerHTML = names.map((one, index) => tag("option", { value: index, dir: "auto" }, escaped(one))).join("");
    select.value = chosen;
  }
  const width = wide > 620 ? 310 : widthOf(picture), pair = [names[first], names[second]];
  const tested = `tested on ${task.allTests.length} sentences with ${task.held.length} pairs that are kept out of the training`;
  says.textContent = steps < LEARN.steps ? `Step ${steps} of ${LEARN.steps}; ${tested}.${cutNames(all)}` : `Trained in ` +
    `${(course.milliseconds / 1000).toFixed(1)} s; ${tested}. Right: ${KINDS.map((kind, index) =>
      `${percent(history[index].at(-1)[1])} ${NAMES_OF_KINDS[kind]}`).join(", ")}.${cutNames(all)}`;
  const curves = KINDS.map((kind, index) => [kind, NAMES_OF_KINDS[kind], history[index]]);
  picture.innerHTML = tag("div", { class: "panels" }, chart(width, "right answers (50 %: a coin)", curves, 1, 1, percent),
    chart(width, "loss", curves, 2, 3, (loss) => loss.toFixed(1))) + LEGEND;
  const isHeld = task.held.some((held) => pair.every((name) => held.includes(name)));
  strips.innerHTML = panels(["none", "added"], width, course, pair, state.question, 0) +
    tag("p", { class: "note" }, steps ? `This pair was ${isHeld ? "not " : ""}in the training. “${state.question}” asks ` +
      `for the ${state.question === QUESTIONS[0] ? "first" : "second"} name.` : "These heads are not trained yet.");
}
function chosenNames({ state, course }) {
  const last = course.names.length - 1, first = between(state.first, 0, last), second = between(state.second, 0, last);
  return [first, second === first ? (first + 1) % (last + 1) : second];
}
function drawBeyond({ node, picture, says, strips }, page) {
  const { before, question, most } = page.state, course = courseFor(page), { names, heads, task } = course;
  node.querySelector(".train").disabled = !heads;
  picture.innerHTML = strips.innerHTML = "";
  says.textContent = "Scene 3 needs 4 to 10 different names.";
  if (!heads) return;
  const reach = course.reach ??= heads[0].steps < LEARN.steps ? undefined
    : heads.map((head) => Array.from({ length: MOST_BEFORE + 1 }, (_, at) => rightShare(head, task.tests(at))));
  const width = widthOf(picture), gap = (width - 56) / (MOST_BEFORE + 1), thick = gap * 0.24;
  const bars = (reach ?? []).flatMap((shares, index) => shares.map((share, at) => tag("rect", { class: KINDS[index],
    x: (46 + gap * (at + 0.14) + thick * index).toFixed(1), width: (thick - 1).toFixed(1), y: (heightOf(share) - 1).toFixed(1),
    height: (84 * share + 1).toFixed(1) })));
  const spoken = (reach ?? []).map((shares, index) => `${NAMES_OF_KINDS[KINDS[index]]} ${shares.map(percent)}`).join("; ");
  const numbers = Array.from({ length: MOST_BEFORE + 1 }, (_, at) => label(46 + gap * (at + 0.5), 126, at,
    { class: `small ${at === before ? "strong" : ""}` }));
  picture.innerHTML = plot(width, "right answers by words before; gray: trained",
    `Right answers by words before the names: ${spoken}`, percent,
    tag("rect", { class: "trained", x: 46, y: 20, width: gap * (Number(most) + 1), height: 90 }), ...bars, ...numbers) + LEGEND;
  const side = node.querySelector(".figure").clientWidth > 620 && before < 4 ? 310 : width;
  const pair = chosenNames(page).map((at) => names[at]);
  const shareOf = (kind) => `${NAMES_OF_KINDS[kind]}: ${percent(reach[KINDS.indexOf(kind)][before])}`;
  strips.innerHTML = panels(["added", "rotary"], side, course, pair, question, before);
  says.textContent = !reach ? "These heads are not trained yet: press “Train”."
    : `With ${before} words before, ${KINDS.slice(1).map(shareOf).join(", ")} of the answers are right. The training had ` +
      (before > most ? "no sentence as long as this." : "such sentences.") +
      " The answer is always 3 words or 1 word back, so rotary knows its offset.";
}
// Mistakes of scene 10, with what they look like in a real run.
const RIGHT_SWITCHES = { lookAhead: true, paddingMask: true, packingMask: true, shift: 1 };
const PRICES = [
  ["all right", {}, "The loss stops where chance begins: nobody can know which name comes next."],
  ["no look-ahead mask", { lookAhead: false }, "Loss near 0 at once, in training and in validation: too good to be true. " +
    "What it generates is a guess, because there is no next word to copy."],
  ["no padding mask", { paddingMask: false }, "Training looks right. generate() answers well for one prompt, and badly for a " +
    "batch of prompts of other lengths; transformers warns that the attention mask is not set."],
  ["no packing mask", { packingMask: false }, "No error, a loss a little too high. What a text gets depends on its " +
    "neighbors in the row."],
  ["labels not shifted", { shift: 0 }, "Loss 0 after some steps. It repeats its last word forever."],
  ["labels shifted twice", { shift: 2 }, "A loss no worse than the right one. It writes the word after the next one, here often " +
    "only “.”: the labels were shifted before a model that shifts them itself."]];
const keyOf = ({ names }, switches) => JSON.stringify([names, switches]);
// Keep the figures of a writer that was trained, and its head for other scenes.
function notePrice(page, course) {
  const { heads: [head], history: [history], alone, switches } = course, [, right, loss] = history.at(-1);
  page.trained = head;
  page.prices.set(keyOf(course, switches), { loss, right, history, alone: rightShare(head, alone) });
}
function drawWriter({ node, picture, says, strips }, page) {
  const course = courseFor(page, "writer"), { all, heads, history, tests, vocabulary, switches } = course;
  for (const button of node.querySelectorAll("button.train")) button.disabled = !heads;
  picture.innerHTML = strips.innerHTML = "";
  says.textContent = "Scene 3 needs 4 to 10 different names.";
  if (!heads) return;
  const [head] = heads, wide = node.querySelector(".figure").clientWidth, width = wide > 620 ? 310 : widthOf(picture);
  const curves = [["added", "these switches", history[0]]], isTrained = head.steps === LEARN.steps;
  const keyNow = keyOf(course, switches), keyOfRight = keyOf(course, RIGHT_SWITCHES), right = page.prices.get(keyOfRight);
  if (right && keyNow !== keyOfRight) curves.unshift(["limit", "all right", right.history]);
  picture.innerHTML = tag("div", { class: "panels" }, chart(width, "loss in training", curves, 2, 3, (loss) => loss.toFixed(1)),
    chart(width, "right when it writes (50 %: a coin)", curves, 1, 1, percent)) +
    (curves.length > 1 ? tag("p", { class: "note" }, "Dashed: all right.") : "");
  const now = page.prices.get(keyNow);
  says.innerHTML = (isTrained ? `Trained in ${(course.milliseconds / 1000).toFixed(1)} s. ${tag("b", {}, `Loss in training ` +
    `${now.loss.toFixed(2)}; right when it writes on its own ${percent(now.right)}`)} (of ${tests.length} texts in one batch, ` +
    `each after a neighbor; each alone: ${percent(now.alone)}).` : `Step ${head.steps} of ${LEARN.steps}.`) + cutNames(all);
  const shown = [0, 1, 2].map((number) => tests[Math.round(number * (tests.length - 1) / 2)]).map((row) => {
    const said = writtenBy(head, row, 3), first = row.documents.indexOf(1), word = (at) => bdi(vocabulary[row.words[at]]);
    const places = [...row.words.keys()], right = row.labels.at(-1);
    const before = places.slice(0, first).map((at) => (row.real[at] ? word(at) : "·")).join(" ");
    const [next, ...more] = said.map((one) => vocabulary[one]);
    return [`${tag("span", { class: "rest" }, before)} ${places.slice(first).map(word).join(" ")}`,
      `${marked(next, said[0] === right)} ${more.map(bdi).join(" ")}`, bdi(vocabulary[right])];
  });
  const lines = PRICES.map(([name, change, seen]) => {
    const one = keyOf(course, { ...RIGHT_SWITCHES, ...change }), found = page.prices.get(one);
    const cells = found ? [found.loss.toFixed(2), percent(found.right), percent(found.alone)] : ["–", "–", "–"];
    return [one === keyNow ? tag("b", {}, name) : name, ...cells, seen];
  });
  const inBatch = ["batch: padding (·), a neighbor (gray), the text", "it writes", "right"];
  const costs = ["mistake (– : not trained yet)", "loss", "right in the batch", "right, each text alone", "in a real run"];
  strips.innerHTML = plainTable(inBatch, shown, "Texts that the head continues") +
    plainTable(costs, lines, "What each mistake costs");
}
