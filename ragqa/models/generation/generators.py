"""Make, save and load generators of all kinds, including published RAG checkpoints."""

import hashlib
import json
from pathlib import Path
from typing import Any, NamedTuple

from transformers import PretrainedConfig, RagSequenceForGeneration, RagTokenForGeneration

from ragqa import artefacts
from ragqa.errors import BadInput, DamagedArtefact, Mismatch
from ragqa.models.dpr import make_dpr_tower
from ragqa.models.generation.fid import FusionInDecoder
from ragqa.models.generation.generator_kinds import MAX_ANSWER, GeneratorKind
from ragqa.models.generation.rag import Marginal, RagGenerator
from ragqa.models.generation.seq2seq import CONVENTIONS, Seq2Seq
from ragqa.models.generation.template import CLOSED_BOOK, FID, RAG, Template
from ragqa.models.generation.tokenizer import Seq2SeqTokenizer
from ragqa.models.pretrained import check_family, load_config, load_weights
from ragqa.models.tower import Tower

FILE = "generator.json"
"""File next to the weights, with the kind, the template and the settings of training."""
QUESTION_TOKENS = "question_encoder_tokenizer"
"""Folder of the question tower's tokenizer, named as in published checkpoints, if the generator uses its spelling."""
TEMPLATES: dict[str, Template] = {
    GeneratorKind.RAG_TOKEN: RAG,
    GeneratorKind.RAG_SEQUENCE: RAG,
    GeneratorKind.FID: FID,
    GeneratorKind.CLOSED_BOOK: CLOSED_BOOK,
}
"""Default template of each kind of generator."""

_FILES = ("*.safetensors", "*.bin", "*.json", "*.model", "*.spm", "*.txt")
"""Files that determine answers: weights, settings and tokenizers."""

Generator = RagGenerator | FusionInDecoder


class PublishedRag(NamedTuple):
    """Contents of a published RAG checkpoint."""

    generator: RagGenerator
    questions: Tower
    """Question tower, for an index made with DPR's passage encoder."""
    question_tokens: Seq2SeqTokenizer
    """Tokenizer of the question tower."""


def make_generator(
    seq2seq: Seq2Seq, kind: str, *, template: Template | None = None, passages: int | None = None, **settings: Any
) -> Generator:
    """Make a generator from a seq2seq model.

    Args:
        seq2seq: the model.
        kind: a key of ``TEMPLATES``.
        template: template of the input text; None for the default of the kind.
        passages: number of passages per question; None for 10 (FiD) or 5 (RAG). A closed book has one empty passage.
        settings: further arguments of ``PassageGenerator``; kinds other than RAG ignore ``retriever`` and
            ``question_tokens``.

    Raises:
        BadInput: the kind is unknown, or the template is for another kind.
    """
    if kind not in TEMPLATES:
        raise BadInput(f"generator {kind!r}: choose one of {', '.join(TEMPLATES)}")
    template = template or TEMPLATES[kind]
    if template.is_closed_book != (kind == GeneratorKind.CLOSED_BOOK):
        raise BadInput(f"template {template.text!r} is not for {kind}: every kind but closed-book needs {{passage}}")
    if not GeneratorKind(kind).uses_scores:
        settings = {name: settings[name] for name in ("max_input", "max_answer") if name in settings}
    if kind == GeneratorKind.FID:
        return FusionInDecoder(seq2seq, template=template, passages=passages or 10, **settings)
    passages = 1 if template.is_closed_book else passages or 5
    marginal: Marginal = "sequence" if kind == GeneratorKind.RAG_SEQUENCE else "token"
    return RagGenerator(seq2seq, marginal=marginal, template=template, passages=passages, **settings)


def save_generator(generator: Generator, path: Path) -> None:
    """Write a generator into a directory.

    The directory holds transformers' files, ``FILE``, and with ``generator.question_tokens`` also ``QUESTION_TOKENS``.
    """
    generator.seq2seq.save(path)
    row = {
        "kind": generator.kind,
        "template": generator.template.text,
        "passages": generator.passages,
        "max_input": generator.max_input,
        "max_answer": generator.max_answer,
        "retriever": generator.retriever,
        "respelled": generator.question_tokens is not None,
        "vocabulary": generator.seq2seq.tokens.digest,
    }
    if generator.question_tokens is not None:
        generator.question_tokens.save(path / QUESTION_TOKENS)
    (path / FILE).write_text(json.dumps(row, indent=1) + "\n")


def load_generator(source: str | Path, kind: str | None = None) -> Generator:
    """Load the generator in a directory or on the hub.

    Args:
        source: directory of ``save_generator``, a published RAG checkpoint, or any seq2seq model.
        kind: kind of generator to make from a plain seq2seq model; otherwise the expected kind, or None.

    Raises:
        ArtefactError: there is no generator of a supported family, weights are missing, or the tokenizer belongs to
            another model.
        DamagedArtefact: ``generator.json`` is damaged.
        Mismatch: the tokenizer has changed since the generator was saved.
        BadInput: ``kind`` is unknown, missing for a plain seq2seq model, or differs from the generator's.
        MissingExtra: the vocabulary needs a package that is not installed.
    """
    generator: Generator
    if read_model_type(source) == "rag":
        generator = load_rag(source).generator
    elif (file := Path(source) / FILE).is_file():
        generator = _load_saved(file)
    else:
        seq2seq = Seq2Seq.load(source)
        if kind is None:
            raise BadInput(f"{source} is a plain seq2seq: name its kind, one of {', '.join(TEMPLATES)}")
        return make_generator(seq2seq, kind)
    if kind not in (None, generator.kind):
        raise BadInput(f"{source} is a generator of kind {generator.kind}, not {kind}")
    return generator


def _load_saved(file: Path) -> Generator:
    try:
        row = json.loads(file.read_text())
        kind = str(row["kind"])
        settings: dict[str, Any] = {"template": Template(str(row["template"])), "retriever": row.get("retriever")}
        settings |= {name: int(row[name]) for name in ("passages", "max_input")}
        settings["max_answer"] = int(row.get("max_answer", MAX_ANSWER))  # not recorded by earlier versions
    except (ValueError, KeyError, TypeError, BadInput) as error:
        raise DamagedArtefact(f"{file} is damaged: {error!r}") from error
    if row.get("respelled"):
        settings["question_tokens"] = Seq2SeqTokenizer.load(file.parent / QUESTION_TOKENS)
    seq2seq = Seq2Seq.load(file.parent)
    if row.get("vocabulary") not in (None, seq2seq.tokens.digest):  # not recorded by earlier versions
        raise Mismatch(f"the tokenizer in {file.parent} has changed since its generator was saved")
    return make_generator(seq2seq, kind, **settings)


def fingerprint_generator(source: str | Path) -> str:
    """Return a digest of a generator's weights, tokenizers and settings, as 16 hex digits.

    Args:
        source: directory, or hub name of a model that was downloaded.
    """
    folder = Path(source)
    if not folder.is_dir():
        from transformers.utils.hub import cached_file

        folder = Path(str(cached_file(str(source), "config.json"))).parent
    files = sorted(file for pattern in _FILES for file in folder.rglob(pattern) if file.name != artefacts.CALIBRATION)
    rows = [f"{file.relative_to(folder)} {artefacts.checksum(file)}" for file in files]
    return hashlib.sha256("\n".join(rows).encode()).hexdigest()[:16]


def read_generator_kind(path: Path) -> str:
    """Return the kind of the generator saved in the directory ``path``.

    Raises:
        BadInput: there is no saved generator.
    """
    try:
        return str(json.loads((path / FILE).read_text())["kind"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadInput(f"{path} is not a generator trained with ragqa: it has no readable {FILE}") from error


def read_model_type(source: str | Path) -> str:
    """Return the ``model_type`` of the model in a directory or on the hub.

    Raises:
        ArtefactError: there is no model.
    """
    return str(load_config(source).model_type)


def load_rag(source: str | Path) -> PublishedRag:
    """Load a published RAG checkpoint, in the format of ``facebook/rag-token-nq``.

    The config.json of the checkpoint defines the marginal, the template, and the numbers of passages and tokens.

    Args:
        source: directory or hub name of a model whose ``model_type`` is rag.

    Raises:
        ArtefactError: there is no model, its generator is of an unsupported family, or weights or tokenizers are
            missing or belong to another model.
        MissingExtra: the vocabulary needs a package that is not installed.
    """
    config: Any = load_config(source)
    check_family(config.generator.model_type, f"the generator of {source}")
    is_sequence = "RagSequence" in "".join(config.architectures or [])
    model_class = RagSequenceForGeneration if is_sequence else RagTokenForGeneration
    inner: Any = load_weights(model_class, source, {}, "checkpoint of RAG").rag
    _restore_conventions(inner.generator, source)
    tokens = Seq2SeqTokenizer.load(source, subfolder="generator_tokenizer", config=config.generator)
    question_tokens = Seq2SeqTokenizer.load(source, subfolder=QUESTION_TOKENS, config=config.question_encoder)
    prefix = config.prefix or getattr(config.generator, "prefix", None) or ""
    generator = RagGenerator(
        Seq2Seq(inner.generator, tokens),
        marginal="sequence" if is_sequence else "token",
        template=Template(f"{prefix}{{title}}{config.title_sep}{{passage}}{config.doc_sep}{{question}}"),
        passages=config.n_docs,
        max_input=config.max_combined_length,
        retriever=str(source),  # the name that ``pipelines.publish`` records in the index for this generator
        question_tokens=question_tokens,
    )
    return PublishedRag(generator, make_dpr_tower(inner.question_encoder), question_tokens)


def _restore_conventions(generator: Any, source: str | Path) -> None:
    """Restore the generation settings that transformers drops from a RAG configuration."""
    row = PretrainedConfig.get_config_dict(source)[0]
    for settings in (row, row.get("generator") or {}):  # the generator's own settings win
        for name in CONVENTIONS:
            if settings.get(name) is not None:
                setattr(generator.generation_config, name, settings[name])
