/** Requests to the server. */

const TOKEN = "ragqa-token";

/** Error of a request: a message of the server, or about its missing response. */
export class ServerError extends Error {
  /** @param {number} status HTTP status; 0 without a response */
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

/** Store the token for requests until the tab is closed; an empty one is removed. */
export function setToken(token) {
  if (token) sessionStorage.setItem(TOKEN, token);
  else sessionStorage.removeItem(TOKEN);
}

async function send(path, options = {}) {
  const token = sessionStorage.getItem(TOKEN);
  const headers = { ...options.headers, ...(token ? { Authorization: `Bearer ${token}` } : {}) };
  let response;
  try {
    response = await fetch(path, { ...options, headers });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ServerError("the server does not answer: check that it still runs", 0);
  }
  if (!response.ok) throw new ServerError(await readMessage(response), response.status);
  return response;
}

async function readMessage(response) {
  try {
    return (await response.json()).error.message;
  } catch {
    return `the server answered with status ${response.status}`;
  }
}

async function getJson(path, options) {
  return (await send(path, options)).json();
}

/** Return the path of a document's route. */
function formatDocumentPath(id, parameters) {
  const query = new URLSearchParams(
    Object.entries(parameters).filter(([, value]) => value !== null && value !== undefined),
  );
  return `documents/${encodeURIComponent(id)}?${query}`;
}

/** Return the state of the server and its indexes. */
export function getHealth() {
  return getJson("healthz");
}

/** Return a part of the list of documents. */
export function listDocuments(index, first, limit = 100) {
  return getJson(`documents?${new URLSearchParams({ index, first, limit })}`);
}

/** Return the text of a document; the parameters are as for GET /documents/{id}. */
export function readDocument(id, parameters) {
  return getJson(formatDocumentPath(id, parameters));
}

/**
 * Open a file in a new tab. If the server needs a token, fetch the file first, because a link sends no token.
 *
 * @param {string} address address of the file, with a fragment for its viewer
 * @param {Event} event click on a link to that address
 */
export async function openFile(address, event) {
  if (!sessionStorage.getItem(TOKEN)) return;
  event.preventDefault();
  const tab = window.open("", "_blank"); // at once: browsers block tabs that open long after a click
  const [path, fragment] = address.split("#");
  try {
    const url = URL.createObjectURL(await (await send(path)).blob());
    tab.location = fragment ? `${url}#${fragment}` : url;
  } catch (error) {
    tab.close();
    throw error;
  }
}

/** Add a file to an index. */
export function addDocument(index, file) {
  const query = new URLSearchParams({ index, name: file.name });
  const headers = { "Content-Type": "application/octet-stream" };
  return getJson(`documents?${query}`, { method: "POST", body: file, headers });
}

/** Delete a document from an index. */
export function deleteDocument(index, { id, path }) {
  return getJson(formatDocumentPath(id, { index, path }), { method: "DELETE" });
}

/**
 * Ask a question, and return the answer; throw a ServerError if there is none.
 *
 * @param {object} body body of POST /ask
 * @param {AbortSignal} signal signal that stops the request
 * @param {{passages: function, text: function}} listeners functions that receive the data of earlier events
 */
export async function ask(body, signal, listeners) {
  const options = { method: "POST", headers: { "Content-Type": "application/json" }, signal };
  const response = await send("ask", { ...options, body: JSON.stringify({ ...body, stream: true }) });
  for await (const [name, data] of readEvents(response.body)) {
    if (name === "answer") return data;
    if (name === "error") throw new ServerError(data.error.message, 200);
    listeners[name]?.(data);
  }
  throw new ServerError("the answer broke off: ask again", 0);
}

async function* readEvents(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let buffer = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const blocks = (buffer + value).split("\n\n");
      buffer = blocks.pop();
      for (const block of blocks) {
        const lines = new Map(block.split("\n").map((line) => line.split(/: (.*)/s, 2)));
        yield [lines.get("event"), JSON.parse(lines.get("data"))];
      }
    }
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ServerError("the connection to the server broke: ask again", 0);
  } finally {
    reader.cancel().catch(() => {});
  }
}
