// The figures of the scenes that train heads: who bites whom, and beyond the length of the training.

const NAMES_OF_KINDS = { none: "without positions", added: "sinusoids added", rotary: "rotary" };
const TEST_EVERY = 12, MOST_BEFORE = 8;
const namesOf = (text) => [...new Set(text.trim().toLowerCase().split(/[\s,]+/))].filter(
  (word) => word && ![...VERBS, ...OPENINGS, ...QUESTIONS].includes(word)).slice(0, 10);
// Return the page's course, a new one if its names or the words before them have changed; undefined with too few names.
function courseFor(page) {
  const { names, most } = page.state, list = namesOf(names), key = `${list} ${most} ${page.runs ?? 0}`;
  if (page.course?.key !== key) {
    const make = () => ({ names: list, milliseconds: 0, ...courseOf(list, Number(most), page.runs ?? 0) });
    page.course = { key, ...(list.length >= 4 && make()) };
    const { heads, task } = page.course;
    page.course.history = heads?.map((head) => [[0, rightShare(head, task.allTests)]]);
  }
  return page.course;
}
// Train the heads, some steps a frame, and draw the figures after each. A course that has changed ends it.
function trainHeads(page, draw) {
  page.runs = (page.runs ?? -1) + 1;
  const course = courseFor(page);
  let losses = [];
  const frame = () => {
    if (page.course !== course) return;
    const begin = performance.now();
    while (course.heads[0].steps < LEARN.steps && performance.now() - begin < 12) {
      losses.push(course.step());
      const { steps } = course.heads[0];
      if (steps % TEST_EVERY) continue;
      course.heads.forEach((head, index) => course.history[index].push([steps, rightShare(head, course.task.allTests),
        losses.reduce((sum, each) => sum + each[index], 0) / losses.length]));
      losses = [];
    }
    course.milliseconds += performance.now() - begin;
    if (course.heads[0].steps === LEARN.steps) {
      course.reach = course.heads.map((head) => Array.from({ length: MOST_BEFORE + 1 }, (_, before) =>
        rightShare(head, course.task.tests(before))));
    } else requestAnimationFrame(frame);
    draw();
  };
  if (course.heads) requestAnimationFrame(frame);
}
// Return a plot with lines at 0, a half and the whole of `high`.
const heightOf = (share) => 110 - 84 * Math.min(share, 1);
const plot = (width, title, spoken, written, ...content) => svg(width, 130, spoken, label(0, 14, title, { class: "small begin" }),
  ...[0, 0.5, 1].map((share) => tag("line", { class: "axis", x1: 46, x2: width - 10, y1: heightOf(share), y2: heightOf(share) }) +
    label(40, heightOf(share) + 4, written(share), { class: "small end" })), ...content);
function chart(width, title, history, column, high, written) {
  const pointOf = (one) => `${(46 + (width - 56) * one[0] / LEARN.steps).toFixed(1)},${heightOf(one[column] / high).toFixed(1)}`;
  const lines = KINDS.map((kind, index) => tag("polyline", { class: kind,
    points: history[index].filter((one) => one.length > column).map(pointOf).join(" ") }));
  return plot(width, title, title, (share) => written(share * high), ...lines, label(46, 126, "step 0", { class: "small begin" }),
    label(width - 10, 126, LEARN.steps, { class: "small end" }));
}
const LEGEND = tag("p", { class: "legend" }, ...KINDS.map((kind) =>
  tag("span", {}, tag("i", { class: kind }), NAMES_OF_KINDS[kind])));
// Return the figure of one head: where its question looks, its answer, and that to the sentence with both names swapped.
function panel(kind, width, { task, heads }, names, question, before) {
  const head = heads[KINDS.indexOf(kind)], found = [names, [...names].reverse()].map((pair) => {
    const { words, right } = task.sentence(pair, VERBS[0], question, before), said = answerOf(head, words);
    const best = bestOf(said.answer), isRight = best === right, sentence = words.map((word) => task.vocabulary[word]);
    const mark = tag("b", { class: isRight ? "right" : "wrong" }, `${escaped(task.vocabulary[best])} ${isRight ? "✓" : "✗"}`);
    const shown = [...(before ? ["…"] : []), ...sentence.slice(before)].join(" ");
    return { sentence, weights: said.weights, line: `${escaped(shown)} → ${mark}` };
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
  const { state } = page, course = courseFor(page), { names, task, heads, history } = course;
  for (const control of node.querySelectorAll(".swap, .train, select")) control.disabled = !heads;
  picture.innerHTML = strips.innerHTML = "";
  says.textContent = "Type 4 to 10 different names.";
  if (!heads) return;
  const [first, second] = chosenNames(page), { steps } = heads[0], wide = node.querySelector(".figure").clientWidth;
  for (const [name, chosen] of [["first", first], ["second", second]]) {
    const select = node.querySelector(`[name=${name}]`);
    select.innerHTML = names.map((one, index) => tag("option", { value: index }, escaped(one))).join("");
    select.value = chosen;
  }
  const width = wide > 620 ? 310 : widthOf(picture), pair = [names[first], names[second]];
  const tested = `tested on ${task.allTests.length} sentences with ${task.held.length} pairs that are kept out of the training`;
  says.textContent = steps < LEARN.steps ? `Step ${steps} of ${LEARN.steps}; ${tested}.` : `Trained in ` +
    `${(course.milliseconds / 1000).toFixed(1)} s; ${tested}. Right: ${KINDS.map((kind, index) =>
      `${percent(history[index].at(-1)[1])} ${NAMES_OF_KINDS[kind]}`).join(", ")}.`;
  picture.innerHTML = tag("div", { class: "panels" }, chart(width, "right answers (50 %: a coin)", history, 1, 1, percent),
    chart(width, "loss", history, 2, 3, (loss) => loss.toFixed(1))) + LEGEND;
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
  const { before, question, most } = page.state, course = courseFor(page), { names, heads, reach } = course;
  node.querySelector(".train").disabled = !heads;
  picture.innerHTML = strips.innerHTML = "";
  says.textContent = "Scene 3 needs 4 to 10 different names.";
  if (!heads) return;
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
      (before > most ? "no sentence as long as this." : "such sentences.");
}
