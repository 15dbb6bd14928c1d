// The view of a batch that Python made, and the colors of the page around a view.

const PAGE = 8; // rows
const HEAD = { head: "positions", back: 1, gain: 12, divide: true, hide: "infinity", positions: "text" };
// Set the attribute data-theme of `host` to "light" or "dark", as the color behind it is; follow its changes.
function followTheme(host) {
  const prefersDark = matchMedia("(prefers-color-scheme: dark)");
  const update = () => {
    let color = "";
    for (let node = host; node && !color; node = node.parentElement) {
      const found = getComputedStyle(node).backgroundColor;
      if (!/^(transparent|rgba\(.*, 0\))$/.test(found)) color = found;
    }
    const [red, green, blue] = (color.match(/[\d.]+/g) || []).map(Number);
    const dark = blue === undefined ? prefersDark.matches : 0.3 * red + 0.6 * green + 0.1 * blue < 128;
    host.dataset.theme = dark ? "dark" : "light";
  };
  prefersDark.addEventListener("change", update);
  new MutationObserver(update).observe(document.body, { attributes: true }); // a button may change a page's colors
  update();
}
function showBatch(host, data, style) {
  const [firstRow, endRow, allRows, firstToken, endToken, allTokens] = data.window, length = endToken - firstToken;
  const begin = Math.max(data.rows[0]?.real.indexOf(1) ?? 0, 0);
  const state = { row: 0, query: Math.min(begin + 1, length - 1), key: begin, mask: 0, begin: 0 };
  const change = (part) => { Object.assign(state, part); draw(); }, views = makeViews(change);
  const pages = make("select", { onchange: () => change({ row: 0, begin: PAGE * pages.selectedIndex }) });
  for (let begin = 0; begin < data.rows.length; begin += PAGE) {
    pages.append(make("option", {}, `${firstRow + begin} to ${firstRow + Math.min(begin + PAGE, data.rows.length) - 1}`));
  }
  function draw() {
    const rows = data.rows.slice(state.begin, state.begin + PAGE).map((row) => {
      const digits = row.reasons[state.mask], real = row.real.map(Boolean);
      const reasons = real.map((_, query) => Array.from(digits.slice(query * length, (query + 1) * length), Number));
      return { ...row, real, reasons, positions: row.positions.map((position, at) => (real[at] ? position : null)) };
    });
    views.draw({ rows, encoding: data.encoding, settings: HEAD, firstRow: firstRow + state.begin, firstToken }, state);
  }
  const [row, lastRow, token, lastToken] = [firstRow, endRow - 1, firstToken, endToken - 1].map(counted);
  const part = `; shown are rows ${row} to ${lastRow} and tokens ${token} to ${lastToken}`;
  const isPart = endRow - firstRow < allRows || length < allTokens;
  const whole = `${counted(allRows)} ${allRows === 1 ? "row" : "rows"} of ${counted(allTokens)} tokens`;
  const masks = make("select", { onchange: () => change({ mask: masks.selectedIndex }) },
    ...data.masks.map((name) => make("option", {}, name)));
  const choices = [[pages, "Rows "], [masks, "Mask of the layers of kind "]].filter(([select]) => select.length > 1);
  const lines = [["name", "shape", "dtype", "device"], ...data.facts];
  const table = make("table", { class: "facts", "aria-label": "Entries of the batch" }, ...lines.map((facts, index) =>
    make("tr", {}, ...facts.map((fact) => make(index ? "td" : "th", {}, fact)))));
  host.attachShadow({ mode: "open" }).append(make("style", {}, style), make("div", { class: "lab" },
    make("p", {}, make("b", {}, whole + (isPart ? part : ""))), make("div", { class: "keys" }, table),
    ...(data.encoding ? [make("p", {}, make("b", {}, "Weights and scores are those of an example, not of your model: "),
      headFormula(HEAD, data.encoding))] : []),
    ...choices.map(([select, words]) => make("p", {}, make("label", {}, words, select))), views.node,
    ...(data.note ? [make("p", { class: "note" }, data.note)] : [])));
  if (data.rows.length && length) draw();
  followTheme(host);
}
