/** Elements of the page. All text becomes text nodes, so no text of a document is read as HTML. */

const CONTROL = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u2028-\u202e\u2066-\u2069]/g;

/** Replace control characters and marks of direction by visible escapes such as \x1b and \u202e. */
export function escapeControls(text) {
  return text.replace(CONTROL, (character) => {
    const code = character.charCodeAt(0);
    return code < 0x100 ? `\\x${code.toString(16).padStart(2, "0")}` : `\\u${code.toString(16)}`;
  });
}

/**
 * Make an element.
 *
 * @param {string} name name of the element, with classes: "p.place"
 * @param {object} attributes values by name; a function listens to the event of its name, null is left out
 * @param {...(Node|string|null)} children elements, or text
 */
export function make(name, attributes = {}, ...children) {
  const [tag, ...classes] = name.split(".");
  const element = document.createElement(tag);
  if (classes.length) element.className = classes.join(" ");
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(key, value);
    else if (value !== null && value !== undefined) element.setAttribute(key, value);
  }
  for (const child of children) {
    if (typeof child === "string") element.append(escapeControls(child));
    else if (child) element.append(child);
  }
  return element;
}

/** Return the element with an id. */
export function find(id) {
  return document.getElementById(id);
}

/** Let screen readers say a text. */
export function announce(text) {
  find("status").textContent = escapeControls(text);
}
