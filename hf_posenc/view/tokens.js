// Tokens as Hugging Face's `tokenizers` makes them: WordPiece of BERT and byte-level BPE of GPT-2.

// Return {tokenize, steps, notes}. `tokenize` returns the tokens of a text, each with its id and the part of the text that it
// came from. `steps` returns how some words become tokens: for each step the tokens, the index of the new one, and the rest.
// `notes` returns what happens before: normalized words, characters without a token, bytes of characters.
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
    return [...data.before.map((token) => special(token, 0)), ...found, ...data.after.map((token) => special(token, at))];
  };
  return { tokenize, steps: model.steps, notes: model.notes };
}
// Characters that browsers take for marks, format characters or punctuation, but tokenizers' older tables of Unicode for
// letters: differences between ranges, in base 36, "begin" or "begin.length - 1".
const LETTERS_OF_OLD_TABLES = new Set();
(
  "17h dc 43.1 6.8 17.o 7v.1 3c 3o.5 2e 4v 1k 1n d 3g 1n.1 1x 8p k 1tt 3a.1 ft.u 3.b 2r.1 1a.2 hj.5 37s.c 3.b o27 " +
  "49 1m 5a jmv.3 1u.5 8t.2 z 16.5 1z.a 5.4 15.7 6f 3.1 26 b 76 33 3 6y 3k.5 e 2 2 2.1 2.1 9.1 2e.7 3.2 2 5.4 b.1 " +
  "2.1 ea.c 25 ae.8 2.2 74.1 2 5.3 3y.3 3.1 5 2 v.9 15.5 3.c a.5 3.2 1b.c 2.4 2.4 2m.9 2f 2.2 2 3f 27.6 2.5 2 2.4 " +
  "17.1 x.l 3.6 2.1 2.1 3f.5 4 2.1 2.6 2 21.1 4 2 9o.1 3.1 8.1 1h.4 6 2.d b 4l 35e.1 u6.g 7.e 8uh.b 4.2 2f2.2 88.3 " +
  "51 43 2 isc.19 3.m 3ay.6 2.g 3.6 2.1 2.4 2t 4h.6 ag 1q.3 e5.3 73.1 g 6c 3 8.1 6 gf.6 k.1"
).split(" ").reduce((at, range) => {
  const [step, more] = range.split(".").map((digits) => parseInt(digits, 36)), begin = at + step, last = begin + (more || 0);
  for (let code = begin; code <= last; code++) LETTERS_OF_OLD_TABLES.add(String.fromCodePoint(code));
  return last;
}, 0);
// Four characters have changed their kind between the two tables.
const PUNCTUATION = /[!-/:-@[-`{-~\p{P}\u166d\u{111c9}]/u;
const MARKS = /(?!\u{111c9})[\p{Mn}\u1734\u{1171e}]/gu;
const CHINESE = new RegExp( // without 2b820 to 2b91f, as in tokenizers
  "[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\u{20000}-\u{2a6df}\u{2a700}-\u{2b73f}\u{2b740}-\u{2b81f}" +
  "\u{2b920}-\u{2ceaf}\u{2f800}-\u{2fa1f}]", "u");
const SPACE = /\p{White_Space}/u;
// Return the words of a text as lists of [letter, begin, end], normalized as by BertNormalizer and BertPreTokenizer.
function wordsOf(text, data) {
  const words = [];
  let word = [], at = 0;
  const end = () => { if (word.length) words.push(word); word = []; };
  for (const letter of text) {
    const begin = at;
    at += letter.length;
    if (LETTERS_OF_OLD_TABLES.has(letter)) { word.push([letter, begin, at]); continue; }
    const isSpace = /[\t\n\r]/.test(letter) || SPACE.test(letter);
    if (data.clean && !/[\t\n\r]/.test(letter) && /[\0\ufffd\p{Cc}\p{Cf}\p{Co}]/u.test(letter)) continue;
    if (isSpace) { end(); continue; }
    let plain = data.strip ? letter.normalize("NFD").replace(MARKS, "") : letter;
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
    const words = wordsOf(text, data), found = words.flatMap(tokensOf);
    return found.map(({ end }, last) => {
      const rest = words.map((word) => word.filter(([, begin]) => begin >= end).map(([letter]) => letter).join(""));
      return { tokens: found.slice(0, last + 1).map(({ token }) => token), last, rest: rest.filter(Boolean).join(" ") };
    });
  }
  function notes(text) {
    const lettersOf = (word) => word.map(([letter]) => letter).join("");
    return wordsOf(text, data).flatMap((word) => {
      const given = text.slice(word[0][1], word.at(-1)[2]), plain = lettersOf(word), found = [...pieces(word)];
      const said = given === plain ? [] : [`Normalized: “${given}” becomes “${plain}”.`];
      if (word.length > data.longest) said.push(`${data.unknown}: “${plain}” has more than ${data.longest} letters.`);
      else if (!found.at(-1)) {
        const at = found.at(-2)?.end ?? 0, left = lettersOf(word.filter(([, begin]) => begin >= at));
        const rest = (at ? data.prefix : "") + left;
        said.push(`${data.unknown}: no token of the vocabulary begins “${rest}”, so the whole word is unknown.`);
      }
      return said;
    });
  }
  return { tokenize: (text) => wordsOf(text, data).flatMap(tokensOf), steps, notes };
}
// The 256 letters that stand for bytes: printable bytes for themselves, the others by letters from 256 on.
const LETTERS = (() => {
  const isPrintable = (byte) => (byte > 32 && byte < 127) || (byte > 160 && byte < 256 && byte !== 173);
  let next = 256;
  return Array.from({ length: 256 }, (_, byte) => String.fromCodePoint(isPrintable(byte) ? byte : next++));
})();
const CHUNKS = new RegExp("'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\p{White_Space}\\p{L}\\p{N}]+" +
  "|\\p{White_Space}+(?!\\P{White_Space})|\\p{White_Space}+", "gu");
function byteLevelBpe(data, ids) {
  const merges = new Map(data.merges?.map(([left, right, merged], rank) => [left * 65536 + right, [rank, merged]]));
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
  if (!data.merges) { // each token joins the two parts that those before it make of its bytes
    for (let id = 256; id < data.vocabulary.length; id++) {
      const [[left], [right]] = merged(Array.from(data.vocabulary[id], (letter) => [ids.get(letter)]));
      merges.set(left * 65536 + right, [id, id]);
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
    const found = [], tokensOf = (parts) => parts.map(([id]) => data.vocabulary[id]);
    const done = [], rest = chunksOf(text);
    while (rest.length) {
      const bytes = rest.shift(), later = tokensOf(rest.flat()).join("");
      const note = (parts, last) => found.push({
        tokens: [...done, ...tokensOf(parts)], last: last < 0 ? last : done.length + last, rest: later,
      });
      note(bytes, -1);
      done.push(...tokensOf(merged(bytes, note)));
    }
    return found;
  }
  const tokensOf = (parts) => merged(parts).map(([id, begin, end]) => ({ token: data.vocabulary[id], id, begin, end }));
  function notes(text) {
    return [...new Set(text)].filter((letter) => letter > "~").map((letter) => {
      const bytes = [...encoder.encode(letter)], hex = bytes.map((byte) => byte.toString(16).toUpperCase()).join(" ");
      return `“${letter}” is ${bytes.length} bytes: ${hex}, written ${bytes.map((byte) => LETTERS[byte]).join(" ")}.`;
    });
  }
  return { tokenize: (text) => chunksOf(text).flatMap(tokensOf), steps, notes };
}
// Return the first merges of GPT-2, from its tokens in the order of their ids: first those of single bytes.
function gpt2Of(tokens) {
  const [plain, other] = [true, false].map((isPlain) => LETTERS.filter((letter) => letter < "\u0100" === isPlain));
  const vocabulary = [...plain, ...other, ...tokens.split(" ")];
  return tokenizerOf({ kind: "bpe", vocabulary, added: [], before: [], after: [] });
}
