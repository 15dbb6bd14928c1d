// Tokens as Hugging Face's `tokenizers` makes them (WordPiece of BERT, byte-level BPE of GPT-2), and sinusoids.

// Return a function from a text to its tokens, each with its id and the part of the text that it came from.
function tokenizerOf(data) {
  const ids = new Map(data.vocabulary.map((token, id) => [token, id]));
  const escaped = data.added.map((token) => token.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  const split = escaped.length ? new RegExp(`(${escaped.sort((a, b) => b.length - a.length).join("|")})`, "u") : null;
  const model = data.kind === "wordpiece" ? wordPiece(data, ids) : byteLevelBpe(data, ids);
  const special = (token, at) => ({ token, id: ids.get(token), begin: at, end: at, special: true });
  return (text) => {
    const found = [];
    let at = 0;
    for (const part of split ? text.split(split) : [text]) {
      if (data.added.includes(part)) found.push({ ...special(part, at), end: at + part.length });
      else for (const one of model(part)) found.push({ ...one, begin: at + one.begin, end: at + one.end });
      at += part.length;
    }
    return [
      ...data.before.map((token) => special(token, 0)), ...found, ...data.after.map((token) => special(token, at)),
    ];
  };
}

// ---------------------------------------------------------------------------------------------------------- WordPiece

const PUNCTUATION = /[!-/:-@[-`{-~\p{P}]/u;
const CHINESE = new RegExp(
  "[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\u{20000}-\u{2a6df}\u{2a700}-\u{2b73f}\u{2b740}-\u{2ceaf}" +
  "\u{2f800}-\u{2fa1f}]", "u");
const SPACE = /\p{White_Space}/u;

// Return the words of a text as lists of [letter, begin, end], normalized as by BertNormalizer and BertPreTokenizer.
function wordsOf(text, data) {
  const words = [];
  let word = [], at = 0;
  const end = () => { if (word.length) words.push(word); word = []; };
  for (const letter of text) {
    const begin = at;
    at += letter.length;
    const isSpace = /[\t\n\r]/.test(letter) || SPACE.test(letter);
    if (data.clean && !/[\t\n\r]/.test(letter) && /[\0\ufffd\p{Cc}\p{Cf}\p{Co}]/u.test(letter)) continue;
    if (isSpace) { end(); continue; }
    let plain = data.strip ? letter.normalize("NFD").replace(/\p{Mn}/gu, "") : letter;
    if (data.lower) plain = plain.toLowerCase();
    if (!plain && word.length) word.at(-1)[2] = at; // an accent belongs to its letter
    for (const one of plain) {
      const alone = PUNCTUATION.test(one) || (data.chinese && CHINESE.test(letter));
      if (alone) end();
      word.push([one, begin, at]);
      if (alone) end();
    }
  }
  end();
  return words;
}

function wordPiece(data, ids) {
  function* pieces(word) {
    for (let start = 0; start < word.length;) {
      let end = word.length, piece;
      for (; end > start; end--) {
        piece = (start ? data.prefix : "") + word.slice(start, end).map(([letter]) => letter).join("");
        if (ids.has(piece)) break;
      }
      if (end === start) { yield null; return; }
      yield { token: piece, id: ids.get(piece), begin: word[start][1], end: word[end - 1][2] };
      start = end;
    }
  }
  return (text) => wordsOf(text, data).flatMap((word) => {
    const found = word.length > data.longest ? [null] : [...pieces(word)];
    if (found.at(-1)) return found;
    return [{ token: data.unknown, id: ids.get(data.unknown), begin: word[0][1], end: word.at(-1)[2] }];
  });
}

// ----------------------------------------------------------------------------------------------------- byte-level BPE

// The 256 letters that stand for bytes: printable bytes for themselves, the others by letters from 256 on.
const LETTERS = (() => {
  const isPrintable = (byte) => (byte > 32 && byte < 127) || (byte > 160 && byte < 256 && byte !== 173);
  let next = 256;
  return Array.from({ length: 256 }, (_, byte) => String.fromCodePoint(isPrintable(byte) ? byte : next++));
})();
const CHUNKS = new RegExp(
  "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\p{White_Space}\\p{L}\\p{N}]+" +
  "|\\p{White_Space}+(?!\\P{White_Space})|\\p{White_Space}+", "gu");

function byteLevelBpe(data, ids) {
  const merges = new Map(data.merges.map(([left, right, merged], rank) => [left * 65536 + right, [rank, merged]]));
  function merged(parts) { // [id, begin, end] of each part, in bytes
    for (;;) {
      let best = Infinity, pair = -1, id = -1;
      for (let index = 0; index + 1 < parts.length; index++) {
        const key = parts[index][0] * 65536 + parts[index + 1][0], found = merges.get(key);
        if (found && found[0] < best) [best, pair, id] = [found[0], key, found[1]];
      }
      if (pair < 0) return parts;
      const joined = [];
      for (let index = 0; index < parts.length; index++) {
        const next = parts[index + 1];
        if (next && parts[index][0] * 65536 + next[0] === pair) {
          joined.push([id, parts[index][1], next[2]]);
          index++;
        } else joined.push(parts[index]);
      }
      parts = joined;
    }
  }
  const encoder = new TextEncoder();
  return (given) => {
    const shift = data.prefixSpace && given && !SPACE.test(given[0]) ? 1 : 0, text = (shift ? " " : "") + given;
    return Array.from(text.matchAll(CHUNKS)).flatMap((chunk) => {
      const parts = [];
      let at = chunk.index - shift;
      for (const letter of chunk[0]) {
        for (const byte of encoder.encode(letter)) {
          parts.push([ids.get(LETTERS[byte]), Math.max(at, 0), Math.max(at + letter.length, 0)]);
        }
        at += letter.length;
      }
      return merged(parts).map(([id, begin, end]) => ({ token: data.vocabulary[id], id, begin, end }));
    });
  };
}

// ---------------------------------------------------------------------------------------------------------- sinusoids

// Describe the encoding of width d of the paper: the frequency of each pair, and the dimensions of sines and cosines.
function paperEncoding(d, base) {
  const frequencies = Array.from({ length: Math.ceil(d / 2) }, (_, pair) => base ** (-2 * pair / d));
  return { width: d, frequencies, sines: [0, 2], cosines: [1, 2] };
}

// Return the encoding of a position. Sines lie in the dimensions start, start + step, ...; cosines likewise.
function encodingOf(position, { width, frequencies, sines, cosines }) {
  const vector = new Float64Array(width);
  frequencies.forEach((frequency, pair) => {
    const [sine, cosine] = [sines, cosines].map(([start, step]) => start + pair * step);
    if (sine < width) vector[sine] = Math.sin(position * frequency);
    if (cosine < width) vector[cosine] = Math.cos(position * frequency);
  });
  return vector;
}

// Return a vector with each pair of dimensions turned back: the encoding of p becomes that of p - offset.
function turnedBack(vector, offset, { width, frequencies, sines, cosines }) {
  const turned = Float64Array.from(vector);
  frequencies.forEach((frequency, pair) => {
    const [sine, cosine] = [sines, cosines].map(([start, step]) => start + pair * step);
    if (sine >= width || cosine >= width) return;
    const angle = offset * frequency;
    turned[sine] = vector[sine] * Math.cos(angle) - vector[cosine] * Math.sin(angle);
    turned[cosine] = vector[cosine] * Math.cos(angle) + vector[sine] * Math.sin(angle);
  });
  return turned;
}
