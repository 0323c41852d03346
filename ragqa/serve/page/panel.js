/** Panel with a document or the list of documents: beside the answers, or over them on a narrow screen. */

import { find, make } from "./dom.js";
import { toSentence } from "./text.js";

const NARROW = matchMedia("(max-width: 59.99rem)");

let opener = null;
let openings = 0;

/** Open the panel, and return a function that is true while the panel shows this content. */
export function openPanel(title, ...content) {
  if (find("panel").hidden) opener = document.activeElement;
  openings += 1;
  const opening = openings;
  find("panel").hidden = false;
  document.body.classList.add("has-panel");
  setTitle(title);
  setContent(...content);
  find("panel-body").scrollTop = 0;
  find("panel-title").focus();
  update();
  return () => opening === openings && !find("panel").hidden;
}

/** Return true if the panel is open. */
export function isPanelOpen() {
  return !find("panel").hidden;
}

/** Close the panel, and focus the element that opened it. */
export function closePanel() {
  find("panel").hidden = true;
  document.body.classList.remove("has-panel");
  update();
  if (opener?.isConnected && opener !== document.body) opener.focus();
  else find("question").focus();
}

/** Set the title of the panel. */
export function setTitle(title) {
  find("panel-title").replaceChildren(make("bdi", {}, title));
}

/** Replace the content of the panel. */
export function setContent(...content) {
  find("panel-body").replaceChildren(...content);
}

/** Make an element with the message of an error. */
export function makeError(error) {
  return make("p.error", { role: "alert" }, toSentence(error.message));
}

/** Keep the keyboard inside the panel while the panel covers the page. */
function update() {
  const isCovered = !find("panel").hidden && NARROW.matches;
  for (const id of ["top", "main"]) find(id).inert = isCovered;
}

NARROW.addEventListener("change", update);
find("close-panel").addEventListener("click", closePanel);
