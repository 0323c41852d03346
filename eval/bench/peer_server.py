"""Server of sentence-transformers and transformers, for comparison with ``ragqa serve``.

    PEER_FOLDER=DIR python -m uvicorn --app-dir eval/bench peer_server:app --port 8001

``eval.bench.answer_server`` writes DIR. The module does not import ragqa. FastAPI runs each request in a thread.
"""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
from fastapi import FastAPI
from pydantic import BaseModel
from sentence_transformers import SentenceTransformer
from transformers import pipeline

FOLDER = Path(os.environ["PEER_FOLDER"])
app = FastAPI()
encoder = SentenceTransformer(str(FOLDER / "encoder"), device="cpu")
reader: Any = pipeline("question-answering", str(FOLDER / "reader"), device="cpu")
passages: list[str] = json.loads((FOLDER / "passages.json").read_text())
vectors = np.load(FOLDER / "vectors.npy")


class PeerQuestion(BaseModel):
    """Body of a request."""

    question: str
    k: int = 10
    """Number of passages to read."""


@app.get("/healthz")
def check() -> dict[str, str]:
    """Return the status of the running server."""
    return {"status": "ok"}


@app.post("/ask")
def ask(body: PeerQuestion) -> dict[str, Any]:
    """Return the best answer from the question's nearest passages, and its score."""
    query = encoder.encode([body.question], normalize_embeddings=True)[0]
    contexts = [passages[row] for row in np.argsort(-(vectors @ query))[: body.k]]
    questions = [body.question] * len(contexts)
    answers = reader(question=questions, context=contexts, batch_size=10, handle_impossible_answer=False)
    best = max(answers if isinstance(answers, list) else [answers], key=lambda answer: answer["score"])
    return {"answer": best["answer"], "confidence": float(best["score"])}
