/** Parts of texts to show. Characters are Unicode code points, as in the offsets of the server. */

const WORD = /[\p{L}\p{M}\p{N}_]/u;
/** Scripts without spaces between words, in which a word has no end to look for. */
const UNSPACED = /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Thai}\p{Script=Lao}\p{Script=Khmer}]/u;
const SIDE = 160;
const LONGEST_WORD = 30;
const STOP_WORDS = new Set(
  "what which when where whose whom does have from with that this were they their there will would about into".split(
    " ",
  ),
);

function isInsideWord(characters, place) {
  const pair = [characters[place - 1], characters[place]];
  return pair.every((character) => character !== undefined && WORD.test(character) && !UNSPACED.test(character));
}

/** Widen a range of characters to whole words. */
export function widenToWords(characters, [start, end]) {
  while (isInsideWord(characters, start)) start -= 1;
  while (isInsideWord(characters, end)) end += 1;
  return [start, end];
}

/** Split a text at ranges of characters into pieces { text, isMarked }, with whole words marked. */
export function splitAtMarks(characters, ranges) {
  const pieces = [];
  let done = 0;
  for (const range of ranges) {
    const [start, end] = widenToWords(characters, range);
    if (end <= done || start >= end) continue;
    pieces.push({ text: characters.slice(done, Math.max(done, start)).join(""), isMarked: false });
    pieces.push({ text: characters.slice(Math.max(done, start), end).join(""), isMarked: true });
    done = end;
  }
  pieces.push({ text: characters.slice(done).join(""), isMarked: false });
  return pieces.filter((piece) => piece.text);
}

/** Return the quote of a source around the answer, or around the words of the question, as pieces. */
export function chooseQuote(source, question) {
  const characters = Array.from(source.text);
  const answer =
    source.answer_start === null ? null : [source.answer_start - source.start, source.answer_end - source.start];
  const window = answer
    ? [Math.max(0, answer[0] - SIDE), Math.min(characters.length, answer[1] + SIDE)]
    : chooseWindow(characters, question);
  let [low, high] = shrinkToWords(characters, window);
  let ranges = [];
  if (answer) {
    const [start, end] = widenToWords(characters, answer);
    [low, high] = [Math.min(low, start), Math.max(high, end)];
    ranges = [[start - low, end - low]];
  }
  const pieces = splitAtMarks(characters.slice(low, high), ranges);
  if (low > 0) pieces.unshift({ text: "… ", isMarked: false });
  if (high < characters.length) pieces.push({ text: " …", isMarked: false });
  return pieces.map((piece) => ({ ...piece, text: piece.text.replace(/\s+/g, " ") }));
}

/** Return the window of a text with the most different words of the question; else its beginning. */
function chooseWindow(characters, question) {
  const size = 2 * SIDE;
  const asked = new Set(listWords(Array.from(question)).map(({ word }) => word));
  const found = listWords(characters).filter(({ word }) => asked.has(word));
  let [best, most] = [0, 0];
  for (const { start } of found.slice(0, 500)) {
    const first = Math.max(0, Math.min(start - SIDE / 4, characters.length - size));
    const shown = new Set(
      found.filter((other) => other.start >= first && other.end <= first + size).map((o) => o.word),
    );
    if (shown.size > most) [best, most] = [first, shown.size];
  }
  return [best, Math.min(characters.length, best + size)];
}

/** Return the words of a text that have a meaning of their own, with their first characters and ends. */
function listWords(characters) {
  const words = [];
  for (let start = 0; start < characters.length; start += 1) {
    let end = start;
    while (end < characters.length && WORD.test(characters[end])) end += 1;
    if (end === start) continue;
    const word = characters.slice(start, end).join("").toLowerCase();
    if ((word.length > 3 && !STOP_WORDS.has(word)) || /\p{N}/u.test(word))
      words.push({ word: word.slice(0, 6), start, end });
    start = end;
  }
  return words;
}

function shrinkToWords(characters, [low, high]) {
  const isSpace = (place) => /\s/.test(characters[place] ?? " ");
  for (let step = 0; low > 0 && step < LONGEST_WORD; step += 1) {
    if (isSpace(low + step - 1)) {
      low += step;
      break;
    }
  }
  for (let step = 0; high < characters.length && step < LONGEST_WORD; step += 1) {
    if (isSpace(high - step)) {
      high -= step;
      break;
    }
  }
  return [low, high];
}

/** Return the name of the file of a path. */
export function getFileName(path) {
  return path.split(/[\\/]/).pop() || path;
}

/** Return the last folder and the name of a file, since folders often have files of the same name. */
export function getShortPath(path) {
  return path
    .split(/[\\/]/)
    .filter(Boolean)
    .slice(-2)
    .join("/");
}

/** Return a message as a sentence: with a capital letter and a full stop. */
export function toSentence(message) {
  const text = message.trim();
  return text.charAt(0).toUpperCase() + text.slice(1) + (/[.!?…]$/.test(text) ? "" : ".");
}
