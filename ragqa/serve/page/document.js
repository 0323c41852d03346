/** Text of a document in the panel, with a span marked. */

import { openFile, readDocument } from "./api.js";
import { make } from "./dom.js";
import { makeError, openPanel, setContent, setTitle } from "./panel.js";
import { getFileName, splitAtMarks } from "./text.js";

const LIMIT = 200;
/** Units whose numbers stand in the text; numbers of lines would be too many. */
const UNITS = ["page", "slide", "cell"];

/**
 * Show a document.
 *
 * @param {object} place index, document, path and title, with start and end of the span to mark; isPassage is true
 *   if the span is a passage, which gets a line at its side instead of a mark
 */
export async function showDocument({ index, document, path, start, end, title, isPassage }) {
  const isShown = openPanel(title || getFileName(document), make("p.progress", {}, "Opening …"));
  const read = (first) => readDocument(document, { index, path, start, end, first, limit: LIMIT });
  try {
    const row = await read(null);
    if (!isShown()) return;
    setTitle(row.title.trim() || getFileName(row.id));
    const view = new DocumentView(row, read, isPassage ? start : null);
    setContent(...(row.file ? [makeFileLink(row, findPage(row.parts, start ?? 0))] : []), ...view.content);
    view.scrollToMark();
  } catch (error) {
    if (isShown()) setContent(makeError(error));
  }
}

class DocumentView {
  constructor(row, read, passageStart) {
    this.read = read;
    this.passageStart = passageStart;
    this.total = row.passages;
    this.first = row.first;
    this.last = row.first + row.parts.length;
    this.text = make("div.text", {}, ...this.makeParts(row.parts));
    this.earlier = make(
      "button",
      { type: "button", click: () => this.add(Math.max(0, this.first - LIMIT), true) },
      "Show earlier text",
    );
    this.later = make("button", { type: "button", click: () => this.add(this.last, false) }, "Show later text");
    this.content = [makeFacts(row), this.earlier, this.text, this.later];
    this.updateButtons();
  }

  /** Scroll to the marked span or passage if it is below the upper part of the window. */
  scrollToMark() {
    const target = this.text.querySelector("mark") ?? this.text.querySelector(".current");
    if (target?.getBoundingClientRect().bottom > innerHeight * 0.7) target.scrollIntoView({ block: "center" });
  }

  updateButtons() {
    this.earlier.hidden = this.first === 0;
    this.later.hidden = this.last >= this.total;
  }

  async add(first, isEarlier) {
    try {
      const row = await this.read(first);
      const count = isEarlier ? this.first - first : row.parts.length;
      const parts = this.makeParts(row.parts.slice(0, count));
      if (isEarlier) {
        const top = this.text.firstElementChild;
        this.text.prepend(...parts);
        top?.scrollIntoView({ block: "start" });
        this.first = first;
      } else {
        this.text.append(...parts);
        this.last = first + count;
      }
      this.updateButtons();
    } catch (error) {
      this.text.append(makeError(error));
    }
  }

  makeParts(parts) {
    let [done, place] = [-1, ""];
    return parts.flatMap((part) => {
      // Passages can overlap, but each character is shown once.
      const cut = Math.max(0, Math.min(done - part.start, part.end - part.start));
      done = Math.max(done, part.end);
      const characters = Array.from(part.text).slice(cut);
      const marks =
        this.passageStart === null ? part.marks.map(([low, high]) => [Math.max(0, low - cut), high - cut]) : [];
      const unit = UNITS.find((name) => part[name] !== null);
      const lines = makeText(splitAtMarks(characters, marks), unit, part[unit] ?? 0);
      const label = [part.sheet && `Sheet ${part.sheet}`, ...part.headings].filter(Boolean).join(" › ");
      const heading = label && label !== place ? [make("h3", { dir: "auto" }, label)] : [];
      place = label;
      const number = unit && cut === 0 && part[unit] !== this.unitNumber ? [makeUnit(unit, part[unit])] : [];
      this.unitNumber = unit ? part[unit] + part.text.split("\f").length - 1 : null;
      const isCurrent = this.passageStart !== null && part.start === this.passageStart;
      return [...number, ...heading, make(isCurrent ? "div.part.current" : "div.part", { dir: "auto" }, ...lines)];
    });
  }
}

/** Return the elements of a text: pieces with and without marks, and the number of each new page. */
function makeText(pieces, unit, first) {
  let number = first;
  return pieces.flatMap(({ text, isMarked }) =>
    text.split("\f").flatMap((line, place) => {
      const shown = line && (isMarked ? make("mark", {}, line) : make("span", {}, line));
      if (!place) return shown ? [shown] : [];
      number += 1;
      return [...(unit ? [makeUnit(unit, number)] : []), ...(shown ? [shown] : [])];
    }),
  );
}

function makeUnit(unit, number) {
  return make("p.unit", {}, `${unit.charAt(0).toUpperCase()}${unit.slice(1)} ${number}`);
}

/** Return the number of the page with a character of the document; null if no part has it. */
function findPage(parts, offset) {
  const part = parts.find((each) => each.page !== null && each.start <= offset && offset < each.end);
  return part ? part.page + Array.from(part.text).slice(0, offset - part.start).filter((c) => c === "\f").length : null;
}

function makeFileLink(row, page) {
  const address = page ? `${row.file}#page=${page}` : row.file;
  const click = (event) => openFile(address, event).catch((error) => line.after(makeError(error)));
  const text = page ? `Open the PDF at page ${page}` : "Open the PDF";
  const line = make("p.file", {}, make("a", { href: address, target: "_blank", rel: "noopener", click }, text));
  return line;
}

function makeFacts(row) {
  const facts = [row.path, row.date, ...row.tags.map((tag) => `#${tag}`)].filter(Boolean);
  return make("ul.facts", {}, ...facts.map((fact) => make("li", {}, make("bdi", {}, fact))));
}
