/** List of documents in the panel, with uploads and deletions. */

import { addDocument, deleteDocument, listDocuments } from "./api.js";
import { showDocument } from "./document.js";
import { announce, find, make } from "./dom.js";
import { makeError, openPanel, setContent } from "./panel.js";
import { getFileName, getShortPath, toSentence } from "./text.js";

const MAX_BYTES = 64 * 2 ** 20;

/** List of the documents of an index. */
export class DocumentsView {
  /**
   * @param {string} index name of the index
   * @param {boolean} canEdit true if documents can be added and deleted
   */
  constructor(index, canEdit) {
    this.index = index;
    this.canEdit = canEdit;
    this.count = make("p.count");
    this.list = make("ul.documents");
    this.more = make(
      "button",
      { type: "button", hidden: "", click: () => this.load(this.list.children.length) },
      "Show more",
    );
    this.progress = make("p.progress", { role: "status" });
    this.errors = make("div");
  }

  /** Open the panel with the list. */
  async open() {
    const isShown = openPanel(`Documents in ${this.index}`, make("p.progress", {}, "Opening …"));
    await this.load(0);
    if (isShown())
      setContent(
        ...(this.canEdit ? [this.makeUpload()] : []),
        this.progress,
        this.errors,
        this.count,
        this.list,
        this.more,
      );
  }

  /** Add files to the index, one after the other, and show the new list. */
  async upload(files) {
    this.errors.replaceChildren();
    for (const file of files) {
      this.progress.textContent = `Adding ${file.name} …`;
      try {
        if (file.size > MAX_BYTES) throw new Error(`${file.name} has more than 64 MB: split it`);
        const report = await addDocument(this.index, file);
        const verb = report.replaced ? "replaced" : report.added ? "added" : "unchanged";
        this.progress.textContent = `${file.name} was ${verb}.`.replace("was unchanged", "is unchanged");
      } catch (error) {
        this.progress.textContent = "";
        this.errors.append(makeError(error));
      }
    }
    await this.load(0);
  }

  makeUpload() {
    const input = make("input", { type: "file", multiple: "", id: "files" });
    input.addEventListener("change", async () => {
      await this.upload([...input.files]);
      input.value = "";
    });
    return make(
      "div.upload",
      {},
      make("label", { for: "files" }, "Add files"),
      input,
      make("p", {}, "Or drag them onto the page."),
    );
  }

  async load(first) {
    try {
      const row = await listDocuments(this.index, first);
      const rows = row.documents.map((document) => this.makeRow(document));
      if (first) this.list.append(...rows);
      else this.list.replaceChildren(...rows);
      this.count.textContent = `${row.total} ${row.total === 1 ? "document" : "documents"}`;
      this.more.hidden = this.list.children.length >= row.total;
    } catch (error) {
      this.errors.append(makeError(error));
    }
  }

  makeRow(document) {
    const title = document.title.trim() || getFileName(document.id);
    const place = { index: this.index, document: document.id, path: document.path, title };
    const facts = [getShortPath(document.path), document.date, ...document.tags.map((tag) => `#${tag}`)].filter(Boolean);
    const remove = this.canEdit
      ? make(
          "button.quiet",
          { type: "button", "aria-label": `Delete ${title}`, click: () => this.delete(document, title) },
          "Delete",
        )
      : null;
    return make(
      "li",
      {},
      make("button.open", { type: "button", click: () => showDocument(place) }, make("bdi", {}, title)),
      make("ul.facts", {}, ...facts.map((fact) => make("li", {}, make("bdi", {}, fact)))),
      remove,
    );
  }

  async delete(document, title) {
    if (!(await confirm(`Delete “${title}” from ${this.index}?`))) return;
    this.errors.replaceChildren();
    try {
      await deleteDocument(this.index, document);
      await this.load(0);
      this.progress.textContent = toSentence(`${title} was deleted`);
    } catch (error) {
      this.errors.append(makeError(error));
    }
    find("panel-title").focus();
  }
}

/** Ask the user a question; the promise is true for yes. */
function confirm(text) {
  const dialog = find("confirm");
  find("confirm-text").replaceChildren(make("bdi", {}, text));
  dialog.returnValue = "no";
  dialog.showModal();
  announce("");
  return new Promise((resolve) =>
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true }),
  );
}
