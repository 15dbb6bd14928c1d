// The figures of the scenes about the clock, with two hands and their chord on each dial, and about the base.

const PLACES = 64, LINES_OF_MAP = 104, WIDTH_OF_RULER = 64, // p at most 63, and n at most 40
   BASES = [10, 100, 1000, 10000, 1000000];
const HARDLY = 36; // turns longer than 36 texts: the hand moves by less than 10 degrees
const chordOf = (angle) => 2 * Math.abs(Math.sin(angle / 2)), rounded = (number) => Number(number.toPrecision(2));
// Return a dial with the hands of p and p + n, and their chord.
function chordDial(radius, angles, name) {
  const [[x1, y1], [x2, y2]] = angles.map((angle) => [radius * Math.cos(angle), -radius * Math.sin(angle)]);
  const far = (radius + 12) / radius;
  const end = (x, y, words, kind = "") => label(far * x, far * y + 4, words, { class: `small ${kind}` });
  const chord = tag("line", { class: "chord", x1: x1.toFixed(1), y1: y1.toFixed(1), x2: x2.toFixed(1), y2: y2.toFixed(1) });
  const hands = [[angles[0], "first"], [angles[1], "second"]], length = chordOf(angles[1] - angles[0]).toFixed(2);
  const isNear = Math.hypot(x2 - x1, y2 - y1) < 24; // the labels would overlap
  const names = isNear ? end(x1, y1, "p, p + n", x1 < 0 ? "end" : "begin") : end(x1, y1, "p") + end(x2, y2, "p + n");
  const more = chord + (name ? names : "");
  return dial(`${name || "dial"}: chord ${length}`, hands, radius, radius + (name ? 22 : 3), more);
}
function mapOf({ place, offset, pair, d }, encoding) {
  const canvas = make("canvas", { width: d, height: LINES_OF_MAP, role: "img",
    "aria-label": `Sinusoidal encoding: positions 0 to ${LINES_OF_MAP - 1} from top to bottom, ${d} numbers` });
  const context = canvas.getContext("2d"), image = context.createImageData(d, LINES_OF_MAP);
  for (let position = 0; position < LINES_OF_MAP; position++) {
    encodingOf(position, encoding).forEach((value, dimension) => {
      const color = value < 0 ? [230, 159, 0] : [0, 114, 178]; // --later and --yes
      image.data.set([...color, 255 * Math.abs(value)], 4 * (position * d + dimension));
    });
  }
  context.putImageData(image, 0, 0);
  const line = (at, kind) => make("div", { class: `line ${kind}`, style: `--at: ${at}` });
  return make("div", { class: "map" }, canvas, line(place, "first"), line(place + offset, "second"),
    make("div", { class: "column", style: `left: ${(200 * pair) / d}%; width: ${200 / d}%` }));
}
function drawClock({ picture, says, strips }, { state, encoding, update }) {
  const { place, offset, pair, d } = state, { frequencies } = encoding, omega = frequencies[pair];
  const anglesOf = (frequency) => [place, place + offset].map((position) => position * frequency);
  const large = make("div", { class: "large" });
  large.innerHTML = chordDial(80, anglesOf(omega), `pair ${pair}`);
  const dials = make("div", { class: "dials" });
  dials.innerHTML = frequencies.slice(0, MOST_DIALS).map((frequency, index) => tag("figure",
    { class: index === pair ? "chosen" : "", "data-set": "pair", "data-value": index }, chordDial(28, anglesOf(frequency)),
    tag("figcaption", {}, `pair ${index}<br>${chordOf(offset * frequency).toFixed(2)}`))).join("");
  const more = frequencies.length - MOST_DIALS;
  if (more > 0) dials.append(make("p", { class: "note" }, `and ${more} slower pairs, without a dial`));
  picture.replaceChildren(make("div", { class: "beside" }, mapOf(state, encoding), large), dials);
  makeDraggable(large, omega, place, update);
  const squares = frequencies.map((frequency) => chordOf(offset * frequency) ** 2), sum = squares.reduce((a, b) => a + b);
  const width = widthOf(strips), gap = width / squares.length;
  strips.innerHTML = svg(width, 100, `Squared chords of ${squares.length} pairs; sum ${sum.toFixed(2)}`,
    tag("line", { class: "axis", x1: 0, x2: width, y1: 82, y2: 82 }), ...squares.map((square, index) => tag("rect", {
      class: index === pair ? "bar chosen" : "bar", x: (gap * (index + 0.15)).toFixed(1), width: (gap * 0.7).toFixed(1),
      y: (82 - 20 * square).toFixed(1), height: Math.max(20 * square, 0.5).toFixed(1) })),
    label(0, 95, `squared chords, pairs 0 to ${squares.length - 1}`, { class: "small begin" }));
  const turn = Math.round(20 * Math.PI / omega) / 10, angle = place * omega;
  says.textContent = `Pair ${pair}: ω = ${radians(omega)}, a turn takes ${turn} positions. Position ${place} is at ` +
    `${radians(angle)} radians: sine ${fixed(Math.sin(angle), 2)}, cosine ${fixed(Math.cos(angle), 2)}. ` +
    `Chord to position ${place + offset}: ${chordOf(offset * omega).toFixed(2)}, for every p. All ${squares.length} squared ` +
    `chords sum to ${sum.toFixed(2)}: the distance of the vectors is √${sum.toFixed(2)} = ${Math.sqrt(sum).toFixed(2)}.`;
}
// Let a pointer turn the hands of the large dial: that moves the position p.
function makeDraggable(node, omega, place, update) {
  node.addEventListener("pointerdown", (begin) => {
    const { left, top, width, height } = node.getBoundingClientRect(); // of this dial: each move draws a new one
    const angleOf = ({ clientX, clientY }) => Math.atan2(top + height / 2 - clientY, clientX - left - width / 2);
    const end = new AbortController();
    let angle = angleOf(begin), position = place;
    const turn = (event) => {
      const step = angleOf(event) - angle;
      angle += step;
      position = between(position + Math.atan2(Math.sin(step), Math.cos(step)) / omega, 0, PLACES - 1);
      update({ place: Math.round(position) });
    };
    begin.preventDefault();
    document.addEventListener("pointermove", turn, end);
    for (const name of ["pointerup", "pointercancel"]) document.addEventListener(name, () => end.abort(), end);
  });
}
const baseOf = (power) => rounded(10 ** (power / 10));
function drawRuler(width, turns, length) {
  const x = (positions) => 8 + (width - 16) * Math.log10(positions) / 7, still = HARDLY * length;
  const turn = ["come round", "turn in part", "hardly move"], ends = [1, length, still, 1e7];
  const zones = ["--later", "--yes", "--pad"].map((color, zone) => [ends[zone], ends[zone + 1], color, turn[zone]]);
  const kind = (turn) => zones.find(([, end]) => turn <= end)?.[2] ?? "--pad";
  const counts = zones.map(([, , color]) => turns.filter((turn) => kind(turn) === color).length);
  const drawn = zones.map(([begin, end, color, words], zone) => {
    const [left, right] = [x(begin), x(end)], middle = (left + right) / 2, style = `fill: var(${color}); fill-opacity: 0.2`;
    return tag("rect", { x: left, y: 34, width: Math.max(right - left, 0), height: 38, style }) +
      label(middle, 14, counts[zone], { class: "word" }) + label(middle, 28, words, { class: "small" });
  });
  const upright = (at, more) => tag("line", { x1: x(at), x2: x(at), y1: 40, y2: 66, ...more });
  const ticks = turns.map((turn) => upright(turn, { style: `stroke: var(${kind(turn)})` }));
  const marks = [1, 100, 10000, 1e6].filter((at) => Math.abs(x(at) - x(length)) > 48);
  return [counts, svg(width, 92, `${counts[0]} hands come round, ${counts[1]} turn in part, ${counts[2]} hardly move`,
    ...drawn, ...ticks, upright(length, { class: "length", y1: 34, y2: 76 }),
    ...marks.map((at) => label(x(at), 88, counted(at), { class: `small ${at === 1 ? "begin" : ""}` })),
    label(x(length), 88, counted(length), { class: "small strong" }))];
}
function drawBase({ picture, says, strips }, { state }) {
  const base = baseOf(state.power), length = Number(state.length), width = widthOf(picture), d = WIDTH_OF_RULER;
  const turnsOf = (one) => paperEncoding(d, one).frequencies.map((frequency) => 2 * Math.PI / frequency);
  const turns = turnsOf(base), slowest = turns.at(-1), [counts, ruler] = drawRuler(width, turns, length);
  const matches = (one) => once(`match ${one} ${length}`, () => {
    const offsets = Array.from({ length: 200 }, (_, index) => length ** (index / 199));
    return offsets.map((offset) => matchOf(offset, paperEncoding(d, one)));
  });
  const y = (match) => 96 - 80 * match, pointOf = (match, index) => [30 + (width - 34) * index / 199, y(match)];
  const line = (one, kind) => tag("polyline", { class: kind, points: matches(one).map(pointOf).map((point) =>
    point.map((number) => number.toFixed(1)).join(",")).join(" ") });
  picture.innerHTML = tag("h3", {}, `Positions that a turn of each hand takes, d = ${d}`) + ruler +
    tag("h3", {}, `Match of two positions by their offset: base ${counted(base)}${base > 10 ? ", and gray base 10" : ""}`) +
    svg(width, 140, `Match of two positions by their offset, base ${counted(base)}: ${[1, length].map((offset) =>
      `${matchOf(offset, paperEncoding(d, base)).toFixed(2)} at ${counted(offset)}`).join(", ")}`, ...[0, 0.5, 1].map((at) =>
      tag("line", { class: "axis", x1: 30, x2: width, y1: y(at), y2: y(at) }) +
      label(24, y(at) + 4, at, { class: "small end" })), line(10, "narrow"), line(base, "wide"),
    ...[1, 10, 100, 1000, length].filter((at) => at === length || 3 * at < length).map((at) =>
      label(30 + (width - 34) * Math.log(at) / Math.log(length), 136, counted(at),
        { class: `small ${at === 1 ? "begin" : at === length ? "end" : ""}` })));
  const far = (one) => once(`far ${one} ${length}`, () => farOf(length, paperEncoding(d, one)));
  const reach = far(base), value = reach.toFixed(2);
  says.textContent = `Base ${counted(base)}: ${counts[0]} of ${turns.length} hands come round within the text, ${counts[1]} ` +
    `turn in part, ${counts[2]} hardly move (less than 10°). With d = ${d}, a turn of the slowest takes ` +
    `${counted(rounded(slowest))} positions: ` +
    (slowest > length ? `it does not come round within the text. That is enough to tell far positions: far ${value}.`
      : `it comes round within the text, ${reach > 0.5 ? `and still far is ${value}: not coming round is enough, not needed.`
        : `and far is only ${value}.`}`);
  const bar = (share, words) => tag("i", { class: "bar", style: `width: ${(60 * share).toFixed(0)}px` }) + words;
  const lines = [...new Set([...BASES, base])].sort((a, b) => a - b).map((one) => {
    const near = 1 - matchOf(1, paperEncoding(d, one));
    return [one === base ? tag("b", {}, counted(one)) : counted(one), counted(rounded(turnsOf(one).at(-1))),
      bar(near / 0.12, `${(100 * near).toFixed(1)} %`), bar(far(one), far(one).toFixed(2))];
  });
  strips.innerHTML = plainTable(["base", "positions of the slowest turn", "near: match falls from a position to the next by",
    `far: how well the hands tell positions 0 to ${counted(length)}`], lines, "Near and far positions by base");
}
