// Tokens as Hugging Face's `tokenizers` makes them: WordPiece of BERT and byte-level BPE of GPT-2.

// Return {tokenize, steps}. `tokenize` returns the tokens of a text, each with its id and the part of the text that it
// came from. `steps` returns how a word becomes tokens: for each step the tokens, the index of the new one, and the rest.
function tokenizerOf(data) {
  const ids = new Map(data.vocabulary.map((token, id) => [token, id]));
  const escaped = data.added.map((token) => token.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  const split = escaped.length ? new RegExp(`(${escaped.sort((a, b) => b.length - a.length).join("|")})`, "u") : null;
  const model = data.kind === "wordpiece" ? wordPiece(data, ids) : byteLevelBpe(data, ids);
  const special = (token, at) => ({ token, id: ids.get(token), begin: at, end: at, special: true });
  const tokenize = (text) => {
    const found = [];
    let at = 0;
    for (const part of split ? text.split(split) : [text]) {
      if (data.added.includes(part)) found.push({ ...special(part, at), end: at + part.length });
      else for (const one of model.tokenize(part)) found.push({ ...one, begin: at + one.begin, end: at + one.end });
      at += part.length;
    }
    return [
      ...data.before.map((token) => special(token, 0)), ...found, ...data.after.map((token) => special(token, at)),
    ];
  };
  return { tokenize, steps: model.steps };
}

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
  function tokensOf(word) {
    const found = word.length > data.longest ? [null] : [...pieces(word)];
    if (found.at(-1)) return found;
    return [{ token: data.unknown, id: ids.get(data.unknown), begin: word[0][1], end: word.at(-1)[2] }];
  }
  function steps(text) {
    const word = wordsOf(text, data)[0] ?? [], found = word.length ? tokensOf(word) : [];
    return found.map(({ end }, last) => {
      const rest = word.filter(([, begin]) => begin >= end).map(([letter]) => letter).join("");
      return { tokens: found.slice(0, last + 1).map(({ token }) => token), last, rest };
    });
  }
  return { tokenize: (text) => wordsOf(text, data).flatMap(tokensOf), steps };
}

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
  function merged(parts, note) { // [id, begin, end] of each part, in bytes
    for (;;) {
      let best = Infinity, pair = -1, id = -1;
      for (let index = 0; index + 1 < parts.length; index++) {
        const key = parts[index][0] * 65536 + parts[index + 1][0], found = merges.get(key);
        if (found && found[0] < best) [best, pair, id] = [found[0], key, found[1]];
      }
      if (pair < 0) return parts;
      const joined = [];
      let last = 0;
      for (let index = 0; index < parts.length; index++) {
        const next = parts[index + 1];
        if (next && parts[index][0] * 65536 + next[0] === pair) {
          last = joined.push([id, parts[index][1], next[2]]) - 1;
          index++;
        } else joined.push(parts[index]);
      }
      parts = joined;
      note?.(parts, last);
    }
  }
  const encoder = new TextEncoder();
  // Return the bytes of each word, as parts for `merged`.
  function chunksOf(given) {
    const shift = data.prefixSpace && given && !SPACE.test(given[0]) ? 1 : 0, text = (shift ? " " : "") + given;
    return Array.from(text.matchAll(CHUNKS), (chunk) => {
      const parts = [];
      let at = chunk.index - shift;
      for (const letter of chunk[0]) {
        for (const byte of encoder.encode(letter)) {
          parts.push([ids.get(LETTERS[byte]), Math.max(at, 0), Math.max(at + letter.length, 0)]);
        }
        at += letter.length;
      }
      return parts;
    });
  }
  function steps(text) {
    const found = [], bytes = chunksOf(text)[0] ?? [];
    const note = (parts, last) => found.push({ tokens: parts.map(([id]) => data.vocabulary[id]), last, rest: "" });
    if (bytes.length) note(bytes, -1);
    merged(bytes, note);
    return found;
  }
  const tokensOf = (parts) => merged(parts).map(([id, begin, end]) => ({ token: data.vocabulary[id], id, begin, end }));
  return { tokenize: (text) => chunksOf(text).flatMap(tokensOf), steps };
}
