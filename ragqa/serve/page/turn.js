/** View of a question and its answer. */

import { announce, make } from "./dom.js";
import { chooseCited, splitAtStatements, splitStatement, toMarkdown } from "./markdown.js";
import { chooseQuote, getFileName, toSentence } from "./text.js";

const LONG_ANSWER = 120;
const LIKELY = 0.005;
const SHOWN_SOURCES = 3;

/** Describe a confidence in words; it is the expected share of right answers. */
function describeConfidence(confidence) {
  if (confidence >= 0.75) return "Very likely right";
  if (confidence >= 0.5) return "Likely right";
  if (confidence >= 0.25) return "Uncertain";
  return "Very uncertain";
}

/** Question with its answer, or with the progress until then. */
export class TurnView {
  /**
   * @param {string} question question of the user
   * @param {function} openSource function that opens the document of a source
   */
  constructor(question, openSource) {
    this.openSource = openSource;
    this.body = make("div.body", {}, make("p.progress", {}, "Searching …"));
    this.element = make("li.turn", {}, make("h2.asked", { dir: "auto" }, question), this.body);
  }

  /** Show which passages are being read. */
  showPassages(found) {
    const titles = [...new Set(found.passages.map((passage) => getTitle(passage)))].slice(0, 3);
    const count = found.passages.length;
    const names = titles.flatMap((title, place) => [place ? ", " : " from ", make("bdi", {}, title)]);
    const line = `Reading ${count} ${count === 1 ? "passage" : "passages"}`;
    this.body.replaceChildren(make("p.progress", {}, line, ...names, " …"));
  }

  /** Show a piece of the answer while a language model writes it. */
  addText(text) {
    this.written ??= "";
    this.written += text;
    this.body.replaceChildren(make("p.answer.long", { dir: "auto" }, this.written));
  }

  /** Show an error in one sentence. */
  showError(message) {
    this.body.replaceChildren(make("p.error", { role: "alert" }, toSentence(message)));
  }

  /** Show the answer, and tell screen readers. */
  showAnswer(answer) {
    const isDeclined = answer.answer === null;
    this.element.classList.toggle("declined", isDeclined);
    this.copyButton = make("button.quiet", { type: "button", click: () => this.copy(answer) }, "Copy as Markdown");
    const head = isDeclined ? makeDeclined(answer) : this.makeAnswer(answer);
    this.body.replaceChildren(...head, ...makeNotes(answer), ...this.makeSources(answer), ...makeRunnersUp(answer));
    const count = answer.sources.length;
    const sources = `${count} ${isDeclined ? "nearest " : ""}${isDeclined ? "passage" : "source"}${count === 1 ? "" : "s"}`;
    const text = isDeclined
      ? `No answer in these documents. ${toSentence(answer.reason ?? "")}`
      : toSentence(answer.answer);
    const words = isDeclined
      ? ""
      : `${describeConfidence(answer.confidence)}, confidence ${answer.confidence.toFixed(2)}. `;
    announce(`${text} ${words}${sources}.`);
  }

  /** Fold the sources, to make room for a newer turn. */
  fold() {
    for (const details of this.body.querySelectorAll("details")) details.open = false;
  }

  /** Copy the answer as Markdown. */
  async copy(answer) {
    try {
      await copyText(toMarkdown(answer));
      this.copyButton.textContent = "Copied";
      announce("Copied.");
    } catch {
      this.copyButton.textContent = "The browser refused to copy";
    }
    setTimeout(() => (this.copyButton.textContent = "Copy as Markdown"), 2000);
  }

  makeAnswer(answer) {
    const isLong = answer.answer.length > LONG_ANSWER || answer.statements.length > 0;
    const content = answer.statements.length ? this.makeStatements(answer) : [answer.answer];
    const bar = make("span.bar", { "aria-hidden": "true" }, make("span"));
    bar.firstChild.style.width = `${100 * answer.confidence}%`;
    const confidence = [
      bar,
      make("span.words", {}, describeConfidence(answer.confidence)),
      makeNumber(answer.confidence),
    ];
    if (!answer.supported) {
      confidence.push(make("span.unsupported-tag", {}, `Unsupported: ${answer.reason ?? "no passage says so"}`));
    }
    return [
      make(isLong ? "p.answer.long" : "p.answer", { dir: "auto" }, ...content),
      make("div.confidence", {}, ...confidence, this.copyButton),
    ];
  }

  makeStatements(answer) {
    return splitAtStatements(answer).map((part) => {
      if (typeof part === "string") return part;
      const [words, end] = splitStatement(part.text);
      const citations = part.citations.flatMap((number) => {
        const source = answer.sources[number - 1];
        if (!source) return [];
        const label = `Source ${number}: ${getTitle(source)}`;
        return [
          make(
            "button.cite",
            { type: "button", "aria-label": label, click: () => this.openSource(source) },
            `${number}`,
          ),
        ];
      });
      if (part.supported) return make("span", {}, words, ...citations, end);
      const tag = make("span.unsupported-tag", {}, "unsupported");
      return make("span", {}, make("span.unsupported", {}, words), ...citations, " ", tag, end);
    });
  }

  makeSources(answer) {
    if (!answer.sources.length) return [];
    const isDeclined = answer.answer === null;
    const cards = answer.sources.map((source, place) => this.makeCard(source, place + 1, answer));
    const list = make("ol.sources", {}, ...cards);
    const shown = answer.statements.length ? chooseCited(answer).length : SHOWN_SOURCES;
    const rest = cards.slice(shown);
    for (const card of rest) card.hidden = true;
    const more = make("button.quiet", { type: "button", click: show }, `Show ${rest.length} more`);
    function show() {
      for (const card of rest) card.hidden = false;
      more.remove();
      rest[0].querySelector("button").focus();
    }
    const name = isDeclined ? "Nearest passages" : cards.length === 1 ? "Source" : "Sources";
    const details = make("details", {}, make("summary", {}, make("h3", {}, name)), list, rest.length ? more : null);
    details.open = true;
    return [details];
  }

  makeCard(source, number, answer) {
    const quote = chooseQuote(source, answer.question).map((piece) =>
      piece.isMarked ? make("mark", {}, piece.text) : piece.text,
    );
    const open = make(
      "button",
      { type: "button", click: () => this.openSource(source) },
      make("bdi", {}, getTitle(source)),
    );
    return make(
      "li.card",
      {},
      make("h4", {}, make("span.number", { "aria-hidden": "true" }, `${number}`), open),
      make("p.place", {}, make("bdi", { title: source.path }, source.place)),
      make("blockquote", { dir: "auto" }, ...quote),
    );
  }
}

function getTitle(source) {
  return source.title.trim() || getFileName(source.document);
}

function makeNumber(confidence) {
  return make("span.figure", {}, `confidence ${confidence.toFixed(2)}`);
}

function makeDeclined(answer) {
  const guess = answer.alternatives[0];
  const lines = [make("p.answer", {}, answer.sources.length ? "No answer in these documents" : "No answer")];
  if (answer.reason) lines.push(make("p.reason", {}, toSentence(answer.reason)));
  if (guess) {
    const text = make("strong", { dir: "auto" }, guess.answer);
    lines.push(make("p.guess", {}, "Best guess: ", text, " ", makeNumber(guess.confidence)));
  }
  return lines;
}

function makeNotes(answer) {
  const unsupported = answer.statements
    .filter((part) => !part.supported && part.reason)
    .map((part) => make("p.note", {}, "Unsupported: ", make("q", { dir: "auto" }, part.text), ` – ${part.reason}.`));
  const missing = answer.missing.length ? `No answer from ${answer.missing.join(", ")}.` : null;
  const asked = answer.asked && make("p.note", {}, "Asked as ", make("q", { dir: "auto" }, answer.asked));
  return [
    ...unsupported,
    asked,
    answer.note && make("p.note", {}, toSentence(answer.note)),
    missing && make("p.note", {}, missing),
  ].filter(Boolean);
}

function makeRunnersUp(answer) {
  const others = answer.alternatives
    .slice(answer.answer === null ? 1 : 0)
    .filter((other) => other.confidence >= LIKELY);
  if (!others.length) return [];
  const rows = others.map((other) => make("li", {}, make("bdi", {}, other.answer), " ", makeNumber(other.confidence)));
  return [make("details", {}, make("summary", {}, make("h3", {}, "Other candidates")), make("ul.others", {}, ...rows))];
}

async function copyText(text) {
  if (navigator.clipboard) {
    await navigator.clipboard.writeText(text);
    return;
  }
  // Browsers give no clipboard to pages without TLS, except on this machine.
  const area = make("textarea", { "aria-hidden": "true" });
  area.value = text;
  document.body.append(area);
  area.select();
  const isCopied = document.execCommand("copy");
  area.remove();
  if (!isCopied) throw new Error("the browser does not copy");
}
