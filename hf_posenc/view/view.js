// Draw a batch inside `host`: tokens, mask, encoding and embedding, in which the chosen token is highlighted everywhere.
function showBatch(host, data, style) {
  const ALLOWED = 0, PADDING = 1, PADDING_QUERY = 5;
  const REASONS = [
    ["yes", "may attend", "may attend"],
    ["padding", "padding", "the key is padding"],
    ["later", "look-ahead", "the key comes later (look-ahead mask)"],
    ["other", "other document", "the key belongs to another document"],
    ["hidden", "mask", "the mask of the batch hides the key"],
    ["padding", "padding", "the query is padding, and its output is not used"],
  ];
  const [firstRow, endRow, allRows, firstToken, endToken, allTokens] = data.window;
  const root = host.attachShadow({ mode: "open" });
  const state = { row: 0, token: 0, pin: null, asKey: false, mask: 0 };

  // ------------------------------------------------------------------------------------------------------- small tools

  function make(tag, attributes = {}, ...children) {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
      else if (value !== null && value !== false) node.setAttribute(name, value);
    }
    node.append(...children);
    return node;
  }
  function decode(vectors) {
    const bytes = Uint8Array.from(atob(vectors.values), (letter) => letter.charCodeAt(0));
    const view = new DataView(bytes.buffer);
    return Float32Array.from({ length: bytes.length / 4 }, (_, index) => view.getFloat32(4 * index, true));
  }
  const count = (number) => number.toLocaleString("en-US");
  const written = (number) => (number !== 0 && Math.abs(number) < 1e-4 ? number.toExponential(2) : number.toFixed(4));
  const listed = (values) => `[${Array.from(values.slice(0, 6), written).join(", ")}${values.length > 6 ? ", …" : ""}]`;
  const quoted = (row, token) => `“${row.tokens[token]}”`;

  const encoding = data.encoding && decode(data.encoding);
  const places = new Map((data.encoding?.positions ?? []).map((one, index) => [one, index]));
  const embedding = data.embedding && decode(data.embedding);
  const length = endToken - firstToken;

  function encodingOf(row, token) {
    const place = row.real[token] ? places.get(row.positions[token]) : undefined;
    if (place === undefined) return null;
    const columns = data.encoding.columns;
    return encoding.subarray(place * columns, (place + 1) * columns);
  }
  function embeddingOf(row, token) {
    const columns = data.embedding.columns, start = (data.rows.indexOf(row) * length + token) * columns;
    return embedding.subarray(start, start + columns);
  }
  const reason = (row, query, key) => Number(row.reasons[state.mask][query * length + key]);

  // ------------------------------------------------------------------------------------------------------------ tokens

  const cells = data.rows.map((row, rowIndex) =>
    row.tokens.map((text, token) => {
      const begins = token > 0 && row.documents[token] !== row.documents[token - 1] && row.real[token];
      const kind = row.real[token] ? (row.special?.[token] ? "special" : "real") : "pad";
      return make(
        "div",
        {
          role: "gridcell", tabindex: -1, class: `token ${kind}${begins && row.real[token - 1] ? " begins" : ""}`,
          "aria-label": `token ${firstToken + token}, ${text}${kind === "real" ? "" : kind === "pad" ? ", padding" : ", special token"}`,
          "data-row": rowIndex, "data-token": token,
        },
        make("span", {}, text), make("small", {}, row.real[token] ? String(row.positions[token]) : "–"),
      );
    }));
  const tokens = make("div", { role: "grid", class: "tokens", "aria-label": "Tokens of the batch; arrow keys move, Enter compares" },
    ...data.rows.map((_, index) =>
      make("div", { role: "row", class: "row" }, make("span", { role: "rowheader", class: "name" }, `row ${firstRow + index}`), ...cells[index])));

  function choose(row, token, focus = false) {
    state.row = Math.max(0, Math.min(row, data.rows.length - 1));
    state.token = Math.max(0, Math.min(token, length - 1));
    update();
    if (focus) cells[state.row][state.token].focus({ preventScroll: false });
  }
  function pin(row, token) {
    const same = state.pin && state.pin.row === row && state.pin.token === token;
    state.pin = same ? null : { row, token };
    choose(row, token);
  }
  const touched = (event) => event.target.closest?.("[data-token]");
  tokens.addEventListener("mouseover", (event) => {
    const cell = touched(event);
    if (cell) choose(Number(cell.dataset.row), Number(cell.dataset.token));
  });
  tokens.addEventListener("focusin", (event) => {
    const cell = touched(event);
    if (cell) choose(Number(cell.dataset.row), Number(cell.dataset.token));
  });
  tokens.addEventListener("click", (event) => {
    const cell = touched(event);
    if (cell) pin(Number(cell.dataset.row), Number(cell.dataset.token));
  });
  tokens.addEventListener("keydown", (event) => {
    const moves = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0], Home: [0, -length], End: [0, length] };
    if (moves[event.key]) choose(state.row + moves[event.key][0], state.token + moves[event.key][1], true);
    else if (event.key === "Enter" || event.key === " ") pin(state.row, state.token);
    else if (event.key === "Escape") { state.pin = null; update(); }
    else return;
    event.preventDefault();
  });

  // ---------------------------------------------------------------------------------------------------- mask, heat maps

  const matrix = make("div", { class: "matrix", style: `--columns:${length}` });
  const maskCells = Array.from({ length: length * length }, (_, index) =>
    make("i", { "data-query": Math.floor(index / length), "data-key": index % length }));
  matrix.append(...maskCells);
  matrix.addEventListener("mouseover", (event) => {
    const { query, key } = event.target.dataset;
    if (query === undefined) return;
    state.token = Number(state.asKey ? key : query);
    update();
    maskNote.textContent = sentence(data.rows[state.row], Number(query), Number(key));
  });
  const maskTitle = make("b"), maskNote = make("p", { class: "note" });

  function sentence(row, query, key) {
    const why = reason(row, query, key);
    return `${quoted(row, query)} ${why === ALLOWED ? "may attend to" : "may not attend to"} ${quoted(row, key)}${why === ALLOWED ? "." : `: ${REASONS[why][2]}.`}`;
  }

  function heatMap(title, vectors, vectorOf, largest) {
    const canvas = make("canvas", { width: vectors.columns, height: length, role: "img" });
    const line = make("div", { class: "line" }), pinned = make("div", { class: "line pinned" }), note = make("p", { class: "note" });
    const name = make("b"), shown = vectors.columns < vectors.width ? `columns 0 to ${vectors.columns - 1} of ${vectors.width}` : `${vectors.width} columns`;
    const frame = make("div", { class: "frame" }, canvas, line, pinned);
    frame.addEventListener("mousemove", (event) => {
      const box = canvas.getBoundingClientRect();
      const token = Math.min(length - 1, Math.max(0, Math.floor(((event.clientY - box.top) / box.height) * length)));
      const column = Math.min(vectors.columns - 1, Math.max(0, Math.floor(((event.clientX - box.left) / box.width) * vectors.columns)));
      choose(state.row, token);
      const values = vectorOf(data.rows[state.row], token);
      note.textContent = values ? `token ${firstToken + token}, column ${column}: ${written(values[column])}` : "padding";
    });
    frame.addEventListener("click", () => pin(state.row, state.token));
    return {
      node: make("figure", {}, make("figcaption", {}, name), frame, make("p", { class: "axis" }, `← ${shown} →   blue −${written(largest)}, orange +${written(largest)}`), note),
      draw(row) {
        name.textContent = `${title}, row ${firstRow + state.row}`;
        canvas.setAttribute("aria-label", `${title}: one line for each token, ${shown}`);
        const context = canvas.getContext("2d"), image = context.createImageData(vectors.columns, length);
        const middle = root.host.dataset.theme === "dark" ? [32, 34, 38] : [255, 255, 255];
        for (let token = 0; token < length; token++) {
          const values = vectorOf(row, token);
          for (let column = 0; column < vectors.columns; column++) {
            const place = 4 * (token * vectors.columns + column), value = values ? Math.max(-1, Math.min(1, values[column] / largest)) : 0;
            const end = value < 0 ? [33, 102, 172] : [224, 112, 16];
            for (let channel = 0; channel < 3; channel++) image.data[place + channel] = middle[channel] + Math.abs(value) * (end[channel] - middle[channel]);
            image.data[place + 3] = values ? 255 : 0;
          }
        }
        context.putImageData(image, 0, 0);
      },
      mark() {
        const top = (token) => `top:${(100 * token) / length}%;height:${100 / length}%`;
        line.style.cssText = top(state.token);
        pinned.style.cssText = state.pin?.row === state.row ? top(state.pin.token) : "display:none";
      },
    };
  }
  const peak = (values) => values.reduce((most, value) => Math.max(most, Math.abs(value)), 0) || 1;
  const maps = [];
  if (encoding) maps.push(heatMap(data.note ? "Example of an encoding, not part of the batch" : "Encoding of each position", data.encoding, encodingOf, peak(encoding)));
  if (embedding) maps.push(heatMap("Embedding of each token", data.embedding, embeddingOf, peak(embedding)));

  // ------------------------------------------------------------------------------------------------------------- panel

  const panel = make("dl", { class: "panel", role: "status", "aria-live": "polite" });

  function describe() {
    const row = data.rows[state.row], token = state.token, lines = [];
    const all = Array.from({ length }, (_, index) => index);
    const may = (query, key) => reason(row, query, key) === ALLOWED;
    const refused = (pairs) => {
      const found = {};
      for (const [query, key] of pairs) {
        const why = REASONS[reason(row, query, key)][1];
        if (!may(query, key)) found[why] = (found[why] || 0) + 1;
      }
      const words = Object.entries(found).map(([why, number]) => `${number} ${why}`);
      return words.length ? `; hidden: ${words.join(", ")}` : "";
    };
    const facts = [`token ${firstToken + token}`];
    if (row.ids) facts.push(`id ${row.ids[token]}`);
    facts.push(row.real[token] ? `position ${row.positions[token]}` : "padding");
    if (row.special?.[token] && row.real[token]) facts.push("special token");
    if (Math.max(...row.documents) > 0 && row.real[token]) facts.push(`document ${row.documents[token]}`);
    if (row.types && Math.max(...row.types)) facts.push(`token type ${row.types[token]}`);
    if (row.labels) facts.push(row.labels[token] === -100 ? "label −100 (no loss)" : `label ${row.labels[token]}`);
    lines.push([quoted(row, token), facts.join(" · ")]);
    const keys = all.filter((key) => may(token, key)), queries = all.filter((query) => may(query, token));
    lines.push(["as a query", `may attend to ${keys.length} of ${length} keys${refused(all.map((key) => [token, key]))}`]);
    lines.push(["as a key", `${queries.length} of ${length} queries may attend to it`]);
    const vector = encodingOf(row, token);
    if (vector) lines.push([data.note ? "example" : "encoding", listed(vector)]);
    if (embedding) lines.push(["embedding", listed(embeddingOf(row, token))]);
    if (state.pin && (state.pin.row !== state.row || state.pin.token !== token)) {
      const other = data.rows[state.pin.row], first = encodingOf(other, state.pin.token);
      if (other === row) {
        lines.push(["query and key", `${sentence(row, state.pin.token, token)} ${sentence(row, token, state.pin.token)}`]);
      }
      if (first && vector) {
        let dot = 0, squares = 0;
        first.forEach((value, column) => { dot += value * vector[column]; squares += (value - vector[column]) ** 2; });
        const part = data.encoding.columns < data.encoding.width ? ` in the ${data.encoding.columns} columns shown` : "";
        lines.push([`positions ${other.positions[state.pin.token]} and ${row.positions[token]}`, `dot product ${written(dot)}, distance ${written(Math.sqrt(squares))}${part}${data.note ? " of the example" : ""}`]);
      }
    } else {
      lines.push(["compare", state.pin ? "move to another token; Escape ends the comparison" : "click a token, or press Enter on it, to compare it with others"]);
    }
    panel.replaceChildren(...lines.flatMap(([name, text]) => [make("dt", {}, name), make("dd", {}, text)]));
  }

  // ------------------------------------------------------------------------------------------------------------ update

  let drawn = null;
  function update() {
    if (!data.rows.length || !length) return;
    const row = data.rows[state.row];
    if (drawn !== state.row) {
      drawn = state.row;
      const name = data.masks[state.mask];
      maskTitle.textContent = `Mask ${name ? `of ${name}, ` : "of "}row ${firstRow + state.row}: queries from top to bottom, keys from left to right`;
      maskNote.textContent = "";
      maskCells.forEach((cell, index) => { cell.className = REASONS[Number(row.reasons[state.mask][index])][0]; });
      maps.forEach((map) => map.draw(row));
    }
    cells.forEach((line, rowIndex) => line.forEach((cell, token) => {
      const here = rowIndex === state.row, chosen = here && token === state.token;
      const [query, key] = state.asKey ? [token, state.token] : [state.token, token];
      cell.tabIndex = chosen ? 0 : -1;
      cell.classList.toggle("chosen", chosen);
      cell.classList.toggle("pinned", state.pin?.row === rowIndex && state.pin.token === token);
      cell.dataset.sees = here ? REASONS[reason(row, query, key)][0] : "";
    }));
    maskCells.forEach((cell, index) => {
      const at = state.asKey ? index % length : Math.floor(index / length);
      cell.classList.toggle("lit", at === state.token);
    });
    maps.forEach((map) => map.mark());
    describe();
  }

  // -------------------------------------------------------------------------------------------------------------- page

  const side = (value, text) =>
    make("label", {}, make("input", { type: "radio", name: "side", value, ...(value === "query" ? { checked: "" } : {}), onchange: () => { state.asKey = value === "key"; update(); } }), text);
  const used = new Set(data.rows.flatMap((row) => Array.from(row.reasons.join(""), (digit) => REASONS[Number(digit)])));
  const masks = make("select", { onchange: () => { state.mask = masks.selectedIndex; drawn = null; update(); } },
    ...data.masks.map((name) => make("option", {}, name)));
  const legend = make("p", { class: "legend" }, ...REASONS.slice(0, PADDING_QUERY).filter((one) => used.has(one) || one[0] === "yes")
    .flatMap(([kind, name]) => [make("i", { class: kind }), `${name} `]));
  const hidden = endRow - firstRow < allRows || endToken - firstToken < allTokens;
  const summary = `${count(allRows)} ${allRows === 1 ? "row" : "rows"} of ${count(allTokens)} tokens` +
    (hidden ? `; shown are rows ${count(firstRow)} to ${count(endRow - 1)} and tokens ${count(firstToken)} to ${count(endToken - 1)}` : "");
  root.append(
    make("style", {}, style),
    make("div", { class: "view" },
      make("p", { class: "summary" }, make("b", {}, summary)),
      make("div", { class: "choice", role: "radiogroup", "aria-label": "Meaning of the colors" }, "Color tokens by: ",
        side("query", "keys to which the chosen token may attend"), side("key", "queries that may attend to it")),
      ...(data.masks.length > 1 ? [make("p", {}, make("label", {}, "Mask of the layers of kind ", masks))] : []),
      tokens, legend, panel, ...(data.note ? [make("p", {}, data.note)] : []),
      make("div", { class: "figures" },
        make("figure", {}, make("figcaption", {}, maskTitle), matrix, maskNote), ...maps.map((map) => map.node)),
      make("details", {}, make("summary", {}, "Keys of the batch"),
        make("table", {}, make("tr", {}, ...["name", "shape", "dtype", "device"].map((name) => make("th", {}, name))),
          ...data.facts.map((facts) => make("tr", {}, ...facts.map((fact) => make("td", {}, fact))))))));

  function chooseTheme() {
    let node = host, color = "";
    while (node && !color) {
      const found = getComputedStyle(node).backgroundColor;
      if (found && !/^(transparent|rgba\(.*, 0\))$/.test(found)) color = found;
      node = node.parentElement;
    }
    const parts = (color.match(/[\d.]+/g) || []).slice(0, 3).map(Number);
    const dark = parts.length === 3 ? 0.3 * parts[0] + 0.6 * parts[1] + 0.1 * parts[2] < 128 : matchMedia("(prefers-color-scheme: dark)").matches;
    const theme = dark ? "dark" : "light";
    if (host.dataset.theme === theme) return;
    host.dataset.theme = theme;
    drawn = null;
    update();
  }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", chooseTheme);
  new MutationObserver(chooseTheme).observe(document.body, { attributes: true }); // a button may change the colors of a page
  chooseTheme();
}
