/** Quotes and marks in texts. Characters are Unicode code points, as in the offsets of the server. */

const WORD = /[\p{L}\p{M}\p{N}_]/u;
/** Scripts that write no spaces between words, so that the end of a word cannot be found. */
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

/** Return a quote of a source, around the answer or else the words of the question, as pieces. */
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

/** Return the range of a text with the most different words of the question, or its beginning. */
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

/** Return the main words of a text, shortened to 6 characters, with their starts and ends. */
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

/** Return the file name of a path. */
export function getFileName(path) {
  return path.split(/[\\/]/).pop() || path;
}

/** Return the last folder and the file name of a path: several folders can have files of that name. */
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
