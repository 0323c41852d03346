"""The generators there are: which one lies in a directory, or in what others have published."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import PretrainedConfig, RagSequenceForGeneration, RagTokenForGeneration

from ragqa import artefacts
from ragqa.errors import BadInput, DamagedArtefact, Mismatch
from ragqa.models import dpr
from ragqa.models.generation.fid import FusionInDecoder
from ragqa.models.generation.rag import MAX_ANSWER, MAX_INPUT, RagGenerator
from ragqa.models.generation.seq2seq import CONVENTIONS, Seq2Seq
from ragqa.models.generation.template import CLOSED_BOOK, FID, RAG, Template
from ragqa.models.generation.tokenizer import Seq2SeqTokenizer
from ragqa.models.pretrained import check_family, load_config, load_weights
from ragqa.models.tower import Tower
from ragqa.reading.registry import ReaderKind

FILE = "generator.json"
"""Beside the weights: kind, template, and how it was trained, which is how it is asked."""
QUESTION_TOKENS = "question_encoder_tokenizer"
"""Folder of the tokenizer through which questions go first, where they do; published checkpoints call it so."""
TEMPLATES: dict[str, Template] = {
    ReaderKind.RAG_TOKEN: RAG,
    ReaderKind.RAG_SEQUENCE: RAG,
    ReaderKind.FID: FID,
    ReaderKind.CLOSED_BOOK: CLOSED_BOOK,
}
"""Kinds, and what each reads unless it is told otherwise."""

_FILES = ("*.safetensors", "*.bin", "*.json", "*.model", "*.spm", "*.txt")
"""What decides what a model answers: weights, settings, tokenizers (tokenizer.json, spiece.model, merges.txt …)."""

Generator = RagGenerator | FusionInDecoder


@dataclass(frozen=True)
class PublishedRag:
    """What a checkpoint of RAG holds."""

    generator: RagGenerator
    questions: Tower
    """Its vectors search an index that DPR's passage encoder made."""
    question_tokens: Seq2SeqTokenizer


def make_generator(
    seq2seq: Seq2Seq,
    kind: str,
    *,
    template: Template | None = None,
    passages: int | None = None,
    max_input: int = MAX_INPUT,
    max_answer: int = MAX_ANSWER,
    retriever: str | None = None,
    question_tokens: Seq2SeqTokenizer | None = None,
) -> Generator:
    """A generator of one of the ``TEMPLATES``' kinds over a seq2seq; raises BadInput where there is no such kind."""
    if kind not in TEMPLATES:
        raise BadInput(f"generator {kind!r}: one of {', '.join(TEMPLATES)} is needed")
    template = template or TEMPLATES[kind]
    if template.closed != (kind == ReaderKind.CLOSED_BOOK):
        raise BadInput(f"template {template.text!r} is not for {kind}: a passage has its place in all but closed-book")
    sizes: dict[str, Any] = {"template": template, "max_input": max_input, "max_answer": max_answer}
    if kind == ReaderKind.FID:
        return FusionInDecoder(seq2seq, passages=passages or 10, **sizes)
    if template.closed:
        return RagGenerator(seq2seq, passages=1, **sizes)
    marginal: Any = "token" if kind == ReaderKind.RAG_TOKEN else "sequence"
    sizes |= {"retriever": retriever, "question_tokens": question_tokens}
    return RagGenerator(seq2seq, marginal=marginal, passages=passages or 5, **sizes)


def save_generator(generator: Generator, path: Path) -> None:
    """Write a directory of transformers' own format, and ``generator.json``."""
    generator.seq2seq.save(path)
    asked = generator.question_tokens if isinstance(generator, RagGenerator) else None
    row = {
        "kind": generator.kind,
        "template": generator.template.text,
        "passages": generator.passages,
        "max_input": generator.max_input,
        "max_answer": generator.max_answer,
        "retriever": generator.retriever,
        "respelled": asked is not None,
        "vocabulary": generator.seq2seq.tokens.digest,
    }
    if asked is not None:
        asked.save(path / QUESTION_TOKENS)
    (path / FILE).write_text(json.dumps(row, indent=1) + "\n")


def load_generator(source: str | Path, kind: str | None = None) -> Generator:
    """The generator in a directory or on the hub: ours, a checkpoint of RAG, or a seq2seq that is used as ``kind``.

    Raises:
        ArtefactError, DamagedArtefact: there is none, or it cannot be loaded.
        Mismatch: its tokenizer is not the one that it was saved with.
        BadInput: it is a plain seq2seq and ``kind`` is None, or it is of another kind.
    """
    if read_model_type(source) == "rag":
        return _as(load_rag(source).generator, kind, source)
    file = Path(source) / FILE
    if file.is_file():
        return _as(_load_own(file), kind, source)
    seq2seq = Seq2Seq.load(source)
    if kind is None:
        raise BadInput(f"{source} is a plain seq2seq: say which of {', '.join(TEMPLATES)} it is to be")
    return make_generator(seq2seq, kind)


def fingerprint_generator(source: str | Path) -> str:
    """16 hex digits for the weights, the tokenizers and the settings in a directory or on the hub."""
    folder = Path(source)
    if not folder.is_dir():
        from transformers.utils.hub import cached_file

        folder = Path(str(cached_file(str(source), "config.json"))).parent
    files = sorted(file for pattern in _FILES for file in folder.rglob(pattern))
    rows = [
        f"{file.relative_to(folder)} {artefacts.checksum(file)}" for file in files if file.name != artefacts.CALIBRATION
    ]
    return hashlib.sha256("\n".join(rows).encode()).hexdigest()[:16]


def read_generator_kind(path: Path) -> str:
    """The kind of a generator that was saved here; raises BadInput where there is none."""
    try:
        return str(json.loads((path / FILE).read_text())["kind"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadInput(f"{path} is no generator that was trained here: it has no {FILE} that can be read") from error


def _load_own(file: Path) -> Generator:
    try:
        row = json.loads(file.read_text())
        kind, told = str(row["kind"]), {"template": Template(str(row["template"])), "retriever": row.get("retriever")}
        told |= {name: int(row[name]) for name in ("passages", "max_input")}
        told["max_answer"] = int(row.get("max_answer", MAX_ANSWER))  # earlier ones do not say
    except (ValueError, KeyError, TypeError, BadInput) as error:
        raise DamagedArtefact(f"{file} is damaged: {error!r}") from error
    if row.get("respelled"):
        told["question_tokens"] = Seq2SeqTokenizer.load(file.parent / QUESTION_TOKENS)
    seq2seq = Seq2Seq.load(file.parent)
    if row.get("vocabulary") not in (None, seq2seq.tokens.digest):  # earlier ones do not say
        raise Mismatch(f"{file.parent} has another tokenizer than the generator there was saved with")
    return make_generator(seq2seq, kind, **told)


def _as(generator: Generator, kind: str | None, source: str | Path) -> Generator:
    if kind not in (None, generator.kind):
        raise BadInput(f"{source} is a generator of kind {generator.kind}, not {kind}")
    return generator


def read_model_type(source: str | Path) -> str:
    """``model_type`` of the model in a directory or on the hub; raises ArtefactError where there is none."""
    return str(load_config(source).model_type)


def load_rag(source: str | Path) -> PublishedRag:
    """A checkpoint in the format of ``facebook/rag-token-nq`` and ``facebook/rag-sequence-nq``.

    Its config.json says which of the two it is, and its separators, numbers of passages and tokens.

    Raises:
        ArtefactError: it is none, weights are missing, or a tokenizer is not there or another model's.
    """
    config: Any = load_config(source)
    check_family(config.generator.model_type, f"the generator of {source}")
    sequence = "RagSequence" in "".join(config.architectures or [])
    model: Any = load_weights(
        RagSequenceForGeneration if sequence else RagTokenForGeneration, source, {}, "checkpoint of RAG"
    )
    inner = model.rag
    _restore(inner.generator, source)
    tokens = Seq2SeqTokenizer.load(source, subfolder="generator_tokenizer", config=config.generator)
    asked = Seq2SeqTokenizer.load(source, subfolder=QUESTION_TOKENS, config=config.question_encoder)
    prefix = config.prefix or getattr(config.generator, "prefix", None) or ""
    generator = RagGenerator(
        Seq2Seq(inner.generator, tokens),
        marginal="sequence" if sequence else "token",
        template=Template(f"{prefix}{{title}}{config.title_sep}{{passage}}{config.doc_sep}{{question}}"),
        passages=config.n_docs,
        max_input=config.max_combined_length,
        retriever=str(source),  # no index is made with it but that of ``pipelines.publish``, which says so
        question_tokens=asked,
    )
    return PublishedRag(generator, Tower.from_dpr(*dpr.split_dpr_encoder(inner.question_encoder)), asked)


def _restore(generator: Any, source: str | Path) -> None:
    """Have the generator generate as the checkpoint says: a nested configuration loses what it says of that."""
    row = PretrainedConfig.get_config_dict(source)[0]
    for name in CONVENTIONS:
        said = (each.get(name) for each in (row.get("generator") or {}, row))
        if (value := next((each for each in said if each is not None), None)) is not None:
            setattr(generator.generation_config, name, value)
