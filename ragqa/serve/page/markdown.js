/** Answers as Markdown. Texts of documents and models are escaped, so that they make no links, images or HTML. */

import { escapeControls } from "./dom.js";
import { chooseQuote, toSentence } from "./text.js";

const SENTENCE_END = /[.!?…:;]*$/u;

function escape(text) {
  return escapeControls(text.replace(/\s+/g, " ").trim()).replace(/[\\`*_[\]<>|]/g, "\\$&");
}

/** Split an answer into its statements and the strings between them, in order. */
export function splitAtStatements(answer) {
  const characters = Array.from(answer.answer);
  const parts = [];
  let done = 0;
  for (const statement of answer.statements) {
    parts.push(characters.slice(done, statement.start).join(""), statement);
    done = statement.end;
  }
  parts.push(characters.slice(done).join(""));
  return parts.filter((part) => part !== "");
}

/** Split a statement before its final punctuation, where its citations stand. */
export function splitStatement(text) {
  const end = text.match(SENTENCE_END)[0];
  return [text.slice(0, text.length - end.length), end];
}

/** Return all sources of written statements, and the first three of other answers. */
export function chooseCited(answer) {
  return answer.statements.length ? answer.sources : answer.sources.slice(0, 3);
}

function formatAnswer(answer) {
  if (answer.answer === null) {
    const guess = answer.alternatives[0];
    const best = guess ? [`Best guess: ${escape(guess.answer)} (confidence ${guess.confidence.toFixed(2)}).`] : [];
    return [`No answer in these documents: ${escape(toSentence(answer.reason ?? "nothing was found"))}`, ...best];
  }
  const doubt = answer.supported ? "" : `; unsupported: ${escape(answer.reason ?? "no passage says so")}`;
  const confidence = `Confidence ${answer.confidence.toFixed(2)}${doubt}.`;
  if (!answer.statements.length) {
    const numbers = chooseCited(answer).map((_, place) => `[${place + 1}]`);
    return [`${escape(answer.answer)} ${numbers.join("")}`.trim(), confidence];
  }
  const parts = splitAtStatements(answer).map((part) => {
    if (typeof part === "string") return /\n/.test(part) ? "\n\n" : part;
    const [words, end] = splitStatement(part.text);
    const numbers = part.citations.map((number) => `[${number}]`).join("");
    return `${escape(words)}${numbers && ` ${numbers}`}${part.supported ? "" : " (unsupported)"}${end}`;
  });
  return [parts.join("").trim(), confidence];
}

/** Format an answer as Markdown, with its question and the quotes of its sources. */
export function toMarkdown(answer) {
  const sources = chooseCited(answer).map((source, place) => {
    const quote = chooseQuote(source, answer.question).map((piece) => piece.text);
    return `[${place + 1}] **${escape(source.title || source.document)}**, ${escape(source.place)}: “${escape(quote.join(""))}”`;
  });
  const nearest = answer.answer === null && sources.length ? ["The nearest passages:"] : [];
  return `${[`**${escape(answer.question)}**`, ...formatAnswer(answer), ...nearest, ...sources].join("\n\n")}\n`;
}
