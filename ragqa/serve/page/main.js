/** The page: its state, its form, its keys and its address. */

import { ask, getHealth, setToken } from "./api.js";
import { showDocument } from "./document.js";
import { DocumentsView } from "./documents.js";
import { find, make } from "./dom.js";
import { closePanel, isPanelOpen } from "./panel.js";
import { toSentence } from "./text.js";
import { TurnView } from "./turn.js";

const MAX_TURNS = 5;
const state = { canEdit: false, turns: [], views: [], running: null, documents: null };
const FILTERS = { path: "filter-paths", tag: "filter-tags", since: "filter-since" };

async function start() {
  try {
    const health = await getHealth();
    if (!health.indexes) return showTokenForm();
    setUp(health);
  } catch (error) {
    showNotice(error.message);
  }
}

function showTokenForm() {
  if (sessionStorage.length) showNotice("this is not the token of the server");
  setToken(null);
  find("token-form").hidden = false;
  find("token").focus();
}

function setUp(health) {
  state.canEdit = health.can_edit;
  find("index").replaceChildren(...health.indexes.map(({ name }) => make("option", { value: name }, name)));
  find("index-choice").hidden = health.indexes.length < 2;
  for (const id of ["ask", "show-documents"]) find(id).hidden = false;
  find("token-form").hidden = true;
  showNotice("");
  find("question").focus();
  openLinkedDocument();
  readAddress();
}

function showNotice(message) {
  find("notice").replaceChildren(make("span", {}, message && toSentence(message)));
}

/** Ask the question of the form, and show its answer above the earlier ones. */
async function askQuestion(question) {
  if (!question.trim()) return;
  state.running?.abort();
  const running = new AbortController();
  state.running = running;
  const index = find("index").value;
  const view = new TurnView(question, (source) => openSource(index, source));
  for (const earlier of state.views) earlier.fold();
  state.views.unshift(view);
  find("turns").prepend(view.element);
  document.body.classList.add("has-turns");
  document.title = `${question} – ragqa`;
  showNotice("");
  update();
  const body = { question, index, filter: readFilter(), turns: state.turns.slice(-MAX_TURNS) };
  const listeners = { passages: (row) => view.showPassages(row), text: (row) => view.addText(row.text) };
  try {
    const answer = await ask(body, running.signal, listeners);
    view.showAnswer(answer);
    const asked = answer.asked ?? question;
    state.turns.push({ question: asked, answer: answer.answer, title: answer.sources[0]?.title ?? "" });
    if (state.running === running) writeAddress(asked, true); // the link must work without the earlier questions
  } catch (error) {
    view.showError(error.name === "AbortError" ? "stopped" : error.message);
    if (error.status === 401) showTokenForm();
  }
  if (state.running === running) state.running = null;
  update();
}

function openSource(index, source) {
  const hasAnswer = source.answer_start !== null;
  const [start, end] = hasAnswer ? [source.answer_start, source.answer_end] : [source.start, source.end];
  const { document, path, title } = source;
  showDocument({ index, document, path, title, start, end, isPassage: !hasAnswer });
}

/** Open the document that the address names; citations in chat messages link to such addresses. */
function openLinkedDocument() {
  const query = new URLSearchParams(location.search);
  const document = query.get("document");
  if (!document) return;
  const index = query.get("index") ?? find("index").value;
  showDocument({ index, document, path: query.get("path"), start: query.get("start"), end: query.get("end") });
}

function splitList(text) {
  return text
    .split(",")
    .map((part) => part.trim())
    .filter(Boolean);
}

function readFilter() {
  const [path, tag, since] = Object.values(FILTERS).map((id) => find(id).value.trim());
  return { paths: splitList(path), tags: splitList(tag), since };
}

function startOver() {
  state.running?.abort();
  Object.assign(state, { turns: [], views: [], running: null });
  find("turns").replaceChildren();
  document.body.classList.remove("has-turns");
  document.title = "ragqa";
  showNotice("");
  update();
}

function update() {
  const { paths, tags, since } = readFilter();
  const conditions = [...paths, ...tags.map((tag) => `#${tag}`), since && `since ${since}`].filter(Boolean);
  find("filter-summary").textContent = conditions.length ? `Filter: ${conditions.join(", ")}` : "Filter documents";
  find("send").textContent = state.running && !find("question").value.trim() ? "Stop" : "Ask";
  find("restart").hidden = !state.views.length;
  find("question").placeholder = state.turns.length ? "Ask a follow-up" : "Ask a question";
}

/** Write the question into the fragment of the address, which browsers send to no server. */
function writeAddress(question, isSame) {
  const values = { q: question, index: find("index-choice").hidden ? "" : find("index").value };
  for (const [name, id] of Object.entries(FILTERS)) values[name] = find(id).value.trim();
  const fragment = new URLSearchParams(Object.entries(values).filter(([, value]) => value));
  const address = `${location.pathname}#${fragment}`;
  if (isSame) history.replaceState(null, "", address);
  else history.pushState(null, "", address);
}

/** Ask the question in the address, if it has one. */
function readAddress() {
  const values = new URLSearchParams(location.hash.slice(1));
  const index = values.get("index");
  if (index && [...find("index").options].some((option) => option.value === index)) find("index").value = index;
  for (const [name, id] of Object.entries(FILTERS)) find(id).value = values.get(name) ?? "";
  startOver();
  if (values.get("q")) askQuestion(values.get("q"));
}

function submitQuestion(event) {
  event.preventDefault();
  const field = find("question");
  const question = field.value.trim();
  if (!question) return state.running?.abort();
  field.value = "";
  resize();
  writeAddress(question, false);
  askQuestion(question);
}

/** Make the field of the question as high as its text. */
function resize() {
  const field = find("question");
  field.style.height = "auto";
  field.style.height = `${field.scrollHeight}px`;
}

function openDocuments() {
  state.documents = new DocumentsView(find("index").value, state.canEdit);
  return state.documents.open();
}

function handleKey(event) {
  const isTyping = event.target.closest("input, textarea, select");
  if (event.key === "/" && !isTyping && !event.ctrlKey && !event.metaKey && !event.altKey) {
    event.preventDefault();
    if (isPanelOpen() && find("main").inert) closePanel();
    find("question").focus();
  } else if (event.key === "Escape" && !find("confirm").open) {
    if (isPanelOpen()) closePanel();
    else state.running?.abort();
  }
}

/** Add files that are dropped anywhere, if the server allows it. */
function handleDrag(event) {
  if (!state.canEdit || !event.dataTransfer?.types.includes("Files")) return;
  event.preventDefault();
  find("drop").hidden = event.type !== "dragover";
  if (event.type !== "drop") return;
  const files = [...event.dataTransfer.files];
  openDocuments().then(() => state.documents.upload(files));
}

find("ask").addEventListener("submit", submitQuestion);
find("question").addEventListener("input", () => {
  resize();
  update();
});
find("question").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  find("ask").requestSubmit();
});
find("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  setToken(find("token").value.trim());
  find("token").value = "";
  start();
});
for (const id of Object.values(FILTERS)) find(id).addEventListener("input", update);
find("restart").addEventListener("click", () => {
  history.pushState(null, "", location.pathname);
  startOver();
  find("question").focus();
});
find("index").addEventListener("change", startOver);
find("show-documents").addEventListener("click", openDocuments);
document.addEventListener("keydown", handleKey);
for (const type of ["dragover", "dragleave", "drop"]) document.addEventListener(type, handleDrag);
addEventListener("popstate", readAddress);
start();
